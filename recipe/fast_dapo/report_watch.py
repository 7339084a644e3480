"""Watches reports for problems of the whole run: broken generation, and data sources without a pass."""

from collections.abc import Callable, Mapping

from recipe.fast_dapo.curriculum.source_watch import SourceWatch
from verl_ext.core.errors import GenerationFailedError
from verl_ext.serving.agent_loop import PromptReport, RolloutReport

# Consecutive prompts without a single rollout after which generation counts as broken.
_MAX_FAILED_PROMPTS = 16


class ReportWatch:
    """Sees every report before the controller does.

    Args:
        passed: Whether a rollout is right, or partly right.
        source: Returns the data source of a prompt, by uid.
        max_response_length: Maximum tokens of a response; a longer one was cut off.

    Attributes:
        sources: Counts per data source.
    """

    def __init__(
        self, passed: Callable[[RolloutReport], bool], source: Callable[[str], str], max_response_length: int
    ) -> None:
        self.sources = SourceWatch()
        self._passed = passed
        self._source = source
        self._max_response_length = max_response_length
        self._num_failed_prompts = 0  # in a row

    def look_at(self, reports: Mapping[str, PromptReport], num_in_flight: int) -> None:
        """Record reports.

        Args:
            reports: By uid.
            num_in_flight: Prompts that were in flight, including these.

        Raises:
            GenerationFailedError: a prompt may fail; when all of them do, the cause is elsewhere and no retry helps.
        """
        self._refuse_total_failure(reports, others_in_flight=num_in_flight > len(reports))
        for uid, report in reports.items():
            source = self._source(uid)
            for rollout in report.rollouts:
                self.sources.observe(
                    source,
                    passed=self._passed(rollout),
                    cut_off=rollout.longest >= self._max_response_length,
                    unanswered=rollout.is_unanswered,
                    # The answer that verl's own reward functions report when they find none.
                    without_answer=rollout.reward_extra_info.get("pred", "some") in (None, "", "[INVALID]"),
                )

    def _refuse_total_failure(self, reports: Mapping[str, PromptReport], *, others_in_flight: bool) -> None:
        if any(report.rollouts for report in reports.values()):
            self._num_failed_prompts = 0
            return
        self._num_failed_prompts += len(reports)
        errors = [error for report in reports.values() for error in report.errors]
        if errors and (self._num_failed_prompts >= _MAX_FAILED_PROMPTS or not others_in_flight):
            raise GenerationFailedError(
                f"Generation failed for {self._num_failed_prompts} prompts in a row; the last time with: {errors[0]}"
            )
