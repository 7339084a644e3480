"""tests/benchmarks/svamp_features.py, on made-up problems and screenings."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from verl_ext.data.schema import make_row, write_parquet

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from svamp_features import Screening, main, numbers, quality


@pytest.mark.parametrize(
    ("question", "expected"),
    [("From 3 apples 12.5 were eaten; 4 more came.", (3, 3, 4, 12.5)), ("None?", (1, 0, 0, 0))],
)
def test_the_numbers_of_a_question(question, expected):
    found = numbers(question)
    assert found[0] == expected[0]
    np.testing.assert_allclose(np.sinh(found[1:]), expected[1:])


def screenings_of(rates):
    rng = np.random.default_rng(0)
    return [Screening(place, int(rng.binomial(4, rate)), 4) for place, rate in enumerate(rates)]


def test_a_feature_that_tells_hopeless_problems_finds_the_mixed_ones():
    is_easy = np.arange(200) % 2
    screenings = screenings_of(np.where(is_easy, 0.4, 0.01))
    noise = np.random.default_rng(1).normal(size=(200, 1))
    informed, blind = (
        quality(features, screenings, (1.0, 0.5)) for features in (is_easy[:, None].astype(float), noise)
    )
    everything = sum(each.is_mixed for each in screenings) / 200
    assert informed.mixed[1.0] == blind.mixed[1.0] == everything
    assert informed.log_loss < 0.75 * blind.log_loss
    assert informed.mixed[0.5] > 1.7 * everything
    assert blind.mixed[0.5] < 1.4 * everything


def test_the_command_reads_a_data_set_and_a_run(tmp_path, capsys):
    rates, rng = np.where(np.arange(60) % 2, 0.5, 0.02), np.random.default_rng(2)
    rows = [
        make_row("svamp", f"What is {n} + 1?", str(n + 1), index=f"svamp/{n}", split="train", ability="math",
                 extra_info={"prompt_state": [rate] + [0.0] * 7})
        for n, rate in enumerate(rates)
    ]  # fmt: skip
    write_parquet(rows, tmp_path / "svamp.parquet")
    events = [
        {"event": "screening", "index": f"svamp/{n}", "samples": 4, "passes": int(rng.binomial(4, rate))}
        for n, rate in enumerate(rates)
    ]
    lines = [*events, {"event": "continuation", "index": "svamp/1", "samples": 4, "passes": 4}]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(SystemExit, match="is not there"):
        main(["--data", str(tmp_path / "missing.parquet")])
    main(["--data", str(tmp_path / "svamp.parquet"), "--screenings", str(tmp_path / "prompts.jsonl")])
    titles = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines()]
    assert titles == ["features", "---", "one prior", "length", "numbers", "states, 8"]
