"""The success of a rollout, and when a screening is mixed. Pure.

With a threshold a rollout passes or fails, and its success is 1 or 0. Without one it is graded: any number s in [0, 1].
The statistics of a prompt are the same in both cases: its number of rollouts, the sum of s (its passes, which may be
fractional) and the sum of s (1 - s). With m = E[s] the variance of its successes is

    Var[s] = E[s^2] - m^2 = m (1 - m) - E[s (1 - s)].

The first term is that of passes and failures, the largest that a mean m allows (Bhatia and Davis 2000, A better bound
on the variance), and E[s (1 - s)] is the *shortfall* from it: 0 where every success is 0 or 1, all of it where every
rollout earns 1/2 and there is nothing to learn from their differences.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WHOLE_BAND = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Grading:
    """How the successes of a prompt are read.

    Attributes:
        success_threshold: A rollout passes when its success metric exceeds this; None: the metric is the success.
        band: (low, high), an open interval that must contain a screening's mean success.
    """

    success_threshold: float | None = 0.5
    band: tuple[float, float] = WHOLE_BAND

    @property
    def is_graded(self) -> bool:
        """Whether there is no threshold."""
        return self.success_threshold is None

    def success(self, value: float) -> float:
        """The success: 0 or 1 (int) with a threshold, otherwise the value itself.

        Args:
            value: The success metric.
        """
        return float(value) if self.success_threshold is None else int(value > self.success_threshold)

    def is_mixed(self, successes: Sequence[float]) -> bool:
        """Whether a screening with these successes qualifies: not all are the same, and their mean is in the band."""
        low, high = self.band
        return len(set(successes)) > 1 and low < sum(successes) / len(successes) < high

    def is_low(self, mean: float) -> bool:
        """Whether a mean success is at most the middle of the band."""
        return mean <= sum(self.band) / 2

    def needs_passes(self, option: str, why: str, other: str) -> str | None:
        """The error message for an option that counts passes when another rule decides which prompts qualify; None if
        it is fine.

        Args:
            option: As the user writes it.
            why: What it does, up to "and".
            other: The setting to use instead.
        """
        found = ["success_threshold=null"] * self.is_graded + [f"band={list(self.band)}"] * (self.band != WHOLE_BAND)
        if not found:
            return None
        return (
            f"{option} {why}, and {' and '.join(found)} set another rule: set {other}, or a threshold and band=[0, 1]"
        )

    def problem(self, n: int, correction: str) -> str | None:
        """The error message if n rollouts or the correction contradict this grading, with what to change; None if they
        do not."""
        low, high = self.band
        if not 0 <= low < high <= 1:
            return (
                f"band={[low, high]} must be two numbers, 0 <= low < high <= 1: a prompt qualifies when its mean "
                "success is between them"
            )
        has_outcome = self.band == WHOLE_BAND or (self.is_graded and n > 1)
        if not has_outcome and not any(low < passes / n < high for passes in range(1, n)):
            rates = ", ".join(f"{passes}/{n}" for passes in range(n + 1))
            return (
                f"band={[low, high]} has no mixed screening of n={n} rollouts in it, of {rates}: widen it, or raise n"
            )
        if correction == "horvitz_thompson":
            why = "weighs prompts that qualify by one pass and one failure"
            return self.needs_passes("correction=horvitz_thompson", why, "correction=none")
        return None


PASS_OR_FAIL = Grading()


def shortfall(successes: Iterable[float]) -> float:
    """Sum of s (1 - s): by how much their variance falls short of that of passes and failures, over all of them."""
    return sum(success * (1 - success) for success in successes)
