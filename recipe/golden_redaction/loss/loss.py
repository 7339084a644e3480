"""The loss that moves each labelled token to its target and no further. Torch; nothing distributed.

For a token with log-prob l, advantage A in {+1, -1}, target T and weight w

    w * max(0, A * (T - l))

in nats, its remaining distance. Its gradient in l is -w A before the target, that of REINFORCE with a ternary
advantage, and exactly 0 at the target and past it. Weights come from `targets.token_weights`, computed over all states
of an update: the sum of this loss over micro-batches and ranks is the loss of the update.

`distance_loss` is minimised by updates that take several steps; see `method/inner_steps.py`.

S: states. V: vocabulary. M: tokens of all states, with the state that each belongs to.
"""

import torch


def token_log_probs(logits_SV: torch.Tensor, states_M: torch.Tensor, tokens_M: torch.Tensor) -> torch.Tensor:
    """Log-probs of all tokens of all states; the tokens of a state share one row of logits.

    Args:
        logits_SV: Float, at the last position of each state, at temperature 1.
        states_M: Int64, row of each token.
        tokens_M: Int64, token ids.

    Returns:
        (M,) float32 (float64 from float64) in nats, with the gradient of the logits.
    """
    logits_SV = logits_SV if logits_SV.dtype == torch.float64 else logits_SV.float()
    # Only the chosen logits and one normalizer per row, to avoid a second S x V tensor for a log-softmax's backward.
    return logits_SV[states_M, tokens_M] - torch.logsumexp(logits_SV, dim=-1)[states_M]


def target_loss(
    log_probs_M: torch.Tensor, targets_M: torch.Tensor, advantages_M: torch.Tensor, weights_M: torch.Tensor
) -> torch.Tensor:
    """The loss of a micro-batch, a scalar in nats.

    Args:
        log_probs_M: Log-probs under the current weights, with gradient.
        targets_M: Target log-probs; values of unlabelled tokens (NaN) are ignored.
        advantages_M: In {+1, 0, -1}.
        weights_M: See `targets.token_weights`.

    Raises:
        ValueError: if shapes differ, or a labelled token has no finite target.
    """
    shapes = [tuple(tensor.shape) for tensor in (log_probs_M, targets_M, advantages_M, weights_M)]
    if len(set(shapes)) != 1 or len(shapes[0]) != 1:
        raise ValueError(f"expected log-probs, targets, advantages and weights of one shape (M,), got {shapes}")
    labelled = advantages_M != 0
    # Chosen before any arithmetic: the gradient through a masked NaN is NaN.
    targets = targets_M[labelled].detach().to(log_probs_M.dtype)
    if not torch.isfinite(targets).all():
        raise ValueError(f"a token with an advantage needs a finite target, got {targets.tolist()}")
    signs = advantages_M[labelled].to(log_probs_M.dtype)
    remaining = torch.relu(signs * (targets - log_probs_M[labelled]))
    return (weights_M[labelled].to(log_probs_M.dtype) * remaining).sum()


def distance_loss(log_probs_M: torch.Tensor, goals_M: torch.Tensor, weights_M: torch.Tensor) -> torch.Tensor:
    """Half the weighted squared distance to the goals of `inner_steps.Goals`, a scalar in nats.

    Args:
        log_probs_M: Log-probs under the current weights, with gradient.
        goals_M: Goals; NaN for a token without a label.
        weights_M: Of the squares, per nat.

    Raises:
        ValueError: if shapes differ.
    """
    shapes = [tuple(tensor.shape) for tensor in (log_probs_M, goals_M, weights_M)]
    if len(set(shapes)) != 1 or len(shapes[0]) != 1:
        raise ValueError(f"expected log-probs, goals and weights of one shape (M,), got {shapes}")
    labelled = torch.isfinite(goals_M)
    left = goals_M[labelled].detach().to(log_probs_M.dtype) - log_probs_M[labelled]
    return (weights_M[labelled].to(log_probs_M.dtype) * left.square()).sum() / 2
