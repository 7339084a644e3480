"""Summary of a golden-redaction run in a few numbers. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Findings:
    """Summary of a whole run.

    Attributes:
        labelled_tokens: Labelled tokens, over all updates.
        intended_way: Share of them whose log-prob in the serving engine then moved in the intended direction; None
            without any.
        past_target: Share of them that moved past their target there; None without any.
        k_before, k_after: Mean hidden golden tokens of the problems.
        reached: Share of the problems whose whole solution was hidden in a visit.
        problems: Problems with a probe before the first update and after the last.
        risen, fallen: How many of these have a higher (lower) mean pass rate over the probes' shares.
        pass_rates: Mean pass rate of the problems before and after, by the share of the solution that was hidden.
    """

    labelled_tokens: int
    intended_way: float | None
    k_before: float
    k_after: float
    reached: float
    problems: int
    risen: int
    fallen: int
    pass_rates: dict[str, tuple[float, float]]
    past_target: float | None = None

    def lines(self) -> list[tuple[str, str]]:
        """Names and texts for display."""
        whole = f"{100 * self.reached:.0f} % of the problems had a visit with the whole solution hidden"
        lines = [("redaction length", f"{self.k_before:.1f} -> {self.k_after:.1f} tokens on average; {whole}")]
        if self.intended_way is not None:
            share = f"{100 * self.intended_way:.1f} % moved in the intended direction in the serving engine"
            past = f", {100 * self.past_target:.1f} % past their target" if self.past_target is not None else ""
            lines.append(("labelled tokens", f"{self.labelled_tokens:,}, of which {share}{past}"))
        if self.problems:
            lines.append(("state rewards", f"rose on {self.risen} of {self.problems} problems, fell on {self.fallen}"))
        for share, (before, after) in self.pass_rates.items():
            lines.append((f"pass rate, {100 * float(share):.0f} % hidden", f"{before:.3f} -> {after:.3f}"))
        return lines


def run_findings(
    probes: Iterable[Mapping[str, Any]], moved: Mapping[str, int], k_before: float, k_after: float, reached: float
) -> Findings:
    """The findings of a run.

    Args:
        probes: Rows {step, problem, share, pass_rate}; the first and the last step are compared, where both have a pass
            rate.
        moved: Labelled tokens by kind, see `movement.KINDS`.
        k_before, k_after, reached: See `Findings`.
    """
    known = [row for row in probes if row["pass_rate"] is not None]
    steps = sorted({row["step"] for row in known})
    first, last = (
        {(row["problem"], row["share"]): row["pass_rate"] for row in known if row["step"] == step}
        for step in ((steps[0], steps[-1]) if len(steps) > 1 else (None, None))
    )
    places = sorted(first.keys() & last.keys())
    changes: dict[str, list[float]] = {}
    for problem, share in places:
        changes.setdefault(problem, []).append(last[problem, share] - first[problem, share])
    rates = {}
    for share in sorted({share for _, share in places}):
        of_share = [place for place in places if place[1] == share]
        rates[f"{share:g}"] = tuple(sum(side[place] for place in of_share) / len(of_share) for side in (first, last))
    labelled = sum(moved.values())
    intended = moved.get("intended", 0) + moved.get("overshot", 0)
    return Findings(
        labelled_tokens=labelled,
        intended_way=intended / labelled if labelled else None,
        k_before=k_before,
        k_after=k_after,
        reached=reached,
        problems=len(changes),
        risen=sum(sum(values) > 0 for values in changes.values()),
        fallen=sum(sum(values) < 0 for values in changes.values()),
        pass_rates=rates,
        past_target=moved.get("overshot", 0) / labelled if labelled else None,
    )
