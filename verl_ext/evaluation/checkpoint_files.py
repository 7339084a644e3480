"""The files of a verl checkpoint: where its weights are, and whether they have changed.

An actor's folder, of verl's FSDP and VeOmni engines:

    model_world_size_{W}_rank_{r}.pt   the weights of rank r
    fsdp_config.json                   W, among others
    lora_train_meta.json               rank and alpha, if LoRA factors were trained
    huggingface/                       configuration and tokenizer; also all weights, if the run saves them

Of verl's Megatron engine:

    ckpt_contents.json                 contents and their places
    model/huggingface/                 all weights, unless megatron.use_dist_checkpointing keeps them in its own format
"""

import hashlib
import re
from pathlib import Path

from verl_ext.run.checkpoints import MEGATRON_CONTENTS

LORA_FACTS = "lora_train_meta.json"
MEGATRON_WEIGHTS = Path("model/huggingface")

_SHARD = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")


def actor_folder(model: str) -> Path | None:
    """The folder of the weights, given it or the `global_step_N` that it is in; None if `model` is not a checkpoint."""
    for folder in (Path(model), Path(model) / "actor"):
        if shard_files(folder) or (folder / MEGATRON_CONTENTS).is_file():
            return folder
    return None


def shard_files(folder: Path) -> list[Path]:
    """The weights of all ranks found, by name."""
    files = folder.iterdir() if folder.is_dir() else []
    return sorted(file for file in files if _SHARD.fullmatch(file.name))


def fingerprint(folder: Path) -> str:
    """Fingerprint of the names, sizes and times of a model's files: a rewritten file makes another model.

    For a checkpoint, only the files of the merged model count: its optimizer's state may be deleted.

    Returns:
        16 hexadecimal digits; "" if the folder does not exist, as for a model on the hub.
    """
    files = shard_files(folder)
    if (folder / MEGATRON_CONTENTS).is_file():
        files = [folder / MEGATRON_CONTENTS, *(folder / MEGATRON_WEIGHTS).glob("*")]
    elif files:
        files += [folder / "fsdp_config.json", folder / LORA_FACTS, *(folder / "huggingface").glob("*")]
    elif folder.is_dir():
        files = list(folder.iterdir())
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(files) if file.is_file()]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16] if facts else ""
