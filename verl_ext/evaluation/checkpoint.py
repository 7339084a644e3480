"""Converts a verl checkpoint to a Hugging Face model: uses its Hugging Face weights if it has them, otherwise merges
its shards once with verl's own model merger and keeps the result.

The merger only reads FSDP shards; `checkpoint_files.py` describes what every engine writes.

Simplification: LoRA factors are merged into the weights. A run's engine may keep them separate, which rounds
differently.
"""

import contextlib
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from verl_ext.core.errors import CheckpointError
from verl_ext.evaluation.checkpoint_files import LORA_FACTS, MEGATRON_WEIGHTS, actor_folder, fingerprint, shard_files
from verl_ext.run.checkpoints import MEGATRON_CONTENTS

CACHE = Path("outputs/merged_checkpoints")

# Device meshes that FSDPModelMerger supports.
_MERGED_MESHES = (("fsdp",), ("ddp", "fsdp"))
_CRITICS = "{} is a critic, which writes no text. Give the actor's folder."
_SAVE_WEIGHTS = "have a run save them with hf_model in actor_rollout_ref.actor.checkpoint.save_contents"


def merged_model(model: str, cache: Path = CACHE) -> str:
    """The Hugging Face model for `model`: itself, or the merged shards of a checkpoint.

    Args:
        model: Folder of a Hugging Face model or of a checkpoint, or a model's name on the hub.
        cache: Merged checkpoints are kept here, each in a folder named by its step and its shards' fingerprint.

    Raises:
        CheckpointError: If the checkpoint is incomplete, not a language model's, or verl cannot merge it.
    """
    actor = actor_folder(model)
    if actor is None:
        _check_no_other_checkpoint(Path(model))
        return model
    if (actor / MEGATRON_CONTENTS).is_file():
        return str(_megatrons_weights(actor))
    shards = check_shards(actor)
    if _has_all_weights(actor):
        _say(f"{actor / 'huggingface'} has all weights: nothing to merge")
        return str(actor / "huggingface")
    step = actor.resolve().parent.name if actor.resolve().name == "actor" else actor.resolve().name
    target = cache / f"{step}-{fingerprint(actor)}"
    with _lock(cache, target.name):
        if target.is_dir():
            _say(f"{actor} was merged before, into {target}")
            return str(target)
        _say(f"merging {len(shards)} shard(s) of {actor} with verl's model merger into {target}")
        partial = cache / f"{target.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)  # of a killed merge
        log = cache / f"{target.name}.log"
        try:
            # A separate process: it frees its memory, and its libraries start nothing in this one.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
                executor.submit(_merge, str(actor), str(partial), str(log)).result()
            partial.rename(target)
        except CheckpointError:
            raise
        except BrokenProcessPool as error:
            raise CheckpointError(
                f"the process that merged {actor} was killed, most likely because memory ran out: verl's merger needs "
                "about twice the model's size in bfloat16. Its output is in " + str(log)
            ) from error
        except Exception as error:
            raise CheckpointError(
                f"verl's model merger cannot merge {actor} ({type(error).__name__}: {error}). Its output is in {log}."
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return str(target)


def _check_no_other_checkpoint(folder: Path) -> None:
    """The error for a `global_step_N` without weights in a known format: torchtitan's are different or missing."""
    if (folder / "data.pt").is_file() and not (folder / "config.json").is_file():
        raise CheckpointError(
            f"{folder} is a checkpoint without weights that FSDP, VeOmni or Megatron would have saved below actor: "
            "evaluate one of theirs, or a Hugging Face model."
        )


def _megatrons_weights(actor: Path) -> Path:
    """The Hugging Face model of a checkpoint of verl's Megatron engine.

    Raises:
        CheckpointError: It has none or only an adapter, or it is a critic's.
    """
    try:
        contents = json.loads((actor / MEGATRON_CONTENTS).read_text(encoding="utf-8"))
        is_critics, has_adapter = contents["role"] == "critic", contents["backend"]["peft"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{actor / MEGATRON_CONTENTS} is not readable ({error!r}): copy it again.") from None
    if is_critics:
        raise CheckpointError(_CRITICS.format(actor))
    folder = actor / MEGATRON_WEIGHTS
    if any(folder.glob("*.safetensors")):
        _say(f"{folder} has all weights: nothing to merge")
        return folder
    if has_adapter:
        raise CheckpointError(
            f"{actor} has only LoRA factors, as verl's Megatron engine saves them ({folder / 'adapter'}): "
            "merge them into the model that the run started from, and give the result."
        )
    raise CheckpointError(f"{actor} has its weights only in Megatron's format: {_SAVE_WEIGHTS}.")


def check_shards(actor: Path) -> list[Path]:
    """The shards of all ranks.

    Raises:
        CheckpointError: If a file of the checkpoint is missing, or it is a critic's.
    """
    try:
        world_size = int(json.loads((actor / "fsdp_config.json").read_text(encoding="utf-8"))["world_size"])
        config = json.loads((actor / "huggingface/config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{actor} has shards, but no readable fsdp_config.json and huggingface/config.json ({error}). Rank 0 of "
            "the run writes them: give a folder that also has them."
        ) from error
    shards = [actor / f"model_world_size_{world_size}_rank_{rank}.pt" for rank in range(world_size)]
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing:
        raise CheckpointError(
            f"{actor} lacks {len(missing)} of {world_size} shards, the first is {missing[0]}. Each machine of a run "
            "saves its own: copy all of them into one folder."
        )
    if any("TokenClassification" in name for name in config.get("architectures") or ()):
        raise CheckpointError(_CRITICS.format(actor))
    return shards


def _has_all_weights(actor: Path) -> bool:
    folder = actor / "huggingface"
    return not (actor / LORA_FACTS).is_file() and any(folder.glob("*.safetensors"))


@contextlib.contextmanager
def _lock(cache: Path, name: str) -> Generator[None]:
    """One merge at a time: another evaluation of the same checkpoint waits, then finds it done."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _merge(actor: str, target: str, log: str) -> None:
    """Merge into `target`, in a separate process; the libraries' output goes to the file `log`."""
    with (
        open(log, "w", encoding="utf-8") as stream,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        _merge_shards(Path(actor), Path(target))


def _merge_shards(actor: Path, target: Path) -> None:
    _check_shard(actor)
    from verl.model_merger.base_model_merger import ModelMergerConfig
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger

    config = ModelMergerConfig(
        operation="merge",
        backend="fsdp",
        local_dir=str(actor),
        target_dir=str(target),
        hf_model_config_path=str(actor / "huggingface"),
    )
    merger = FSDPModelMerger(config)
    merger.merge_and_save()
    merger.cleanup()
    if (target / "lora_adapter").is_dir():
        _merge_adapter(target)


def _check_shard(actor: Path) -> None:
    """Reject shards that verl's merger does not support, or would silently merge into a wrong model."""
    import torch

    shard = next(iter(shard_files(actor)))
    weights = torch.load(shard, map_location="cpu", weights_only=False, mmap=True)
    names = sorted(weights)
    mesh = getattr(weights[names[0]], "device_mesh", None)  # the one that verl's merger looks at
    if mesh is not None and mesh.mesh_dim_names not in _MERGED_MESHES:
        raise CheckpointError(
            f"{actor} has shards over a mesh of {mesh.mesh_dim_names}, as VeOmni's are, which verl's model merger does "
            f"not know, and no Hugging Face weights: {_SAVE_WEIGHTS}."
        )
    factors = [name for name in names if "lora_" in name]
    if factors and len(factors) == len(names):
        raise CheckpointError(
            f"{actor} has LoRA factors without the model they belong to (the run saved lora_only), so there is nothing "
            "to merge them into. Save checkpoints with the model."
        )
    if factors and not (actor / LORA_FACTS).is_file():
        raise CheckpointError(
            f"{actor} has LoRA factors, but no {LORA_FACTS}: without its alpha they cannot be merged."
        )


def _merge_adapter(folder: Path) -> None:
    """Add the LoRA factors, which verl's merger leaves in a separate folder, to the weights next to it."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    # In float32: the sum is rounded to bfloat16 once.
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    merged = PeftModel.from_pretrained(model, str(folder / "lora_adapter")).merge_and_unload()
    for file in folder.glob("*.safetensors*"):
        os.remove(file)
    merged.to(torch.bfloat16).save_pretrained(folder)
    shutil.rmtree(folder / "lora_adapter")
