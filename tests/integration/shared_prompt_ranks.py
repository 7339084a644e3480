"""What each process of `test_shared_prompts.py` computes, with shared prompts and with separate rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from influence_cases import Engine
from influence_oracle import FULL, LORA, Rows, keep_precision
from influence_workers import build_worker, set_loss, training_batch, update_of
from worlds import be_rank, fork_worlds

# Tokens of the prompts, and of the beginning that all but the last have in common.
PROMPTS, BEGINNING = (18, 25, 21), 15
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
    for prompt in prompts[:-1]:
        prompt[:BEGINNING] = prompts[0][:BEGINNING]
    changed = []
    for position, row in enumerate(rows):
        prompt = prompts[position % len(prompts)]
        tokens = torch.cat([prompt, row["responses"]])
        changed.append(row | {"prompts": prompt, "input_ids": tokens, "position_ids": torch.arange(len(tokens))})
    return changed


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
    be_rank(rank, world, folder)
    rows = share_prompts(torch.load(folder / "rows.pt"))
    found: dict[Any, Any] = {}
    for name, engine in ENGINES.items():
        worker = build_worker(folder, engine)
        for max_tokens in LIMITS:
            results = []
            for worker.engine.may_share in (True, False):
                results.append(outputs_and_update(worker, engine, rows, max_tokens))
            found[name, max_tokens] = results
    if rank == 0:
        torch.save(found, folder / f"{world}.pt")
    dist.destroy_process_group()


def all_worlds(_rank: int, worlds: tuple[int, ...], folder: Path) -> None:
    """Run the worlds of these sizes."""
    fork_worlds(in_process, worlds, folder, "verl_ext.influence.worker", keep_precision)
