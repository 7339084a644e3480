"""A tiny random Llama with a word tokenizer, and word problems for it, for the jobs at toy size.

Every sixth of its words is a boxed answer, so even a random model is sometimes right.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

NUM_ANSWERS, NUM_QUESTIONS, NUM_HELD_OUT = 4, 12, 6
QUESTION_WORDS = [f"word{number}" for number in range(NUM_QUESTIONS + NUM_HELD_OUT)]
# The end token is also the padding, as in SmolLM2-Instruct; <spare> is for code that must distinguish the two.
SPECIAL = ["<end>", "<unknown>", "<spare>"]
CHAT = "{% for message in messages %}{{ message['content'] }} <end> {% endfor %}"


def make_toy_assets(folder: Path) -> tuple[Path, Path]:
    """Folders of the model and of the data, written on the first call."""
    model, data = folder / "toy_model", folder / "toy_data"
    if not (model / "config.json").exists():
        _write_model(model)
    if not (data / "svamp_test.parquet").exists():
        data.mkdir(parents=True, exist_ok=True)
        pq.write_table(_rows(range(NUM_QUESTIONS)), data / "svamp.parquet")
        pq.write_table(_rows(range(NUM_QUESTIONS, len(QUESTION_WORDS))), data / "svamp_test.parquet")
    return model, data


def _rows(numbers: range) -> pa.Table:
    rows = [
        {
            "data_source": "svamp",
            "prompt": [{"role": "user", "content": " ".join(QUESTION_WORDS[number:][: 1 + number % 3])}],
            "reward_model": {"style": "rule", "ground_truth": str(number % NUM_ANSWERS)},
        }
        for number in numbers
    ]
    return pa.Table.from_pylist(rows)


def _write_model(folder: Path) -> None:
    words = [*SPECIAL, *(f"\\boxed{{{number}}}" for number in range(NUM_ANSWERS)), *QUESTION_WORDS]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<end>",
        pad_token="<end>",
        unk_token="<unknown>",
        additional_special_tokens=["<spare>"],
        chat_template=CHAT,
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        eos_token_id=0,
        pad_token_id=0,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
