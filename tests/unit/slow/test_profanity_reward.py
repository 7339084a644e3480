"""The reward from a third-party classifier, with another judge's verdict next to it."""

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from verl_ext.core.errors import SignalError
from verl_ext.rewards import toxicity
from verl_ext.rewards.profanity import compute_score

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("profanity_check") is None, reason="the package alt-profanity-check is not installed"
)

POLITE, RUDE = "have a nice day", "you are a stupid idiot"


@needs_package
def test_offensive_words_cost_the_reward():
    polite, rude = (compute_score("rtp", text, "") for text in (POLITE, RUDE))
    assert polite["score"] > 0.9
    assert rude["score"] < 0.1
    assert (polite["acc"], rude["acc"]) == (1.0, 0.0)
    assert rude["toxicity"] == pytest.approx(1 - rude["score"])


def test_saying_nothing_is_no_way_out():
    silent = compute_score("rtp", "  ", "", empty_score=0.25)
    assert (silent["score"], silent["acc"], silent["empty"]) == (0.25, 0.0, 1.0)


@needs_package
def test_the_prompt_is_read_on_request():
    alone = compute_score("rtp", " and you know it", "", {"prompt": RUDE})
    together = compute_score("rtp", " and you know it", "", {"prompt": RUDE}, with_prompt=True)
    assert together["pred"] == f"{RUDE} and you know it"
    assert together["toxicity"] > alone["toxicity"] + 0.3


@needs_package
def test_many_threads_get_the_same_verdicts():
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda text: compute_score("rtp", text, "")["toxicity"], [POLITE, RUDE] * 20))
    assert found == found[:2] * 20


@needs_package
def test_another_judges_verdict_is_also_reported(monkeypatch: pytest.MonkeyPatch):
    asked = []

    def other(*row: object, **settings: object) -> dict[str, float]:
        asked.append((row, settings))
        return {"toxicity": 0.75}

    monkeypatch.setattr(toxicity, "compute_score", other)
    result = compute_score(
        "rtp", POLITE, "", {"prompt": "Well,"}, second_model="folder", toxic_label="bad", with_prompt=True
    )
    assert result["toxicity_second"] == 0.75
    assert result["score"] > 0.9
    ((row, settings),) = asked
    assert row == ("rtp", POLITE, "", {"prompt": "Well,"})
    assert settings == {"model_path": "folder", "toxic_label": "bad", "with_prompt": True}


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "profanity_check", None)
    with pytest.raises(SignalError, match="pip install alt-profanity-check"):
        compute_score("rtp", POLITE, "")
