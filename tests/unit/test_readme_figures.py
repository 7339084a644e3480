"""The figures in sentences of the README and of the benchmarks are those of the leaderboard and the benchmarks' tables.

`test_leaderboard_summary.py` compares its table.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from leaderboard_summary import POOL_TITLES, PUBLISHED, ROOT, Row, read, thousands, times

ROWS = {(row.pool, row.method): row for row in read(PUBLISHED)}


def running_text(name: str) -> str:
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


README = running_text("README.md")
LEADERBOARD = running_text("docs/benchmarks/fast_dapo.md")


def found(pattern: str, text: str = README) -> tuple[str, ...]:
    """The groups of a sentence that must be there once; `<n>` in the pattern is a number."""
    matches = list(re.finditer(pattern.replace("<n>", r"(-?[\d.]+(?<!\.))"), text))
    assert len(matches) == 1, f"expected one sentence like {pattern!r}, found {len(matches)}: adapt this test"
    return matches[0].groups()


def to_25(pool: str, method: str) -> str:
    """Thousands of rollouts until +25 points, as a table has them."""
    return thousands(ROWS[pool, method].rollouts["+25"], with_interval=False)


def table(page: str, heading: str) -> dict[str, list[str]]:
    """The cells of a section's first table by the first cell of their row, without bold type."""
    section = (ROOT / page).read_text(encoding="utf-8").partition(f"# {heading}\n")[2]
    rows = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert rows is not None, f"{page} has no table below {heading!r}"
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[0].replace("**", "").splitlines()]
    return {first: rest for first, *rest in cells}


# ------------------------------ the leaderboard ------------------------------


def test_the_caption_has_the_settings_of_choose():
    prompts, group, group_on_e, updates = map(
        int, found(r"Fast DAPO's settings are <n> prompts x <n> rollout \(pool E: x <n>\) and <n> updates per batch")
    )

    def settings(row: Row) -> tuple[int, int, int]:
        return row.batch, row.group, row.updates

    assert settings(ROWS["B", "choose"]) == (prompts, group, updates)
    assert settings(ROWS["C", "choose"]) == (prompts, group, updates)
    assert settings(ROWS["E", "choose"]) == (prompts, group_on_e, updates)


def test_the_caption_has_the_pools_share_of_hopeless_prompts():
    (share,) = found(r"pool B: <n> % of the prompts are hopeless")
    assert (share,) == found(r"<n> % hopeless", POOL_TITLES["B"])


def test_the_table_has_the_seeds_of_its_caption():
    (seeds,) = found(r"risen by 25 points, means of <n> seeds")
    assert {row.seeds for row in ROWS.values()} == {int(seeds)}


def test_the_ratios_without_features_are_those_of_the_leaderboard():
    ratios = found(r"Without these features the ratios are <n>, <n> and <n>;")
    assert ratios == tuple(times(ROWS[pool, "choose_flat"].ratio, with_interval=False) for pool in "BCE")


def test_two_phases_are_compared_with_uniform_sampling_of_the_same_number_of_updates():
    assert found(r"same number of updates \(<n>k against <n>k\)") == (
        to_25("B", "two_phase"),
        to_25("B", "uniform_rloo"),
    )
    assert ROWS["B", "two_phase"].updates == ROWS["B", "uniform_rloo"].updates


def test_the_benchmarks_say_what_filter_groups_needs_on_every_pool():
    figures = found(
        r"verl's `filter_groups` needs <n> on pool B, <n> on E, <n> on C, <n> on T and <n> on D\.",
        running_text("docs/benchmarks.md"),
    )
    assert figures == tuple(to_25(pool, "filter_groups") for pool in "BECTD")


# ------------------------------ figures of the pages ------------------------------


def test_a_price_on_training_gives_the_figures_of_its_last_run():
    choose, uniform, trained, uniform_trained = found(
        r"Fast DAPO generates <n>k rollouts on pool B instead of <n>k, and trains on <n>k instead of <n>k"
    )
    _, _, measured = found(r"same run \(2026-11-24\): choose <n> \[[^]]+], <n> \[[^]]+] and \*\*<n>\*\*", LEADERBOARD)
    assert choose == measured
    assert (uniform, uniform_trained) == found(r"; uniform RLOO <n> \[[^]]+] and <n> trained on", LEADERBOARD)
    assert (choose, trained) == found(r"to \+25; measured <n>k and <n>k\.", LEADERBOARD)
    of_the_overview = found(
        r"choose needs <n> generated and <n> trained on, uniform RLOO <n> and <n>\.", running_text("docs/benchmarks.md")
    )
    assert of_the_overview == (choose, trained, uniform, uniform_trained)


def test_hidden_states_need_as_many_rollouts_as_measured():
    (states,) = found(r"hidden state can replace them \(<n>k rollouts on pool B\)")
    assert (states,) == found(r"With single rollouts \(128 x 1\) the states need <n> \[", LEADERBOARD)


def test_seconds_are_those_of_the_table():
    choose, uniform, filtered, seeds = found(
        r"needs <n> seconds to \+20 points with [^(]+? uniform sampling <n> and verl's `filter_groups` <n> "
        r"\(\[<n> seeds]"
    )
    page, heading = "docs/benchmarks/fast_dapo_seconds.md", "With each method's own best settings"
    rows = table(page, heading)
    seconds = {name: cells[1].split()[0] for name, cells in rows.items() if name.startswith(("choose", "uni", "verl"))}
    assert rows["method"][1] == "seconds to +20"
    assert seconds == {"choose": choose, "uniform RLOO": uniform, "verl's filter_groups": filtered}
    assert f"to +20 points; {seeds} seeds" in running_text(page).partition(heading)[2]


def test_the_factor_that_was_published_first_is_that_of_its_table():
    (factor,) = found(r"first published as <n> times better \(16 prompts x 16 rollouts\)")
    page = running_text("docs/benchmarks/fast_dapo_two_phases.md")
    (measured,) = found(r"\| with sequential screening \| 2\.5x aimed, <n>x \|", page)
    assert factor == f"{float(measured):.1f}"


def test_inverted_rewards_cost_what_the_safety_suite_says():
    differences = found(r"uniform sampling \((\S+ \[[^]]+]) and (\S+ \[[^]]+]) points in the two sources\)")
    page = (ROOT / "docs/benchmarks/fast_dapo_safety.md").read_text(encoding="utf-8")
    rows = re.search(r"\| a tenth of the differences rewards what is wrong .*\n.*\n", page)
    assert rows is not None
    assert differences == tuple(row.split("|")[6].strip() for row in rows[0].splitlines())


def test_the_pretrained_model_is_as_accurate_as_measured():
    page = "docs/benchmarks/pretrained.md"
    runs = table(page, "SmolLM2-135M-Instruct on SVAMP")
    arms = {name.partition(":")[0].partition(",")[0]: row for name, row in table(page, "Against other methods").items()}

    def percent(accuracy: str) -> str:
        return f"{100 * float(accuracy.split()[0]):.1f}"

    before, *after = found(r"raise it from <n> % to <n>, <n>, <n> and <n> % of SVAMP's held-out problems")
    assert before == percent(runs["the model as it is"][0])
    demos = runs["after 30 steps"], runs["after 30 steps from a fresh clone"]
    benchmarks = arms["two_phase"], arms["two_phase_long"]
    assert after == [percent(row[0]) for row in demos] + [percent(row[3]) for row in benchmarks]

    text = running_text(page)
    generated = [
        *found(r"30 steps, (\S+) rollouts generated", text),
        *found(r"It generated (\S+) rollouts", text),
        *(row[0] for row in benchmarks),
    ]
    counts = [int(count.replace(",", "")) for count in generated]
    rollouts = found(r"within (\S+), (\S+), (\S+) and (\S+) rollouts")
    assert rollouts == tuple(f"{round(count, -2):,}" for count in counts)

    others = found(
        r"uniform sampling at its best group size of three gets to <n> %, the recipe's default to <n> % "
        r"and verl's filter_groups to <n> %"
    )
    uniform = max((percent(arms[f"uniform_{size}"][3]) for size in (4, 8, 16)), key=float)
    assert others == (uniform, percent(arms["choose"][3]), percent(arms["filter_groups"][3]))
