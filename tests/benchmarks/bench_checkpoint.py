"""Time to finish and verify a large checkpoint, by one process and by the nodes of a cluster.

    python tests/benchmarks/bench_checkpoint.py [--gigabytes 5] [--shards 8] [--nodes 2]

A made-up checkpoint in torch's files, as FSDP's ranks write it, and one of the same size in other files, as Megatron
writes it, which have no checksums of their own. The manifest is written after a save, and verified before a resume;
`by nodes` is the same by the Ray tasks of a run on several nodes (`verl_ext.trainer.checkpointing`), here on one
machine. The files are in the page cache: this measures reading and CRC-32, not the disk.

Prediction, written before the first measurement: the manifest costs less than 1 s, as torch's files carry a CRC-32 of
each tensor; verifying runs at 1 GB/s per core, so 2.5 s on two cores, by threads and by tasks alike.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ray
import torch
from ray.cluster_utils import Cluster

from verl_ext.cluster import nodes
from verl_ext.run.manifest import changed_file, find_damage, write_manifest
from verl_ext.trainer.checkpointing import changed_by_nodes, describe_by_nodes


def make(folder: Path, gigabytes: float, shards: int) -> None:
    """Weights and optimizer state of this many ranks, in torch's files."""
    (folder / "actor").mkdir(parents=True)
    weights = torch.randn(int(gigabytes * 1e9 / 4 / shards / 3))
    for rank in range(shards):
        torch.save({"weights": weights}, folder / f"actor/model_world_size_{shards}_rank_{rank}.pt")
        torch.save(
            {"exp_avg": weights, "exp_avg_sq": weights}, folder / f"actor/optim_world_size_{shards}_rank_{rank}.pt"
        )


def make_other(folder: Path, gigabytes: float, shards: int) -> None:
    """The same in files without checksums of their own."""
    (folder / "actor/dist_ckpt").mkdir(parents=True)
    share = torch.randn(int(gigabytes * 1e9 / 4 / shards / 2)).numpy().tobytes()
    for rank in range(2 * shards):
        (folder / f"actor/dist_ckpt/__{rank // 2}_{rank % 2}.distcp").write_bytes(share)


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure(folder: Path) -> dict[str, float]:
    """Seconds of each operation."""
    took = {
        "manifest": seconds(lambda: write_manifest(folder)),
        "manifest by nodes": seconds(lambda: write_manifest(folder, describe_by_nodes)),
        "verified": seconds(lambda: find_damage(folder)),
        "verified by nodes": seconds(lambda: find_damage(folder, changed_by_nodes)),
    }
    assert find_damage(folder) is None
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=2)
    arguments = parser.parse_args()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(arguments.nodes - 1):
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
    for files, write in (("torch's files", make), ("other files", make_other)):
        with tempfile.TemporaryDirectory() as base:
            folder = Path(base) / "global_step_1"
            write(folder, arguments.gigabytes, arguments.shards)
            nodes.spread(changed_file, [(folder, [])] * arguments.nodes)  # workers are up
            took = measure(folder)
        for name, value in took.items():
            print(f"{files:<14} {name:<18} {value:6.2f} s  {arguments.gigabytes / value:5.1f} GB/s")
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
