"""The logits of a GGUF file's model in NumPy, only from the file: used to check a conversion.

Written after llama.cpp's graphs of the architectures (`build_llama`, `build_qwen2`, `build_qwen3`) and on the file's
own tensors, so that a conversion with a wrong name, order of rows or setting gives other numbers.

Suffixes: T tokens, D model width, H query heads, K key heads, C channels of a head, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np

from data_preprocess.gguf_models.gguf_file import Array, GGUFModel


def logits(model: GGUFModel, ids: Sequence[int]) -> Array:
    """The logits after each token of a text.

    Args:
        model: The file.
        ids: Tokens of the text.

    Returns:
        (T, V).
    """
    weights = model.weights
    epsilon = float(model.setting("attention.layer_norm_rms_epsilon"))
    hidden_TD = weights["token_embd.weight"][np.asarray(ids)]
    for number in range(int(model.setting("block_count"))):
        block = {
            name.removeprefix(f"blk.{number}."): weight
            for name, weight in weights.items()
            if name.startswith(f"blk.{number}.")
        }
        hidden_TD = hidden_TD + _attention(model, block, _rms_norm(hidden_TD, block["attn_norm.weight"], epsilon))
        hidden_TD = hidden_TD + _feed_forward(block, _rms_norm(hidden_TD, block["ffn_norm.weight"], epsilon))
    head_VD = weights.get("output.weight", weights["token_embd.weight"])
    return _rms_norm(hidden_TD, weights["output_norm.weight"], epsilon) @ head_VD.T


def _rms_norm(hidden: Array, weight: Array, epsilon: float) -> Array:
    return hidden / np.sqrt(np.mean(hidden**2, axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def _linear(block: dict[str, Array], name: str, inputs: Array) -> Array:
    return inputs @ block[f"{name}.weight"].T + block.get(f"{name}.bias", np.float32(0))


def _attention(model: GGUFModel, block: dict[str, Array], inputs_TD: Array) -> Array:
    heads = int(model.setting("attention.head_count"))
    key_heads = int(model.setting("attention.head_count_kv", heads))
    length = len(inputs_TD)
    query_THC = _linear(block, "attn_q", inputs_TD).reshape(length, heads, -1)
    key_TKC = _linear(block, "attn_k", inputs_TD).reshape(length, key_heads, -1)
    value_TKC = _linear(block, "attn_v", inputs_TD).reshape(length, key_heads, -1)
    if "attn_q_norm.weight" in block:
        epsilon = float(model.setting("attention.layer_norm_rms_epsilon"))
        query_THC = _rms_norm(query_THC, block["attn_q_norm.weight"], epsilon)
        key_TKC = _rms_norm(key_TKC, block["attn_k_norm.weight"], epsilon)
    query_THC, key_TKC = _rotated(model, query_THC), _rotated(model, key_TKC)
    key_THC = np.repeat(key_TKC, heads // key_heads, axis=1)
    value_THC = np.repeat(value_TKC, heads // key_heads, axis=1)
    scores_HTT = np.einsum("thc,shc->hts", query_THC, key_THC) / np.sqrt(np.float32(query_THC.shape[-1]))
    scores_HTT = np.where(np.tri(length, dtype=bool), scores_HTT, -np.inf)
    shares_HTT = np.exp(scores_HTT - scores_HTT.max(axis=-1, keepdims=True))
    shares_HTT /= shares_HTT.sum(axis=-1, keepdims=True)
    mixed_TD: Array = np.einsum("hts,shc->thc", shares_HTT, value_THC).reshape(length, -1)
    return _linear(block, "attn_output", mixed_TD)


def _rotated(model: GGUFModel, heads_THC: Array) -> Array:
    """Apply rotary positions: to neighbours in a Llama's file, to a head's halves in the others'."""
    channels = heads_THC.shape[-1]
    frequencies = float(model.setting("rope.freq_base", 10_000.0)) ** (-np.arange(0, channels, 2) / channels)
    angles_T1C = np.arange(len(heads_THC))[:, None, None] * frequencies
    sine, cosine = np.sin(angles_T1C).astype(np.float32), np.cos(angles_T1C).astype(np.float32)
    in_pairs = model.architecture == "llama"
    first = heads_THC[..., 0::2] if in_pairs else heads_THC[..., : channels // 2]
    second = heads_THC[..., 1::2] if in_pairs else heads_THC[..., channels // 2 :]
    turned = (first * cosine - second * sine, first * sine + second * cosine)
    if in_pairs:
        return np.stack(turned, axis=-1).reshape(heads_THC.shape)
    return np.concatenate(turned, axis=-1)


def _feed_forward(block: dict[str, Array], inputs_TD: Array) -> Array:
    gate = _linear(block, "ffn_gate", inputs_TD)
    activated: Array = gate / (np.float32(1) + np.exp(-gate))
    return _linear(block, "ffn_down", activated * _linear(block, "ffn_up", inputs_TD))
