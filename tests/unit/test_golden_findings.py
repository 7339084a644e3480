"""The findings of a golden redaction run: the first probe against the last, at the places that both have."""

from recipe.golden_redaction.method.findings import run_findings


def probe(step: int, problem: str, share: float, pass_rate: float | None) -> dict:
    return {"step": step, "problem": problem, "share": share, "k": 3, "pass_rate": pass_rate}


PROBES = [
    probe(0, "a", 0.5, 0.25), probe(0, "a", 1.0, 0.0), probe(0, "b", 0.5, 0.5), probe(0, "c", 0.5, 0.5),
    probe(0, "d", 0.5, None), probe(2, "a", 0.5, 0.0), probe(2, "b", 0.5, 0.0),
    probe(4, "a", 0.5, 0.75), probe(4, "a", 1.0, 0.25), probe(4, "b", 0.5, 0.25), probe(4, "c", 0.5, 0.5),
    probe(4, "d", 0.5, 1.0),
]  # fmt: skip


def test_problems_rise_and_fall_by_the_mean_of_their_places():
    found = run_findings(PROBES, {"intended": 6, "overshot": 3, "wrong_way": 1}, 1.0, 7.5, 0.5)
    assert (found.problems, found.risen, found.fallen) == (3, 1, 1)  # d has no rate to compare with
    assert found.pass_rates == {"0.5": ((0.25 + 0.5 + 0.5) / 3, (0.75 + 0.25 + 0.5) / 3), "1": (0.0, 0.25)}
    assert (found.labelled_tokens, found.intended_way, found.past_target) == (10, 0.9, 0.3)
    texts = dict(found.lines())
    assert texts["redaction length"].startswith("1.0 -> 7.5 tokens on average; 50 % of the problems had a visit with")
    assert texts["labelled tokens"].startswith("10, of which 90.0 %")
    assert texts["labelled tokens"].endswith("in the serving engine, 30.0 % past their target")
    assert texts["state rewards"] == "rose on 1 of 3 problems, fell on 1"
    assert texts["pass rate, 50 % hidden"] == "0.417 -> 0.500"


def test_one_probe_alone_is_compared_with_nothing():
    found = run_findings(PROBES[:4], {}, 1.0, 1.0, 0.0)
    assert (found.problems, found.pass_rates, found.intended_way) == (0, {}, None)
    assert [name for name, _ in found.lines()] == ["redaction length"]
