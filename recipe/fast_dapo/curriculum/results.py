"""Checks the results of a generation call, then moves each prompt to its next state. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence

from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.grading import Grading, shortfall
from recipe.fast_dapo.curriculum.records import (
    NOTHING_TO_LEARN,
    Fate,
    Outcome,
    Phase,
    Sample,
    TrainingGroup,
    UpdateResult,
    keys_of,
    uids_of,
)
from recipe.fast_dapo.curriculum.state import CurriculumState


def check_weight_version(state: CurriculumState, weight_version: int) -> None:
    """Raises ValueError if the version went back."""
    if weight_version < state.weight_version:
        raise ValueError(
            f"expected weight_version >= {state.weight_version}, got {weight_version}: pass that of the current weights"
        )


def check_results(
    state: CurriculumState, grading: Grading, samples: Mapping[str, Sequence[Sample]], weight_version: int
) -> None:
    """Check the samples of prompts, by uid, under the current weights; changes nothing.

    Raises:
        ValueError: an unknown uid, more samples than asked, a sample key that is live or duplicated, a success that
            is not finite or, if graded, not in [0, 1], a sample from the future, or a weight version that went back.
    """
    check_weight_version(state, weight_version)
    keys: set[str] = set()
    for uid, new in samples.items():
        if uid not in state.in_flight:
            raise ValueError(f"expected only prompts in flight, got uid {uid!r}: pass only what was asked")
        asked = state.in_flight[uid].num_samples
        if len(new) > asked:
            raise ValueError(f"expected at most {asked} samples of {uid!r}, got {len(new)}: pass only the new ones")
        for sample in new:
            if sample.key in keys or sample.key in state.keys:
                raise ValueError(f"expected a new sample key, got {sample.key!r} again: continue at first_session")
            if not math.isfinite(sample.success):
                raise ValueError(f"expected a finite success of {sample.key!r}, got {sample.success}: leave it out")
            if grading.is_graded and not 0 <= sample.success <= 1:
                raise ValueError(
                    f"expected a graded success of {sample.key!r} in [0, 1], got {sample.success}: scale it, or set a "
                    "success_threshold"
                )
            if (got := sample.version) > weight_version:
                raise ValueError(f"expected versions <= {weight_version}, got {sample.key!r} of {got}: pass the newest")
            keys.add(sample.key)


def take_results(
    state: CurriculumState,
    settings: CurriculumSettings,
    samples: Mapping[str, Sequence[Sample]],
    answered: Iterable[str],
) -> UpdateResult:
    """Move each prompt of a call that `check_results` accepted to its next state.

    Args:
        state: Changed.
        settings: Of the controller.
        samples: By uid, in session order; fewer than asked: the call failed for this prompt.
        answered: Uids in the order in which they are queued; one without samples failed.
    """
    grading = settings.grading
    outcomes: dict[str, Outcome] = {}
    qualified: list[TrainingGroup] = []
    ready: list[TrainingGroup] = []
    dropped: list[TrainingGroup] = []
    failed: list[TrainingGroup] = []
    released_keys: list[str] = []
    for uid in answered:
        asked, new = state.land(uid), tuple(samples.get(uid, ()))
        successes = [grading.success(sample.success) for sample in new]
        outcomes[uid] = Outcome(asked.prompt.index, asked.phase, sum(successes), len(new), shortfall(successes))
        if len(new) < asked.num_samples:
            failed.append(asked.group)
            released_keys += [sample.key for sample in new]
            continue
        state.failures.pop(uid, None)
        state.keys.update([sample.key for sample in new])
        group = asked.group.with_samples(new)
        fate = group.fate
        if asked.phase is Phase.SCREENING and fate is not Fate.PARTLY_SCREENED:
            state.count_screening(group)
        if fate in NOTHING_TO_LEARN:
            dropped.append(group)
            continue
        state.put(group)
        if fate is Fate.QUALIFIED:
            qualified.append(group)
        elif fate is Fate.READY:
            ready.append(group)
    counts = state.counts
    counts.add("rounds", 1 if outcomes else 0)
    counts.add("generated_rollouts", sum(outcome.samples for outcome in outcomes.values()))
    counts.add("generated_tokens", sum(sample.num_tokens for new in samples.values() for sample in new))
    counts.add("uninformative_rollouts", sum(len(group.samples) for group in dropped))
    counts.add("failed_rollouts", len(released_keys))
    retried, given_up = _put_back(state, settings, failed)
    dropped += given_up
    state.forget(dropped)
    return UpdateResult(
        released_keys=(*released_keys, *keys_of(dropped)),
        released_uids=uids_of(dropped),
        qualified_uids=uids_of(qualified),
        ready_uids=uids_of(ready),
        failed_uids=uids_of([*retried, *given_up]),
        outcomes=tuple(outcomes[uid] for uid in samples),
    )


def _put_back(
    state: CurriculumState, settings: CurriculumSettings, failed: Sequence[TrainingGroup]
) -> tuple[list[TrainingGroup], list[TrainingGroup]]:
    """Prompts whose call failed: back to the front of their queues, unless that was the last attempt."""
    retried: list[TrainingGroup] = []
    given_up: list[TrainingGroup] = []
    for group in failed:
        uid = group.prompt.uid
        state.failures[uid] = state.failures.get(uid, 0) + 1
        (given_up if state.failures[uid] >= settings.max_attempts else retried).append(group)
    for group in reversed(retried):  # so that they keep their old order at the front
        state.put(group, front=True)
    state.counts.add("failed", len(failed))
    state.counts.add("given_up", len(given_up))
    state.counts.add("failed_rollouts", sum(len(group.samples) for group in given_up))
    return retried, given_up
