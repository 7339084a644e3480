"""Pass rates of any Hugging Face model on parquet files of verl's schema, sampled with vLLM on a GPU or a CPU.

    python -m recipe.fast_dapo.evaluate --model MODEL --data val.parquet --n 16 --max_response_length 10
    python -m recipe.fast_dapo.evaluate --model MODEL --data val.parquet --n 1 --temperature 0        # greedy
    python -m recipe.fast_dapo.evaluate --model MODEL --data math500.parquet aime24.parquet --output outputs/evaluation
    python -m recipe.fast_dapo.evaluate --model RUN_DIR/checkpoints/global_step_100 --data aime24.parquet --n 32 \\
        --top_p 0.7 --max_response_length 8192            # as a run's validation, from its checkpoint

Prints, for each file, pass@k, maj@k, avg@n, response length and share of truncated responses with their 95 % bootstrap
intervals over prompts and their standard error over repeats, the macro average, and the histogram of pass rates, which
shows before any training how many prompts of a pool carry signal. Prompts are rendered and responses decoded and scored
by the same functions of verl that a training run uses. Text only, one machine.

With --output samples are saved as they are made: the same command continues a killed evaluation, another
--k, --by or --success_threshold or a higher --limit reuses them, and other settings are refused.
"""

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from verl_ext.core.errors import SignalError
from verl_ext.core.json_argument import json_object
from verl_ext.evaluation.checkpoint import merged_model
from verl_ext.evaluation.data import DataSet, check_reward, load_reward, read_data_sets, score
from verl_ext.evaluation.replicas import Engine, Replicas, split_devices, visible_devices
from verl_ext.evaluation.sampling import Sampler, encode_prompts, load_tokenizer, prepare_vllm
from verl_ext.evaluation.settings import EvaluateSettings
from verl_ext.evaluation.statistics.report import (
    SUCCESS_THRESHOLD,
    EvaluationResult,
    combine,
    render,
    summarize_data_set,
    write_json,
    write_plot,
)
from verl_ext.evaluation.statistics.samples import PromptKey, SampleStore, ScoredResponse


def sample_seed(seed: int, key: PromptKey) -> int:
    """Seed of a prompt's first sample: it depends only on the prompt, not on other evaluated prompts."""
    digest = hashlib.sha256(f"{seed}/{key.data_hash}/{key.row}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


def plan_devices(settings: EvaluateSettings) -> list[list[str]]:
    """The GPUs of each engine; empty for one engine in this process.

    Raises:
        SignalError: If requested GPUs do not exist.
    """
    on_cpu = prepare_vllm()
    if on_cpu and settings.data_parallel_size > 1:
        raise SignalError(
            f"--data_parallel_size {settings.data_parallel_size} needs a GPU per engine, and this machine has none: "
            "engines on a CPU would share its cores. Leave it out."
        )
    if on_cpu and settings.gpu_memory_utilization is not None:
        raise SignalError(
            "--gpu_memory_utilization is a share of a GPU's memory, and this machine has no GPU. Leave it out, or set "
            "--kv_cache_gib."
        )
    if settings.data_parallel_size == 1:
        return []
    return split_devices(visible_devices(), settings.tensor_parallel_size, settings.data_parallel_size)


def collect(settings: EvaluateSettings, data_sets: Sequence[DataSet], store: SampleStore) -> None:
    """Sample and score all chunks that the store does not have yet.

    Chunks begin at fixed rows, and an incomplete one is sampled again as a whole: in the same batch the same seeds give
    the same responses, so a resumed evaluation equals an uninterrupted one.
    """
    chunks = [
        (data_set, start)
        for data_set in data_sets
        for start in range(0, len(data_set.rows), settings.chunk_size)
        if any(key not in store for key in data_set.prompt_keys()[start : start + settings.chunk_size])
    ]
    if not chunks:
        return
    devices = plan_devices(settings)
    reward = load_reward(settings.reward)
    check_reward(reward, data_sets)
    model = merged_model(settings.model)
    tokenizer = load_tokenizer(model)
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model).get_text_config()
    room = (getattr(config, "max_position_embeddings", None) or sys.maxsize) - settings.max_response_length
    prompts = {
        data_set.name: encode_prompts(
            data_set.rows,
            tokenizer,
            room,
            raw_prompt=settings.raw_prompt,
            chat_template_kwargs=settings.chat_template_kwargs,
            system_prompt=settings.system_prompt,
            name=data_set.name,
        )
        for data_set in data_sets
    }
    longest = max(len(ids) for encoded in prompts.values() for ids in encoded)
    make = functools.partial(
        Sampler,
        model,
        max_model_len=longest + settings.max_response_length,
        seed=settings.seed,
        kv_cache_gib=settings.kv_cache_gib,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        tensor_parallel_size=settings.tensor_parallel_size,
    )
    with contextlib.ExitStack() as stack:
        engine: Engine = stack.enter_context(Replicas(make, devices)) if devices else make()
        for data_set, start in chunks:
            part = slice(start, start + settings.chunk_size)
            keys = data_set.prompt_keys()[part]
            responses = engine.generate(
                prompts[data_set.name][part],
                [sample_seed(settings.seed, key) for key in keys],
                n=settings.n,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k,
                max_response_length=settings.max_response_length,
            )
            scored = []
            for key, row, samples in zip(keys, data_set.rows[part], responses, strict=True):
                scored.append((key, []))
                for ids, truncated in samples:
                    text = tokenizer.decode(ids, skip_special_tokens=True)
                    verdict = score(reward, row, text)
                    correct = verdict.reward >= settings.success_threshold
                    sample = ScoredResponse(
                        text, verdict.score, correct, verdict.pred, truncated, len(ids), verdict.acc
                    )
                    scored[-1][1].append(sample)
            store.add(data_set.name, scored)
            print(f"{data_set.name}: {start + len(keys)} of {len(data_set.rows)} prompts", file=sys.stderr, flush=True)


def evaluate(settings: EvaluateSettings, samples_file: Path | None = None) -> EvaluationResult:
    """Sample, score and summarize; with a `samples_file`, continue from its content.

    Raises:
        SignalError: If the model, the data or the reward function is missing or unsuitable, or the file has samples of
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
        results.append(
            summarize_data_set(
                data_set.name, data_set.file, indices, samples, settings.k, groups, settings.success_threshold
            )
        )
    return combine(results)


def output_files(output: Path) -> tuple[Path, Path, Path]:
    """Paths of JSON, picture and samples: next to a given .json file, or in a given folder."""
    if output.suffix == ".json":
        return output, output.with_suffix(".png"), output.with_suffix(".samples.jsonl")
    return output / "result.json", output / "pass_rates.png", output / "samples.jsonl"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model",
        required=True,
        help="folder of a Hugging Face model or of a checkpoint of verl (global_step_N), or a model's name on the hub",
    )
    parser.add_argument("--data", required=True, nargs="+", help="parquet files in verl's schema")
    parser.add_argument("--n", type=int, default=16, help="samples per prompt")
    parser.add_argument(
        "--k", type=int, nargs="+", help="the k of pass@k, maj@k (default: those of 1, 4, 16 up to --n)"
    )
    parser.add_argument("--temperature", type=float, default=1.0, help="0 is greedy")
    parser.add_argument(
        "--top_p", type=float, default=1.0, help="sample from the most likely tokens up to this total probability"
    )
    parser.add_argument("--top_k", type=int, default=-1, help="sample from this many most likely tokens; -1: all")
    parser.add_argument("--max_response_length", type=int, default=1024, help="tokens")
    parser.add_argument("--limit", type=int, help="use only this many prompts per file, from the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reward", help="path/to/file.py:function (default: by data_source)")
    parser.add_argument(
        "--success_threshold",
        type=float,
        default=SUCCESS_THRESHOLD,
        help="a reward (acc, otherwise score) of at least this is a success",
    )
    parser.add_argument("--by", help="field of extra_info to break the result down by, for example kind")
    parser.add_argument("--raw_prompt", action="store_true", help="no chat template: continue the prompts as text")
    parser.add_argument(
        "--chat_template_kwargs",
        type=json_object,
        default={},
        help="JSON for the chat template, for example '{\"enable_thinking\": false}'",
    )
    parser.add_argument("--system_prompt", help="first message of every prompt, instead of the file's")
    parser.add_argument("--chunk_size", type=int, default=256, help="prompts sampled and saved per chunk")
    parser.add_argument("--kv_cache_gib", type=float, default=0.5, help="key-value cache on a CPU, GiB")
    parser.add_argument("--gpu_memory_utilization", type=float, help="share of a GPU's memory (default: vLLM's own)")
    parser.add_argument("--tensor_parallel_size", type=int, default=1, help="number of GPUs that share the model")
    parser.add_argument("--data_parallel_size", type=int, default=1, help="engines that share the prompts, on GPUs")
    parser.add_argument(
        "--output", type=Path, help="folder, or JSON file, to write; a killed evaluation continues from there"
    )
    parser.add_argument("--plot", type=Path, help="PNG file for the histograms (default: next to the JSON file)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluate, print, and write the requested files."""
    args = vars(_parser().parse_args(argv))
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
