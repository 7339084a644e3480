"""A run's requirements on this machine: devices and writable folders."""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
from omegaconf import DictConfig, OmegaConf

from verl_ext.cluster.pools import DevicePool, device_pools, first_without_room

# Of /proc/cpuinfo: instructions for bfloat16 on x86 and on Arm.
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
# What makes a run on CPUs compute in float32.
IN_FLOAT32 = {
    "actor_rollout_ref.rollout.dtype": "float32",
    "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype": "fp32",
}
# Where a run writes besides its folder.
_OUTPUTS = ("trainer.default_local_dir", "trainer.rollout_data_dir", "trainer.validation_data_dir")


def check_outputs(config: DictConfig) -> list[str]:
    """Folders that cannot be created or written to, one sentence each."""
    paths = {name: OmegaConf.select(config, name) for name in ("run_dir", *_OUTPUTS)}
    return [f"{name}={path}: {problem}" for name, path in paths.items() if path and (problem := output_problem(path))]


def output_problem(path: str) -> str | None:
    """Why a folder cannot be written to, or None. A remote one is not checked."""
    if "://" in path:
        return None
    folder = Path(path).expanduser().absolute()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir():
        return f"{there} is a file: name a folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written to: name another folder"
    return None


def num_devices(device: str) -> int:
    """Devices of this machine; on a CPU, cores."""
    if device == "cpu":
        return os.cpu_count() or 1
    import torch

    backend = getattr(torch, device, None)
    return int(backend.device_count()) if backend is not None else 0


def has_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this machine's processor has instructions for bfloat16; True where the file is missing."""
    return not cpuinfo.exists() or not _BFLOAT16_FLAGS.isdisjoint(cpuinfo.read_text(encoding="utf-8").split())


def bfloat16_warnings(config: DictConfig) -> list[str]:
    """A sentence about a run on CPUs that computes in bfloat16 where the processor cannot."""
    asked = {name: value for name in IN_FLOAT32 if (value := OmegaConf.select(config, name)) in ("bfloat16", "bf16")}
    if config.trainer.device != "cpu" or not asked or has_bfloat16():
        return []
    here = " and ".join(f"{name}={value}" for name, value in asked.items())
    instead = " ".join(f"{name}={IN_FLOAT32[name]}" for name in asked)
    return [f"{here}: this processor has no instructions for it and is many times slower than with {instead}"]


def device_rows(config: DictConfig) -> Iterator[tuple[str, str]]:
    """A dry run's note on the devices: it may run on another machine than the training."""
    trainer, pools = config.trainer, device_pools(config)
    asked, found = sum(pool.devices for pool in pools), num_devices(trainer.device)
    if trainer.device == "cpu":
        yield "devices", f"{asked} rank{'s' if asked > 1 else ''} on {found} cores"
        return
    taken = " and ".join(_devices(pool) for pool in pools)
    enough = "" if found >= asked else ": run it where they are"
    yield "devices", f"the run takes {taken}; this machine has {found}{enough}"


def check_devices(config: DictConfig) -> list[str]:
    """Problems with devices if Ray runs only on this machine; a cluster is checked once Ray is up."""
    trainer, ray_init = config.trainer, config.ray_kwargs.ray_init
    address = ray_init.get("address") or os.environ.get("RAY_ADDRESS")
    if address not in (None, "local") or (address is None and _is_cluster_here() and trainer.device != "cpu"):
        return []
    found, pools = num_devices(trainer.device), device_pools(config)
    if any(pool.nodes > 1 for pool in pools):
        several = next(pool for pool in pools if pool.nodes > 1)
        return [
            f"{several.owner}.nnodes={several.nodes} needs a Ray cluster: start one (`ray start --head`) and give its "
            "address in ray_kwargs.ray_init.address or RAY_ADDRESS"
        ]
    without = first_without_room(pools, [found])
    if without is None:
        return []
    kind = "cores, one per rank at least" if trainer.device == "cpu" else "GPUs"
    hint = "" if trainer.device == "cpu" else ", or +backend=cpu for a small model"
    other = "" if without is pools[0] else f" in addition to {pools[0].owner}.n_gpus_per_node={pools[0].devices}"
    return [
        f"{without.owner}.n_gpus_per_node={without.devices}{other}, but this machine has {found} {kind}: lower it{hint}"
    ]


def _devices(pool: DevicePool) -> str:
    return f"{pool.nodes} nodes with {pool.devices} GPUs each" if pool.nodes > 1 else f"{pool.devices} GPUs"


def _is_cluster_here() -> bool:
    """Whether `ray start` stored the address of a cluster here, which a run without an address joins."""
    return any(process.info["name"] == "gcs_server" for process in psutil.process_iter(["name"]))
