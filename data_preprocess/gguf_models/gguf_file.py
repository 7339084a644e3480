"""A language model in a GGUF file: what its header says, and its weights as numbers.

The form: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Files are read, and their quantised blocks turned
into numbers, by llama.cpp's own package `gguf`.
"""

import hashlib
import importlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from verl_ext.core.errors import SignalError

Array = npt.NDArray[np.float32]

# Of the models whose weights and logits are checked here.
ARCHITECTURES = ("llama", "qwen2", "qwen3")


class ModelFileError(SignalError):
    """A file that cannot be read, or that holds what is not known here."""


class GGUFModel:
    """A GGUF file of one model.

    Args:
        path: Of the file.

    Raises:
        ModelFileError: The package `gguf` is missing, or this is no GGUF file of a known architecture.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._gguf: Any = importlib.import_module("gguf")
        except ImportError:
            raise ModelFileError("Reading a GGUF file needs the package gguf: pip install gguf") from None
        _require(path)
        self.path = path
        try:
            self._reader = self._gguf.GGUFReader(path)
        except (ValueError, IndexError, OSError) as error:
            raise ModelFileError(f"{path}: not readable as GGUF ({error}). Fetch it again.") from None
        self.architecture = str(self.value("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            raise ModelFileError(
                f"{path}: expected a model of {', '.join(ARCHITECTURES)}, got {self.architecture}. Take the Hugging "
                "Face folder of the model itself."
            )

    def value(self, key: str, default: Any = None) -> Any:
        """An entry of the header: a number, a text or a list of these.

        Raises:
            ModelFileError: The file has no such entry, and there is no default.
        """
        field = self._reader.get_field(key)
        if field is None:
            if default is None:
                raise ModelFileError(f"{self.path}: its header has no {key}. Take another file of the model.")
            return default
        return field.contents()

    def setting(self, key: str, default: Any = None) -> Any:
        """As `value`, of an entry that stands under the architecture's name."""
        return self.value(f"{self.architecture}.{key}", default)

    @cached_property
    def weights(self) -> dict[str, Array]:
        """Every tensor by its name in the file, dequantised to float32; a matrix is (outputs, inputs)."""
        return {tensor.name: self._numbers(tensor) for tensor in self._reader.tensors}

    def _numbers(self, tensor: Any) -> Array:
        numbers = self._gguf.dequantize(tensor.data, tensor.tensor_type)
        return np.asarray(numbers, np.float32).reshape(tuple(map(int, reversed(tensor.shape))))


def file_hash(path: Path) -> str:
    """SHA-256 of a file.

    Raises:
        ModelFileError: There is no such file.
    """
    _require(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require(path: Path) -> None:
    if not path.is_file():
        raise ModelFileError(f"{path}: there is no such file. Check the path.")


# Name in a file -> name in transformers; in a layer: behind `blk.3.` and `model.layers.3.`.
_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def transformers_weights(model: GGUFModel) -> Iterator[tuple[str, Array]]:
    """The weights of a file under their names and in the order of rows that transformers has.

    llama.cpp turns neighbouring numbers of a head together (rotary positions), transformers those of its two halves:
    for a Llama, the rows of queries and keys stand in another order.

    Raises:
        ModelFileError: A tensor is not known.
    """
    heads = int(model.setting("attention.head_count"))
    key_heads = int(model.setting("attention.head_count_kv", heads))
    for name, weight in model.weights.items():
        if name == "rope_freqs.weight":
            raise ModelFileError(f"{model.path}: scaled rotary positions are not known here. Take another model.")
        if name in _WHOLE:
            yield _WHOLE[name], weight
            continue
        block, _, rest = name.removeprefix("blk.").partition(".")
        part, _, kind = rest.rpartition(".")
        if part not in _IN_LAYER:
            raise ModelFileError(f"{model.path}: the tensor {name} is not known here. Take another model.")
        if model.architecture == "llama" and part in ("attn_q", "attn_k"):
            weight = _halves(weight, heads if part == "attn_q" else key_heads)
        yield f"model.layers.{block}.{_IN_LAYER[part]}.{kind}", weight


def _halves(weight: Array, heads: int) -> Array:
    """Rows 0, 1, 2, 3 … of each head as 0, 2, 4 … and then 1, 3, 5 …"""
    rows = weight.reshape(heads, -1, *weight.shape[1:])
    return np.concatenate([rows[:, 0::2], rows[:, 1::2]], axis=1).reshape(weight.shape)
