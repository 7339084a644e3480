"""Seconds to a target accuracy on the real stack, with every method at its own best settings.

    python tests/benchmarks/fast_dapo_seconds.py [--gain 0.2] [--methods uniform_rloo choose …] [--seeds 3] [--pool E]

Pool B: the methods of the leaderboard that the product runs, with what its balanced form tuned for each
(`leaderboard_settings_balanced.json`, or --settings FILE): prompts per batch, rollouts per prompt, learning rate,
updates per batch. Pool E, the demo's: every method with the demo's settings, or those of --settings. FILE may have
settings of a mode's own, such as `choose_separate_async`; other modes take those of their method. filter_groups is
verl's own buffer, uniform_rloo the same trainer without curriculum, and tracin the same with TracIn's selection by a
separate validation set. One Ray session per method; before each seed the base weights, an empty optimizer and an
empty curriculum are restored. (verl's own batches in an asynchronous mode have a session per seed, since its trainer
cannot forget the rollouts in flight.) A seed decides the order of the data; vLLM samples differently in every run.
Finished runs are kept in runs.jsonl: a second call continues.

Looks: the actor is saved in Hugging Face's format, and its exact pass@1 at temperature 1 on 512 learnable prompts that
are not in the pool is computed (`learning_lab.held_out_accuracy`), at the first step 300 rollouts or 10 % after the
last look; their time and the start-up are not counted. What the target took is interpolated between the last two looks.
Intervals are 95 % bootstrap percentiles over seeds.

--methods choose choose_colocate_async choose_separate_async choose_separate_async_two_ahead asks what an asynchronous
mode costs in rollouts; those of tracin and uniform_rloo, without curriculum, are the rollouts trained on. Their
seconds are not informative here: training and generation share two cores, and generation continues during a look.
--first_seed 100 tries settings on seeds that no table reports.

Prediction, written before the first run, to +20 points: choose 2.2x fewer seconds than uniform_rloo and 2.5x fewer
than filter_groups; two_phase 1.3x fewer than uniform_rloo. Modes at settings of their own: the rollouts that are under
way when the target is reached are the cost, and they are batches; so with half the batch choose_separate_async needs
half as many more, at most 15 % more than choose at its best. What the modes cost without choice, pool E, 16 x 4 at
1.5e-4 with 2 updates, rollouts trained on: uniform_rloo +3 % in colocate_async and +8 % in separate_async, tracin as
much, two_phase +5 % and +10 %; so what separate_async costs choose (+6 %) is verl's staleness and not the choice. One
batch ahead as in verl's own trainer, where separate_async had two: choose at most 10 % more rollouts than in the
synchronous trainer, and one version old.
"""

import argparse
import contextlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from fast_dapo_leaderboard import published, read_tuned
from fast_dapo_wall_clock import (
    DATA,
    MODEL,
    POOL_SIZE,
    ROOT,
    VAL_SIZE,
    Lab,
    influence_file,
    make_data,
    open_lab,
    save_actor,
    train,
)
from leaderboard_protocol import Settings, Spacing
from leaderboard_report import Needed, ratio, ratio_text
from leaderboard_store import read_whole_lines
from learning_lab import held_out_accuracy, make_task
from learning_tasks import Task
from step_overhead import named_phases
from transformers import AutoModelForCausalLM

from verl_ext.core.json_lines import JsonLines

OUTPUT = ROOT / "outputs/benchmarks/fast_dapo_seconds"
LOOKS = Spacing(300, 0.10)
# Of `configs/experiment/arithmetic_demo.yaml`.
DEMO = Settings(learning_rate=1.5e-4, batch=32, group=4, updates=2)

SEPARATE = [
    "trainer.v1.trainer_mode=separate_async",
    "trainer.v1.separate_async.parameter_sync_step=1",
    "actor_rollout_ref.rollout.nnodes=1",
    "actor_rollout_ref.hybrid_engine=false",
]
# With the settings that were tuned for the synchronous one, unless a mode has its own.
MODES = {
    "": [],
    "_colocate_async": ["trainer.v1.trainer_mode=colocate_async"],
    "_separate_async": SEPARATE,
    "_separate_async_two_ahead": [*SEPARATE, "trainer.v1.separate_async.num_warmup_batches=2"],
}
WITHOUT_CURRICULUM = ("uniform_rloo", "tracin", "filter_groups")
METHODS = (*WITHOUT_CURRICULUM, "two_phase", "choose")
IN_MODES = tuple(f"{method}{mode}" for method in METHODS if method != "filter_groups" for mode in MODES if mode)


def split(name: str) -> tuple[str, str]:
    """A method of the leaderboard, and its mode."""
    mode = next(mode for mode in reversed(MODES) if name.endswith(mode))
    return name.removesuffix(mode), mode


def settings_of(names: Iterable[str], tuned: Mapping[str, Settings]) -> dict[str, Settings]:
    """By method or mode: a mode's own settings, or else those of its method.

    Raises:
        ValueError: There are neither.
    """
    own = {name: tuned.get(name, tuned.get(split(name)[0])) for name in names}
    if missing := [name for name, settings in own.items() if settings is None]:
        raise ValueError(f"no settings of {', '.join(missing)}")
    return {name: settings for name, settings in own.items() if settings is not None}


def overrides(name: str, settings: Settings, pool: str) -> list[str]:
    """What a user would write for a method of the leaderboard at these settings."""
    method, mode = split(name)
    batch, group = settings.batch, settings.group
    n, gen_batch, own = group, "null", ["curriculum.enable=false"]
    if method == "filter_groups":
        gen_batch = "1"
        own += ["algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=acc"]
    elif method == "tracin":
        own += [
            *("tracin.enable=true", "tracin.parameters=_proj", "tracin.validation.pool_size=128"),
            f"tracin.validation_files={influence_file(pool)}",
        ]
    elif method == "two_phase":
        n, gen_batch = max(2, group // 4), str(6 * batch)
        own = [
            *("curriculum.schedule=streaming", "curriculum.predictor=posterior"),
            *("curriculum.screening=sequential", "curriculum.screening_chunk=1"),
        ]
    elif method == "choose":
        n, gen_batch = min(group, max(2, group // 2)), str(batch)
        own = [
            *("curriculum.schedule=streaming", "curriculum.predictor=posterior"),
            *("curriculum.baseline=posterior", "algorithm.adv_estimator=posterior", "curriculum.train_on=all"),
        ]
    return [
        *own,
        *MODES[mode],
        f"data.train_batch_size={batch}",
        f"data.gen_batch_size={gen_batch}",
        f"actor_rollout_ref.rollout.n={n}",
        f"actor_rollout_ref.rollout.n_continue={group - n}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={batch}",
        f"actor_rollout_ref.actor.ppo_epochs={settings.updates}",
        f"actor_rollout_ref.actor.optim.lr={settings.learning_rate}",
    ]


def run(method: str, settings: Settings, args: argparse.Namespace, store: JsonLines) -> list[dict[str, Any]]:
    """All seeds of a method, those that are missing in one Ray session."""
    own = {"method": method, "pool": args.pool, **asdict(settings)}
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    jobs = [{**own, "gain": args.gain, "max_rollouts": args.max_rollouts, "seed": seed} for seed in seeds]
    known = {json.dumps(record["job"]): record["result"] for record in read_whole_lines(store)}
    if missing := [job for job in jobs if json.dumps(job) not in known]:
        for job, result in zip(missing, _train(method, settings, missing), strict=True):
            store.append([{"job": job, "result": result}])
            known[json.dumps(job)] = result
    return [known[json.dumps(job)] for job in jobs]


def _train(method: str, settings: Settings, jobs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    pool = jobs[0]["pool"]
    given = [
        *overrides(method, settings, pool),
        f"data.train_files={DATA}/{pool}/train.parquet",
        f"data.val_files={DATA}/{pool}/val.parquet",
        "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]",
    ]
    task = make_task(pool, POOL_SIZE, held_out=VAL_SIZE)
    name, mode = split(method)
    is_alone = bool(mode) and name in WITHOUT_CURRICULUM
    for session in [[job] for job in jobs] if is_alone else [jobs]:
        seed = [f"data.seed={session[0]['seed']}"]
        with tempfile.TemporaryDirectory() as folder, open_lab(Path(folder) / "run", *given, *seed) as lab:
            base = f"{folder}/base"
            lab.call(save_actor, base)
            for job in session:
                print(f"{method} on pool {pool}, seed {job['seed']}", flush=True)
                look = exact_look(task, f"{folder}/look")
                more = {"look": look, "is_exact": True, "next_look": LOOKS.next_look}
                with contextlib.nullcontext() if is_alone else lab.settings(data__seed=job["seed"]):
                    yield train(lab, None if is_alone else base, job["gain"], job["max_rollouts"], **more)


def exact_look(task: Task, folder: str) -> Callable[[Lab], float]:
    """The actor's exact pass@1 at temperature 1 on the held-out prompts; its weights pass through `folder`."""

    def look(lab: Lab) -> float:
        lab.call(save_actor, folder)
        model = AutoModelForCausalLM.from_pretrained(f"{folder}/huggingface", dtype="float32").eval()
        (accuracy,) = held_out_accuracy(model, task).values()
        return accuracy

    return look


def at_target(run: dict[str, Any], gain: float, column: str) -> float:
    """`column` where the accuracy has gained so much, on the line between the last two looks; at the end if never."""
    before, after = run["history"][-2:]
    target = run["history"][0]["accuracy"] + gain
    if not run["reached"]:
        return after[column]
    share = (target - before["accuracy"]) / (after["accuracy"] - before["accuracy"])
    return before[column] + share * (after[column] - before[column])


def overhead(runs: list[dict[str, Any]]) -> float:
    """The share of the steps that is neither verl's work nor the engine's, as `step_overhead.py` counts it."""
    seconds = [run["seconds_by_phase"] for run in runs]
    named = sum(sum(named_phases(lambda name, own=own: own.get(name, 0.0)).values()) for own in seconds)
    return 1 - named / sum(own["step"] for own in seconds)


def needed(runs: list[dict[str, Any]], gain: float, column: str) -> Needed:
    """To the target; of a seed that did not reach it, its cost at the end."""
    return Needed(tuple(at_target(run, gain, column) for run in runs), sum(run["reached"] for run in runs))


def render(results: dict[str, list[dict[str, Any]]], chosen: Mapping[str, Settings], gain: float) -> str:
    """A Markdown table. "not trained on": at the end of a run, rollouts that were thrown away or still wait."""
    lines = [
        f"| method | B x N, rate, updates | seconds to +{100 * gain:.0f} | rollouts | not trained on | s per step | "
        "generating | overhead | sample age | x uniform_rloo | x filter_groups |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    seconds = {method: needed(runs, gain, "seconds") for method, runs in results.items()}
    for method, runs in results.items():
        settings = chosen[method]
        others = [seconds.get(other) for other in ("uniform_rloo", "filter_groups")]
        steps = [step for run in runs for step in run["steps"]]
        cells = [
            method,
            f"{settings.batch} x {settings.group}, {settings.learning_rate:g}, {settings.updates}",
            _with_interval(seconds[method]),
            _with_interval(needed(runs, gain, "rollouts")),
            f"{np.mean([run['rollouts'] - run['trained'] for run in runs]):,.0f}",
            f"{np.mean([step['seconds'] for step in steps]):.1f}",
            f"{100 * np.mean([run['generation_share'] for run in runs]):.0f} %",
            f"{100 * overhead(runs):.1f} %",
            f"{np.mean([step['sample_age'] for step in steps]):.2f}",
            *(ratio_text(other and ratio(other, seconds[method])) for other in others),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _with_interval(own: Needed) -> str:
    interval = own.interval()
    text = f"{'>' * own.is_bound}{own.mean:,.0f}"
    return text if interval is None else f"{text} [{interval[0]:,.0f}, {interval[1]:,.0f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", choices=("B", "E"), default="B")
    parser.add_argument("--gain", type=float, default=0.2, help="gain in accuracy to reach")
    parser.add_argument("--max_rollouts", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", choices=(*METHODS, *IN_MODES), default=list(METHODS))
    parser.add_argument(
        "--settings", type=Path, help="a tuned.json of the leaderboard; default: the balanced one for pool B"
    )
    args = parser.parse_args()
    if not (MODEL / "config.json").exists():
        parser.error("the base model is missing: run `make demo-data`")
    try:
        if args.settings is None and args.pool == "E":
            tuned = dict.fromkeys(METHODS, DEMO)
        else:
            args.settings = args.settings or published(balanced=True)
            tuned = read_tuned(args.settings).get(args.pool, {})
        chosen = settings_of(args.methods, tuned)
    except ValueError as error:
        parser.error(f"{args.settings or 'the demo'}, pool {args.pool}: {error}")
    make_data(args.pool)
    output = OUTPUT / args.pool
    store = JsonLines(OUTPUT / "runs.jsonl")
    results: dict[str, list[dict[str, Any]]] = {}
    for method, settings in chosen.items():
        results[method] = run(method, settings, args, store)
        output.mkdir(parents=True, exist_ok=True)
        (output / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        (output / "results.md").write_text(render(results, chosen, args.gain) + "\n", encoding="utf-8")
    print(render(results, chosen, args.gain))


if __name__ == "__main__":
    main()
