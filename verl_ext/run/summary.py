"""The table printed at the end of a run."""

from collections.abc import Iterable, Mapping
from typing import Any

from verl_ext.run.pace import wall_clock
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.status import StatusFile

Phases = Mapping[str, tuple[str, ...]]

# User-facing phases of a step, by verl's timer names: those before the update, and the rest.
_BEFORE: Phases = {
    "generation": ("gen",),
    "log-probs": ("old_log_prob", "ref", "values"),
}
_AFTER: Phases = {
    "update": ("update_actor", "update_critic"),
    "weight sync": ("update_weights",),
    "checkpoints": ("save_checkpoint",),
}
PHASES: Phases = {**_BEFORE, **_AFTER}


def join_phases(parts: Iterable[Phases]) -> Phases:
    """`PHASES` with those of recipes: their timers join a phase of the same name, and new ones precede the update."""
    before, after = dict(_BEFORE), dict(_AFTER)
    for part in parts:
        for phase, names in part.items():
            joined = after if phase in after else before
            joined[phase] = (*joined.get(phase, ()), *names)
    return before | after


def seconds_by_phase(summary: Mapping[str, Any], phases: Phases = PHASES) -> dict[str, float]:
    """Seconds in each phase; time in no phase is `rest`."""
    timing = summary["seconds_by_phase"]
    named = {phase: sum(timing.get(name, 0.0) for name in names) for phase, names in phases.items()}
    return named | {"rest": max(0.0, summary["seconds"] - sum(named.values()))}


def format_summary(summary: dict[str, Any], folder: RunFolder, phases: Phases = PHASES) -> str:
    """The summary as text."""
    rows = []
    before, after = summary["val_accuracy_before"], summary["val_accuracy_after"]
    if before is not None and after is not None:
        rows.append(("validation accuracy", f"{before:.3f} -> {after:.3f}  ({100 * (after - before):+.1f} points)"))
    # Lines added by a recipe, in its own words.
    rows += [(name, text) for name, text in summary.get("findings", [])]
    generated, trained = summary["rollouts_generated"], summary["rollouts_trained"]
    rows += [
        ("RL steps", f"{summary['global_steps']}"),
        ("rollouts generated", f"{generated:,}"),
        ("rollouts trained on", f"{trained:,}"),
    ]
    if summary.get("rollouts_avoided"):
        rows.append(
            (
                "rollouts avoided",
                f"{summary['rollouts_avoided']:,}  (estimate: the rest for prompts whose screening was not mixed)",
            )
        )
    total = summary["seconds"]
    shares = {phase: 100 * s / total for phase, s in seconds_by_phase(summary, phases).items() if s}
    listed = ", ".join(f"{phase} {share:.0f} %" for phase, share in shares.items())
    rows.append(("training time", f"{total:.0f} s: {listed}"))
    if (seconds := wall_clock(StatusFile(folder.status).read())) is not None:
        rows.append(("wall-clock", f"{seconds[0]:.0f} s, {seconds[1]:.0f} s of it before the first validation or step"))
    rows += [("run folder", str(folder.path)), ("its page", f"python -m verl_ext.report run {folder.path}")]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)


def print_summary(folder: RunFolder, title: str, phases: Phases = PHASES) -> None:
    """Print the table of a finished run."""
    summary = folder.read_summary()
    if summary is not None:
        print(f"\n{title}\n{format_summary(summary, folder, phases)}")
