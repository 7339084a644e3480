"""Trains the model and writes the data of the task in `small_tools.py`; half a minute, then cached in outputs/.

The model learns from transcripts of a sloppy demonstrator, who guesses instead of calling the tool (more often for keys
of the alphabet's second half) and sometimes looks up another key. So it knows the format and solves some prompts often
and others rarely, and reinforcement learning can teach it to call the tool, and with the right key.
"""

import dataclasses
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from small_tools import END_OF_MESSAGE, LETTERS, solve
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

from data_preprocess.demo_models import model_training
from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer as build_byte_tokenizer
from data_preprocess.demo_models.small_model import SmallModelSettings, Vocabulary, build_model
from verl_ext.data.schema import make_row, write_parquet

# A tool call as verl's parser "hermes" reads it: the text that all calls share is one token before the key and one
# after it.
CALL, END_OF_CALL = '<tool_call>{"name": "look_up", "arguments": {"key": "', '"}}</tool_call>'
END_OF_TURN = "<|im_end|>"

# "#" stands for the tools, whose schemas would be most of the prompt.
CHAT_TEMPLATE = (
    "{% if tools %}#{% endif %}{% for message in messages %}"
    "{% if message.role == 'assistant' %}{{ message.content }}{% for call in message.tool_calls or [] %}"
    '<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}<|im_end|>\n"
    f"{{% elif message.role != 'system' %}}{{{{ message.content }}}}{END_OF_MESSAGE}{{% endif %}}{{% endfor %}}"
)


@dataclass(frozen=True, kw_only=True)
class ToolModelSettings(SmallModelSettings):
    """All settings that determine the weights.

    Attributes:
        batch_size: Transcripts per step.
        guess: Probability that the demonstrator guesses, for keys of the alphabet's first and second half.
        slip: Probability that a letter of a call is replaced by a random one.
    """

    steps: int = 300
    weight_decay: float = 0.1
    hidden_size: int = 64
    num_layers: int = 2
    num_heads: int = 2
    intermediate_size: int = 128
    initializer_range: float = 0.1
    batch_size: int = 64
    guess: tuple[float, float] = (0.2, 0.7)
    slip: float = 0.1


def build_tokenizer() -> PreTrainedTokenizerBase:
    """Bytes, ChatML's tokens, and the two tokens of a call."""
    tokenizer = build_byte_tokenizer()
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (CALL, END_OF_CALL)])
    tokenizer.eos_token = END_OF_TURN
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def transcript(settings: ToolModelSettings, rng: np.random.Generator) -> list[tuple[str, bool]]:
    """Pieces of a session, and whether the model writes them. The table is random each time: it cannot be learned."""
    key = "".join(rng.choice(list(LETTERS), 2))
    pieces = [(f"#{key}{END_OF_MESSAGE}", False)]
    if rng.random() < settings.guess[key[0] >= LETTERS[8]]:
        return [*pieces, (str(rng.integers(10)) + END_OF_TURN, True)]
    refers = rng.random() < 1 / 3
    while True:
        asked = "".join(rng.choice(list(LETTERS)) if rng.random() < settings.slip else letter for letter in key)
        key = "".join(rng.choice(list(LETTERS), 2)) if refers else str(rng.integers(10))
        pieces += [(CALL + asked + END_OF_CALL + END_OF_TURN, True), (f"\n{key}{END_OF_MESSAGE}", False)]
        if not refers:
            return [*pieces, (key + END_OF_TURN, True)]
        refers = False


def train(settings: ToolModelSettings) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerBase]:
    """Train from scratch; returns the model in eval mode and its tokenizer."""
    tokenizer = build_tokenizer()
    model = build_model(settings, cast(Vocabulary, tokenizer), max_position_embeddings=128).train()
    rng = np.random.default_rng(settings.seed)

    def loss_of_next_batch() -> torch.Tensor:
        ids_BT, labels_BT = encode_batch([transcript(settings, rng) for _ in range(settings.batch_size)], tokenizer)
        return model(input_ids=ids_BT, labels=labels_BT).loss

    # A second thread gains nothing at this size, and costs much where other processes need the cores.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model_training.fit(model, loss_of_next_batch, settings.optimization, name="the tool-using model")
    torch.set_num_threads(threads)
    return model.eval(), tokenizer


def encode_batch(
    sessions: list[list[tuple[str, bool]]], tokenizer: PreTrainedTokenizerBase
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels, each (B, T) int64, padded on the right; labels are the tokens that the model writes."""
    rows = []
    for pieces in sessions:
        encoded = [(tokenizer(text, add_special_tokens=False)["input_ids"], own) for text, own in pieces]
        ids = [token for tokens, _ in encoded for token in tokens]
        rows.append((ids, [token if own else -100 for tokens, own in encoded for token in tokens]))
    width = max(len(ids) for ids, _ in rows)
    ids_BT = torch.tensor([ids + [cast(int, tokenizer.pad_token_id)] * (width - len(ids)) for ids, _ in rows])
    labels_BT = torch.tensor([labels + [-100] * (width - len(labels)) for _, labels in rows])
    return ids_BT, labels_BT


def build_rows() -> dict[str, list[dict[str, Any]]]:
    """Rows of both files: every key once, one of eight for validation."""
    keys = ["".join(letters) for letters in product(LETTERS, repeat=2)]
    order = np.random.default_rng(0).permutation(len(keys)).tolist()
    files: dict[str, list[dict[str, Any]]] = {"train": [], "val": []}
    for index, position in enumerate(order):
        split, key = ("val" if index % 8 == 0 else "train"), keys[position]
        files[split].append(make_row("look_up", key, solve(key), index=index, split=split, ability="tools"))
    return files


def make_assets(folder: Path) -> tuple[Path, Path]:
    """The folders of the model, which is cached, and of train.parquet and val.parquet."""
    settings = ToolModelSettings()
    model = model_training.train_cached(dataclasses.asdict(settings), folder / "model", lambda: train(settings))
    for name, rows in build_rows().items():
        write_parquet(rows, folder / "data" / f"{name}.parquet")
    return model, folder / "data"
