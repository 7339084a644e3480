"""The validation loss of IIF, iterative influence-based filtering (Hu et al. 2025, arXiv 2505.19281). Pure torch."""

import torch


def sequence_loss(log_probs_BT: torch.Tensor, mask_BT: torch.Tensor, advantages_BT: torch.Tensor) -> torch.Tensor:
    """IIF's target in RLHF, `seqloss-lastadv` of the authors' code: a rollout counts with its last token's advantage.

        L_val = -1/B sum_i A_i,last sum_t log pi(a_i,t | s_i,t)

    The advantages are GAE's, of a critic, and differ from token to token; the last one has seen the reward. If a
    rollout has only one advantage, the sum over all tokens is that of the token mean, so both losses have gradients of
    one direction, and a selection by the sign of a score is the same for both. What then distinguishes IIF from
    `quality` is which rollouts stand for the validation set, and that their advantages have both signs.

    Args:
        log_probs_BT: float, of the policy whose gradient is taken.
        mask_BT: 1 for tokens of the response, which come first.
        advantages_BT: float, of the validation rollouts.

    Returns:
        () float.
    """
    last_B = advantages_BT.gather(1, mask_BT.sum(1, keepdim=True).long() - 1)[:, 0]
    return -(last_B * (log_probs_BT * mask_BT).sum(1)).mean()
