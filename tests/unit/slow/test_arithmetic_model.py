"""The base model of the arithmetic task: its tokenizer, its corpus, and a cache that is never half written."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from data_preprocess import arithmetic_model
from data_preprocess.arithmetic import answer
from data_preprocess.arithmetic_model import (
    BaseModelSettings,
    demonstrations,
    encode_batch,
    is_cached,
    sloppy_sum,
    train,
    train_cached,
)
from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer

TINY = BaseModelSettings(steps=3, batch_size=4, num_layers=1, hidden_size=32, num_heads=1, intermediate_size=16)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return train_cached(TINY, tmp_path_factory.mktemp("models") / "base", report_every=0)


@pytest.fixture(scope="module")
def tokenizer(saved):
    return AutoTokenizer.from_pretrained(saved)


def test_nothing_is_printed_while_it_is_written(tmp_path, capfd):
    train_cached(TINY, tmp_path / "base", report_every=0)
    assert capfd.readouterr() == ("", "")


@given(st.text(alphabet=st.characters(max_codepoint=127)).filter(lambda text: "<|" not in text))
def test_any_ascii_text_round_trips_byte_by_byte_after_reloading(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("text", ["\n", " ", "  \n\n ", "1 + 1\t=\r\n", "é漢🙂"])
def test_whitespace_and_other_scripts_round_trip_after_reloading(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text


def test_end_of_text_and_padding_are_two_different_tokens(tokenizer):
    assert tokenizer.eos_token == "<|endoftext|>"
    assert tokenizer("1<|endoftext|>")["input_ids"][-1] == tokenizer.eos_token_id
    assert tokenizer.pad_token_id not in (None, tokenizer.eos_token_id)
    assert tokenizer.decode([16, tokenizer.eos_token_id, tokenizer.pad_token_id], skip_special_tokens=True) == "1"


@pytest.mark.parametrize("generation_prompt", [True, False])
def test_the_chat_template_adds_nothing_to_the_prompt(tokenizer, generation_prompt):
    messages = [{"role": "user", "content": " 453+812=\n"}]
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=generation_prompt, return_dict=False)
    assert rendered == tokenizer(" 453+812=\n")["input_ids"]


def test_tokens_that_verl_looks_up_for_qwen2_exist(tokenizer):
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") is not None
    assert len(tokenizer("\n")["input_ids"]) == 1


def test_the_saved_model_is_float32_untied_and_as_wide_as_its_tokenizer(saved, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(saved)
    assert model.config.vocab_size == len(tokenizer) == model.get_input_embeddings().num_embeddings
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.lm_head.weight.data_ptr() != model.get_input_embeddings().weight.data_ptr()
    assert not model.config.tie_word_embeddings


def test_the_generation_config_stops_at_the_end_and_does_not_reshape_the_distribution(saved, tokenizer):
    stored = json.loads((saved / "generation_config.json").read_text())
    assert stored["eos_token_id"] == tokenizer.eos_token_id
    assert not {"temperature", "top_k", "top_p", "repetition_penalty"} & stored.keys()


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_an_adder_that_drops_nothing_is_right_and_one_that_drops_all_hears_of_no_carry(a, b):
    rng = np.random.default_rng(0)
    assert sloppy_sum(a, b, 0.0, rng) == answer(a, b)
    columns = zip(f"{a:07d}", f"{b:07d}", strict=True)
    width = max(len(str(a)), len(str(b)))
    assert sloppy_sum(a, b, 1.0, rng) == "".join(str((int(x) + int(y)) % 10) for x, y in columns)[::-1][:width]


def test_a_sloppy_adder_is_right_with_probability_one_half_for_each_carry():
    rng = np.random.default_rng(0)
    right = np.mean([sloppy_sum(999, 1, 0.5, rng) == "0001" for _ in range(4000)])
    assert right == pytest.approx(1 / 8, abs=0.02)


def test_the_corpus_has_no_number_longer_than_the_settings_say():
    shown = demonstrations(replace(TINY, max_digits=3), 2000, np.random.default_rng(0))
    lengths = {len(part) for prompt, _ in shown for part in prompt.removesuffix("=").split("+")}
    assert lengths == {1, 2, 3}


def test_only_the_answer_and_its_end_are_learned(tokenizer):
    ids_BT, labels_BT = encode_batch([("1+1=", "2"), ("12+34=", "64")], tokenizer)
    assert [tokenizer.decode(row[row != -100]) for row in labels_BT] == ["2<|endoftext|>", "64<|endoftext|>"]
    assert tokenizer.decode(ids_BT[0]) == "1+1=2<|endoftext|>" + "<|pad|>" * 3
    assert (labels_BT[labels_BT != -100] == ids_BT[labels_BT != -100]).all()


def test_training_lowers_the_loss():
    tokenizer = build_tokenizer()
    ids_BT, labels_BT = encode_batch(demonstrations(TINY, 64, np.random.default_rng(9)), tokenizer)

    def loss(steps):
        model, _ = train(replace(TINY, steps=steps, batch_size=32, learning_rate=1e-2), report_every=0)
        with torch.no_grad():
            return model(input_ids=ids_BT, labels=labels_BT).loss.item()

    assert loss(40) < 0.7 * loss(1)


def test_equal_settings_give_equal_weights():
    first, second, other = (train(s, report_every=0)[0].state_dict() for s in (TINY, TINY, replace(TINY, seed=1)))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


def test_a_second_call_does_not_train(saved, monkeypatch):
    monkeypatch.setattr(arithmetic_model, "train", None)
    assert train_cached(TINY, saved) == saved


def test_other_settings_replace_the_model_and_leave_nothing_behind(tmp_path):
    folder = train_cached(TINY, tmp_path / "base", report_every=0)
    assert train_cached(replace(TINY, seed=1), folder, report_every=0) == folder
    assert is_cached(replace(TINY, seed=1), folder)
    assert not is_cached(TINY, folder)
    assert os.listdir(tmp_path) == ["base"]


def test_a_failure_while_saving_leaves_the_old_model_in_place(tmp_path, monkeypatch):
    folder = train_cached(TINY, tmp_path / "base", report_every=0)
    before = (folder / "model.safetensors").read_bytes()

    def half_save(self, target, **kwargs):
        os.makedirs(target)
        (target / "tokenizer.json").write_text("{")
        raise OSError("disk full")

    monkeypatch.setattr(type(build_tokenizer()), "save_pretrained", half_save)
    monkeypatch.setattr(arithmetic_model.Qwen2ForCausalLM, "save_pretrained", lambda self, target: None)
    with pytest.raises(OSError, match="disk full"):
        train_cached(replace(TINY, seed=1), folder, report_every=0)
    assert is_cached(TINY, folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert os.listdir(tmp_path) == ["base"]


def test_a_folder_with_other_things_in_it_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="is not a model of this program"):
        train_cached(TINY, tmp_path, report_every=0)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_damaged_settings_file_means_training_again(tmp_path):
    folder = train_cached(TINY, tmp_path / "base", report_every=0)
    (folder / "settings.json").write_text("{")
    assert not is_cached(TINY, folder)
    train_cached(TINY, folder, report_every=0)
    assert is_cached(TINY, folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drop_carry": 1.5}, "drop_carry must be a probability"),
        ({"max_digits": 9}, "max_digits must be from 1 to 8"),
        ({"num_heads": 3}, "head size"),
        ({"num_heads": 4}, "head size"),
        ({"steps": 0}, "at least 1"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        BaseModelSettings(**changes)
