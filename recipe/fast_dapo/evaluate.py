"""Pass rates of any Hugging Face model on any parquet file of verl's schema, sampled with vLLM on a GPU or a CPU.

    python -m recipe.fast_dapo.evaluate --model MODEL --data val.parquet --n 16 --max_response_length 10
    python -m recipe.fast_dapo.evaluate --model MODEL --data val.parquet --n 1 --temperature 0        # greedy

Prints pass@1, pass@k and the histogram of pass rates, which says before any training how many prompts of a pool carry
signal. Prompts are rendered and responses decoded and scored by the same functions of verl that a training run uses.
Text only, one machine; the whole file is answered in one call.
"""

import argparse
import asyncio
import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from data_preprocess.schema import ParquetError, check_parquet
from recipe.fast_dapo.pass_rates import PassRateSummary, summarize
from recipe.fast_dapo.sampling import encode_prompts, generate, load_tokenizer, prepare_vllm
from verl_ext.errors import SignalError


@dataclass(frozen=True)
class EvaluateSettings:
    """What to evaluate and how.

    Attributes:
        model: Folder of a Hugging Face model, or its name on the hub.
        data: Parquet file in verl's schema.
        n: Samples of each prompt.
        k: The k of pass@k, each at most `n`.
        temperature: 0 is greedy.
        max_response_length: Tokens of a response at most.
        limit: Only the first so many prompts; None for all.
        seed: Of the sampling.
        reward: "file.py:function" or "pkg://module:function"; None chooses by `data_source`.
        by: A field of `extra_info` to break the result down by.
        kv_cache_gib: Memory of the key-value cache on a CPU, in GiB; a GPU uses what is free.
        tensor_parallel_size: GPUs that share the model.
    """

    model: str
    data: str
    n: int = 16
    k: tuple[int, ...] = (1, 4, 16)
    temperature: float = 1.0
    max_response_length: int = 1024
    limit: int | None = None
    seed: int = 0
    reward: str | None = None
    by: str | None = None
    kv_cache_gib: float = 0.5
    tensor_parallel_size: int = 1

    def __post_init__(self) -> None:
        if self.n < 1 or self.max_response_length < 1 or (self.limit is not None and self.limit < 1):
            raise SignalError("--n, --max_response_length and --limit must be at least 1")
        if not self.k or min(self.k) < 1 or max(self.k) > self.n:
            raise SignalError(f"--k must be from 1 to --n ({self.n}), got {list(self.k)}. Raise --n or lower --k.")
        if self.temperature < 0:
            raise SignalError(f"--temperature must be at least 0, got {self.temperature}")
        if self.temperature == 0 and self.n > 1:
            raise SignalError(f"greedy samples are all the same: --temperature 0 needs --n 1, got {self.n}")
        if self.reward is not None and not all(self.reward.rpartition(":")[::2]):
            raise SignalError(f"--reward must be path/to/file.py:function, got {self.reward!r}")


@dataclass(frozen=True)
class Evaluation:
    """Result: a summary, the same by group, and the counts of every prompt.

    Attributes:
        summary: Over all prompts.
        groups: By the value of the field `by`; empty without one.
        mean_score: Mean of the reward function's `score` over all samples.
        truncated: Share of the samples that ran into `max_response_length`.
        prompts: `index`, `num_correct`, `num_samples` and `mean_score` of each prompt, in the file's order.
    """

    summary: PassRateSummary
    groups: dict[str, PassRateSummary]
    mean_score: float
    truncated: float
    prompts: list[dict[str, Any]]


def read_rows(settings: EvaluateSettings) -> list[dict[str, Any]]:
    """The checked rows of the file, at most `limit` of them."""
    import pyarrow.parquet as pq

    try:
        check_parquet(settings.data)
    except ParquetError as error:
        raise SignalError(str(error)) from error
    rows = pq.read_table(settings.data).slice(0, settings.limit).to_pylist()
    if settings.by is not None and settings.by not in rows[0]["extra_info"]:
        fields = ", ".join(rows[0]["extra_info"])
        raise SignalError(f"--by {settings.by}: extra_info has no such field. It has: {fields}.")
    return rows


def load_reward(reward: str | None) -> Callable[..., Any]:
    """The reward function: `reward` if given, else by data source, as `compute_score(data_source=..., ...)`."""
    if reward is not None:
        from verl.utils.import_utils import load_extern_object

        path, _, name = reward.rpartition(":")
        try:
            return cast(Callable[..., Any], load_extern_object(path, name))
        except (FileNotFoundError, ImportError, AttributeError, RuntimeError) as error:
            raise SignalError(f"--reward {reward} cannot be loaded: {error}") from error

    def by_data_source(data_source: str, **kwargs: Any) -> Any:
        if data_source == "arithmetic":
            from verl_ext.rewards.arithmetic import compute_score
        else:
            from verl.utils.reward_score import default_compute_score as compute_score
        try:
            return compute_score(data_source=data_source, **kwargs)
        except NotImplementedError as error:
            raise SignalError(
                f"verl has no reward function for data_source {data_source!r}. Give one with --reward file.py:function."
            ) from error

    return by_data_source


def score(reward: Callable[..., Any], row: dict[str, Any], response: str) -> tuple[float, bool]:
    """Score of one response and whether it is right: its `acc` is 1, or its score where there is no `acc`."""
    result = reward(
        data_source=row["data_source"],
        solution_str=response,
        ground_truth=row["reward_model"]["ground_truth"],
        extra_info=dict(row["extra_info"]),
    )
    if inspect.isawaitable(result):
        result = asyncio.run(_wait(result))
    if isinstance(result, dict):
        return float(result["score"]), float(result.get("acc", result["score"])) >= 1.0
    return float(result), float(result) >= 1.0


async def _wait(awaitable: Any) -> Any:
    return await awaitable


def evaluate(settings: EvaluateSettings) -> Evaluation:
    """Sample, score and summarize.

    Raises:
        SignalError: If the model, the data or the reward function is missing or unfit.
    """
    rows = read_rows(settings)
    prepare_vllm()
    tokenizer = load_tokenizer(settings.model)
    reward = load_reward(settings.reward)
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(settings.model).get_text_config()
    context = getattr(config, "max_position_embeddings", None) or sys.maxsize
    prompts = encode_prompts(rows, tokenizer, room=context - settings.max_response_length)
    responses = generate(
        settings.model,
        prompts,
        n=settings.n,
        temperature=settings.temperature,
        max_response_length=settings.max_response_length,
        seed=settings.seed,
        kv_cache_gib=settings.kv_cache_gib,
        tensor_parallel_size=settings.tensor_parallel_size,
    )

    records, cut = [], 0
    for row, samples in zip(rows, responses, strict=True):
        scored = [score(reward, row, tokenizer.decode(ids, skip_special_tokens=True)) for ids, _ in samples]
        cut += sum(was_cut for _, was_cut in samples)
        records.append(
            {
                "index": row["extra_info"]["index"],
                "num_correct": sum(correct for _, correct in scored),
                "num_samples": len(scored),
                "mean_score": sum(value for value, _ in scored) / len(scored),
            }
        )
    groups: dict[str, list[int]] = {}
    if settings.by is not None:
        for row, record in zip(rows, records, strict=True):
            groups.setdefault(str(row["extra_info"][settings.by]), []).append(record["num_correct"])
    return Evaluation(
        summary=summarize([r["num_correct"] for r in records], settings.n, settings.k),
        groups={name: summarize(counts, settings.n, settings.k) for name, counts in sorted(groups.items())},
        mean_score=sum(r["mean_score"] for r in records) / len(records),
        truncated=cut / (len(records) * settings.n),
        prompts=records,
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluate, print, and write the JSON file if one is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a Hugging Face model, or its name on the hub")
    parser.add_argument("--data", required=True, help="parquet file in verl's schema")
    parser.add_argument("--n", type=int, default=16, help="samples of each prompt")
    parser.add_argument("--k", type=int, nargs="+", help="the k of pass@k (default: those of 1, 4, 16 up to --n)")
    parser.add_argument("--temperature", type=float, default=1.0, help="0 is greedy")
    parser.add_argument("--max_response_length", type=int, default=1024, help="tokens")
    parser.add_argument("--limit", type=int, help="only the first so many prompts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reward", help="path/to/file.py:function (default: by data_source)")
    parser.add_argument("--by", help="a field of extra_info to break the result down by, for example kind")
    parser.add_argument("--kv_cache_gib", type=float, default=0.5, help="key-value cache on a CPU, GiB")
    parser.add_argument("--tensor_parallel_size", type=int, default=1, help="GPUs that share the model")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    args = vars(parser.parse_args(argv))
    output = args.pop("output")
    args["k"] = tuple(args["k"] or (k for k in (1, 4, 16) if k <= args["n"]))
    try:
        settings = EvaluateSettings(**args)
        result = evaluate(settings)
    except SignalError as error:
        sys.exit(f"error: {error}")
    print(result.summary.render())
    print(f"mean score {result.mean_score:.4f}, {100 * result.truncated:.1f} % of the responses cut off")
    for name, summary in result.groups.items():
        shares = f"0/n {100 * summary.histogram.zeros:.1f} %, n/n {100 * summary.histogram.ones:.1f} %"
        print(f"{settings.by}={name}: {summary.num_prompts} prompts, pass@1 {summary.pass_rate:.4f}, {shares}")
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"settings": dataclasses.asdict(settings), **dataclasses.asdict(result)}, indent=2)
        output.write_text(text + "\n")
        print(f"written to {output}")


if __name__ == "__main__":
    main()
