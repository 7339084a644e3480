"""Which rollouts form a validation gradient, and with which advantages. Pure: numpy.

N: rollouts, all with finite rewards. Every function returns the positions of the chosen ones, int64, and their
advantages, float64, none of them 0. `ties` orders equal rewards, smallest first.
"""

import numpy as np


def best_rollouts(
    rewards: np.ndarray, prompts: np.ndarray, ties: np.ndarray, k: int, min_reward: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """The `k` rollouts with the highest reward, best first, each with advantage 1.

    One rollout per prompt; a prompt's second best is used only when every prompt with an eligible rollout has given its
    best. Centred, most rewards of the best would be 0; with 1, the gradient is that of the likelihood of good answers.

    Args:
        rewards: (N,) float.
        prompts: (N,) int, each rollout's prompt.
        ties: (N,) numbers.
        k: Rollouts to choose; fewer are chosen if fewer are eligible.
        min_reward: Only rewards above it are eligible; None: all.
    """
    eligible = np.flatnonzero(rewards > (-np.inf if min_reward is None else min_reward))
    chosen = eligible[_one_a_prompt(rewards[eligible], prompts[eligible], ties[eligible])[:k]]
    return chosen, np.ones(len(chosen))


def best_and_worst(rewards: np.ndarray, prompts: np.ndarray, ties: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The `k` / 2 best rollouts with advantage +1, then equally many of the worst with -1.

    Each side takes one rollout per prompt as `best_rollouts` does. The i-th best is paired with the i-th worst, and a
    pair without a difference in reward is left out. So the sides are disjoint and equally large, and the advantages
    have mean 0 and size 1.

    Args:
        rewards: As of `best_rollouts`.
        prompts: The same.
        ties: The same.
        k: Even.
    """
    best = _one_a_prompt(rewards, prompts, ties)[: k // 2]
    worst = _one_a_prompt(-rewards, prompts, ties)[: k // 2]
    best = best[np.argsort(-rewards[best], kind="stable")]
    worst = worst[np.argsort(rewards[worst], kind="stable")]
    num_pairs = int((rewards[best] > rewards[worst]).sum())  # they come first: one side falls, the other rises
    return np.concatenate([best[:num_pairs], worst[:num_pairs]]), np.repeat([1.0, -1.0], num_pairs)


def all_centred(rewards: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All rollouts, with reward minus the mean reward of their group; those with advantage 0 are left out.

    Args:
        rewards: (N,) float.
        groups: (N,) int: the prompts, or one number for all.
    """
    group = np.unique(groups, return_inverse=True)[1]
    mean = np.bincount(group, weights=rewards) / np.maximum(np.bincount(group), 1)
    # The mean of equal numbers may differ from them in floating point, and noise would be taken for a gradient.
    highest, lowest = np.full(len(mean), -np.inf), np.full(len(mean), np.inf)
    np.maximum.at(highest, group, rewards)
    np.minimum.at(lowest, group, rewards)
    advantages = np.where((highest > lowest)[group], rewards - mean[group], 0.0)
    chosen = np.flatnonzero(advantages)
    return chosen, advantages[chosen]


def two_halves(advantages: np.ndarray, prompts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two parts of a choice; how well their gradients agree shows how much of the whole gradient is noise.

    A prompt's rollouts stay together, and both parts have about the same sum of advantages. Otherwise a gradient that
    all rollouts have in common, as stale ones do, would enter the parts with opposite signs where advantages are
    centred, and they would disagree although the whole is right.

    Args:
        advantages: (C,) float64.
        prompts: (C,) int, each rollout's prompt.

    Returns:
        Positions, int64, in order. Rollouts of a single prompt are divided.
    """
    unit = np.unique(prompts, return_inverse=True)[1]
    if len(unit) and unit.max() == 0:
        unit = np.arange(len(unit))
    order = np.argsort(-np.bincount(unit, weights=advantages), kind="stable")
    # Pairs of neighbors, whose larger sum goes to the first part and to the second in turn.
    part = np.empty(len(order), dtype=np.int64)
    part[order] = np.resize([0, 1, 1, 0], len(order))
    return np.flatnonzero(part[unit] == 0), np.flatnonzero(part[unit] == 1)


def _one_a_prompt(rewards: np.ndarray, prompts: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """Positions, by falling reward within rounds: every prompt's best, then every prompt's second best, and so on."""
    order = np.lexsort((ties, -rewards))
    seen: dict[int, int] = {}
    rounds = np.empty(len(order), dtype=np.int64)
    for place, prompt in enumerate(prompts[order].tolist()):
        rounds[place] = seen.get(prompt, 0)
        seen[prompt] = rounds[place] + 1
    return order[np.argsort(rounds, kind="stable")]
