"""The curriculum's part of a checkpoint: plain JSON out, and a checked state back. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from recipe.fast_dapo.curriculum.admission import ScreeningRecord
from recipe.fast_dapo.curriculum.controller_settings import CurriculumSettings
from recipe.fast_dapo.curriculum.grading import WHOLE_BAND
from recipe.fast_dapo.curriculum.metrics import CurriculumCounts
from recipe.fast_dapo.curriculum.records import Fate, Prompt, TrainingGroup
from recipe.fast_dapo.curriculum.state import CurriculumState

_STATE_VERSION = 4
_QUEUES_OF_GROUPS = ("partly_screened", "second", "training")
_FIXED_SETTINGS = ("n", "n_continue", "success_threshold", "correction", "train_on")


def pack_state(settings: CurriculumSettings, state: CurriculumState) -> dict[str, Any]:
    """The whole state, in containers that `json.dumps` accepts.

    Prompts in flight are saved at the front of the queue they came from: a generation call that never returned is
    repeated (its partial rollouts are not in here). Posteriors of waiting prompts are not saved, because
    `set_posteriors` gives newer ones. A group's initial posterior is saved, because its baseline is computed from it.
    """
    in_flight = [entry.group for entry in state.in_flight.values()]

    def repeated(fate: Fate) -> list[TrainingGroup]:
        return [group for group in in_flight if group.fate is fate]

    waiting = (*(group.prompt for group in repeated(Fate.WAITING)), *state.waiting)
    partly_screened = (*repeated(Fate.PARTLY_SCREENED), *state.partly_screened)
    qualified = (*repeated(Fate.QUALIFIED), *state.qualified)
    return {
        "state_version": _STATE_VERSION,
        "settings": {name: getattr(settings, name) for name in _FIXED_SETTINGS},
        "weight_version": state.weight_version,
        "first": [prompt.pack() for prompt in waiting],
        "partly_screened": [group.pack() for group in partly_screened],
        "second": [group.pack() for group in qualified],
        "training": [group.pack() for group in state.ready],
        "failures": dict(state.failures),
        "counts": state.counts.state_dict(),
        "screening_record": vars(state.screening_record).copy(),
    }


def unpack_state(settings: CurriculumSettings, packed: Mapping[str, Any]) -> CurriculumState:
    """Restore what `pack_state` returned; batch sizes and limits may differ from those it was saved with.

    Raises:
        ValueError: another format, another n, n_continue, success_threshold, correction or train_on (the saved samples
            depend on them), or a state whose prompts or rollouts do not add up.
    """
    version = packed.get("state_version")
    if version == 2:
        packed = _from_version_2(settings, packed)
    if version in (2, 3):
        packed = _from_version_3(packed)
    elif version != _STATE_VERSION:
        raise ValueError(f"expected state_version {_STATE_VERSION}, got {version!r}: use the release that saved it")
    for name in _FIXED_SETTINGS:
        saved, now = (
            "null" if value is None else value for value in (packed["settings"][name], getattr(settings, name))
        )
        if saved != now:
            raise ValueError(f"expected {name}={saved} as in the checkpoint, got {now}: set {name}={saved}")
    state = CurriculumState(settings.n)
    state.weight_version = int(packed["weight_version"])
    state.waiting.extend(Prompt(*prompt) for prompt in packed["first"])
    state.partly_screened.extend(map(TrainingGroup.unpack, packed["partly_screened"]))
    for queue, name in ((state.qualified, "second"), (state.ready, "training")):
        for group in map(TrainingGroup.unpack, packed[name]):
            queue.push(group.prompt.uid, group.version, group)
    groups = (*state.partly_screened, *state.qualified, *state.ready)
    prompts = (*state.waiting, *(group.prompt for group in groups))
    state.indices = {prompt.uid: prompt.index for prompt in prompts}
    state.keys = {sample.key for group in groups for sample in group.samples}
    state.failures = {uid: int(count) for uid, count in packed["failures"].items()}
    state.counts = CurriculumCounts.from_state_dict(settings.n, packed["counts"])
    state.screening_record = ScreeningRecord(**packed["screening_record"])
    _check_conservation(state)
    return state


def _from_version_2(settings: CurriculumSettings, packed: Mapping[str, Any]) -> dict[str, Any]:
    """Upgrade a state from before `train_on` existed: one rule for all groups, and at most two stages that mattered."""
    rule = settings.group_rule

    def group(old: Sequence[Any]) -> list[Any]:
        uid, index, plan, (num_passes, num_screening), *columns = old
        first = num_screening or len(columns[0])
        stage_sizes = [size for size in (first, len(columns[0]) - first) if size]
        new_rule = [rule.size, rule.trains_screening, rule.trains_unmixed]
        return [[uid, index, None, None], plan, new_rule, [num_passes, num_screening], stage_sizes, *columns]

    groups = {name: [group(old) for old in packed[name]] for name in _QUEUES_OF_GROUPS}
    return dict(packed) | groups | {"settings": {"train_on": "qualified"} | packed["settings"]}


def _from_version_3(packed: Mapping[str, Any]) -> dict[str, Any]:
    """Upgrade a state from before graded successes: every group used the run's threshold and the whole band."""
    grading = [packed["settings"]["success_threshold"], list(WHOLE_BAND)]

    def group(old: Sequence[Any]) -> list[Any]:
        prompt, plan, rule, *others = old
        return [prompt, plan, rule, grading, *others]

    return dict(packed) | {name: [group(old) for old in packed[name]] for name in _QUEUES_OF_GROUPS}


def _check_conservation(state: CurriculumState) -> None:
    """Raises ValueError if a prompt or a rollout is missing or duplicated."""
    fates = state.prompts_by_fate()
    added = fates.pop("added")
    if added != sum(fates.values()) or len(state.indices) != fates["live"]:
        raise ValueError(f"expected {added} prompts in the state, got {fates}: the checkpoint is damaged")
    rollouts = state.rollouts_by_fate()
    generated = rollouts.pop("generated")
    if generated != sum(rollouts.values()):
        raise ValueError(f"expected {generated} rollouts in the state, got {rollouts}: the checkpoint is damaged")
