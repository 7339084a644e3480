r"""The tokenizer of a GGUF file, as a Hugging Face tokenizer.

transformers (5.10) can also read a GGUF file's tokenizer, but incorrectly: for SmolLM2 it uses `<|im_start|>` as the
end of a text, has no padding, and does not split digits ("a 12" gets other tokens than the model was trained on). So it
is built here from the header's vocabulary, merges and ids, with the split named by `tokenizer.ggml.pre`.
"""

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from data_preprocess.gguf_models.gguf_file import GGUFModel, ModelFileError

# Values of token_type: a token that no text contains, and one that is never split.
_CONTROL, _USER_DEFINED = 3, 4

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _bytes(*, use_regex: bool) -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


# How texts are split before the merges, by llama.cpp's name for it (llama-vocab.cpp).
_SPLITS: dict[str, Any] = {
    "gpt-2": _bytes(use_regex=True),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r"),
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _bytes(use_regex=True)]),
    ),
    "qwen2": pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_QWEN2), behavior="isolated"), _bytes(use_regex=False)]
    ),
}


def read_tokenizer(model: GGUFModel) -> PreTrainedTokenizerBase:
    """The tokenizer of a file.

    Raises:
        ModelFileError: Its kind is not supported.
    """
    kind, split = model.value("tokenizer.ggml.model"), model.value("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or split not in _SPLITS:
        raise ModelFileError(
            f"{model.path}: expected a tokenizer of the kind gpt2 that splits as {', '.join(_SPLITS)}, got {kind} and "
            f"{split}. Name a Hugging Face folder with the model's own: --tokenizer FOLDER."
        )
    tokens: list[str] = model.value("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in model.value("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _SPLITS[split]
    tokenizer.decoder = decoders.ByteLevel()
    types: list[int] = model.value("tokenizer.ggml.token_type")
    control = [token for token, type_ in zip(tokens, types, strict=True) if type_ == _CONTROL]
    whole = [token for token, type_ in zip(tokens, types, strict=True) if type_ == _USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in whole])
    names = {
        "bos_token": "bos_token_id",
        "eos_token": "eos_token_id",
        "unk_token": "unknown_token_id",
        "pad_token": "padding_token_id",
    }
    ids = {name: int(model.value(f"tokenizer.ggml.{key}", -1)) for name, key in names.items()}
    special = {name: tokens[number] for name, number in ids.items() if number >= 0}
    if "eos_token" not in special:
        raise ModelFileError(f"{model.path}: its tokenizer has no eos_token_id. Use another file of the model.")
    special.setdefault("pad_token", special["eos_token"])
    if model.value("tokenizer.ggml.add_bos_token", False) and "bos_token" in special:
        first = special["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first} $A", pair=f"{first} $A {first} $B", special_tokens=[(first, ids["bos_token"])]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        additional_special_tokens=[token for token in control if token not in special.values()],
        chat_template=model.value("tokenizer.chat_template", "") or None,
        model_max_length=int(model.setting("context_length")),
        clean_up_tokenization_spaces=False,
        **special,
    )
