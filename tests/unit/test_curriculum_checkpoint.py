"""The curriculum's part of a checkpoint keeps its format: a run continues from what an earlier release saved."""

import json

import pytest
from curriculum_play import make_samples, make_settings, play_round

from recipe.fast_dapo.curriculum.data_controller import DataController
from recipe.fast_dapo.curriculum.records import Phase, Prompt

_COUNTS = {
    "added": 6, "screened": 2, "qualified": 2, "all_wrong": 0, "all_right": 0, "failed": 0, "expired": 0,
    "evicted_overflow": 0, "given_up": 0, "trained": 0, "rounds": 4, "generated_rollouts": 10, "generated_tokens": 70,
    "trained_rollouts": 0, "uninformative_rollouts": 0, "expired_rollouts": 0, "failed_rollouts": 0,
    "set_aside_rollouts": 0, "trained_tokens": 0, "trained_age": 0, "screening_rollouts": 4, "screening_passes": 2,
}  # fmt: skip

# Streaming with sequential screening, saved while "wrong" was in flight, by the release before `train_on`.
SAVED = {
    "state_version": 2,
    "settings": {"n": 4, "n_continue": 2, "success_threshold": 0.5, "correction": "none"},
    "weight_version": 3,
    "first": [["wrong", 3], ["first", 4], ["late", "six"]],
    "partly_screened": [["partly", 2, [1, 4, 4], [0, 0], ["partly_0_0", "partly_1_0"], [0.0, 0.0], [3, 3], [7, 7]]],
    "second": [["second", 1, [1, 4, 4], [1, 2], ["second_0_0", "second_1_0"], [0.0, 1.0], [3, 3], [7, 7]]],
    "training": [
        [
            *("ready", 0, [1, 4, 4], [5, 2], [f"ready_{i}_0" for i in range(6)]),
            *([1.0, 0.0, 1.0, 1.0, 1.0, 1.0], [3] * 6, [7] * 6),
        ]
    ],
    "failures": {},
    "counts": {
        "windows": {name: dict(_COUNTS) for name in ("step", "batch", "total")},
        "passes": {name: [0] * 5 for name in ("step", "batch", "total")},
        "oldest_trained_age": 0,
    },
    "screening_record": {"screened": 3.9502, "qualified": 2.9701, "wasted": 3.9204},
}
_NEW_COUNTS = _COUNTS | {"all_wrong_kept": 0, "all_right_kept": 0}
_RULE = [6, True, False]
# The same by the release before graded successes: groups know the posterior they were begun with, their rule and their
# stages.
SAVED_BEFORE_GRADES = SAVED | {
    "state_version": 3,
    "settings": SAVED["settings"] | {"train_on": "qualified"},
    "partly_screened": [[["partly", 2, None, None], [1, 4, 4], _RULE, [0, 0], [2], *SAVED["partly_screened"][0][4:]]],
    "second": [[["second", 1, None, None], [1, 4, 4], _RULE, [1, 2], [2], *SAVED["second"][0][4:]]],
    "training": [[["ready", 0, None, None], [1, 4, 4], _RULE, [5, 2], [2, 4], *SAVED["training"][0][4:]]],
    "counts": SAVED["counts"] | {"windows": {name: dict(_NEW_COUNTS) for name in ("step", "batch", "total")}},
}


# The same as it is saved now: groups know how their successes are read.
_QUEUES = ("partly_screened", "second", "training")
SAVED_NOW = (
    SAVED_BEFORE_GRADES
    | {"state_version": 4}
    | {name: [[*g[:3], [0.5, [0.0, 1.0]], *g[3:]] for g in SAVED_BEFORE_GRADES[name]] for name in _QUEUES}
)


def _resumed(saved=SAVED_NOW, **changes) -> DataController:
    sizes = {"n": 4, "n_continue": 2, "train_batch_size": 2, "gen_batch_size": 6, "schedule": "streaming"}
    controller = DataController(make_settings(**sizes | changes), screening_chunk=1)
    controller.load_state_dict(json.loads(json.dumps(saved)))
    return controller


@pytest.mark.parametrize(
    "saved", [SAVED, SAVED_BEFORE_GRADES, SAVED_NOW], ids=["earlier release", "before grades", "this release"]
)
def test_a_state_is_read_and_would_be_saved_in_the_format_of_now(saved):
    assert json.loads(json.dumps(_resumed(saved).state_dict())) == SAVED_NOW


def test_grades_travel_with_a_checkpoint_and_are_no_passes_elsewhere():
    settings = {"success_threshold": None, "band": (0.0, 0.5)}
    controller = DataController(make_settings(**settings))
    controller.add_new_prompts_first_generation_phase([Prompt("u", 0), Prompt("v", 0)])
    controller.get_generation_inputs()
    controller.update_prompts({"u": make_samples("u", 0, [0.1, 0.3]), "v": make_samples("v", 0, [0.7, 0.9])}, 0)
    saved = json.loads(json.dumps(controller.state_dict()))
    # The band applies to later screenings.
    resumed = DataController(make_settings(success_threshold=None, band=(0.25, 1.0)))
    resumed.load_state_dict(saved)
    assert resumed.state_dict() == saved
    (group,) = resumed.prompts_for_second_generation_phase
    assert (group.num_passes, group.num_screening, group.rule.grading) == (0.4, 2, controller.settings.grading)
    assert resumed.metrics()["curriculum/screening_pass_rate/mean"] == 0.5
    with pytest.raises(ValueError, match=r"expected success_threshold=null .*, got 0\.5: set success_threshold=null"):
        DataController(make_settings()).load_state_dict(saved)


def test_a_group_keeps_the_posterior_that_it_was_begun_with():
    """Its baseline is computed from it: later knowledge may come from its own rollouts."""
    controller = DataController(make_settings(n=2, n_continue=2), screening_chunk=1)
    controller.add_new_prompts_first_generation_phase([Prompt("u", 0)])
    controller.set_posteriors([(0.5, 1.5)])
    play_round(controller)
    resumed = DataController(make_settings(n=2, n_continue=2), screening_chunk=1)
    resumed.load_state_dict(json.loads(json.dumps(controller.state_dict())))
    (entry,) = resumed.get_generation_inputs()
    assert (entry.prompt.alpha, entry.prompt.beta) == (0.5, 1.5)


def test_a_run_goes_on_where_it_stopped_and_screens_by_todays_posteriors():
    controller = _resumed(train_batch_size=3)
    assert [prompt.uid for prompt in controller.prompts_to_screen()] == ["wrong"]
    controller.set_posteriors([(0.2, 8.2)])
    entries = controller.get_generation_inputs()
    asked = [(e.prompt.uid, e.phase, e.first_session, e.num_samples) for e in entries]
    assert asked == [
        ("second", Phase.CONTINUATION, 2, 4),
        ("partly", Phase.SCREENING, 2, 1),
        ("wrong", Phase.SCREENING, 0, 2),
    ]
    assert (entries[1].group.plan.max_fails, entries[2].group.plan.max_fails) == (4, 2)
    samples = {
        "second": make_samples("second", 2, [1.0] * 4, 3),
        "partly": make_samples("partly", 2, [1.0], 3),
        "wrong": make_samples("wrong", 0, [0.0] * 2, 3),
    }
    result = controller.update_prompts(samples, 3, more_to_come=True)
    assert (result.ready_uids, result.qualified_uids, result.released_uids) == (("second",), ("partly",), ("wrong",))
    assert controller.metrics()["curriculum/unaccounted_rollouts"] == 0
