"""Pass rates of any Hugging Face model on parquet files of verl's schema, sampled with vLLM on a GPU or a CPU.

    python -m recipe.fast_dapo.evaluate --model MODEL --data val.parquet --n 16 --max_response_length 10
    python -m recipe.fast_dapo.evaluate --model MODEL --data val.parquet --n 1 --temperature 0        # greedy
    python -m recipe.fast_dapo.evaluate --model MODEL --data math500.parquet aime24.parquet --output outputs/evaluation

Prints, for each file, pass@1, pass@k, maj@k and their 95 % bootstrap intervals over prompts, the macro average, and the
histogram of pass rates, which says before any training how many prompts of a pool carry signal. Prompts are rendered
and responses decoded and scored by the same functions of verl that a training run uses. Text only, one machine.

With --output the samples are kept as they come: the same command goes on where a killed evaluation stopped, another --k
or --by or a higher --limit reuses them, and other settings are refused.
"""

import argparse
import dataclasses
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_ext.core.errors import SignalError
from verl_ext.evaluation.data import DataSet, load_reward, read_data_sets, score
from verl_ext.evaluation.sampling import Sampler, encode_prompts, load_tokenizer, prepare_vllm
from verl_ext.evaluation.statistics.majority_vote import MAX_SAMPLES
from verl_ext.evaluation.statistics.report import (
    EvaluationResult,
    combine,
    render,
    summarize_data_set,
    write_json,
    write_plot,
)
from verl_ext.evaluation.statistics.samples import PromptKey, SampleStore, ScoredResponse


@dataclass(frozen=True)
class EvaluateSettings:
    """What to evaluate and how.

    Attributes:
        model: Folder of a Hugging Face model, or its name on the hub.
        data: Parquet files in verl's schema.
        n: Samples of each prompt.
        k: The k of pass@k and maj@k, each at most `n`.
        temperature: 0 is greedy.
        max_response_length: Tokens of a response at most.
        limit: Only the first so many prompts of each file; None for all.
        seed: Of the sampling.
        reward: "file.py:function" or "pkg://module:function"; None chooses by `data_source`.
        by: A field of `extra_info` to break the result down by.
        raw_prompt: Continue the prompts as plain text, without the chat template.
        chunk_size: Prompts that are answered, scored and kept at once.
        kv_cache_gib: Memory of the key-value cache on a CPU, in GiB; a GPU uses what is free.
        tensor_parallel_size: GPUs that share the model.
    """

    model: str
    data: tuple[str, ...]
    n: int = 16
    k: tuple[int, ...] = (1, 4, 16)
    temperature: float = 1.0
    max_response_length: int = 1024
    limit: int | None = None
    seed: int = 0
    reward: str | None = None
    by: str | None = None
    raw_prompt: bool = False
    chunk_size: int = 256
    kv_cache_gib: float = 0.5
    tensor_parallel_size: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.data, str) or not self.data:
            raise SignalError(f"--data must be one or more parquet files, got {self.data!r}")
        if min(self.n, self.max_response_length, self.chunk_size, 1 if self.limit is None else self.limit) < 1:
            raise SignalError("--n, --max_response_length, --chunk_size and --limit must be at least 1")
        if self.n > MAX_SAMPLES:
            raise SignalError(f"--n must be at most {MAX_SAMPLES}, got {self.n}")
        if not self.k or min(self.k) < 1 or max(self.k) > self.n:
            raise SignalError(f"--k must be from 1 to --n ({self.n}), got {list(self.k)}. Raise --n or lower --k.")
        if self.temperature < 0:
            raise SignalError(f"--temperature must be at least 0, got {self.temperature}")
        if self.temperature == 0 and self.n > 1:
            raise SignalError(f"greedy samples are all the same: --temperature 0 needs --n 1, got {self.n}")
        if self.reward is not None and not all(self.reward.rpartition(":")[::2]):
            raise SignalError(f"--reward must be path/to/file.py:function, got {self.reward!r}")

    def sample_settings(self) -> dict[str, Any]:
        """What samples depend on besides their prompts; samples of other values must not be mixed with them."""
        names = ("n", "temperature", "max_response_length", "seed", "reward", "raw_prompt")
        model = str(Path(self.model).resolve()) if Path(self.model).is_dir() else self.model
        return {"model": model, "model_files": _fingerprint(self.model)} | {name: getattr(self, name) for name in names}


def _fingerprint(model: str) -> str:
    """Of a folder's file names, sizes and times: a checkpoint written anew is another model. "" for a hub name."""
    files = sorted(file for file in Path(model).iterdir() if file.is_file()) if Path(model).is_dir() else []
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16] if facts else ""


def sample_seed(seed: int, key: PromptKey) -> int:
    """Seed of a prompt's first sample: it depends on the prompt alone, not on what else is evaluated or was before."""
    digest = hashlib.sha256(f"{seed}/{key.data_hash}/{key.row}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def collect(settings: EvaluateSettings, data_sets: Sequence[DataSet], store: SampleStore) -> None:
    """Sample and score, chunk by chunk, what the store does not hold yet.

    Chunks begin at fixed rows, and one that is only half there is sampled again as a whole: in the same company the
    same seeds give the same responses, so a resumed evaluation equals an uninterrupted one.
    """
    chunks = [
        (data_set, start)
        for data_set in data_sets
        for start in range(0, len(data_set.rows), settings.chunk_size)
        if any(key not in store for key in data_set.prompt_keys()[start : start + settings.chunk_size])
    ]
    if not chunks:
        return
    prepare_vllm()
    tokenizer = load_tokenizer(settings.model)
    reward = load_reward(settings.reward)
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(settings.model).get_text_config()
    room = (getattr(config, "max_position_embeddings", None) or sys.maxsize) - settings.max_response_length
    prompts = {
        data_set.name: encode_prompts(
            data_set.rows, tokenizer, room, raw_prompt=settings.raw_prompt, name=data_set.name
        )
        for data_set in data_sets
    }
    longest = max(len(ids) for encoded in prompts.values() for ids in encoded)
    sampler = Sampler(
        settings.model,
        max_model_len=longest + settings.max_response_length,
        seed=settings.seed,
        kv_cache_gib=settings.kv_cache_gib,
        tensor_parallel_size=settings.tensor_parallel_size,
    )
    for data_set, start in chunks:
        part = slice(start, start + settings.chunk_size)
        keys = data_set.prompt_keys()[part]
        responses = sampler.generate(
            prompts[data_set.name][part],
            [sample_seed(settings.seed, key) for key in keys],
            n=settings.n,
            temperature=settings.temperature,
            max_response_length=settings.max_response_length,
        )
        scored = []
        for key, row, samples in zip(keys, data_set.rows[part], responses, strict=True):
            scored.append((key, []))
            for ids, truncated in samples:
                text = tokenizer.decode(ids, skip_special_tokens=True)
                verdict = score(reward, row, text)
                sample = ScoredResponse(text, verdict.score, verdict.correct, verdict.pred, truncated, len(ids))
                scored[-1][1].append(sample)
        store.add(data_set.name, scored)
        print(f"{data_set.name}: {start + len(keys)} of {len(data_set.rows)} prompts", file=sys.stderr, flush=True)


def evaluate(settings: EvaluateSettings, samples_file: Path | None = None) -> EvaluationResult:
    """Sample, score and summarize; with a `samples_file`, go on from what it holds.

    Raises:
        SignalError: If the model, the data or the reward function is missing or unfit, or the file holds samples of
            other settings.
    """
    data_sets = read_data_sets(settings.data, settings.limit, settings.by)
    store = SampleStore(samples_file, settings.sample_settings())
    try:
        collect(settings, data_sets, store)
    finally:
        store.close()
    results = []
    for data_set in data_sets:
        extra = [row["extra_info"] for row in data_set.rows]
        groups = None if settings.by is None else [str(info[settings.by]) for info in extra]
        samples = [store[key] for key in data_set.prompt_keys()]
        indices = [info["index"] for info in extra]
        results.append(summarize_data_set(data_set.name, data_set.file, indices, samples, settings.k, groups))
    return combine(results)


def output_files(output: Path) -> tuple[Path, Path, Path]:
    """JSON, picture and samples: beside a given .json file, or in a given folder."""
    if output.suffix == ".json":
        return output, output.with_suffix(".png"), output.with_suffix(".samples.jsonl")
    return output / "result.json", output / "pass_rates.png", output / "samples.jsonl"


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluate, print, and write the files that are wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a Hugging Face model, or its name on the hub")
    parser.add_argument("--data", required=True, nargs="+", help="parquet files in verl's schema")
    parser.add_argument("--n", type=int, default=16, help="samples of each prompt")
    parser.add_argument(
        "--k", type=int, nargs="+", help="the k of pass@k, maj@k (default: those of 1, 4, 16 up to --n)"
    )
    parser.add_argument("--temperature", type=float, default=1.0, help="0 is greedy")
    parser.add_argument("--max_response_length", type=int, default=1024, help="tokens")
    parser.add_argument("--limit", type=int, help="only the first so many prompts of each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reward", help="path/to/file.py:function (default: by data_source)")
    parser.add_argument("--by", help="a field of extra_info to break the result down by, for example kind")
    parser.add_argument("--raw_prompt", action="store_true", help="no chat template: continue the prompts as text")
    parser.add_argument("--chunk_size", type=int, default=256, help="prompts that are answered and kept at once")
    parser.add_argument("--kv_cache_gib", type=float, default=0.5, help="key-value cache on a CPU, GiB")
    parser.add_argument("--tensor_parallel_size", type=int, default=1, help="GPUs that share the model")
    parser.add_argument(
        "--output", type=Path, help="folder, or JSON file, to write; a killed evaluation goes on from there"
    )
    parser.add_argument("--plot", type=Path, help="PNG file for the histograms (default: beside the JSON file)")
    args = vars(parser.parse_args(argv))
    output, plot = args.pop("output"), args.pop("plot")
    args["k"] = tuple(args["k"] or (k for k in (1, 4, 16) if k <= args["n"]))
    args["data"] = tuple(args["data"])
    json_file, beside, samples_file = output_files(output) if output else (None, None, None)
    plot = plot or beside
    try:
        if plot is not None and plot.suffix != ".png":
            raise SignalError(f"--plot must end in .png, got {plot}")
        settings = EvaluateSettings(**args)
        result = evaluate(settings, samples_file)
    except SignalError as error:
        sys.exit(f"error: {error}")
    print(render(result, settings.by))
    if json_file is not None:
        write_json(result, dataclasses.asdict(settings), json_file)
        print(f"written to {json_file}, every sample to {samples_file}")
    if plot is not None:
        write_plot(result, plot)
        print(f"histogram in {plot}")


if __name__ == "__main__":
    main()
