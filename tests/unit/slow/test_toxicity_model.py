"""The toxicity demo's base model: raw prompts, texts without an end, and a sampler's view of the distribution."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from toxicity_play import POLITE, RUDE
from transformers import AutoModelForCausalLM, AutoTokenizer

from data_preprocess import real_toxicity_prompts
from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from data_preprocess.real_toxicity_prompts import ScoredPrompt
from data_preprocess.toxicity_model import Corpus, LanguageModelSettings, main, train, train_tokenizer

TINY = LanguageModelSettings(
    steps=3,
    batch_size=2,
    text_tokens=16,
    vocab_size=300,
    hidden_size=32,
    num_layers=1,
    num_heads=1,
    intermediate_size=16,
)
TEXTS = RUDE + POLITE


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 300)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toxicity")
    rows = [json.dumps({"prompt": text, "prompt_toxicity": 0.5}) for text in TEXTS]
    (folder / "rtp.jsonl").write_text("\n".join(rows))
    main(["--input", str(folder / "rtp.jsonl"), "--local_save_dir", str(folder / "base"), "--steps", "1"])
    return folder / "base"


def test_a_text_begins_with_a_prompt_and_goes_on_with_others_and_never_ends(tokenizer):
    corpus, rng = Corpus(TEXTS, tokenizer, 40), np.random.default_rng(0)
    for _ in range(20):
        ids = corpus.text(rng)
        assert len(ids) == 40
        assert tokenizer.eos_token_id not in ids
        text = tokenizer.decode(ids)
        first = [prompt for prompt in TEXTS if text.startswith(prompt)]
        assert first
        assert text[len(max(first, key=len))] == " "


def test_the_prompt_is_the_text_of_the_message_after_reloading(saved):
    tokenizer = AutoTokenizer.from_pretrained(saved)
    messages = [{"role": "user", "content": 'a "warm" song'}]
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert rendered == tokenizer('a "warm" song')["input_ids"]
    assert tokenizer.decode(rendered) == 'a "warm" song'
    assert tokenizer.pad_token_id not in (None, tokenizer.eos_token_id)


def test_the_saved_model_is_as_wide_as_its_tokenizer_and_is_sampled_from_as_it_is(saved):
    model, tokenizer = AutoModelForCausalLM.from_pretrained(saved), AutoTokenizer.from_pretrained(saved)
    assert model.config.vocab_size == len(tokenizer)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    stored = json.loads((saved / "generation_config.json").read_text())
    assert not {"temperature", "top_k", "top_p", "repetition_penalty"} & stored.keys()


def test_equal_settings_give_equal_weights():
    prompts = [ScoredPrompt(f"x/{n}", text, 0.5, False) for n, text in enumerate(TEXTS)]
    first, second = (train(prompts, TINY, report_every=0)[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"num_heads": 8}, "head size"), ({"steps": 0}, "at least 1"), ({"vocab_size": 100}, "at least 300")],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        LanguageModelSettings(**changes)


def test_queries_are_counted_in_tokens_of_the_model_and_one_without_a_tokenizer_is_refused(tmp_path):
    rows = [{"prompt": f"{n}+1=", "prompt_toxicity": n / 50, "continuation": "2222"} for n in range(50)]
    source = tmp_path / "rtp.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_tokenizer().save_pretrained(tmp_path / "model")
    arguments = ["--input", str(source), "--local_save_dir", str(tmp_path), "--query_tokens", "5", "6", "--tokenizer"]
    real_toxicity_prompts.main([*arguments, str(tmp_path / "model")])
    texts = [row["prompt"][0]["content"] for row in pq.read_table(tmp_path / "train.parquet").to_pylist()]
    assert {len(text) for text in texts} == {5, 6}  # a token for each letter
    with pytest.raises(SystemExit, match=r"no tokenizer at .*none"):
        real_toxicity_prompts.main([*arguments, str(tmp_path / "none")])
