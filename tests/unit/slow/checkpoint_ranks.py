"""A checkpoint as a run writes it: verl's own FSDP manager saves a small sharded model, rank by rank."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

WORDS = ["<eos>", "one", "two", "three", "[UNK]"]
IDS = torch.tensor([[1, 2, 3, 1]])


def build_model(lora: bool) -> torch.nn.Module:
    """A model with the same weights each time; with `lora`, its factors change the answers."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        tie_word_embeddings=False,
        initializer_range=0.4,
        architectures=["Qwen2ForCausalLM"],
    )
    model: torch.nn.Module = Qwen2ForCausalLM(config)
    if lora:
        # alpha 16 scales the product by 4, so losing alpha would be noticed.
        model = get_peft_model(model, LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "down_proj"]))
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.3)
    return model


@dataclass(frozen=True)
class Saved:
    """A checkpoint to save: whether LoRA factors are trained, over which mesh, and verl's checkpoint settings."""

    lora: bool = False
    mesh: str = "fsdp"
    settings: dict[str, Any] = field(default_factory=dict)


def save_checkpoints(folder: Path, checkpoints: dict[str, Saved], world: int) -> None:
    """Save each as `folder/NAME/global_step_3/actor`, from `world` ranks."""
    mp.spawn(_save, args=(world, folder, checkpoints), nprocs=world)


def _save(rank: int, world: int, folder: Path, checkpoints: dict[str, Saved]) -> None:
    from verl.trainer.config import CheckpointConfig
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    for name, saved in checkpoints.items():
        model = build_model(saved.lora)
        fully_shard(model, mesh=init_device_mesh("cpu", (world,), mesh_dim_names=(saved.mesh,)))
        config = CheckpointConfig(**({"save_contents": ["model"], "load_contents": ["model"]} | saved.settings))
        manager = FSDPCheckpointManager(model, processing_class=_tokenizer(), checkpoint_config=config)
        manager.save_checkpoint(str(folder / name / "global_step_3/actor"), global_step=3)
    dist.destroy_process_group()


def _tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", unk_token="[UNK]")
