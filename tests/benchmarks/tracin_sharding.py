"""What it saves and costs to store the validation gradient in shards, for all weights of a model's layers.

    python tests/benchmarks/tracin_sharding.py [--model_size 33M] [--seq_len 128] [--ranks 2] [--repeats 5]

A random Qwen2 model under FSDP2 over gloo, one CPU process per rank with one thread; micro-batches of 8 full rows. G of
every Linear of the layers is stored whole on each rank (one all-reduce of it all), or in shards (`ShardedStorage`: one
reduce-scatter per weight in a validation pass, one gather per weight in a scoring pass). Both take turns; seconds are
medians of rank 0, for one micro-batch of validation and one of scoring. The peak is above what was allocated before
the validation pass, by the allocator's events; G is in it. Scores are compared.

PREDICTION, written before the first run at 33M on 2 ranks: G takes half, the peak of both passes is smaller by that
half, and gathering float32 weights through shared memory costs 5 % of a pass; scores agree to 1e-5.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard
from tracin_overhead import ROWS, SHAPES, VOCABULARY, peak_on_cpu
from transformers import Qwen2Config, Qwen2ForCausalLM

from verl_ext.influence.fsdp import ShardedStorage, without_gradient_sync
from verl_ext.influence.method.ghost import GhostInfluence
from verl_ext.influence.method.ghost_parameters import Storage

LAYERS = r"model\.layers\."


class Passes:
    """The passes of one step with one way to store G."""

    def __init__(self, model: nn.Module, storage: Storage, ids: torch.Tensor) -> None:
        self._model, self._storage, self._ids = model, storage, ids
        self._ghost = GhostInfluence(model, LAYERS, storage)

    def loss(self) -> torch.Tensor:
        logits = self._model(input_ids=self._ids).logits[:, :-1]
        return nn.functional.cross_entropy(logits.flatten(0, 1), self._ids[:, 1:].flatten(), reduction="sum")

    def run(self) -> None:
        """G of the rank's rows, averaged over the ranks; then their scores."""
        self.reset()
        with without_gradient_sync(self._model), self._ghost.validation():
            self.loss().backward()
        for gradient in self._ghost.validation_gradients().values():
            if self._storage.local(gradient) is gradient:
                dist.all_reduce(gradient)
                gradient /= dist.get_world_size()
        index = torch.arange(ROWS)[:, None].expand_as(self._ids)
        with without_gradient_sync(self._model), self._ghost.scoring(index):
            self.loss().backward()

    def reset(self) -> None:
        self._ghost.reset_validation()
        self._ghost.reset_scores()

    def results(self) -> dict[str, object]:
        stored = [self._storage.local(gradient) for gradient in self._ghost.validation_gradients().values()]
        return {"bytes": sum(part.nbytes for part in stored), "scores": self._ghost.scores(ROWS)}


def measure(rank: int, args: argparse.Namespace, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=args.ranks)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY[args.model_size],
        num_key_value_heads=2,
        tie_word_embeddings=True,
        use_cache=False,
        max_position_embeddings=args.seq_len,
        **SHAPES[args.model_size],
    )
    model = Qwen2ForCausalLM(config).train()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    torch.manual_seed(1 + rank)
    ids = torch.randint(0, config.vocab_size, (ROWS, args.seq_len))
    arms = {"whole": Passes(model, Storage(), ids), "sharded": Passes(model, ShardedStorage(model), ids)}
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    results = {}
    for repeat in range(args.repeats + 1):
        for name, passes in arms.items():
            dist.barrier()
            began = time.perf_counter()
            passes.run()
            if repeat:  # the first one warms up
                seconds[name].append(time.perf_counter() - began)
            results[name] = passes.results()
            passes.reset()
    for name, passes in arms.items():
        results[name]["peak"] = peak_on_cpu(passes.run)
        passes.reset()
    if rank == 0:
        print(f"{'G':8} {'bytes':>8} {'peak':>8} {'seconds':>8}")
        for name, found in results.items():
            sizes = (f"{found[key] / 2**20:5.0f} MiB" for key in ("bytes", "peak"))
            print(f"{name:8} {' '.join(sizes)} {statistics.median(seconds[name]):8.2f}")
        whole, sharded = (results[name]["scores"] for name in arms)
        difference = float((whole - sharded).abs().max() / whole.abs().max())
        print(f"largest difference of scores / largest score: {difference:.1e}")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_size", choices=SHAPES, default="33M")
    parser.add_argument("--seq_len", type=int, default=128)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(measure, args=(args, str(Path(folder))), nprocs=args.ranks)


if __name__ == "__main__":
    main()
