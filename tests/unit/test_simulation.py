"""Simulated runs of the curriculum: what must hold exactly, what must hold on average, and what is reported."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.data_controller import TooManyGenerationBatches
from recipe.fast_dapo.simulate import main
from recipe.fast_dapo.simulation.scenario import Scenario
from recipe.fast_dapo.simulation.simulation import CurriculumSimulation, summarize
from recipe.fast_dapo.simulation.workload import Workload, WorkloadSettings, fit_pass_rates
from verl_ext.simulation.engine_model import EngineFleet, EngineSettings

SMALL = Scenario(
    train_batch_size=8,
    gen_batch_size=24,
    num_engines=2,
    slots=64,
    num_prompts=300,
    median_tokens=50.0,
    max_tokens=400,
    update_seconds=1.0,
    sync_seconds=0.3,
    num_steps=6,
    warmup_steps=0,
)
FLAT = {"sigma": 0.0, "hard_factor": 1.0, "prefill_seconds": 0.0, "median_tokens": 20.0}


class Script(Workload):
    """Every prompt's rollouts pass and fail in turn; the lengths are given by prompt and by its number of rollouts."""

    def __init__(self, settings, lengths):
        super().__init__(settings)
        self.pass_rates = np.full(settings.num_prompts, 0.5)
        self._order = np.arange(settings.num_prompts)
        self._lengths = lengths

    def draw(self, index, count):
        return [float(i % 2) for i in range(count)], [self._lengths[index % len(self._lengths)][count % 2]] * count


def play(scenario, workload=None):
    simulation = CurriculumSimulation(scenario, workload)
    return simulation, simulation.run()


@pytest.mark.parametrize("schedule", ["merged", "streaming"])
def test_one_engine_and_equal_lengths_have_a_closed_form(schedule):
    # z = 1: a step of 4 prompts is screened with 2 rollouts each, then continued with 3 each. Merged, the second call
    # also screens 4 more, so each later step is one call; streaming always screens and continues.
    scenario = replace(SMALL, n=2, n_continue=3, train_batch_size=4, gen_batch_size=4, schedule=schedule, num_engines=1)
    scenario = replace(scenario, step_seconds=0.5, sequence_seconds=0.25, call_seconds=3.0, prefill_seconds=0.0)
    workload = Script(scenario.workload(), [(10, 10)])
    _, steps = play(scenario, workload)
    screening, continuation = 3.0 + 10 * (0.5 + 0.25 * 8), 3.0 + 10 * (0.5 + 0.25 * 12)
    both = 3.0 + 10 * (0.5 + 0.25 * 20)
    later = both if schedule == "merged" else screening + continuation
    first = screening + both if schedule == "merged" else later
    assert [step.generation_seconds for step in steps] == pytest.approx([first, *[later] * 5])
    assert [step.update_seconds for step in steps] == pytest.approx([1.0 + 0.23 * 20] * 6)
    assert sum(step.running_seconds for step in steps) == pytest.approx(
        sum((8 * 25 + 12 * 35) if schedule == "streaming" else 20 * 55 for _ in steps)
        + (8 * 25 if schedule == "merged" else 0)
    )


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100)), min_size=1, max_size=12),
    st.integers(1, 8),
)
def test_streaming_is_never_slower_where_nothing_is_contended(lengths, batch):
    # Every prompt qualifies, which the controller has learned, and engines have room for all and do not get slower:
    # streaming takes the slowest prompt's two parts; merged takes the slowest first part and then the slowest second
    # part, or the first part of a later prompt.
    scenario = replace(
        SMALL, train_batch_size=batch, gen_batch_size=batch, slots=10**4, sequence_seconds=0.0, num_steps=1
    )
    scenario = replace(scenario, prefill_seconds=0.0, call_seconds=0.5, n=3, n_continue=4)
    seconds = {}
    for schedule in ("merged", "streaming"):
        simulation = CurriculumSimulation(replace(scenario, schedule=schedule), Script(scenario.workload(), lengths))
        certain = {"screening_record": {"screened": 100.0, "qualified": 100.0, "wasted": 0.0}}
        simulation.controller.load_state_dict(simulation.controller.state_dict() | certain)
        seconds[schedule] = simulation.step().generation_seconds
    parts = [lengths[i % len(lengths)] for i in range(batch)]
    assert seconds["streaming"] <= seconds["merged"] + 1e-9
    assert seconds["streaming"] == pytest.approx(2 * 0.5 + 0.01 * max(a + b for b, a in parts))


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule": "merged"},
        {"schedule": "merged", "max_staleness": 0},
        {"schedule": "streaming"},
        {"predictor": "posterior"},
        {"predictor": "posterior", "screening": "sequential", "n": 8},
    ],
)
def test_nothing_is_lost(changes):
    simulation, steps = play(replace(SMALL, **changes))
    prompts, rollouts = simulation.controller.conservation(), simulation.controller.rollout_conservation()
    assert prompts.pop("added") == sum(prompts.values())
    assert rollouts.pop("generated") == sum(rollouts.values()) == sum(step.rollouts for step in steps)
    assert prompts["trained"] == 6 * 8 == sum(step.trained_prompts for step in steps)
    assert simulation.fleet.num_in_flight == 0
    assert simulation.now == pytest.approx(sum(step.generation_seconds + step.update_seconds for step in steps))


# Every prompt qualifies and is trained on with 2 + 3 rollouts; ten tokens of 0.1 s each, whatever is in flight.
EVEN = replace(
    SMALL,
    **{"n": 2, "n_continue": 3, "train_batch_size": 4, "gen_batch_size": 4, "num_engines": 1},
    **{"step_seconds": 0.1, "sequence_seconds": 0.0, "prefill_seconds": 0.0, "call_seconds": 0.0},
    **{"update_seconds": 2.0, "update_rollout_seconds": 0.05, "sync_seconds": 0.5, "train_devices": 1, "num_steps": 12},
)


def _even(mode, **changes):
    scenario = replace(EVEN, mode=mode, **changes)
    return play(scenario, Script(scenario.workload(), [(10, 10)]))[1]


def test_where_training_takes_longer_than_generation_only_engines_apart_save_time():
    # Training takes 2 + .05 x 20 = 3 s, a batch 2 s of generation, one after the other where devices are shared.
    for mode in ("sync", "colocate_async"):
        steps = _even(mode)
        assert steps[-1].update_seconds == pytest.approx(3.0)
    assert _even("sync")[-1].generation_seconds == pytest.approx(2.0)
    apart = _even("separate_async")[-1]
    assert apart.generation_seconds == pytest.approx(0.0)  # it is done before training is
    assert apart.update_seconds == pytest.approx(3.0)
    assert apart.engine_seconds == pytest.approx(2.5)  # except half a second of new weights
    assert apart.sample_age >= 1


def test_where_generation_takes_longer_batches_ahead_are_generated_side_by_side():
    changes = {"update_seconds": 0.5, "sync_seconds": 0.0, "update_rollout_seconds": 0.0}
    shared, apart = (_even(mode, **changes, batches_ahead=0.0)[-1] for mode in ("sync", "separate_async"))
    assert (shared.generation_seconds, shared.update_seconds) == pytest.approx((2.0, 0.5))
    assert (apart.generation_seconds, apart.update_seconds) == pytest.approx((2.0, 0.5))  # an update admits nothing
    assert apart.sample_age == 0
    # A step's prompts join those of the one before: two batches end together, and every other step waits for none.
    one_ahead = [step.generation_seconds for step in _even("separate_async", **changes, batches_ahead=1.0)[-2:]]
    assert sorted(one_ahead) == pytest.approx([0.0, 1.5])


def test_several_updates_share_a_version_where_engines_have_their_own_devices():
    scenario = replace(SMALL, mode="separate_async", updates=4, max_staleness=2)
    simulation, steps = play(scenario)
    assert simulation.version == len(steps)
    assert all(step.trained_prompts == 8 for step in steps)
    assert simulation.controller.settings.train_batch_size == 2


def test_a_pause_costs_its_own_time_and_another_prefill_of_what_is_under_way():
    fleets = [
        EngineFleet(EngineSettings(step_seconds=1.0, sequence_seconds=0.0, prefill_seconds=p)) for p in (0.0, 0.5)
    ]
    for fleet in fleets:
        fleet.submit("a", 10, 0.0)
        fleet.submit("b", 10, 3.0)
        assert fleet.next_finished(until=5.0) is None
        fleet.interrupt(5.0)
    assert fleets[0].next_finished() == (10.0, "a")
    assert fleets[1].next_finished() == (10.0 + 0.5 + 0.5 + 2 * 0.5, "a")  # two first prefills, and two again


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
@pytest.mark.parametrize("train_on", ["qualified", "all"])
def test_asynchronous_modes_lose_nothing_and_keep_to_the_age_limit(mode, train_on):
    scenario = replace(SMALL, mode=mode, train_on=train_on, n_continue=2, predictor="posterior", max_staleness=1)
    simulation, steps = play(replace(scenario, num_steps=12))
    prompts, rollouts = simulation.controller.conservation(), simulation.controller.rollout_conservation()
    assert prompts.pop("added") == sum(prompts.values())
    assert rollouts.pop("generated") == sum(rollouts.values())
    assert all(step.trained_prompts == 8 and step.sample_age <= 1 for step in steps)
    assert simulation.controller.metrics()["curriculum/total/expired"] == 0 or train_on == "qualified"


@pytest.mark.parametrize("schedule", ["merged", "streaming"])
def test_a_trained_prompt_costs_n_over_z_plus_the_continuation(schedule):
    scenario = replace(SMALL, schedule=schedule, num_prompts=4000, num_steps=150, warmup_steps=5, max_staleness=None)
    simulation, steps = play(scenario)
    share = simulation.workload.mixed_share(scenario.n)
    cost = summarize(steps, scenario)["rollouts_a_prompt"]
    assert cost == pytest.approx(scenario.n / share + scenario.n_continue, rel=0.04)


def test_the_tokens_are_those_of_the_length_distribution():
    scenario = replace(SMALL, sigma=0.5, hard_factor=1.0, max_tokens=10_000, num_steps=40)
    _, steps = play(scenario)
    mean = sum(step.tokens for step in steps) / sum(step.rollouts for step in steps)
    assert mean == pytest.approx(50 * np.exp(0.5**2 / 2), rel=0.03)


def test_the_predictor_and_sequential_screening_save_rollouts_as_they_learn():
    scenario = replace(SMALL, num_prompts=200, num_steps=60, warmup_steps=40)
    sequential = replace(scenario, predictor="posterior", screening="sequential")
    plain, chosen, stopped = (
        summarize(play(s)[1], s)["rollouts_a_prompt"]
        for s in (scenario, replace(scenario, predictor="posterior"), sequential)
    )
    assert stopped < chosen < plain


def test_equal_seeds_give_equal_runs():
    runs = [play(replace(SMALL, predictor="posterior", seed=seed))[1] for seed in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]


def test_twice_the_engines_are_no_slower():
    scenario = replace(SMALL, slots=16, schedule="merged", **FLAT)
    seconds = [
        summarize(play(replace(scenario, num_engines=number))[1], scenario)["generation_s"] for number in (1, 2, 4)
    ]
    assert seconds[0] > seconds[1] > seconds[2]


def test_merged_waits_for_the_tail_and_the_engines_idle():
    used = [
        summarize(play(s)[1], s)["slots_used"]
        for s in (replace(SMALL, schedule="merged", hard_factor=1.0, slots=16, sigma=sigma) for sigma in (0.0, 1.0))
    ]
    assert used[0] > 1.2 * used[1]


# ------------------------------ the workload ------------------------------


def test_pass_rates_have_the_given_masses_and_mixed_shares():
    workload = Workload(WorkloadSettings(num_prompts=100_000, never=0.3, always=0.2, alpha=1.0, beta=1.0))
    assert np.mean(workload.pass_rates == 0) == pytest.approx(0.3, abs=0.01)
    assert np.mean(workload.pass_rates == 1) == pytest.approx(0.2, abs=0.01)
    # Uniform rates: P(mixed among n) = 1 - 2 / (n + 1).
    assert workload.mixed_share(4) == pytest.approx(0.5 * (1 - 2 / 5), abs=0.01)


def test_every_epoch_has_every_prompt_once():
    workload = Workload(WorkloadSettings(num_prompts=10))
    indices = [index for _ in range(10) for index in workload.next_indices(3)]
    epochs = [indices[start : start + 10] for start in (0, 10, 20)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_hard_prompts_have_longer_answers_by_the_factor():
    workload = Workload(WorkloadSettings(median_tokens=100.0, max_tokens=10**6, sigma=0.3, hard_factor=3.0))
    medians = []
    for rate in (0.0, 1.0):
        workload.pass_rates[0] = rate
        successes, tokens = workload.draw(0, 20_000)
        assert set(successes) == {rate}
        medians.append(np.median(tokens))
    assert medians[0] / medians[1] == pytest.approx(3.0, rel=0.03)


def test_the_pool_is_found_again_from_its_outcomes():
    workload = Workload(WorkloadSettings(num_prompts=20_000, never=0.35, always=0.1, alpha=1.0, beta=2.0), seed=5)
    outcomes = []
    for index in range(20_000):  # as the curriculum sees them: 4, and 12 more for mixed ones
        passes = int(sum(workload.draw(index, 4)[0]))
        total = 4
        if 0 < passes < 4:
            passes, total = passes + int(sum(workload.draw(index, 12)[0])), 16
        outcomes.append((passes, total - passes))
    found = fit_pass_rates(outcomes)
    assert found == pytest.approx({"never": 0.35, "always": 0.1, "alpha": 1.0, "beta": 2.0}, abs=0.15)
    again = Workload(WorkloadSettings(num_prompts=200_000, **found))
    for n in (2, 4, 8, 16):
        assert again.mixed_share(n) == pytest.approx(workload.mixed_share(n), rel=0.03)


# ------------------------------ what a person is told ------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "n must be an int >= 1"),
        ({"schedule": "async"}, "schedule must be one of merged, streaming"),
        ({"predictor": "oracle"}, "predictor must be one of none, posterior"),
        ({"screening": "sequential"}, "needs schedule=streaming and predictor=posterior"),
        ({"never": 0.6, "always": 0.4}, "together below 1"),
        ({"median_tokens": 9000.0}, "median_tokens must be from 1 to max_tokens=8192"),
        ({"num_prompts": 10}, "raise num_prompts or lower gen_batch_size"),
        ({"num_engines": 0}, "num_engines must be an int of at least 1"),
        ({"warmup_steps": 12}, "leave no steps to count"),
        ({"call_seconds": -1.0}, "call_seconds must be at least 0"),
        ({"screening_chunk": 0}, "screening_chunk must be an int of at least 1"),
        ({"alpha": 0.0}, "alpha must be above 0"),
        ({"sigma": -1.0}, "sigma must be at least 0"),
        ({"mode": "async"}, "mode must be one of sync, colocate_async, separate_async"),
        ({"mode": "colocate_async", "schedule": "merged"}, "mode=colocate_async needs schedule=streaming"),
        ({"updates": 7}, "train_batch_size=64 must be a multiple of updates=7"),
        ({"mode": "separate_async", "sync_seconds": 11.0}, "sync_seconds=11.0 are of the update_seconds=10.0"),
        ({"train_devices": 0}, "train_devices must be an int of at least 1"),
    ],
)
def test_bad_settings_are_explained(changes, message):
    with pytest.raises(ValueError, match=message):
        Scenario(**changes)


def test_a_pool_without_signal_ends_with_what_was_seen():
    scenario = replace(SMALL, alpha=1000.0, beta=1e-3, max_num_gen_batches=3)
    with pytest.raises(TooManyGenerationBatches, match="all right"):
        play(scenario)


def test_the_command_prints_a_table_of_all_combinations(capsys):
    options = ["--num_prompts", "300", "--num_steps", "3", "--warmup_steps", "1", "--train_batch_size", "8"]
    main([*options, "--vary", "schedule", "merged", "streaming", "--vary", "gen_batch_size", "16", "24"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        ["| merged", "16"],
        ["| merged", "24"],
        ["| streaming", "16"],
        ["| streaming", "24"],
    ]
    main([*options, "--gen_batch_size", "16"])
    assert "seconds of generation per step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n", "0"], "n must be an int >= 1"),
        (["--n", "1"], "raise n to 2 or more"),
        (["--vary", "pizza", "1"], "unknown option"),
        (["--calibrate", "nowhere"], "is missing: expected the folder"),
    ],
)
def test_the_command_ends_with_one_line(options, message):
    with pytest.raises(SystemExit, match=message):
        main(options)
