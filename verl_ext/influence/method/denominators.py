"""The loss's denominator when samples are left out, as a factor on advantages. Pure: numpy.

verl divides the loss of a mini-batch by a number D that does not depend on the model:

    L = 1/D sum_i c_i        c_i: sample i's own sum (or mean) of token losses

    loss_agg_mode              c_i              D
    token-mean                 sum over tokens  unmasked tokens of the mini-batch (counted by verl from the mask)
    token-sum                  sum over tokens  1
    seq-mean-token-sum         sum over tokens  rows: `global_batch_size`, which verl 0.9.1 is *told*
    seq-mean-token-sum-norm    sum over tokens  rows, and the horizon (see below)
    seq-mean-token-mean        mean over tokens rows

After selection, a row that is left out is masked (`pad`) or removed (`drop`). token-mean then counts fewer tokens and
renormalises by itself. The modes that count rows do not: verl tells them ppo_mini_batch_size x rollout.n, whatever the
mask says. So the same selection would mean different things; `denominator` chooses:

- `kept`: the mean over the kept rows, as if the rest had never been sampled; the size of the update does not decrease
  with the kept share.
- `all`: the sum of the kept samples' contributions to the original, scored loss: the gradient is exactly the sum of the
  selected grad L_i.

With V the divisor that verl will use, multiplying the advantages of the kept rows by V / D_wanted gives the wanted
loss, since PPO's clipped loss is homogeneous in the advantage (min and clip scale along with a positive factor). So are
those in `POLICY_LOSSES`; the others are refused.

                token-mean                           rows                                  token-sum
    kept        1                                    global_batch_size / number kept       1
    all         tokens kept / tokens of all          1 (if global_batch_size stays)        1

The factor only affects the policy loss. KL and entropy terms of masked rows vanish, those of kept rows are divided by
V. The horizon of seq-mean-token-sum-norm is `actor.loss_scale_factor`; without one verl takes the padded width of each
micro-batch, which does not change while rows stay in place but can when they are removed: set it with `drop`.

B: samples of a step. T_i: response tokens of sample i that the mask lets through. Source: verl 0.9.1,
`trainer/ppo/core_algos.py: agg_loss`.
"""

from typing import Literal, get_args

import numpy as np

Denominator = Literal["kept", "all"]
DENOMINATORS: tuple[Denominator, ...] = get_args(Denominator)
TOKEN_MODES = ("token-mean",)
ROW_MODES = ("seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")
LOSS_AGG_MODES = (*TOKEN_MODES, "token-sum", *ROW_MODES)

# verl's policy losses that add up over samples, scale with a positive factor of the advantage and are divided as
# loss_agg_mode says, with the modes for which this holds. tests/unit/slow/test_tracin_losses.py checks verl's own
# functions.
POLICY_LOSSES = dict.fromkeys(
    ("vanilla", "gspo", "gpg", "cispo", "dppo_tv", "dppo_kl", "bypass_mode"), LOSS_AGG_MODES
) | {"sapo": ("seq-mean-token-mean",)}
_WHY_NOT = {
    "clip_cov": "mixes the samples of a batch, which then have no separate gradients",
    "kl_cov": "mixes the samples of a batch, which then have no separate gradients",
    "geo_mean": "divides by the rows of each micro-batch, whatever loss_agg_mode says",
    "dro": "has a term that a weight on the advantage does not affect",
}


def loss_problem(loss_mode: str, loss_agg_mode: str, *, is_batch_normalized: bool = False) -> str | None:
    """Why samples of a policy loss have no exact scores or factors, with what to change; None if they have.

    Args:
        loss_mode: verl's `actor.policy_loss.loss_mode`.
        loss_agg_mode: verl's `actor.loss_agg_mode`.
        is_batch_normalized: `actor.policy_loss.rollout_correction.rollout_is_batch_normalize`, which bypass_mode reads.
    """
    key = "actor_rollout_ref.actor.policy_loss.loss_mode"
    if loss_mode not in POLICY_LOSSES:
        why = _WHY_NOT.get(loss_mode, "is not known to add up over samples")
        return f"{key}={loss_mode} {why}: use one of {', '.join(POLICY_LOSSES)}"
    if loss_agg_mode not in POLICY_LOSSES[loss_mode]:
        modes = " or ".join(POLICY_LOSSES[loss_mode])
        return (
            f"{key}={loss_mode} is divided as {modes}, whatever loss_agg_mode says: set "
            f"actor_rollout_ref.actor.loss_agg_mode={modes}, got {loss_agg_mode}"
        )
    if loss_mode == "bypass_mode" and is_batch_normalized:
        return (
            f"{key}=bypass_mode with batch-normalised weights couples the samples of a micro-batch: set "
            "actor_rollout_ref.actor.policy_loss.rollout_correction.rollout_is_batch_normalize=false"
        )
    return None


def denominator_factor(
    denominator: str,
    loss_agg_mode: str,
    response_lengths: np.ndarray,
    kept: np.ndarray,
    *,
    global_batch_size: int | None = None,
    global_batch_size_after: int | None = None,
) -> float:
    """Factor on the advantages of one mini-batch's kept rows; the rows not kept are masked or removed.

    Args:
        denominator: kept | all.
        loss_agg_mode: verl's `actor.loss_agg_mode`.
        response_lengths: (S,) int, T_i of the mini-batch's rows, before the selection.
        kept: (S,) bool.
        global_batch_size: What verl was told when the rows were scored; None: S.
        global_batch_size_after: What verl will be told at the update; None: the same.

    Returns:
        V / D_wanted, from the table above; 0 when no token is kept.

    Raises:
        ValueError: if a name is unknown or the lengths differ.
    """
    lengths, kept = _check(denominator, loss_agg_mode, response_lengths, kept)
    if not lengths[kept].any():
        return 0.0
    before = len(lengths) if global_batch_size is None else global_batch_size
    after = before if global_batch_size_after is None else global_batch_size_after
    divisor = _divisor(loss_agg_mode, lengths[kept], after)
    if denominator == "all":
        return divisor / _divisor(loss_agg_mode, lengths, before)
    return divisor / _divisor(loss_agg_mode, lengths[kept], int((lengths[kept] > 0).sum()))


def row_factors(
    denominator: str,
    loss_agg_mode: str,
    response_lengths: np.ndarray,
    weights: np.ndarray,
    *,
    scored_in: np.ndarray,
    updated_in: np.ndarray,
    global_batch_size: int,
) -> np.ndarray:
    """Factor on each row's advantage, its weight included, when a step has several mini-batches.

    A row may be updated in another mini-batch than it was scored in (`drop` repacks the survivors): `all` then
    divides by the first and undoes the second, so a row contributes exactly what was scored.

    Args:
        denominator, loss_agg_mode: As in `denominator_factor`.
        response_lengths: (B,) int, T_i.
        weights: (B,) float in [0, 1]; rows with weight 0 are masked or removed.
        scored_in: (B,) int, number of the mini-batch in which each row was scored.
        updated_in: (B,) int, the one in which it is updated; ignored where the weight is 0.
        global_batch_size: Rows of a full mini-batch, which verl is told both times.

    Returns:
        (B,) float64, 0 where the weight is 0.
    """
    weights = np.asarray(weights, dtype=np.float64)
    lengths, kept = _check(denominator, loss_agg_mode, response_lengths, weights > 0)
    factors = np.zeros(len(weights))
    for mini_batch in np.unique(updated_in[kept]):
        rows = kept & (updated_in == mini_batch)
        if not lengths[rows].any():
            continue
        divisor = _divisor(loss_agg_mode, lengths[rows], global_batch_size)
        if denominator == "kept":
            factors[rows] = divisor / _divisor(loss_agg_mode, lengths[rows], int((lengths[rows] > 0).sum()))
            continue
        for origin in np.unique(scored_in[rows]):
            wanted = _divisor(loss_agg_mode, lengths[scored_in == origin], global_batch_size)
            factors[rows & (scored_in == origin)] = divisor / wanted
    return weights * factors


def rows_to_mask(kept: np.ndarray, mini_batch: np.ndarray) -> np.ndarray:
    """Rows whose `response_mask` and `loss_mask` are set to 0 under `pad`.

    These are the rows that are not kept, except in a mini-batch that keeps none: with every token masked, token-mean
    divides 0 by 0 and the update becomes NaN. There the rows stay unmasked with advantage 0: the policy gradient is 0
    (KL and entropy terms, the optimizer's momentum and weight decay are not).

    Args:
        kept: (B,) bool.
        mini_batch: (B,) int, number of each row's mini-batch.

    Returns:
        (B,) bool.
    """
    kept = np.asarray(kept, dtype=bool)
    return ~kept & np.isin(mini_batch, np.asarray(mini_batch)[kept])


def mini_batches(num_rows: int, mini_batch_size: int, num_ranks: int) -> np.ndarray:
    """Number of the mini-batch in which verl updates each row, without `actor.shuffle`.

    verl gives each rank a contiguous part of the batch and splits each part separately: a mini-batch consists of one
    piece of every rank's part, and is contiguous in the batch only with one rank.

    Args:
        num_rows: B.
        mini_batch_size: Rows of a mini-batch over all ranks.
        num_ranks: Data-parallel size.

    Returns:
        (B,) int64 from 0 to B / mini_batch_size - 1.

    Raises:
        ValueError: if the sizes do not divide.
    """
    if mini_batch_size < 1 or num_ranks < 1 or num_rows % mini_batch_size or mini_batch_size % num_ranks:
        raise ValueError(
            f"{num_rows} rows must be a multiple of the mini-batch of {mini_batch_size} rows, and that one of the "
            f"{num_ranks} ranks: change data.train_batch_size or actor.ppo_mini_batch_size, or use divisibility=pad"
        )
    return np.arange(num_rows) % (num_rows // num_ranks) // (mini_batch_size // num_ranks)


def _divisor(loss_agg_mode: str, lengths: np.ndarray, num_rows: int) -> float:
    """D of rows with these lengths, of which verl counts `num_rows`, up to the horizon."""
    if loss_agg_mode in TOKEN_MODES:
        return float(lengths.sum())
    return float(num_rows) if loss_agg_mode in ROW_MODES else 1.0


def _check(
    denominator: str, loss_agg_mode: str, response_lengths: np.ndarray, kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    for name, value, known in (
        ("denominator", denominator, DENOMINATORS),
        ("loss_agg_mode", loss_agg_mode, LOSS_AGG_MODES),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    lengths, kept = np.asarray(response_lengths), np.asarray(kept, dtype=bool)
    if lengths.ndim != 1 or lengths.shape != kept.shape:
        raise ValueError(f"expected one length and one decision per row, got shapes {lengths.shape} and {kept.shape}")
    return lengths, kept
