"""Starts a run from the entries of an earlier run, named by `golden.records.warm_start`."""

from collections.abc import Mapping
from pathlib import Path

from recipe.golden_redaction.method.earlier_run import Ask, EarlierRun
from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.method.redaction import RedactionController
from recipe.golden_redaction.method.visits import StateVisit
from recipe.golden_redaction.records.records import warm_start
from recipe.golden_redaction.settings import RecordSettings


def read_earlier_run(settings: RecordSettings, problems: Mapping[str, Problem]) -> EarlierRun:
    """The visits of these problems whose states have the same token ids; prints how many there are.

    Raises:
        RecordError: if the file has no entries.
    """
    if settings.warm_start is None:
        return EarlierRun((), (), settings.max_log_prob_gap)
    read = warm_start(Path(settings.warm_start), settings.max_staleness)

    def is_ours(visit: StateVisit) -> bool:
        if visit.problem not in problems or not problems[visit.problem].has_state(visit.k):
            return False
        prompt = problems[visit.problem].prompt_of(visit.k, visit.ids)
        visit.prompt = prompt or 0  # that run may have had other prompts
        return prompt is not None

    history, recent = (list(filter(is_ours, visits)) for visits in (read.history, read.visits))
    print(
        f"warm start: {len(recent)} of {read.num_read} entries of {settings.warm_start} "
        f"({read.num_stale} too old, {len(read.visits) - len(recent)} of other problems or token ids)"
    )
    return EarlierRun(history, recent, settings.max_log_prob_gap)


def restore_lengths(earlier: EarlierRun, controller: RedactionController, ask: Ask) -> None:
    """Hide as much of each problem as the earlier run did when its policy was last near this one."""
    if not earlier.num_problems:
        return
    found = earlier.lengths(ask)
    for problem, visits in found.items():
        controller.restore(problem, visits)
    print(f"warm start: {len(found)} of {earlier.num_problems} problems continue from where they were")
