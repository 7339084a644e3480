"""The schema of a training entry, version 1, and its validation. Pure.

A file of entries is JSON lines, one entry per line, append-only. Numbers are finite (JSON has no NaN); log-probs
are in nats, at most 0. An entry is

    schema           1
    step             int >= 1     step of the trainer that used the entry
    weight_version   int >= 0     of the policy that sampled the tokens and rollouts
    problem          str          problem id
    k                int >= 1     hidden golden tokens
    prompt_ids       [int]        token ids of the state: prompt and golden[:-k]
    teacher          int          golden[-k], one of the actions
    state_reward     number|null  from 0 to 1; null: no rollout has a label
    coverage         number       probability of the actions with labels, from 0 to 1
    actions          [action]     at least one, no token twice

and an action

    token                      int
    rollouts                   [{text: str, reward: 0 | 1 | null, statuses: [str]}]
    reward                     number|null   mean of the rollouts' rewards that are not null
    confidence                 number        1 - p~ of the test in `credit.py`, from 0 to 1
    advantage                  -1 | 0 | 1
    target                     number|null   log-prob that the update aims at; null exactly if the advantage is 0
    log_prob_before            number        under the weights that were updated
    log_prob_after_trainer     number|null   after the update; null: not measured
    log_prob_after_engine      number|null   the same, as the serving engine gives it
    log_prob_reference         number|null   under the reference model; null: there is none

An entry may also have

    prompt_log_probs   {policy: [number|null], reference: [number|null]}   of the tokens of prompt_ids, before the
                       update and under the weights that the run began with; null for the first
    golden_start       int >= 0      place in prompt_ids where the golden solution begins

and a rollout

    outputs            [grid|null]   the program's output for each pair that has a status

A rollout's text begins with its action's token. Its reward is null exactly if one of its statuses is
infrastructure_error. Unknown fields are kept and ignored, so that fields can be added; a change of meaning needs a new
version.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from verl_ext.sandbox.results import Status

SCHEMA_VERSION = 1

# log-softmax in float32 may exceed 0 by a few ulps.
_ABOVE_ZERO = 1e-6


class RecordError(ValueError):
    """An entry that violates the schema; `problems` lists every problem found."""

    def __init__(self, where: str, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{where} does not follow the schema of recipe/golden_redaction/records/schema.py:\n  - " +
                         "\n  - ".join(problems))  # fmt: skip


def is_int(value: Any, low: int) -> bool:
    """Whether the value is an int of at least `low`; bools are not."""
    return type(value) is int and value >= low


def is_number(value: Any, low: float, high: float) -> bool:
    """Whether the value is a finite number from `low` to `high`; bools are not."""
    return type(value) in (int, float) and math.isfinite(value) and low <= value <= high


def _is_log_prob(value: Any) -> bool:
    return is_number(value, -math.inf, _ABOVE_ZERO)


def _or_null(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _is_share(value: Any) -> bool:
    # A sum of probabilities of float32 log-probs.
    return is_number(value, 0.0, 1.0 + 1e-4)


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(is_int(token, 0) for token in value)


# field -> (check, what is expected)
_Rules = dict[str, tuple[Callable[[Any], bool], str]]

_ENTRY: _Rules = {
    "schema": (lambda value: type(value) is int and value == SCHEMA_VERSION, f"{SCHEMA_VERSION}"),
    "step": (lambda value: is_int(value, 1), "an int >= 1"),
    "weight_version": (lambda value: is_int(value, 0), "an int >= 0"),
    "problem": (lambda value: isinstance(value, str) and bool(value), "a problem id"),
    "k": (lambda value: is_int(value, 1), "an int >= 1"),
    "prompt_ids": (_is_ids, "a list of token ids"),
    "teacher": (lambda value: is_int(value, 0), "a token id"),
    "state_reward": (_or_null(_is_share), "a number from 0 to 1, or null"),
    "coverage": (_is_share, "a number from 0 to 1"),
    "actions": (lambda value: isinstance(value, list) and bool(value), "a list of at least one action"),
}
_ACTION: _Rules = {
    "token": (lambda value: is_int(value, 0), "a token id"),
    "rollouts": (lambda value: isinstance(value, list), "a list of rollouts"),
    "reward": (_or_null(_is_share), "a number from 0 to 1, or null"),
    "confidence": (_is_share, "a number from 0 to 1"),
    "advantage": (lambda value: type(value) is int and value in (-1, 0, 1), "-1, 0 or 1"),
    "target": (_or_null(_is_log_prob), "a log-prob (finite, at most 0), or null"),
    "log_prob_before": (_is_log_prob, "a log-prob (finite, at most 0)"),
    "log_prob_after_trainer": (_or_null(_is_log_prob), "a log-prob (finite, at most 0), or null"),
    "log_prob_after_engine": (_or_null(_is_log_prob), "a log-prob (finite, at most 0), or null"),
    "log_prob_reference": (_or_null(_is_log_prob), "a log-prob (finite, at most 0), or null"),
}
_ROLLOUT: _Rules = {
    "text": (lambda value: isinstance(value, str), "a str"),
    "reward": (
        _or_null(lambda value: type(value) in (int, float) and value in (0, 1)),
        "0, 1, or null (no label)",
    ),
    "statuses": (
        lambda value: isinstance(value, list) and bool(value) and all(isinstance(entry, str) for entry in value),
        "the status of each example pair",
    ),
}


def find_problems(entry: Any) -> list[str]:
    """All problems of an entry; empty if it is valid. Each message says where the field is and what was expected."""
    problems: list[str] = []
    if not _check(entry, _ENTRY, "", problems):
        return problems
    tokens = []
    for number, action in enumerate(entry["actions"]):
        place = f"actions[{number}]."
        if _check(action, _ACTION, place, problems):
            tokens.append(action["token"])
            _check_action(action, place, problems)
    if len(tokens) == len(entry["actions"]):
        repeated = sorted({token for token in tokens if tokens.count(token) > 1})
        if repeated:
            problems.append(f"actions: token {repeated[0]} is duplicated: merge its rollouts into one action")
        if entry["teacher"] not in tokens:
            problems.append(f"teacher: expected one of the actions' tokens {tokens}, got {entry['teacher']}")
    return problems


def _check_action(action: Mapping[str, Any], place: str, problems: list[str]) -> None:
    rewards: list[float] = []
    fine = True
    for number, rollout in enumerate(action["rollouts"]):
        where = f"{place}rollouts[{number}]."
        if not _check(rollout, _ROLLOUT, where, problems):
            fine = False
            continue
        failed = Status.INFRASTRUCTURE_ERROR in rollout["statuses"]
        if failed != (rollout["reward"] is None):
            wanted = (
                f"null after an {Status.INFRASTRUCTURE_ERROR}"
                if failed
                else f"a label: no status is {Status.INFRASTRUCTURE_ERROR}"
            )
            problems.append(f"{where}reward: expected {wanted}, got {rollout['reward']}")
            fine = False
        elif rollout["reward"] is not None:
            rewards.append(rollout["reward"])
    if fine:
        mean = sum(rewards) / len(rewards) if rewards else None
        given = action["reward"]
        if (mean is None) != (given is None) or (mean is not None and not math.isclose(mean, given, abs_tol=1e-9)):
            problems.append(f"{place}reward: expected the mean {mean} of {len(rewards)} labelled rollouts, got {given}")
    if (action["target"] is None) != (action["advantage"] == 0):
        problems.append(
            f"{place}target: expected null exactly where the advantage is 0, got {action['target']} at advantage "
            f"{action['advantage']}"
        )


def _check(value: Any, rules: _Rules, place: str, problems: list[str]) -> bool:
    """Whether `value` is an object with every field as the rules say; problems are added."""
    if not isinstance(value, Mapping):
        problems.append(f"{place.rstrip('.') or 'entry'}: expected an object, got {type(value).__name__}")
        return False
    before = len(problems)
    for name, (is_right, expected) in rules.items():
        if name not in value:
            problems.append(f"{place}{name}: missing; expected {expected}")
        elif not is_right(value[name]):
            problems.append(f"{place}{name}: expected {expected}, got {_short(value[name])}")
    return len(problems) == before


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
