"""Measure how many ARC tasks a model solves, and how far from golden solutions its skill reaches; sampled with vLLM.

    python -m recipe.golden_redaction.evaluate --model MODEL --data arc_agi_1_training.parquet --output_dir DIR \\
        --n 64 --fresh arc-gen_fresh_pairs.jsonl.gz --states RUN/training_entries.jsonl
    python -m recipe.golden_redaction.evaluate ... --output_dir DIR_OF_ANOTHER_MODEL --compare DIR/result.json

Prints the bare prompts' metrics and the ladder (`evaluation/states.py` says what they are), writes DIR/result.json and,
in ARC Prize's format, DIR/submission.json, and keeps the scored samples in DIR/samples.jsonl: the same command resumes
after a kill or an expired --time_budget; other states reuse existing samples, other sampling settings are refused. Test
and fresh pairs are run again each time, only for passing programs.

Simplification: a sample whose program met infrastructure errors in every attempt stays without a label when resumed.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from recipe.golden_redaction.evaluation.inputs import read_fresh, read_states
from recipe.golden_redaction.evaluation.settings import GoldenEvaluateSettings, Question
from recipe.golden_redaction.evaluation.states import Outcome, StateResult, choose_rungs, measure_state
from recipe.golden_redaction.evaluation.submission import attempts, submission
from recipe.golden_redaction.evaluation.tables import compare, render, render_comparison, summarize
from recipe.golden_redaction.method.problems import Problem, read_problems
from recipe.golden_redaction.method.prompt_format import check_model
from recipe.golden_redaction.method.redaction import RedactedState
from recipe.golden_redaction.records.schema import RecordError
from recipe.golden_redaction.sandbox import make_executor
from recipe.golden_redaction.settings import SandboxSettings
from verl_ext.arc.prompt_options import add_prompt_arguments
from verl_ext.arc.prompts import PromptSettings, SizeLimits, decode_answer, program
from verl_ext.arc.solutions import GOLDEN
from verl_ext.core.errors import SignalError
from verl_ext.core.settings import build
from verl_ext.data.arc_tasks import Grid
from verl_ext.evaluation.checkpoint import merged_model
from verl_ext.evaluation.command import sample_seed
from verl_ext.evaluation.sampling import Sampler, load_tokenizer, prepare_vllm
from verl_ext.evaluation.statistics.samples import SampleStore, ScoredResponse
from verl_ext.sandbox.programs import Programs
from verl_ext.sandbox.results import label

ATTEMPTS = 3  # of a program that met an infrastructure error
SUBMISSION = "submission.json"


def collect(
    settings: GoldenEvaluateSettings, questions: Sequence[Question], store: SampleStore, programs: Programs, tokenizer
) -> None:
    """Sample, run on the examples and store all missing chunks, while there is time.

    As in `recipe.fast_dapo.evaluate`, an incomplete chunk is sampled again as a whole.
    """
    began, size = time.monotonic(), settings.chunk_size
    chunks = [questions[start : start + size] for start in range(0, len(questions), size)]
    chunks = [chunk for chunk in chunks if any(question.key not in store for question in chunk)]
    if not chunks:
        return
    sampler = Sampler(
        settings.model,
        max_model_len=max(len(question.ids) for question in questions) + settings.max_new_tokens,
        seed=settings.seed,
        kv_cache_gib=settings.kv_cache_gib,
        tensor_parallel_size=settings.tensor_parallel_size,
    )
    for number, chunk in enumerate(chunks, start=1):
        if settings.time_budget is not None and time.monotonic() - began > 60 * settings.time_budget:
            break
        keys = [question.key for question in chunk]
        responses = sampler.generate(
            [question.ids for question in chunk],
            [sample_seed(settings.seed, key) for key in keys],
            n=settings.n,
            temperature=settings.temperature,
            max_response_length=settings.max_new_tokens,
        )
        # One text for the golden part and the answer: a character may have tokens in both.
        answers = [
            [decode_answer([*question.given, *ids], tokenizer) for ids, _ in samples]
            for question, samples in zip(chunk, responses, strict=True)
        ]
        jobs = [
            (question.problem.id, program(answer))
            for question, texts in zip(chunk, answers, strict=True)
            for answer in texts
        ]
        pairs = {question.problem.id: question.problem.pairs for question in chunk}
        results = iter(programs.run("example", jobs, pairs, stop_at_first_failure=True))
        scored = []
        for key, texts, samples in zip(keys, answers, responses, strict=True):
            scored.append((key, []))
            for text, (ids, truncated) in zip(texts, samples, strict=True):
                result = next(results)
                statuses = ",".join(result.statuses)
                scored[-1][1].append(
                    ScoredResponse(text, result.reward or 0.0, result.solved, statuses, truncated, len(ids))
                )
        store.add("states", scored)
        print(f"{number} of {len(chunks)} chunks of {size} states", file=sys.stderr, flush=True)


def measure(
    questions: Sequence[Question], store: SampleStore, programs: Programs, fresh: Mapping[str, Sequence[Any]]
) -> tuple[dict[RedactedState, StateResult], dict[RedactedState, list[list[Grid]]]]:
    """Results of states with samples and their attempts; passing programs are run on test and fresh pairs."""
    samples = {question.key: store[question.key] for question in questions}
    passing = [
        (question.problem.id, program(sample.response))
        for question in questions
        for sample in samples[question.key]
        if sample.correct
    ]
    tests = {question.problem.id: question.problem.test_pairs for question in questions}
    fresh = {name: fresh.get(name, ()) for name in tests}
    runs = {
        kind: iter(programs.run(kind, passing, pairs)) for kind, pairs in (("test", tests), ("fresh", fresh))
    }  # in the order of `passing`
    results, tried = {}, {}
    for question in questions:
        state = RedactedState(question.problem.id, question.k)
        outcomes = []
        for sample in samples[question.key]:
            found = [next(runs[kind]).pairs for kind in ("test", "fresh")] if sample.correct else []
            outcomes.append(Outcome(label((sample.pred or "").split(",")), *found))
        results[state] = measure_state(state, outcomes, tests[state.problem], fresh[state.problem])
        tried[state] = attempts(outcomes, len(tests[state.problem]))
    return results, tried


def evaluate(settings: GoldenEvaluateSettings) -> dict[str, Any]:
    """Sample missing states, run, summarize; returns the content of the result file.

    Raises:
        SignalError: Model, data, states or fresh pairs are missing or unsuitable, the sandbox cannot start, or the
            folder holds samples of other settings.
    """
    prepare_vllm()
    settings = replace(settings, model=merged_model(settings.model))
    tokenizer = load_tokenizer(settings.model)
    check_model(Path(settings.model), settings.prompt)
    problems, counts = read_problems(
        settings.data, tokenizer, settings.limits, settings.golden_folder, needs_golden=False, prompt=settings.prompt
    )
    problems = _within_context(problems[: settings.limit], settings, counts)
    by_id = {problem.id: problem for problem in problems}
    fresh = read_fresh(settings.fresh, by_id) if settings.fresh else {}
    visited = read_states(settings.states, by_id, counts) if settings.states else None
    lengths = {problem.id: len(problem.golden_ids) for problem in problems}
    rungs = choose_rungs(lengths, visited, settings.redact, fresh)
    states = list(dict.fromkeys(state for rung in rungs for state in rung.states))
    states.sort(key=lambda state: state.k < lengths[state.problem])  # the states to submit first, in case time runs out
    questions = [Question(by_id[state.problem], state.k) for state in states]
    store = SampleStore(settings.output_dir / "samples.jsonl", settings.sample_settings())
    try:
        with make_executor(settings.sandbox) as executor:
            programs = Programs(executor, ATTEMPTS)
            collect(settings, questions, store, programs, tokenizer)
            answered = [question for question in questions if question.key in store]
            results, tried = measure(answered, store, programs, fresh)
    finally:
        store.close()
    if len(answered) < len(questions):
        print(
            f"--time_budget: {len(questions) - len(answered)} of {len(questions)} states have no answer and are not "
            "counted; run the same command to continue",
            file=sys.stderr,
        )
    rungs = [replace(rung, states=tuple(state for state in rung.states if state in results)) for rung in rungs]
    rungs = [rung for rung in rungs if rung.states]
    bare = {state.problem: tried.get(state, []) for state in states if state.k == lengths[state.problem]}
    num_tests = {problem.id: len(problem.test_pairs) for problem in problems}
    (settings.output_dir / SUBMISSION).write_text(json.dumps(submission(num_tests, bare)), encoding="utf-8")
    nodes = {name: getattr(settings, name).model_dump() for name in ("limits", "prompt", "sandbox")}
    return {"settings": asdict(settings) | nodes, "tasks": dict(counts), **summarize(rungs, results)}


def _within_context(
    problems: Sequence[Problem], settings: GoldenEvaluateSettings, counts: Counter[str]
) -> list[Problem]:
    """The tasks whose longest state leaves room for an answer."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(settings.model).get_text_config()
    room = (getattr(config, "max_position_embeddings", None) or sys.maxsize) - settings.max_new_tokens
    fitting = [problem for problem in problems if len(problem.prompt_ids) + len(problem.golden_ids) <= room]
    if len(fitting) < len(problems):
        counts["no room in the model's context"] += len(problems) - len(fitting)
    if not fitting:
        raise SignalError(f"no task leaves room for {settings.max_new_tokens} new tokens: lower --max_new_tokens")
    return fitting


def _read_result(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {name: content[name] for name in ("rungs", "states")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SignalError(f"--compare {path}: expected the result.json of another evaluation ({error!r})") from None


def _shares(text: str) -> tuple[float, ...]:
    return tuple(float(share) for share in text.split(",") if share)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", required=True, help="a Hugging Face model or a checkpoint of verl, or a name on the hub"
    )
    parser.add_argument("--data", required=True, help="parquet files of data_preprocess.arc, separated by commas")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder of samples.jsonl and result.json")
    parser.add_argument("--n", type=int, default=64, help="answers per state")
    parser.add_argument("--fresh", type=Path, help="fresh pairs, JSON lines {id, pairs}, also .gz")
    parser.add_argument("--states", type=Path, help="JSON lines with problem and k: a run's training entries")
    parser.add_argument("--redact", type=_shares, default=(0.25, 0.5, 1.0), help="shares of golden solutions to hide")
    parser.add_argument("--temperature", type=float, default=1.0, help="0 is greedy")
    parser.add_argument("--max_new_tokens", type=int, default=1024, help="of an answer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--golden_folder", type=Path, default=GOLDEN, help="has <task>.py files")
    parser.add_argument("--time_budget", type=float, help="minutes after which sampling stops")
    parser.add_argument("--limit", type=int, help="use only the first tasks, this many")
    parser.add_argument("--max_cells", type=int, help="skip tasks with more cells in their examples")
    parser.add_argument("--max_prompt_tokens", type=int, help="skip tasks with longer prompts")
    add_prompt_arguments(parser)
    parser.add_argument("--executor", choices=("local", "sandbox_fusion"), default="local", help="runs the programs")
    parser.add_argument("--sandbox_url", help="URL of a Sandbox Fusion server's run_code")
    parser.add_argument("--sandbox_workers", type=int, help="number of concurrent programs")
    parser.add_argument("--sandbox_require", default="minimum", help="isolation of the local executor: minimum, full")
    parser.add_argument("--chunk_size", type=int, default=32, help="states sampled and stored per chunk")
    parser.add_argument("--kv_cache_gib", type=float, default=1.0, help="key-value cache on a CPU, GiB")
    parser.add_argument("--tensor_parallel_size", type=int, default=1, help="number of GPUs that share the model")
    parser.add_argument("--compare", type=Path, help="result.json of another model: prints the differences to it")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluate, print, and write the result."""
    args = vars(_parser().parse_args(argv))
    args["data"] = tuple(file for file in args["data"].split(",") if file)
    other = args.pop("compare")
    try:
        before = _read_result(other) if other else None
        limits = {name: args.pop(name) for name in ("max_cells", "max_prompt_tokens")}
        prompt = {"grid": args.pop("grid_format"), "test_inputs": args.pop("test_inputs")}
        sandbox = {name: args.pop(f"sandbox_{name}") for name in ("url", "workers", "require")}
        sandbox["executor"] = args.pop("executor")
        settings = GoldenEvaluateSettings(
            **args,
            limits=build(SizeLimits, limits, "limits", "--help"),
            prompt=build(PromptSettings, prompt, "prompt", "--help"),
            sandbox=build(SandboxSettings, sandbox, "sandbox", "--help"),
        )
        content = evaluate(settings)
        comparisons = compare(before, content) if before is not None else []
    except (SignalError, RecordError, ValueError) as error:
        sys.exit(f"error: {error}")
    content["comparison"] = {"with": str(other), "rungs": [asdict(entry) for entry in comparisons]} if other else None
    result = settings.output_dir / "result.json"
    result.write_text(json.dumps(content, indent=2, default=str, allow_nan=False) + "\n", encoding="utf-8")
    print(render(content))
    if comparisons:
        print(f"\ncompared with {other}\n{render_comparison(comparisons)}")
    print(
        f"written to {result}, two attempts per test pair to {settings.output_dir / SUBMISSION}, every answer to "
        f"{settings.output_dir / 'samples.jsonl'}"
    )


if __name__ == "__main__":
    main()
