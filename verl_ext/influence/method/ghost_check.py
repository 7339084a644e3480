"""Checks that scores are correct for this model, independently of the hooks. Once per run: three passes.

`identity_error` compares two sums that the same hooks make, and cannot see what both miss. Here, on one micro-batch:

1. A plain backward, as training runs it. Its `.grad` must be the hooks' sum of gradients. They differ if a weight is
   used outside its module (`F.linear`), a tensor hook changes its gradient, or the forward draws random numbers: the
   second pass draws others.
2. A pass in which the losses of some samples are 0. Their scores must be 0. They are not if a layer sees the tokens in
   another order than `sample_index`, or if samples see each other.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn

from verl_ext.influence.method.ghost import GhostInfluence, InfluenceError

# Gathers a sharded tensor.
Whole = Callable[[torch.Tensor], torch.Tensor]

# If a parameter's gradient is this much smaller than the largest one, its error is relative to the largest one.
SMALL = 1e-2


def as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    """For a model that is not sharded, on a single rank."""
    return tensor


def check_scores(
    ghost: GhostInfluence,
    sample_index: torch.Tensor,
    backward: Callable[[Sequence[int]], None],
    muted: Sequence[int],
    *,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
    whole: Whole = as_it_is,
    mean: Callable[[torch.Tensor], torch.Tensor] = as_it_is,
) -> bool:
    """Reject a model whose scores would be wrong. Gradients and random generators are unchanged, scores are cleared.

    Args:
        ghost: Scores, with a G.
        sample_index: Index of the micro-batch, as in `GhostInfluence.scoring`.
        backward: Runs forward and backward of the micro-batch, with the losses of these samples set to 0.
        muted: Samples of the second check, some but not all of the micro-batch; empty: no second check.
        around: Context required by a ghost pass.
        whole: Gathers a sharded `.grad`, averaged over all ranks.
        mean: Mean over all ranks, whole, of a sum as it is stored.

    Returns:
        Whether there was a gradient to compare: if every advantage is 0, nothing can be checked.

    Raises:
        InfluenceError: Scores would be wrong, with the likely cause.
    """
    plain, is_random = _plain_gradients(ghost, backward)
    ghost.reset_scores()
    with _other_random_numbers(ghost.model), around(), ghost.scoring(sample_index, sum_gradients=True):
        backward(())
    errors = _Errors()
    for name, total in ghost.total_gradients().items():
        # One full gradient at a time.
        gradient, hooked = plain.pop(name), mean(total)
        errors.add(name, hooked, torch.zeros_like(hooked) if gradient is None else whole(gradient).to(hooked))
    if not errors.longest:
        ghost.reset_scores()
        return False
    errors.check(ghost.limit, is_random)
    ghost.reset_scores()
    if muted:
        with around(), ghost.scoring(sample_index):
            backward(muted)
        _check_muted(ghost.scores(int(sample_index.max()) + 1), muted, ghost.limit)
        ghost.reset_scores()
    return True


class _Errors:
    """Compare the hooks' gradients with plain ones."""

    def __init__(self) -> None:
        self._norms: dict[str, tuple[float, float]] = {}

    def add(self, name: str, hooked: torch.Tensor, plain: torch.Tensor) -> None:
        self._norms[name] = float((hooked - plain).norm()), float(plain.norm())

    @property
    def longest(self) -> float:
        return max(norm for _, norm in self._norms.values())

    def check(self, limit: float, is_random: bool) -> None:
        errors = {name: error / max(norm, SMALL * self.longest) for name, (error, norm) in self._norms.items()}
        name = max(errors, key=lambda name: errors[name])
        if errors[name] <= limit:
            return
        cause = (
            "the forward draws random numbers, and the update will draw others: set every dropout and noise of the "
            "model's configuration to 0 (actor_rollout_ref.model.override_config)"
            if is_random
            else "the weight is also used outside its module (as by F.linear), or a hook changes its gradient: choose "
            "`parameters` without it"
        )
        raise InfluenceError(
            f"scores would be wrong: the gradient of {name} that they are made of is off by {errors[name]:.0%} from "
            f"that of a plain backward (rounding is below {limit:g}). Probably {cause}"
        )


def _plain_gradients(
    ghost: GhostInfluence, backward: Callable[[Sequence[int]], None]
) -> tuple[dict[str, torch.Tensor | None], bool]:
    """The `.grad` after a plain backward, and whether random numbers were drawn."""
    parameters = dict(ghost.model.named_parameters())
    before = {name: parameter.grad for name, parameter in parameters.items()}
    devices = _devices(ghost.model)
    try:
        for parameter in parameters.values():
            parameter.grad = None
        with torch.random.fork_rng(devices):
            states = _random_states(devices)
            backward(())
            is_random = any(not torch.equal(*pair) for pair in zip(states, _random_states(devices), strict=True))
        return {name: parameters[name].grad for name in ghost.names}, is_random
    finally:
        for name, parameter in parameters.items():
            parameter.grad = before[name]


def _check_muted(scores: torch.Tensor, muted: Sequence[int], limit: float) -> None:
    wrong = scores[list(muted)].abs()
    scale = float(scores.abs().max())
    if scale and float(wrong.max()) > limit * scale:
        raise InfluenceError(
            f"scores would be wrong: sample {list(muted)[int(wrong.argmax())]} has a score of {float(wrong.max()):.2g} "
            f"though its loss was set to 0 (the largest score is {scale:.2g}). A layer sees the tokens in another "
            "order than sample_index, as the experts of a mixture do, or samples see each other: choose `parameters` "
            "without such layers, as 'self_attn' does"
        )


@contextmanager
def _other_random_numbers(model: nn.Module) -> Generator[None]:
    """Change the state of the generators temporarily."""
    devices = _devices(model)
    with torch.random.fork_rng(devices):
        torch.rand(1)
        for device in devices:
            torch.rand(1, device=f"cuda:{device}")
        yield


def _devices(model: nn.Module) -> list[int]:
    return sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})


def _random_states(devices: Sequence[int]) -> list[torch.Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]
