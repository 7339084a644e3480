"""Log-probs of given tokens where flash-attn is not installed: verl's values, in a few large operations.

Without flash-attn, `verl.utils.torch_functional.logprobs_from_logits` takes one row of its logits after another, to
save memory. The actor packs its tokens, so that a row is one token, and a micro-batch of 8,192 tokens is tens of
thousands of small operations: on a GPU they take longer than the model. Here a row is a block of tokens, with the same
values and as little memory.
"""

import torch
from torch.nn import functional

# Elements of the logits of a block: on a GPU 128 MB in bfloat16, on a CPU as many as fit into its caches.
BLOCK_ELEMENTS = {"cuda": 2**26, "cpu": 2**19}


def log_probs_of_labels(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Log-probs of labels, for `verl.utils.torch_functional.logprobs_from_logits_v2`.

    Args:
        logits: (..., V), of any floating dtype.
        labels: (...), int64.

    Returns:
        (...), in the dtype of the logits.
    """
    size = logits.shape[-1]
    rows = max(1, BLOCK_ELEMENTS.get(logits.device.type, BLOCK_ELEMENTS["cuda"]) // size)
    blocks = zip(logits.reshape(-1, size).split(rows), labels.reshape(-1).split(rows), strict=True)
    found = [-functional.cross_entropy(block, wanted, reduction="none") for block, wanted in blocks]
    return torch.cat(found).view(labels.shape)
