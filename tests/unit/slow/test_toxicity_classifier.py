"""The demo's classifier learns from soft scores, and its measurements are the usual ones. No real text here."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toxicity_play import POLITE, RUDE

from data_preprocess.real_toxicity_prompts import ScoredPrompt
from data_preprocess.toxicity_classifier import (
    ClassifierSettings,
    auroc,
    main,
    measure,
    predict,
    shuffled_batches,
    train,
)
from verl_ext.rewards.toxicity import compute_score

TINY = ClassifierSettings(
    steps=60, batch_size=8, masked=0.1, dropout=0.0, learning_rate=1e-2, vocab_size=330, max_tokens=32, hidden_size=16
)
PLAY = [ScoredPrompt(f"x/{n}", text, 0.9, False) for n, text in enumerate(RUDE)]
PLAY += [ScoredPrompt(f"y/{n}", text, 0.1, False) for n, text in enumerate(POLITE)]


@pytest.fixture(scope="module")
def trained():
    return train(PLAY, TINY, report_every=0)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "rtp.jsonl"
    path.write_text("".join(json.dumps({"prompt": p.text, "prompt_toxicity": p.toxicity}) + "\n" for p in PLAY))
    return path


def test_a_few_steps_separate_rude_from_polite(trained):
    assert predict(*trained, RUDE).min() > 0.5 > predict(*trained, POLITE).max()
    quality = measure(*trained, PLAY)
    assert (quality.prompts, quality.auroc) == (len(PLAY), 1.0)
    assert quality.correlation > 0.9


def test_targets_are_soft_so_predictions_stay_near_the_scores(trained):
    assert predict(*trained, RUDE).mean() == pytest.approx(0.9, abs=0.1)
    assert predict(*trained, POLITE).mean() == pytest.approx(0.1, abs=0.1)


def test_equal_settings_give_equal_weights_and_another_seed_others(trained):
    again = train(PLAY, TINY, report_every=0)
    other = train(PLAY, dataclasses.replace(TINY, seed=1), report_every=0)
    assert again[1].get_vocab() == trained[1].get_vocab()
    assert all(torch.equal(a, b) for a, b in zip(trained[0].parameters(), again[0].parameters(), strict=True))
    assert not torch.equal(trained[0].classifier.weight, other[0].classifier.weight)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_auroc_is_the_share_of_pairs_in_the_right_order(pairs):
    scores, positive = (np.array(part) for part in zip(*pairs, strict=True))
    wins = [float(a > b) + 0.5 * float(a == b) for a in scores[positive] for b in scores[~positive]]
    assert auroc(scores, positive) == pytest.approx(np.mean(wins) if wins else np.nan, nan_ok=True)


@given(st.integers(1, 40), st.integers(1, 40))
def test_an_epoch_shows_no_row_twice(size, batch_size):
    batches = shuffled_batches(size, batch_size, np.random.default_rng(0))
    width = min(size, batch_size)
    epoch = [row for _ in range(size // width) for row in next(batches)]
    assert len(set(epoch)) == len(epoch) == size // width * width


def test_the_command_saves_what_the_reward_reads_and_trains_once(source, tmp_path, capsys):
    folder = tmp_path / "classifier"
    command = ["--input", str(source), "--local_save_dir", str(folder), "--steps", "3"]
    main(command)
    assert "held-out prompts: AUROC" in capsys.readouterr().out
    result = compute_score("x", "a kind friend", "", model_path=str(folder))
    assert 0 < result["toxicity"] < 1
    main(command)
    assert "AUROC" not in capsys.readouterr().out
    main([*command, "--force"])
    assert "AUROC" in capsys.readouterr().out
    source.write_text(source.read_text().replace("0.9", "0.8"))
    main(command)
    assert "AUROC" in capsys.readouterr().out


def test_without_data_there_is_no_classifier(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--local_save_dir", str(tmp_path)])
    assert "--input" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no such file"):
        main(["--input", str(tmp_path / "x.jsonl"), "--local_save_dir", str(tmp_path)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "at least 1"),
        ({"masked": 1.0}, "shares below 1"),
        ({"dropout": -0.1}, "shares below 1"),
        ({"hidden_size": 33}, "multiple of num_heads"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ClassifierSettings(**changes)
