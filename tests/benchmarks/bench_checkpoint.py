"""Time to finish and to verify a large checkpoint, by one process and by the nodes of a cluster.

    python tests/benchmarks/bench_checkpoint.py [--gigabytes 5] [--shards 8] [--nodes 2]

A made-up checkpoint of torch files, as FSDP's ranks write them, and the same amount for the optimizer. `manifest` lists
it after a save; `driver` is the verification of a run on one machine before it resumes; `nodes` is the same by Ray
tasks (`verl_ext.launch.runner.verify_resume`), here in a cluster of several nodes on one machine. The files are in the
page
cache: this measures reading and CRC-32, not the disk.

Prediction, written before the first measurement: the manifest costs less than 1 s, as torch's files carry a CRC-32 of
each tensor; verifying runs at 1 GB/s per core, so 2.5 s on two cores, by threads and by tasks alike.
"""

import argparse
import tempfile
import time
from pathlib import Path

import ray
import torch
from ray.cluster_utils import Cluster

from verl_ext.cluster import nodes
from verl_ext.run.checkpoints import changed_file, find_damage, in_shares, write_manifest


def make(folder: Path, gigabytes: float, shards: int) -> None:
    """Weights and optimizer state of this many ranks."""
    (folder / "actor").mkdir(parents=True)
    weights = torch.randn(int(gigabytes * 1e9 / 4 / shards / 3))
    for rank in range(shards):
        torch.save({"weights": weights}, folder / f"actor/model_world_size_{shards}_rank_{rank}.pt")
        torch.save(
            {"exp_avg": weights, "exp_avg_sq": weights}, folder / f"actor/optim_world_size_{shards}_rank_{rank}.pt"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / "global_step_1"
        make(folder, arguments.gigabytes, arguments.shards)
        seconds = {}
        began = time.perf_counter()
        write_manifest(folder)
        seconds["manifest"] = time.perf_counter() - began
        began = time.perf_counter()
        assert find_damage(folder) is None
        seconds["driver"] = time.perf_counter() - began
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        for _ in range(arguments.nodes - 1):
            cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
        nodes.spread(changed_file, [(folder, [])] * arguments.nodes)  # workers are up

        def by_nodes(folder: Path, names: list[str]) -> str | None:
            shares = in_shares(folder, names, arguments.nodes)
            return next(filter(None, nodes.spread(changed_file, [(folder, share) for share in shares])), None)

        began = time.perf_counter()
        assert find_damage(folder, by_nodes) is None
        seconds["nodes"] = time.perf_counter() - began
        ray.shutdown()
        cluster.shutdown()
    for name, value in seconds.items():
        print(f"{name:<10} {value:6.2f} s  {arguments.gigabytes / value:5.1f} GB/s")


if __name__ == "__main__":
    main()
