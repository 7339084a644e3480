"""What each process of `test_shared_prompts.py` computes, with shared prompts and with separate rows."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from influence_cases import Engine
from influence_oracle import FULL, LORA, Rows, keep_precision
from influence_workers import build_worker, set_loss, training_batch, update_of

# Tokens of the prompts.
PROMPTS = (18, 25, 21)
ENGINES = {
    "lora": Engine(parameters=LORA),
    "full": Engine(parameters=FULL),
    "checkpointing": Engine(parameters=FULL, checkpointing=True),
    "fp32": Engine(parameters=LORA, precision="fp32"),
}
# Tokens per micro-batch: of all rows at once, of a few, and of hardly one prompt.
LIMITS = (400, 120, 36)


def share_prompts(rows: Rows) -> Rows:
    """The rows with few different prompts, those of a prompt apart from each other."""
    generator = torch.Generator().manual_seed(3)
    prompts = [torch.randint(0, 250, (length,), generator=generator) for length in PROMPTS]
    changed = []
    for position, row in enumerate(rows):
        prompt = prompts[position % len(prompts)]
        tokens = torch.cat([prompt, row["responses"]])
        changed.append(row | {"prompts": prompt, "input_ids": tokens, "position_ids": torch.arange(len(tokens))})
    return changed


@contextmanager
def separate_rows(engine: Any) -> Iterator[None]:
    engine._can_share = lambda data: False
    try:
        yield
    finally:
        del engine._can_share


@contextmanager
def counted_tokens(engine: Any) -> Iterator[list[int]]:
    """Tokens of the model's inputs, padding included."""
    counts: list[int] = []
    prepare = engine.prepare_model_inputs

    def counted(micro_batch: Any) -> Any:
        inputs, args = prepare(micro_batch)
        counts.append(inputs["input_ids"].numel())
        return inputs, args

    engine.prepare_model_inputs = counted
    try:
        yield counts
    finally:
        del engine.prepare_model_inputs


def outputs_and_update(worker: Any, engine: Engine, rows: Rows, max_tokens: int) -> dict[str, Any]:
    """Log-probs and entropies of this rank's responses, the change of the weights by an update, and the tokens."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import no_padding_2_padding

    worker.engine_config.use_dynamic_bsz = True
    worker.engine_config.max_token_len_per_gpu = worker.engine_config.infer_max_token_len_per_gpu = max_tokens
    set_loss(worker, "token-mean", terms=True)
    with counted_tokens(worker.engine) as tokens:
        data = training_batch(rows, engine, terms=True, compute_loss=False)
        output = worker.infer_batch(data)
        padded = {name: no_padding_2_padding(tu.get(output, name), data) for name in ("log_probs", "entropy")}
        change = update_of(worker, lambda: worker.train_mini_batch(training_batch(rows, engine, terms=True)))
    return padded | {"change": change, "tokens": sum(tokens)}


def in_process(rank: int, world: int, folder: Path) -> None:
    """Compute everything for one world size; rank 0 saves its results."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0", "DIST_INIT_METHOD": f"file://{folder}/meet_{world}"}
    rows = share_prompts(torch.load(folder / "rows.pt"))
    found: dict[Any, Any] = {}
    for name, engine in ENGINES.items():
        worker = build_worker(folder, engine)
        for max_tokens in LIMITS:
            shared = outputs_and_update(worker, engine, rows, max_tokens)
            with separate_rows(worker.engine):
                found[name, max_tokens] = (shared, outputs_and_update(worker, engine, rows, max_tokens))
    if rank == 0:
        torch.save(found, folder / f"{world}.pt")
    dist.destroy_process_group()


def all_worlds(_rank: int, worlds: tuple[int, ...], folder: Path) -> None:
    """Fork the processes of each world size from one that has imported verl."""
    torch.set_num_threads(1)
    os.environ["VERL_PLATFORM"] = "cpu"
    # Read by transformers. In a forked process torch sometimes refuses a new thread: "Invalid thread pool!".
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    from verl_ext import plugin

    plugin.register()
    import verl_ext.cpu.engine
    import verl_ext.influence.worker  # noqa: F401

    keep_precision()
    for world in worlds:
        mp.start_processes(in_process, args=(world, folder), nprocs=world, start_method="fork")
