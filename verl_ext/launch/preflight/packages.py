"""Optional packages that single options need on GPUs: without one, a worker would fail minutes after the start."""

from collections.abc import Iterator
from importlib.util import find_spec

from omegaconf import DictConfig, OmegaConf

# verl's ways to send weights that import cupy.
_WITH_CUPY = ("nccl", "nixl", "delta_sharded")
_WITHOUT_FLASH_ATTENTION = (
    "install it (`pip install --no-build-isolation 'verl-signal[flash-attn]'`), or set "
    "+{model}.override_config.attn_implementation=sdpa and actor_rollout_ref.model.use_remove_padding=false"
)


def missing_packages(config: DictConfig, *, has_critic: bool) -> list[str]:
    """Options of a run on GPUs whose package is not installed here, one sentence each."""
    if config.trainer.device != "cuda":
        return []
    return [
        f"{option} needs {name}: {remedy}"
        for option, module, name, remedy in _needs(config, has_critic)
        if not _has(module)
    ]


def _needs(config: DictConfig, has_critic: bool) -> Iterator[tuple[str, str, str, str]]:
    """(option, module, package, remedy)."""
    # Other model engines have their own attention and kernels; `check_model_engine` asks for their libraries.
    of_fsdp = ("actor_rollout_ref.model", "critic.model")[: 1 + has_critic] if config.model_engine == "dp" else ()
    for model in of_fsdp:
        # verl's default. transformers takes a kernel of the hub instead where the package `kernels` is installed.
        attention = OmegaConf.select(config, f"{model}.override_config.attn_implementation") or "flash_attention_2"
        if attention == "flash_attention_2" and not _has("kernels"):
            option = f"{model}.override_config.attn_implementation=flash_attention_2 (verl's default)"
            yield option, "flash_attn", "flash-attn", _WITHOUT_FLASH_ATTENTION.format(model=model)
        if OmegaConf.select(config, f"{model}.use_liger"):
            yield f"{model}.use_liger=true", "liger_kernel", "liger-kernel", "install it, or leave the option out"
    name = "actor_rollout_ref.rollout.checkpoint_engine.backend"
    if (backend := OmegaConf.select(config, name)) in _WITH_CUPY:
        yield f"{name}={backend}", "cupy", "cupy", "`pip install 'verl[cupy-cu130]==0.9.1'`"


def _has(module: str) -> bool:
    return find_spec(module) is not None
