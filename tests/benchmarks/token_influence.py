"""Which tokens of a batch help a validation set: an experiment of `tracin_utility.py`, no part of the product.

B samples of a step, T response tokens.
"""

import torch
from influence_methods import InfluencePolicy, Samples

# The largest change of a weight by a probe; log-probs then change by about a hundredth, four digits above rounding.
PROBE = 1e-3


@torch.no_grad()
def token_shares(
    policy: InfluencePolicy, samples: Samples, advantages_BT: torch.Tensor, direction: dict[str, torch.Tensor]
) -> torch.Tensor:
    """The share of each token in its sample's influence score, by a central difference of two forward passes.

    On-policy, the loss is -1/N sum_i sum_t A_it log pi(y_it), N tokens in all, up to a factor whose value is 1. So

        s_i = sum_t s_it        s_it = -A_it / N <gradient of log pi(y_it), D>
                                     = -A_it / N d/dh log pi(y_it; weights + h D) at h = 0

    Args:
        policy: Its weights are moved and put back.
        samples: B of them.
        advantages_BT: Of the update.
        direction: D by parameter name: G, preconditioned or not.

    Returns:
        (B, T) float32; 0 for padding.
    """
    weights = {name: weight for name, weight in policy.model.named_parameters() if name in direction}
    step = PROBE / max(float(each.abs().max()) for each in direction.values())
    before = {name: weight.clone() for name, weight in weights.items()}
    log_probs = []
    for sign in (1.0, -1.0):
        for name, weight in weights.items():
            weight.copy_(before[name] + sign * step * direction[name])
        log_probs.append(policy.log_probs(samples))
    for name, weight in weights.items():
        weight.copy_(before[name])
    slope_BT = (log_probs[0] - log_probs[1]) / (2 * step)
    return -advantages_BT * samples.mask * slope_BT / samples.mask.sum()


def kept_tokens(policy: InfluencePolicy, samples: Samples, advantages_BT: torch.Tensor) -> torch.Tensor:
    """(B, T) bool: tokens whose share of the score is positive, with G as the ghost passes have it."""
    return token_shares(policy, samples, advantages_BT, policy.ghost.validation_gradients()) > 0
