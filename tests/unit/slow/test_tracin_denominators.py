"""Denominators after selection: every factor against verl's own `agg_loss` and policy loss."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import agg_loss, compute_policy_loss_vanilla
from verl.workers.config import ActorConfig

from verl_ext.influence.method.denominators import (
    DENOMINATORS,
    LOSS_AGG_MODES,
    denominator_factor,
    mini_batches,
    row_factors,
    rows_to_mask,
)

HORIZON = 12  # actor.loss_scale_factor


def token_losses(num_rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses (B, T) and a mask of responses of different lengths, some of them with holes (tool output)."""
    rng = np.random.default_rng(seed)
    mask = np.arange(7) < rng.integers(1, 8, num_rows)[:, None]
    mask[:, 1] &= rng.random(num_rows) < 0.7
    return torch.tensor(rng.normal(size=(num_rows, 7))), torch.tensor(mask)


def lengths_of(mask: torch.Tensor) -> np.ndarray:
    return mask.sum(1).numpy()


def verl_loss(losses: torch.Tensor, mask: torch.Tensor, mode: str, global_batch_size: int) -> float:
    """As the engine calls it: tokens are counted from the mini-batch's mask, the trainer gives the number of rows."""
    return agg_loss(
        losses,
        mask,
        mode,
        batch_num_tokens=int(mask.sum()),
        global_batch_size=global_batch_size,
        loss_scale_factor=HORIZON,
    ).item()


def wanted_loss(denominator: str, mode: str, losses: torch.Tensor, mask: torch.Tensor, kept: np.ndarray) -> float:
    """Brute force: the kept rows only, or the kept rows' contributions to the loss of all rows."""
    if denominator == "kept":
        return agg_loss(losses[kept], mask[kept], mode, loss_scale_factor=HORIZON).item()
    contributions = []
    for row in np.flatnonzero(kept):
        alone = torch.zeros_like(losses)
        alone[row] = losses[row]
        contributions.append(verl_loss(alone, mask, mode, len(losses)))
    return sum(contributions)


@settings(deadline=None)
@given(
    kept=st.lists(st.booleans(), min_size=1, max_size=9).filter(any).map(np.array),
    seed=st.integers(0, 1000),
    mode=st.sampled_from(LOSS_AGG_MODES),
    denominator=st.sampled_from(DENOMINATORS),
    masked=st.booleans(),
)
def test_the_factor_gives_the_wanted_loss_whether_rows_are_masked_or_gone(
    kept: np.ndarray, seed: int, mode: str, denominator: str, masked: bool
):
    losses, mask = token_losses(len(kept), seed)
    factor = denominator_factor(denominator, mode, lengths_of(mask), kept)
    if masked:
        seen = verl_loss(factor * losses, mask & torch.tensor(kept)[:, None], mode, len(kept))
    else:
        seen = verl_loss(factor * losses[kept], mask[kept], mode, len(kept))
    assert seen == pytest.approx(wanted_loss(denominator, mode, losses, mask, kept))


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_a_trainer_that_tells_verl_the_smaller_batch_gets_the_same_loss(mode: str, denominator: str):
    losses, mask = token_losses(8, 3)
    kept = np.array([True, False, True, True, False, False, True, False])
    factor = denominator_factor(denominator, mode, lengths_of(mask), kept, global_batch_size_after=4)
    seen = verl_loss(factor * losses[kept], mask[kept], mode, 4)
    assert seen == pytest.approx(wanted_loss(denominator, mode, losses, mask, kept))


def test_the_table_of_the_docstring():
    lengths, kept = np.array([10, 20, 30, 40]), np.array([True, False, True, False])
    factors = {
        (denominator, mode): denominator_factor(denominator, mode, lengths, kept)
        for denominator in DENOMINATORS
        for mode in LOSS_AGG_MODES
    }
    assert factors["kept", "token-mean"] == 1
    assert factors["all", "token-mean"] == pytest.approx(0.4)
    assert factors["kept", "token-sum"] == factors["all", "token-sum"] == 1
    for mode in ("seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"):
        assert factors["kept", mode] == 2
        assert factors["all", mode] == 1


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_everything_kept_changes_nothing(denominator: str, mode: str):
    lengths, kept = np.array([3, 5, 1]), np.ones(3, dtype=bool)
    assert denominator_factor(denominator, mode, lengths, kept) == 1
    assert denominator_factor(denominator, mode, lengths, ~kept) == 0


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_a_factor_on_advantages_is_a_factor_on_verls_clipped_policy_loss(mode: str):
    config = ActorConfig(strategy="fsdp2", rollout_n=1, use_dynamic_bsz=True, loss_agg_mode=mode)
    generator = torch.Generator().manual_seed(0)
    old, new = (torch.randn(6, 7, generator=generator, dtype=torch.float64) for _ in range(2))
    advantages = torch.randn(6, 1, generator=generator, dtype=torch.float64).expand(6, 7)
    _, mask = token_losses(6, 0)
    losses = [
        compute_policy_loss_vanilla(old, new, scale * advantages, mask, loss_agg_mode=mode, config=config)[0].item()
        for scale in (1.0, 0.3)
    ]
    assert losses[1] == pytest.approx(0.3 * losses[0])


# ------------------------------ several mini-batches ------------------------------


@settings(deadline=None)
@given(
    data=st.data(),
    mode=st.sampled_from(LOSS_AGG_MODES),
    seed=st.integers(0, 1000),
    size=st.integers(1, 4),
    num=st.integers(1, 3),
)
def test_all_reproduces_each_rows_scored_contribution_under_pad_and_drop(
    data: st.DataObject, mode: str, seed: int, size: int, num: int
):
    num_rows = size * num
    losses, mask = token_losses(num_rows, seed)
    weights = np.array(data.draw(st.lists(st.sampled_from([0.0, 0.4, 1.0]), min_size=num_rows, max_size=num_rows)))
    kept, scored_in = weights > 0, np.arange(num_rows) // size
    packed = np.full(num_rows, -1)
    packed[kept] = np.arange(kept.sum()) // size
    for updated_in in (scored_in, packed):
        factors = row_factors(
            "all",
            mode,
            lengths_of(mask),
            weights,
            scored_in=scored_in,
            updated_in=updated_in,
            global_batch_size=size,
        )
        scaled = torch.tensor(factors)[:, None] * losses
        seen = wanted = 0.0
        for mini_batch in np.unique(updated_in[kept]):
            rows = kept & (updated_in == mini_batch)
            seen += verl_loss(scaled[rows], mask[rows], mode, size)
        for mini_batch in range(num):
            rows = scored_in == mini_batch
            weighted = torch.tensor(weights)[:, None] * losses
            wanted += verl_loss(weighted[rows], mask[rows], mode, size)
        assert seen == pytest.approx(wanted)
        assert (factors[~kept] == 0).all()


@settings(deadline=None)
@given(st.sampled_from(DENOMINATORS), st.sampled_from(LOSS_AGG_MODES), st.integers(0, 1000))
def test_one_mini_batch_is_the_simple_factor(denominator: str, mode: str, seed: int):
    _, mask = token_losses(6, seed)
    weights = np.array([1.0, 0.0, 0.5, 0.0, 1.0, 0.0])
    factors = row_factors(
        denominator,
        mode,
        lengths_of(mask),
        weights,
        scored_in=np.zeros(6, int),
        updated_in=np.zeros(6, int),
        global_batch_size=6,
    )
    expected = denominator_factor(denominator, mode, lengths_of(mask), weights > 0)
    assert factors == pytest.approx(expected * weights)


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_kept_is_the_mean_within_the_mini_batch_of_the_update(mode: str):
    losses, mask = token_losses(8, 5)
    kept = np.array([True, True, False, True, False, False, True, False])
    mini_batch = np.arange(8) // 4
    factors = row_factors(
        "kept", mode, lengths_of(mask), kept, scored_in=mini_batch, updated_in=mini_batch, global_batch_size=4
    )
    for number in (0, 1):
        rows = mini_batch == number
        seen = verl_loss(
            torch.tensor(factors[rows])[:, None] * losses[rows], (mask & torch.tensor(kept)[:, None])[rows], mode, 4
        )
        assert seen == pytest.approx(wanted_loss("kept", mode, losses[rows], mask[rows], kept[rows]))


def test_a_mini_batch_that_keeps_nothing_stays_unmasked_or_verl_would_divide_by_zero():
    losses, mask = token_losses(4, 0)
    kept, mini_batch = np.array([True, False, False, False]), np.array([0, 0, 1, 1])
    masked = rows_to_mask(kept, mini_batch)
    assert masked.tolist() == [False, True, False, False]
    second = mini_batch == 1
    nothing = torch.zeros_like(mask[second])
    assert np.isnan(verl_loss(0 * losses[second], nothing, "token-mean", 2))
    assert verl_loss(0 * losses[second], mask[second] & torch.tensor(~masked[second])[:, None], "token-mean", 2) == 0
    assert rows_to_mask(np.zeros(4, bool), mini_batch).tolist() == [False] * 4


@pytest.mark.parametrize(("num_rows", "size", "ranks"), [(8, 4, 1), (8, 4, 2), (24, 8, 4), (12, 12, 3), (6, 2, 2)])
def test_a_mini_batch_is_one_piece_of_every_ranks_part(num_rows: int, size: int, ranks: int):
    expected = np.empty(num_rows, dtype=int)
    for part in torch.arange(num_rows).chunk(ranks):
        for number, rows in enumerate(part.split(size // ranks)):
            expected[rows.numpy()] = number
    assert mini_batches(num_rows, size, ranks).tolist() == expected.tolist()


def test_misuse_is_refused():
    lengths, kept = np.ones(3, int), np.ones(3, bool)
    with pytest.raises(ValueError, match="denominator must be one of kept, all; got 'some'"):
        denominator_factor("some", "token-mean", lengths, kept)
    with pytest.raises(ValueError, match=r"loss_agg_mode must be one of token-mean, .*got 'mean'"):
        denominator_factor("all", "mean", lengths, kept)
    with pytest.raises(ValueError, match="one length and one decision per row"):
        denominator_factor("all", "token-mean", lengths, kept[:2])
    with pytest.raises(ValueError, match="10 rows must be a multiple of the mini-batch of 4 rows"):
        mini_batches(10, 4, 2)
    with pytest.raises(ValueError, match="of the 3 ranks"):
        mini_batches(8, 4, 3)
