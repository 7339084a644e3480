"""The posterior baseline as a verl advantage estimator: `algorithm.adv_estimator=posterior`.

`curriculum/baseline.py` has the algorithm. The curriculum first passes the posteriors of a batch's prompts (`prepare`).
Without it, also in verl's own trainers, groups are shrunk towards the mean of earlier batches.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import register_adv_est

from recipe.fast_dapo.curriculum.baseline import RewardScale, credibility, leave_one_out_baselines
from recipe.fast_dapo.settings import POSTERIOR_ESTIMATOR
from verl_ext.core.errors import SignalError
from verl_ext.serving.rollout_key import session_of, uid_of

# Number of earlier batches that give the expectation when there is no posterior.
_NUM_BATCHES = 8


@dataclass(frozen=True)
class KnownPrompt:
    """What is known about one prompt's rollouts in addition to their rewards.

    Attributes:
        alpha, beta: Parameters of the posterior of its pass rate before its first rollout.
        successes: Successes of its rollouts by session, from 0 to 1.
        stages: The generation call of each.
    """

    alpha: float
    beta: float
    successes: Sequence[float]
    stages: Sequence[int]


@dataclass
class _Prepared:
    keys: Sequence[str]
    prompts: Mapping[str, KnownPrompt]
    scale: RewardScale


_prepared: list[_Prepared] = []  # for the batch whose advantages are computed next, if any
# Rewards by group of earlier batches, for runs without a posterior. Not in checkpoints: a resumed run collects them
# again.
_earlier: list[list[np.ndarray]] = []


def prepare(keys: Sequence[str], prompts: Mapping[str, KnownPrompt], scale: RewardScale) -> None:
    """Set what is known about the batch whose advantages are computed next in this process.

    Args:
        keys: Keys of its rows, in order.
        prompts: Prompts by uid. Other rows are padding and get no advantage.
        scale: Maps successes to rewards; it learns from this batch after use.
    """
    _prepared[:] = [_Prepared(keys, prompts, scale)]


@register_adv_est(POSTERIOR_ESTIMATOR)
def posterior_advantage(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray, **kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards minus the posterior leave-one-out baseline, the same for all tokens of a rollout.

    Args:
        token_level_rewards: (B, T).
        response_mask: (B, T), 1 for the tokens of the response.
        index: (B,) uid of each row's prompt.
        kwargs: What verl passes to all estimators.

    Returns:
        Advantages and returns, both (B, T).

    Raises:
        SignalError: If the rows are not those passed to `prepare`.
    """
    with torch.no_grad():
        rewards_B = token_level_rewards.sum(-1).double().cpu().numpy()
        prepared = _prepared.pop() if _prepared else None
        if prepared is not None:
            if len(prepared.keys) != len(rewards_B):
                raise SignalError(
                    f"algorithm.adv_estimator=posterior expected the {len(prepared.keys)} rows that the curriculum "
                    f"collected, got {len(rewards_B)}: code that adds or removes rows in between must call `prepare` "
                    "again, or use another estimator (+signal=two_phase)"
                )
            advantages_B = _with_posteriors(rewards_B, prepared)
        else:
            advantages_B = _with_credibility(rewards_B, index, response_mask.any(-1).cpu().numpy())
        advantages = torch.from_numpy(advantages_B).to(token_level_rewards)[:, None] * response_mask
    return advantages, advantages


def _with_posteriors(rewards_B: np.ndarray, prepared: _Prepared) -> np.ndarray:
    sessions: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))  # rows of each session
    for row, key in enumerate(prepared.keys):
        if uid_of(key) in prepared.prompts:
            sessions[uid_of(key)][session_of(key)].append(row)

    rewards: dict[str, np.ndarray] = {}
    sums: dict[str, np.ndarray] = {}
    for uid, rows in sessions.items():
        # The reward of a session with several outputs is that of its last.
        last = [max(rows[session], key=lambda row: _output(prepared.keys[row])) for session in sorted(rows)]
        rewards[uid] = rewards_B[last]
        successes = np.array([prepared.prompts[uid].successes[session] for session in sorted(rows)])
        sums[uid] = RewardScale.sums_of(successes, rewards[uid])

    all_sums = sum(sums.values(), np.zeros(5))
    advantages_B = np.zeros(len(rewards_B))
    for uid, rows in sessions.items():
        known = prepared.prompts[uid]
        failure, gain = prepared.scale.line(all_sums - sums[uid])
        strength = known.alpha + known.beta
        stages = np.array([known.stages[session] for session in sorted(rows)])
        baselines = leave_one_out_baselines(rewards[uid], stages, failure + gain * known.alpha / strength, strength)
        for session, advantage in zip(sorted(rows), rewards[uid] - baselines, strict=True):
            advantages_B[rows[session]] = advantage
    prepared.scale.add(all_sums)
    return advantages_B


def _with_credibility(rewards_B: np.ndarray, index: np.ndarray, is_rollout_B: np.ndarray) -> np.ndarray:
    rows: dict[str, list[int]] = defaultdict(list)
    for row in np.flatnonzero(is_rollout_B):
        rows[str(index[row])].append(int(row))
    groups = [rewards_B[own] for own in rows.values()]
    mean, strength = credibility([group for batch in _earlier for group in batch])
    advantages_B = np.zeros(len(rewards_B))
    for own, group in zip(rows.values(), groups, strict=True):
        advantages_B[own] = group - leave_one_out_baselines(group, np.zeros(len(group)), mean, strength)
    _earlier.append(groups)
    del _earlier[:-_NUM_BATCHES]
    return advantages_B


def _output(key: str) -> int:
    """The index of an output within its session."""
    return int(key.rpartition("_")[2])
