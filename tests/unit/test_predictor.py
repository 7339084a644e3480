"""The posterior of pass rates: its arithmetic, its choices, its floor and its calibration."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum import predictor as predictor_module
from recipe.fast_dapo.curriculum.predictor import PassRatePosterior, PredictorSettings
from recipe.fast_dapo.curriculum.prior import FeaturePrior


def make(num_prompts: int = 10, features=None, sources=None, **settings) -> PassRatePosterior:
    return PassRatePosterior(num_prompts, PredictorSettings(**settings), features, sources)


@given(
    history=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 5)), max_size=8),
    discount=st.floats(0.5, 1),
)
def test_evidence_is_discounted_by_its_age_in_versions(history: list[tuple[int, int, int]], discount: float):
    posterior = make(discount=discount, prior_weight=None, recalibrate=False)
    version = 0
    for steps, passes, fails in history:
        version += steps
        posterior.set_weight_version(version)
        posterior.observe(3, passes, fails)
    alpha, beta = posterior.posterior(3)
    times = np.cumsum([steps for steps, _, _ in history])
    kept = [discount ** (version - time) for time in times]
    assert alpha == pytest.approx(0.2 + sum(k * passes for k, (_, passes, _) in zip(kept, history, strict=True)))
    assert beta == pytest.approx(0.2 + sum(k * fails for k, (_, _, fails) in zip(kept, history, strict=True)))
    assert posterior.posterior([0, 1])[0] == pytest.approx([0.2, 0.2])


def test_a_pool_of_hopeless_prompts_lowers_the_prior_and_the_appeal_of_unknown_ones():
    posterior = make(1000, discount=1.0, exploration_epochs=1e9)
    for position in range(300):
        posterior.observe(position, 0, 4)
    for position in range(300, 320):
        posterior.observe(position, 2, 2)
    assert posterior.prior.average == pytest.approx((0.2, 0.2))
    posterior.set_weight_version(1)
    assert posterior.prior.average[0] / sum(posterior.prior.average) < 0.2
    fixed = make(1000, discount=1.0, exploration_epochs=1e9, prior_weight=None)
    for position in range(320):
        passes, fails = (0, 4) if position < 300 else (2, 2)
        fixed.observe(position, passes, fails)
    fixed.set_weight_version(1)
    assert fixed.prior.average == pytest.approx((0.2, 0.2))
    known = np.arange(300, 320)
    fitted_picks = sum(np.isin(posterior.choose(20), known).sum() for _ in range(50))
    fixed_picks = sum(np.isin(fixed.choose(20), known).sum() for _ in range(50))
    assert fitted_picks > 1.5 * fixed_picks
    calibration, (a, b) = posterior.calibration(), posterior.prior.average
    assert calibration["predictor/prior_mean"] == pytest.approx(a / (a + b))
    assert calibration["predictor/prior_strength"] == pytest.approx(a + b)


def test_the_prior_is_fitted_to_what_is_left_of_the_evidence_of_each_prompt_seen():
    posterior = make(5, features=[[0.0], [1.0], [2.0], [3.0], [4.0]], discount=0.5)
    posterior.observe(1, 1, 3)
    posterior.observe(3, 4, 0)
    posterior.set_weight_version(2)
    posterior.observe(1, 2, 2)
    posterior.set_weight_version(3)
    expected = FeaturePrior(np.arange(5.0)[:, None], (0.2, 0.2), 20)
    # A fit begins where the last one ended.
    expected.fit(np.array([1, 3]), np.array([0.25, 1.0]), np.array([0.75, 0.0]))
    expected.fit(np.array([1, 3]), np.array([1.125, 0.5]), np.array([1.375, 0.0]))
    assert posterior.prior.coefficients == pytest.approx(expected.coefficients, abs=1e-3)


def test_only_the_prompts_seen_last_are_fitted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(predictor_module, "MAX_FITTED", 100)
    posterior = make(300, discount=1.0, prior_weight=1)
    for position in range(200):
        posterior.observe(position, 4, 0)
    posterior.set_weight_version(1)
    mean = posterior.prior.average[0] / sum(posterior.prior.average)
    for position in range(200, 300):
        posterior.observe(position, 0, 4)
    posterior.set_weight_version(2)
    assert mean > 0.9
    assert posterior.prior.average[0] / sum(posterior.prior.average) < 0.1


def test_unseen_prompts_that_look_like_mixed_ones_come_first():
    """Half of each of two kinds was seen: one is mixed, the other hopeless. Without features, they look the same."""
    kind = np.arange(1000) % 2
    seen = range(500)
    shares = {}
    for name, features in (("with", kind[:, None].astype(float)), ("without", None)):
        posterior = make(1000, features=features, exploration_epochs=1e9)
        for position in seen:
            posterior.observe(position, 2 if kind[position] else 0, 2 if kind[position] else 4)
        posterior.set_weight_version(1)
        chosen = np.concatenate([posterior.choose(10, exclude=seen) for _ in range(20)])
        assert (chosen >= 500).all()
        shares[name] = kind[chosen].mean()
    assert shares["with"] > 0.95
    assert shares["without"] < 0.7


def test_prompts_near_one_half_are_chosen_before_hopeless_and_solved_ones():
    posterior = make(300, exploration_epochs=1e9, discount=1.0)
    for position in range(300):
        passes = (0, 8, 16)[position % 3]
        posterior.observe(position, passes, 16 - passes)
    assert set((posterior.choose(80) % 3).tolist()) == {1}


def test_unknown_prompts_are_tried_as_well_as_promising_ones():
    posterior = make(2000, exploration_epochs=1e9)
    for position in range(20):
        posterior.observe(position, 8, 8)
    chosen = posterior.choose(40)
    assert np.isin(np.arange(20), chosen).sum() >= 1
    assert (chosen >= 20).any()


@pytest.mark.parametrize("epochs", [1.0, 2.0, 5.5])
@pytest.mark.parametrize("count", [1, 7, 16])
def test_every_prompt_is_chosen_within_the_stated_number_of_epochs(epochs: float, count: int):
    """Also a prompt that every posterior draw would avoid."""
    num_prompts = 50
    posterior = make(num_prompts, exploration_epochs=epochs, discount=1.0)
    for position in range(num_prompts):
        passes = 50 if position < 5 else 0
        posterior.observe(position, passes, 100 - passes)
    last, worst, choices = np.zeros(num_prompts), 0, 0
    for _ in range(200):
        for position in posterior.choose(count):
            choices += 1
            worst = max(worst, choices - last[position])
            last[position] = choices
    worst = max(worst, float((choices - last).max()))
    assert worst <= epochs * num_prompts + count + epochs


def hopeless_source(posterior: PassRatePosterior, sources: np.ndarray, source: int) -> None:
    """All of one source's prompts failed a hundred times; all others are known to be mixed."""
    for position, its_source in enumerate(sources):
        posterior.observe(position, *((0, 100) if its_source == source else (50, 50)))


def chosen_by_source(posterior: PassRatePosterior, sources: np.ndarray, count: int, num_choices: int) -> np.ndarray:
    """(choices, sources) numbers of prompts; the last chosen ones are live, and must not be chosen."""
    live: list[int] = []
    chosen = np.zeros((num_choices, sources.max() + 1))
    for choice in range(num_choices):
        positions = posterior.choose(count, exclude=live)
        live = [*live, *positions.tolist()][-3 * count :]
        chosen[choice] = np.bincount(sources[positions], minlength=sources.max() + 1)
    return chosen


@pytest.mark.parametrize("hopeless", [0, 2])
@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("floor", [0.5, 1.0])
@pytest.mark.parametrize("epochs", [2.0, 1e9])
@pytest.mark.parametrize("max_candidates", [65536, 60])
def test_each_source_gets_its_floor_at_any_time_also_if_it_is_hopeless(
    hopeless: int, count: int, floor: float, epochs: float, max_candidates: int
):
    sources = np.random.default_rng(5).permutation(np.repeat([0, 1, 2], [300, 75, 25]))
    posterior = make(
        400,
        sources=sources,
        discount=1.0,
        min_source_share=floor,
        exploration_epochs=epochs,
        max_candidates=max_candidates,
    )
    hopeless_source(posterior, sources, hopeless)
    chosen = chosen_by_source(posterior, sources, count, 2000 // count)
    total = np.cumsum(chosen, axis=0)
    owed = floor * np.bincount(sources) / 400 * count * np.arange(1, len(chosen) + 1)[:, None]
    # Less than one prompt is not owed yet, others may be owed one as well, and exploration takes places at random.
    assert (total > owed - (2 if epochs == 1e9 else 8)).all()


def test_without_a_floor_a_hopeless_source_is_only_explored():
    sources = np.repeat([0, 1], [300, 100])
    for floor, least, most in ((0.0, 0, 0.01), (0.5, 0.12, 0.13), (1.0, 0.24, 0.26)):
        posterior = make(400, sources=sources, discount=1.0, min_source_share=floor, exploration_epochs=1e9)
        hopeless_source(posterior, sources, 1)
        share = chosen_by_source(posterior, sources, 10, 100).sum(0)[1] / 1000
        assert least <= share <= most


def test_what_is_explored_counts_for_the_floor_of_its_source():
    sources = np.repeat([0, 1], [300, 100])
    posterior = make(400, sources=sources, discount=1.0, exploration_epochs=4.0)
    hopeless_source(posterior, sources, 1)
    assert sources[posterior.choose(200)].sum() == 200 * 0.25 * 0.5


def test_a_source_that_could_not_give_its_floor_owes_no_more_than_all_its_prompts():
    sources = np.repeat([0, 1], [200, 20])
    posterior = make(220, sources=sources, discount=1.0, exploration_epochs=1e9)
    hopeless_source(posterior, sources, 1)
    for _ in range(500):
        posterior.choose(20, exclude=range(200, 220))
    chosen = [posterior.choose(20) for _ in range(100)]
    numbers = [int(sources[positions].sum()) for positions in chosen]
    assert sum(numbers) <= 20 + 100 * 20 * 0.5 * 20 / 220 + 1
    assert max(numbers[5:]) <= 2


def test_a_floor_is_of_what_can_be_chosen():
    """Nothing fails if a source has no prompt left, or too few."""
    sources = np.array([0, 0, 0, 0, 1, 1])
    posterior = make(6, sources=sources, min_source_share=1.0)
    for _ in range(20):
        assert sorted(posterior.choose(6).tolist()) == list(range(6))
        assert sorted(posterior.choose(4, exclude=[4, 5]).tolist()) == [0, 1, 2, 3]
        assert len(posterior.choose(3, exclude=[0, 1, 2])) == 3


def test_excluded_prompts_are_never_chosen_and_a_choice_has_no_repeats():
    posterior = make(20, exploration_epochs=2.0)
    for _ in range(50):
        chosen = posterior.choose(8, exclude=[1, 2, 3]).tolist()
        assert len(set(chosen)) == 8
        assert not {1, 2, 3} & set(chosen)
    assert sorted(posterior.choose(100, exclude=range(15)).tolist()) == [15, 16, 17, 18, 19]
    assert posterior.choose(3, exclude=range(20)).tolist() == []


# ------------------------------ graded successes ------------------------------


def see(posterior: PassRatePosterior, position: int, successes: list[float]) -> None:
    passes = sum(successes)
    posterior.observe(position, passes, len(successes) - passes, sum(s * (1 - s) for s in successes))


def test_of_equal_means_the_prompt_of_the_larger_variance_is_chosen():
    """All have the mean 1/2: some earn it every time, some by passes and failures, some are in between."""
    posterior = make(300, exploration_epochs=1e9, discount=1.0)
    for position in range(300):
        see(posterior, position, [[0.5] * 16, [0.25, 0.75] * 8, [0.0, 1.0] * 8][position % 3])
    posterior.set_weight_version(1)
    kinds = [(posterior.choose(100) % 3).tolist() for _ in range(5)]
    assert all(kind.count(2) >= 95 and kind.count(0) == 0 for kind in kinds)


@pytest.mark.parametrize("knows_shortfall", [True, False])
def test_a_prompt_that_always_earns_one_half_is_no_longer_chosen(knows_shortfall: bool):
    """The other half passes one time in four. Ordered only by their means, the wrong ones would come first."""
    posterior = make(40, exploration_epochs=1e9, discount=1.0, rest_epochs=0)
    shares = []
    for version in range(100):
        posterior.set_weight_version(version)
        chosen = posterior.choose(5)
        shares.append(np.mean(chosen < 20))
        for position in chosen.tolist():
            if position >= 20:
                see(posterior, position, [0.0, 0.0, 1.0, 0.0])
            elif knows_shortfall:
                see(posterior, position, [0.5] * 4)
            else:
                posterior.observe(position, 2, 2)
    late = np.mean(shares[-40:])
    assert late < 0.1 if knows_shortfall else late > 0.8


@given(
    histories=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.lists(st.floats(0, 1), min_size=1, max_size=4)), max_size=4),
        min_size=2,
        max_size=4,
    ),
    discount=st.floats(0.5, 1),
)
def test_the_shortfall_is_that_of_the_rollouts_shrunk_to_what_the_pool_had(histories, discount):
    posterior = make(len(histories), discount=discount, prior_weight=None, prior_passes=0.3, prior_fails=0.9)
    sums = np.zeros((len(histories), 2))  # rollouts, shortfall
    for at in range(3):
        posterior.set_weight_version(at)
        for position, history in enumerate(histories):
            for version, successes in history:
                if version == at:
                    see(posterior, position, successes)
                    sums[position] += discount ** (3 - at) * np.array(
                        [len(successes), np.dot(successes, 1 - np.array(successes))]
                    )
    posterior.set_weight_version(3)
    average = sums[:, 1].sum() / sums[:, 0].sum() if sums[:, 0].any() else 0.0
    expected = (1.2 * average + sums[:, 1]) / (1.2 + sums[:, 0])
    assert posterior.shortfall(np.arange(len(histories))) == pytest.approx(expected, abs=1e-9)
    assert posterior.shortfall_share == pytest.approx(average / (0.25 * 0.75), abs=1e-9)


@pytest.mark.parametrize("sources", [None, np.arange(500) % 3])
def test_with_passes_and_failures_the_order_is_exactly_that_of_the_distance_to_one_half(sources, monkeypatch):
    """Bit for bit: the choice by variance and a choice by |draw - 1/2| from the same state."""
    rng = np.random.default_rng(0)
    posterior = make(500, sources=sources, rest_epochs=0)
    for version in range(20):
        posterior.set_weight_version(version)
        for position in posterior.choose(40):
            passes = int(rng.integers(0, 5))
            posterior.observe(int(position), passes, 4 - passes)
    assert (posterior.shortfall(np.arange(500)) == 0).all()
    seen = []
    best = posterior._floor.best
    monkeypatch.setattr(posterior._floor, "best", lambda *args: seen.append(args[:2]) or best(*args))
    twin = make(500, sources=sources, rest_epochs=0)
    twin.load_state_dict(posterior.state_dict())
    posterior.choose(40)
    candidates, distance = seen[0]
    assert (distance == np.abs(twin._rng.beta(*twin.posterior(candidates)) - 0.5)).all()


def test_calibration_of_graded_successes_is_of_each_rollout():
    posterior = make(discount=1.0, prior_passes=1, prior_fails=1)
    see(posterior, 0, [0.25, 0.75, 1.0])  # predicted 1/2
    see(posterior, 0, [0.5])  # predicted 3/5
    errors = np.array([0.25 - 0.5, 0.75 - 0.5, 1.0 - 0.5, 0.5 - 0.6])
    calibration = posterior.calibration()
    assert calibration["predictor/brier"] == pytest.approx((errors**2).mean())
    assert calibration["predictor/brier_of_the_mean"] == pytest.approx(np.var([0.25, 0.75, 1.0, 0.5]))
    assert calibration["predictor/bias"] == pytest.approx(-errors.mean())
    assert "predictor/shortfall_share" not in calibration  # before the first fit
    posterior.set_weight_version(1)
    assert posterior.calibration()["predictor/shortfall_share"] == pytest.approx(0.625 / (4 * 0.25), rel=0.2)


def test_a_state_of_the_release_before_grades_is_read():
    posterior, resumed = make(50), make(50, seed=99)
    play(posterior, range(5))
    saved = json.loads(json.dumps(posterior.state_dict()))
    assert saved.pop("shortfall_share") == 0
    saved["arrays"].pop("shortfall")
    resumed.load_state_dict(saved | {"state_version": 2})
    assert play(resumed, range(5, 10)) == play(posterior, range(5, 10))


def test_grades_travel_with_a_checkpoint():
    posterior, resumed = make(20), make(20, seed=99)
    for position in range(20):
        see(posterior, position, [position / 20, 0.5])
    posterior.set_weight_version(1)
    see(posterior, 0, [0.5] * 4)
    resumed.load_state_dict(json.loads(json.dumps(posterior.state_dict())))
    everything = np.arange(20)
    assert (resumed.shortfall(everything) == posterior.shortfall(everything)).all()
    assert resumed.shortfall(everything).min() > 0


def test_large_data_sets_are_sampled():
    posterior = make(1000, max_candidates=50, exploration_epochs=1e9)
    assert len(set(posterior.choose(40).tolist())) == 40


def test_calibration_compares_the_prediction_from_before_with_the_outcome():
    posterior = make(discount=1.0, prior_passes=1, prior_fails=1)
    posterior.observe(0, 3, 1)  # predicted 1/2
    posterior.observe(0, 0, 1)  # predicted 4/6
    calibration = posterior.calibration()
    assert calibration["predictor/brier"] == pytest.approx((4 * 0.25 + (4 / 6) ** 2) / 5)
    assert calibration["predictor/brier_of_the_mean"] == pytest.approx(0.6 * 0.4)
    assert calibration["predictor/bias"] == pytest.approx((4 * 0.5 + 4 / 6 - 3) / 5)
    assert posterior.reliability.rows() == [
        {"bin": 0.5, "rollouts": 4, "predicted": 0.5, "observed": 0.75},
        {"bin": 0.6, "rollouts": 1, "predicted": pytest.approx(4 / 6), "observed": 0},
    ]
    posterior.reliability.reset()
    assert posterior.calibration() == {}
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(posterior.state_dict())))
    assert resumed.reliability.rows() == posterior.reliability.rows() != []


def test_predictions_are_calibrated_on_prompts_drawn_from_the_prior():
    rng = np.random.default_rng(0)
    rates = rng.beta(0.2, 0.2, 4000)
    posterior = make(4000, discount=1.0, exploration_epochs=4.0)
    for _ in range(30):
        for position in posterior.choose(400):
            passes = int(rng.binomial(4, rates[position]))
            posterior.observe(position, passes, 4 - passes)
    for row in posterior.reliability.rows():
        if row["rollouts"] > 2000:
            assert row["observed"] == pytest.approx(row["predicted"], abs=0.05)
    calibration = posterior.calibration()
    assert calibration["predictor/brier"] < calibration["predictor/brier_of_the_mean"]


def play(posterior: PassRatePosterior, versions: range) -> list[list[int]]:
    """Choose and observe; even prompts are solved, odd ones mixed."""
    chosen = []
    for version in versions:
        posterior.set_weight_version(version)
        chosen.append(posterior.choose(8).tolist())
        for position in chosen[-1]:
            posterior.observe(position, 2 if position % 2 else 4, 2 if position % 2 else 0)
    return chosen


@pytest.mark.parametrize("has_features", [False, True])
def test_a_resumed_predictor_goes_on_exactly_as_the_one_that_was_saved(has_features: bool):
    known = {}
    if has_features:
        rng = np.random.default_rng(0)
        known = {"features": rng.normal(size=(50, 3)), "sources": rng.integers(0, 3, 50), "min_source_share": 1.0}
    posterior, resumed = make(50, **known), make(50, **known, seed=99)
    play(posterior, range(5))
    resumed.load_state_dict(json.loads(json.dumps(posterior.state_dict())))
    assert play(resumed, range(5, 10)) == play(posterior, range(5, 10))
    everything = np.arange(50)
    assert np.array_equal(resumed.posterior(everything), posterior.posterior(everything))
    assert resumed.state_dict() == posterior.state_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state_version": 7}, "expected the predictor.s state_version 4, got 7: start a new run, or resume"),
        ({"num_prompts": 9}, "knows 9 prompts, the data set has"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change: dict, message: str):
    posterior = make()
    with pytest.raises(ValueError, match=message):
        posterior.load_state_dict(posterior.state_dict() | change)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (
            {"features": np.eye(10)[:, :3], "sources": np.arange(10) % 2},
            "knows 2 features .* 2 data sources, now .* 3 ",
        ),
        ({"features": np.eye(10)[:, :2], "sources": np.arange(10) % 3}, "and 2 data sources, now there are 2 and 3"),
        ({"sources": np.arange(10) % 2}, "now there are 0 and 2: resume with .* curriculum.posterior.use_features"),
    ],
)
def test_a_state_of_other_features_or_sources_is_refused_and_changes_nothing(known: dict, message: str):
    saved = make(features=np.eye(10)[:, :2], sources=np.arange(10) % 2)
    play(saved, range(3))
    posterior = make(**known)
    before = json.dumps(posterior.state_dict())
    with pytest.raises(ValueError, match=message):
        posterior.load_state_dict(saved.state_dict())
    assert json.dumps(posterior.state_dict()) == before


@pytest.mark.parametrize(
    "settings",
    [{"prior_passes": 0}, {"prior_fails": -1}, {"prior_weight": 0}, {"discount": 0}, {"discount": 1.1},
     {"exploration_epochs": 0.5}, {"max_candidates": 0}, {"min_source_share": -0.1}, {"min_source_share": 1.1}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings: dict):
    with pytest.raises(ValueError, match=next(iter(settings))):
        make(**settings)


def test_misuse_is_refused():
    posterior = make()
    posterior.set_weight_version(3)
    with pytest.raises(ValueError, match="weight_version >= 3, got 2"):
        posterior.set_weight_version(2)
    with pytest.raises(ValueError, match="counts of at least 0"):
        posterior.observe(0, -1, 2)
    with pytest.raises(ValueError, match=r"a shortfall of -0\.1"):
        posterior.observe(0, 1, 2, -0.1)
    with pytest.raises(ValueError, match="at least one prompt"):
        make(0)
    with pytest.raises(ValueError, match="expected features of 10 prompts, got those of 9"):
        make(10, features=np.zeros((9, 1)))
    with pytest.raises(ValueError, match="expected sources of 10 prompts, got those of 9"):
        make(10, sources=np.zeros(9, dtype=int))
