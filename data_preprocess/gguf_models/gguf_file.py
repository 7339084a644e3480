"""A language model in a GGUF file: its header, and its weights as numbers.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Files are read, and their quantised blocks
converted to numbers, by llama.cpp's own package `gguf`.
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

# Architectures whose weights and logits are checked here.
ARCHITECTURES = ("llama", "qwen2", "qwen3")


class ModelFileError(SignalError):
    """A file that cannot be read or has unsupported content."""


class GGUFModel:
    """A GGUF file of one model.

    Args:
        path: Path of the file.

    Raises:
        ModelFileError: The package `gguf` is missing, or the file is not a GGUF file of a supported architecture.
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
            raise ModelFileError(f"{path}: not readable as GGUF ({error}). Download it again.") from None
        self.architecture = str(self.value("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            raise ModelFileError(
                f"{path}: expected a model of {', '.join(ARCHITECTURES)}, got {self.architecture}. Use the Hugging "
                "Face folder of the model itself."
            )

    def value(self, key: str, default: Any = None) -> Any:
        """An entry of the header: a number, a text or a list of these.

        Raises:
            ModelFileError: The file has no such entry and there is no default.
        """
        field = self._reader.get_field(key)
        if field is None:
            if default is None:
                raise ModelFileError(f"{self.path}: its header has no {key}. Take another file of the model.")
            return default
        return field.contents()

    def setting(self, key: str, default: Any = None) -> Any:
        """Same as `value`, for an entry under the architecture's name."""
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
        ModelFileError: The file does not exist.
    """
    _require(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require(path: Path) -> None:
    if not path.is_file():
        raise ModelFileError(f"{path}: no such file. Check the path.")


# Name in a file -> name in transformers; in a layer: after `blk.3.` and `model.layers.3.`.
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
    """The weights of a file with transformers' names and order of rows.

    For rotary positions, llama.cpp rotates neighbouring numbers of a head, transformers those of its two halves: for a
    Llama, the rows of queries and keys are in another order.

    Raises:
        ModelFileError: A tensor is unknown.
    """
    heads = int(model.setting("attention.head_count"))
    key_heads = int(model.setting("attention.head_count_kv", heads))
    for name, weight in model.weights.items():
        if name == "rope_freqs.weight":
            raise ModelFileError(f"{model.path}: scaled rotary positions are not supported. Use another model.")
        if name in _WHOLE:
            yield _WHOLE[name], weight
            continue
        block, _, rest = name.removeprefix("blk.").partition(".")
        part, _, kind = rest.rpartition(".")
        if part not in _IN_LAYER:
            raise ModelFileError(f"{model.path}: the tensor {name} is not supported. Use another model.")
        if model.architecture == "llama" and part in ("attn_q", "attn_k"):
            weight = _halves(weight, heads if part == "attn_q" else key_heads)
        yield f"model.layers.{block}.{_IN_LAYER[part]}.{kind}", weight


def _halves(weight: Array, heads: int) -> Array:
    """Rows 0, 1, 2, 3 … of each head as 0, 2, 4 … and then 1, 3, 5 …"""
    rows = weight.reshape(heads, -1, *weight.shape[1:])
    return np.concatenate([rows[:, 0::2], rows[:, 1::2]], axis=1).reshape(weight.shape)
