"""Credit of a state's tokens: the test against brute force, its error rate and power, and what counts as a label."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from recipe.golden_redaction.method.credit import CreditSettings, action_set, adjusted_p_values, assign_credit

ALPHA = 0.05
COUNTS = st.lists(st.integers(1, 5).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=2, max_size=4)


def fisher(passes: int, size: int, total: int, num_all: int) -> Fraction:
    """Twice the smaller tail of the hypergeometric distribution, by its definition."""

    def probability(s: int) -> Fraction:
        if not 0 <= total - s <= num_all - size:
            return Fraction(0)
        return Fraction(math.comb(size, s) * math.comb(num_all - size, total - s), math.comb(num_all, total))

    lower = sum((probability(s) for s in range(passes + 1)), Fraction(0))
    upper = sum((probability(s) for s in range(passes, size + 1)), Fraction(0))
    return min(Fraction(1), 2 * min(lower, upper))


def brute_force(passes: list[int], sizes: list[int]) -> list[float]:
    """P(the smallest p-value is at most this token's), over every table with the same totals."""
    total, num_all = sum(passes), sum(sizes)
    observed = [fisher(s, n, total, num_all) for s, n in zip(passes, sizes, strict=True)]
    weights = dict.fromkeys(range(len(sizes)), Fraction(0))
    for table in itertools.product(*(range(n + 1) for n in sizes)):
        if sum(table) == total:
            ways = math.prod(math.comb(n, s) for s, n in zip(table, sizes, strict=True))
            smallest = min(fisher(s, n, total, num_all) for s, n in zip(table, sizes, strict=True))
            for token, p_value in enumerate(observed):
                weights[token] += Fraction(ways, math.comb(num_all, total)) * (smallest <= p_value)
    return [float(weight) for weight in weights.values()]


@settings(deadline=None, max_examples=40)
@given(COUNTS)
def test_p_values_are_those_of_every_table_with_the_same_totals(counts):
    passes, sizes = [s for s, _ in counts], [n for _, n in counts]
    assert adjusted_p_values(passes, sizes) == pytest.approx(brute_force(passes, sizes), abs=1e-12)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 40).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=2, max_size=9))
def test_the_correction_costs_something_and_never_more_than_bonferronis(counts):
    passes, sizes = [s for s, _ in counts], [n for _, n in counts]
    adjusted = adjusted_p_values(passes, sizes)
    tables = [hypergeom(sum(sizes), sum(passes), n) for n in sizes]
    for table, size, s, p_value in zip(tables, sizes, passes, adjusted, strict=True):
        outcomes = np.arange(size + 1)
        tails = 2 * np.minimum(table.cdf(outcomes), table.sf(outcomes - 1))
        alone = table.pmf(outcomes)[tails <= tails[s] * (1 + 1e-9)].sum()
        assert alone * (1 - 1e-9) <= p_value + 1e-12
        assert p_value <= min(1, len(sizes) * tails[s]) + 1e-9
    # The order of tokens does not matter; passes and failures are symmetric.
    assert adjusted_p_values(passes[::-1], sizes[::-1]).tolist() == adjusted.tolist()[::-1]
    failures = adjusted_p_values([n - s for s, n in counts], sizes)
    assert failures == pytest.approx(adjusted, abs=1e-9)


def test_two_tokens_are_one_comparison():
    plain = float(fisher(8, 8, 9, 16))  # both tails are equally long here
    assert adjusted_p_values([8, 1], [8, 8]) == pytest.approx([plain, plain])


def labelled_share(rates: list[float], num_rollouts: int, num_states: int, seed: int = 0) -> tuple[np.ndarray, float]:
    """Shares of states in which each token is labelled on its correct side of 0, and in which any token is."""
    passes = np.random.default_rng(seed).binomial(num_rollouts, rates, size=(num_states, len(rates)))
    significant = np.array([adjusted_p_values(row, [num_rollouts] * len(rates)) <= ALPHA for row in passes])
    return (significant & (passes > passes.mean(1, keepdims=True))).mean(0), float(significant.any(1).mean())


@pytest.mark.parametrize(("num_tokens", "num_rollouts"), [(2, 8), (2, 32), (4, 8), (4, 16), (8, 16)])
@pytest.mark.parametrize("rate", [0.03, 0.2, 0.5, 0.9])
def test_at_most_5_percent_of_states_with_equal_tokens_get_a_label(num_tokens, num_rollouts, rate):
    share = labelled_share([rate] * num_tokens, num_rollouts, 2000)[1]
    assert share <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / 2000)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=4), st.data())
def test_the_error_rate_is_exact_given_the_passes_of_a_state(sizes, data):
    # Not by simulation: over every table with these totals, whatever the pass rate was.
    total = data.draw(st.integers(0, sum(sizes)))
    error = 0.0
    for table in itertools.product(*(range(n + 1) for n in sizes)):
        if sum(table) == total and (adjusted_p_values(table, sizes) <= ALPHA).any():
            error += math.prod(math.comb(n, s) for s, n in zip(table, sizes, strict=True)) / math.comb(
                sum(sizes), total
            )
    assert error <= ALPHA + 1e-9


@pytest.mark.parametrize("rates", [[0.5, 0.1, 0.9], [0.3, 0.3, 0.0, 0.6], [0.4, 0.7, 0.1, 0.3, 0.5]])
def test_a_token_as_good_as_the_mean_of_unequal_others_is_rarely_labelled(rates):
    assert rates[0] == pytest.approx(np.mean(rates[1:]))
    passes = np.random.default_rng(1).binomial(16, rates, size=(2000, len(rates)))
    share = np.mean([adjusted_p_values(row, [16] * len(rates))[0] <= ALPHA for row in passes])
    assert share <= ALPHA


@pytest.mark.parametrize(
    ("num_tokens", "num_rollouts", "better", "others", "power"),
    [(2, 8, 0.9, 0.1, 0.93), (2, 16, 0.5, 0.1, 0.58), (2, 32, 0.6, 0.3, 0.62), (4, 8, 0.5, 0.1, 0.42),
     (4, 16, 0.9, 0.5, 0.67), (4, 32, 0.3, 0.1, 0.50)],
)  # fmt: skip
def test_power_is_that_of_the_docstrings_table(num_tokens, num_rollouts, better, others, power):
    rates = [better] + [others] * (num_tokens - 1)
    assert labelled_share(rates, num_rollouts, 2000, seed=2)[0][0] == pytest.approx(power, abs=0.04)


# ------------------------------ credit ------------------------------

SETTINGS = CreditSettings(rollouts_per_action=8, min_labels=4)


def marks(passes: int, size: int, missing: int = 0) -> list[float | None]:
    return [1.0] * passes + [0.0] * (size - passes) + [None] * missing


def test_one_more_pass_of_eight_is_no_evidence():
    credit = assign_credit([marks(5, 8), marks(4, 8)], np.log([0.5, 0.5]), SETTINGS)
    assert credit.advantages.tolist() == [0, 0]
    assert credit.p_values.tolist() == [1, 1]


def test_advantages_have_the_sign_of_the_difference():
    credit = assign_credit([marks(8, 8), marks(0, 8), marks(4, 8)], np.log([0.2, 0.3, 0.1]), SETTINGS)
    assert credit.advantages.tolist() == [1, -1, 0]
    assert credit.rewards.tolist() == [1, 0, 0.5]
    assert credit.state_reward == pytest.approx((0.2 * 1 + 0.1 * 0.5) / 0.6)
    assert credit.coverage == pytest.approx(0.6)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.floats(-50, -0.1)), min_size=2, max_size=5).filter(
    lambda tokens: sum(math.exp(log_prob) for _, log_prob in tokens) <= 1), st.integers(0, 20))  # fmt: skip
def test_a_rollout_without_a_label_is_as_if_it_had_not_been_made(tokens, missing):
    log_probs = [log_prob for _, log_prob in tokens]
    credit = assign_credit([marks(s, 8) for s, _ in tokens], log_probs, SETTINGS)
    with_errors = assign_credit([marks(s, 8, missing) for s, _ in tokens], log_probs, SETTINGS)
    for name in ("num_labels", "rewards", "p_values", "advantages"):
        assert getattr(credit, name).tolist() == getattr(with_errors, name).tolist()
    assert credit.state_reward == with_errors.state_reward
    assert 0 <= credit.state_reward <= 1
    overall = np.mean([s / 8 for s, _ in tokens])
    assert ((credit.advantages == 0) | (np.sign(credit.rewards - overall) == credit.advantages)).all()
    assert ((credit.advantages != 0) == (credit.p_values <= ALPHA)).all()


def test_tokens_with_few_labels_are_not_compared_but_count_in_the_state_reward():
    credit = assign_credit([marks(8, 8), marks(0, 3, 5), marks(0, 8)], np.log([0.25, 0.5, 0.25]), SETTINGS)
    assert credit.advantages.tolist() == [1, 0, -1]
    assert credit.p_values[1] == 1
    assert credit.state_reward == pytest.approx(0.25)
    without = assign_credit([marks(8, 8), marks(0, 0, 8)], np.log([0.25, 0.5]), SETTINGS)
    assert without.advantages.tolist() == [0, 0]
    assert (without.state_reward, without.coverage) == (1, 0.25)
    assert np.isnan(without.rewards[1])


def test_without_any_label_there_is_no_state_reward():
    credit = assign_credit([[None], []], np.log([0.5, 0.5]), SETTINGS)
    assert np.isnan(credit.state_reward)
    assert credit.coverage == 0


def test_the_state_reward_of_unlikely_tokens_is_finite():
    credit = assign_credit([marks(4, 8), marks(8, 8)], [-2000.0, -2000.0], SETTINGS)
    assert credit.state_reward == pytest.approx(0.75)


# ------------------------------ actions ------------------------------


@given(st.lists(st.integers(0, 6), max_size=20), st.integers(0, 6), st.one_of(st.none(), st.integers(1, 9)))
def test_actions_are_distinct_and_have_the_teachers_token(sampled, teacher, most):
    actions = action_set(sampled, teacher, most)
    everything = set(sampled) | {teacher}
    assert teacher in actions
    assert len(actions) == len(set(actions)) == min(len(everything), most or 99)
    assert set(actions) <= everything
    order = list(dict.fromkeys([*sampled, teacher]))
    assert actions == [token for token in order if token in actions]
    kept = [sampled.count(token) for token in actions if token != teacher]
    assert all(count >= sampled.count(gone) for count in kept for gone in everything - set(actions))


def test_the_teachers_token_comes_last_where_it_was_not_sampled():
    assert action_set([7, 3, 7], 5) == [7, 3, 5]
    assert action_set([7, 5, 7], 5) == [7, 5]
    assert action_set([4, 7, 3, 7], 5, 2) == [7, 5]
    assert action_set([], 5) == [5]


# ------------------------------ refusals ------------------------------


def test_misuse_is_refused():
    with pytest.raises(ValueError, match=r"one log-prob for each of 2 token\(s\)"):
        assign_credit([[1.0], [0.0]], [-1.0], SETTINGS)
    with pytest.raises(ValueError, match=r"labels must be 1, 0 or None, got 0\.5"):
        assign_credit([[0.5]], [-1.0], SETTINGS)
    with pytest.raises(ValueError, match="log-probs must be at most 0"):
        assign_credit([[1.0]], [0.5], SETTINGS)
    with pytest.raises(ValueError, match="passes <= labels"):
        adjusted_p_values([3], [2])
    with pytest.raises(ValueError, match="max_actions must be at least 1"):
        action_set([1], 2, 0)


@pytest.mark.parametrize(
    "setting",
    [{"num_next_tokens": 0}, {"max_actions": 1}, {"rollouts_per_action": 0}, {"min_labels": 0}, {"min_labels": True},
     {"alpha": 0.0}, {"alpha": 1.0}, {"alpha": "small"}],
)  # fmt: skip
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=f"{next(iter(setting))} must be .*got"):
        CreditSettings(**setting)


def test_more_labels_than_rollouts_cannot_be_asked_for():
    with pytest.raises(ValueError, match="min_labels=9 can never be reached with rollouts_per_action=8"):
        CreditSettings(rollouts_per_action=8, min_labels=9)
