"""The watch over data sources: which it names, after how many rollouts, and why."""

import json
import re

import pytest

from recipe.fast_dapo.curriculum.source_watch import MIN_ROLLOUTS, SourceWatch


def watch_of(
    num: int, *, source: str = "sums", passes: int = 0, cut_off: int = 0, without_answer: int = 0, unanswered: int = 0
) -> SourceWatch:
    watch = SourceWatch()
    for i in range(num):
        watch.observe(
            source,
            passed=i < passes,
            cut_off=i < cut_off,
            without_answer=i < without_answer,
            unanswered=i < unanswered,
        )
    return watch


@pytest.mark.parametrize(("num", "passes", "named"), [(199, 0, False), (200, 0, True), (5000, 1, False)])
def test_a_source_is_named_after_200_rollouts_of_which_none_passed(num, passes, named):
    assert MIN_ROLLOUTS == 200
    assert bool(watch_of(num, passes=passes).explain()) == named


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        (
            {"cut_off": 180},
            r"^sums: none of 200 rollouts passed, and 180 were cut off: raise data\.max_response_length$",
        ),
        ({"without_answer": 200}, "in 200 the reward found no answer"),
        ({"cut_off": 200, "without_answer": 200}, "were cut off"),
        (
            {"unanswered": 180, "without_answer": 200},
            "180 ended at a call of a tool .* raise rollout",
        ),
        ({"cut_off": 179, "without_answer": 179}, "read some of them"),
    ],
)
def test_it_says_what_it_looks_like(counts, reason):
    (line,) = watch_of(200, **counts).explain()

    assert re.search(reason, line)


def test_one_pass_ends_the_silence_and_sources_are_apart():
    watch = watch_of(300)
    watch.observe("words", passed=True, cut_off=False, without_answer=False)
    assert list(watch.silent) == ["sums"]
    watch.observe("sums", passed=True, cut_off=False, without_answer=False)
    assert watch.silent == {}


def test_counts_survive_a_checkpoint():
    watch, resumed = watch_of(200, cut_off=3), SourceWatch()
    resumed.load_state_dict(json.loads(json.dumps(watch.state_dict())))
    assert resumed.explain() == watch.explain()


def test_counts_of_a_release_that_counted_fewer_things_are_taken():
    resumed = SourceWatch()
    resumed.load_state_dict({"sums": {"rollouts": 200, "passes": 0, "cut_off": 200, "without_answer": 0}})
    assert "200 were cut off" in resumed.explain()[0]
