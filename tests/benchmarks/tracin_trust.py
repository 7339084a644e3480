"""A few trusted prompts and many whose rewards may be wrong: TracIn's selection against the alternatives.

    python tests/benchmarks/tracin_trust.py                          # about seven hours on one core; resumable
    python tests/benchmarks/tracin_trust.py --corruptions flips --trusted 128 --seeds 1 --methods grpo tracin
    python tests/benchmarks/tracin_trust.py --report                 # table and picture of results.json, which has the
                                                                     # rows of all calls; trains nothing

Task, base model, optimizer and measure of `tracin_utility.py`; 30 % of the training rewards are wrong, in three ways
(`trust_methods.py`): independent flips, one source of prompts reversed, one source with the rewards of another task.
Rewards of the trusted prompts are right. Every method trains on 256 rollouts per step for 40 steps:

    grpo          on the training prompts
    clean         the same with right rewards: what could be reached
    tracin        on the training prompts, selected by the gradient of the trusted ones (`quality`, Adam's direction)
    trusted_only  on the trusted prompts
    mixed         half on the trusted prompts, half on the training prompts
    mixed_tracin  the same, with the training prompts' half selected
    majority      on the training prompts, with the group's most frequent answer as the right one
    gradalign     on the training prompts whose gradient agrees with that of the trusted ones (`gradalign_method.py`);
                  gradalign_small: chosen by a tenth of the rollouts
    grpo_repeats  ten times on 64 training prompts
    olr           the same, with refined labels (`olr_method.py`), which need a history of each prompt
    choose        on training prompts chosen by the posterior of their reported pass rates, as Fast DAPO does
    choose_tracin     the same, selected as in tracin
    choose_influence  the same, and prompts that are expected to harm come last (`curriculum.posterior.use_influence`)

Rates: the best of a grid on two separate seeds, per corruption and number of trusted prompts; the grid grows while its
edge is the best. TracIn's validation rollouts, 512 at the start (`one_pool`), are extra (5 % more), and so are those
that GradAlign chooses by (with 128 trusted prompts 4.8 times as many as it trains on, small .45 times); the table's
last column counts them. crossover.svg has the gains over grpo, and marks where TracIn is ahead of every competitor
(`trust_crossover.py`).

PREDICTION, written before the first run, final accuracy with 30 % flips: clean .58, grpo .34, tracin .41 at 128 and 512
trusted prompts, .36 at 8; trusted_only .40 at 8, .55 at 128, .58 at 512; mixed .52 at 512; majority .30, as most
prompts' most frequent answer is wrong. With a reversed source tracin .45. With another task's rewards tracin .50, grpo
.45. So trusted_only wins from 32 prompts on, and mixed_tracin below. Of the last four, before their first runs (but for
five steps of gradalign with a reversed source, from .27 to .40) and with 512 trusted prompts: gradalign .36 with flips,
which are no property of a prompt, .50 with a reversed source, .47 with another task's rewards, small .02 to .04 less;
grpo_repeats .30 with flips, and olr .31, as few prompts have a majority that rises. Of two with choice, before their
first run, with a reversed source and 128 trusted prompts: choose_tracin 2 points above tracin, as fewer hopeless
prompts are rolled out; choose_influence 2 above that, as half of the source's share is left to others.

All of these were for TracIn with pools of 128 that are made again. With one pool, before its runs here, for 8, 32, 128
and 512 trusted prompts: flips .38, .45, .51, .53 (the last was known), source .40, .47, .53, .55, off_target .46, .50,
.54, .56; trusted_only .27 and .525 (known), .43 with 32 and .57 with 512; mixed_tracin with 32 .47, .49 and .51. So
TracIn is ahead of every competitor with 32 trusted prompts of a reversed source, and nowhere else.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gradalign_method import SMALL, ProblemChoice
from gradalign_method import STEPS as STEPS_PER_CHOICE
from influence_methods import InfluencePolicy, PromptOrder, Samples, make_influence_task
from influence_report import final_accuracy
from influence_scores import Scorer
from learning_lab import Rollout
from olr_method import EPOCHS, LabelRefinement
from rate_search import best_rate
from tracin_utility import (
    BASE,
    BATCH,
    GROUP,
    NUM_PROMPTS,
    NUM_VALIDATION,
    RATES,
    ROOT,
    STEPS,
    STEPS_PER_LOOK,
    TUNING_SEEDS,
)
from trust_crossover import GRPO, gains, plot, render, verdicts
from trust_methods import CORRUPTIONS, Corruption, corrupted, damaged_source, majority_rewards

from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from recipe.fast_dapo.curriculum.predictor import PassRatePosterior
from recipe.fast_dapo.curriculum.predictor_settings import PredictorSettings
from recipe.tracin.method.selection import Selection, SelectionSettings, keep_all, select_samples
from recipe.tracin.method.validation import ValidationSettings
from verl_ext.evaluation.statistics.estimates import bootstrap_mean

OUTPUT = ROOT / "outputs/benchmarks/tracin_trust"
TRUSTED = (8, 32, 128, 512)
VALIDATION_ROLLOUTS = 512  # TracIn's, per run: a twentieth of those trained on
METHODS = (
    "grpo", "clean", "tracin", "trusted_only", "mixed", "mixed_tracin", "majority", "gradalign", "gradalign_small",
    "grpo_repeats", "olr", "choose", "choose_tracin", "choose_influence",
)  # fmt: skip
# These know nothing of the trusted prompts: one run serves for all numbers of them.
WITHOUT_TRUST = ("grpo", "clean", "majority", "grpo_repeats", "olr", "choose")
# Nor these of the corruption.
WITHOUT_CORRUPTION = ("clean", "majority", "trusted_only")
WITH_REPEATS = ("grpo_repeats", "olr")
WITH_CHOICE = ("choose", "choose_tracin", "choose_influence")
# Of the streams of wrong rewards: that of the rollouts which GradAlign chooses by.
CHOOSING = 1_000_000


@dataclass(frozen=True)
class Job:
    """One training run."""

    method: str
    corruption: Corruption
    trusted: int
    learning_rate: float
    seed: int
    steps: int = STEPS


def one_pool(trusted: int) -> ValidationSettings:
    """`VALIDATION_ROLLOUTS` (a few less if the number is no divisor) at the start, of which all right ones are used."""
    each = max(1, VALIDATION_ROLLOUTS // trusted)
    return ValidationSettings(pool_size=trusted, rollouts_per_prompt=each, k=trusted * each, refresh_every=STEPS)


class Run:
    """One training run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.data = replace(make_influence_task(NUM_PROMPTS, NUM_VALIDATION), num_validation=job.trusted)
        self.policy = InfluencePolicy(BASE, self.data.task, learning_rate=job.learning_rate, seed=job.seed)
        self.source = damaged_source(NUM_PROMPTS)
        self.tokenizer = build_tokenizer()
        self.scorer = Scorer(self.data, one_pool(job.trusted), weighted=True, preconditioner="adam")
        self.problems = ProblemChoice(
            self.policy, self.data, job.seed, **(SMALL if job.method == "gradalign_small" else {})
        )
        self.labels = LabelRefinement()
        settings = PredictorSettings(seed=job.seed, use_influence=job.method == "choose_influence")
        self.choice = PassRatePosterior(NUM_PROMPTS, settings, self.source[:, None].astype(float), self.source * 1)
        self.orders = PromptOrder(NUM_PROMPTS, job.seed), PromptOrder(job.trusted, job.seed)
        self.repeated = PromptOrder(NUM_PROMPTS, job.seed).next(STEPS * BATCH // EPOCHS)
        self.places = PromptOrder(len(self.repeated), job.seed)

    def train(self) -> dict[str, Any]:
        """To the end of the job; its history of looks."""
        job = self.job
        history = [{"step": 0, "total_rollouts": 0, "accuracy": self.policy.accuracy()}]
        for step in range(1, job.steps + 1):
            prompts = self._prompts(step)
            rollouts = self.policy.sample([prompt for prompt in prompts for _ in range(GROUP)])
            samples = self.policy.tensors(rollouts)
            rewards = self._rewards(rollouts, step)
            if self.job.method in WITH_CHOICE:
                self._learn_pass_rates(prompts, rewards, step)
            advantages = self.policy.advantages(samples, rewards)
            self.policy.step(samples, advantages, self._selection(samples, advantages, step))
            if step % STEPS_PER_LOOK == 0:
                total = step * BATCH * GROUP + self.scorer.num_rollouts + self.problems.num_rollouts
                history.append({"step": step, "total_rollouts": total, "accuracy": self.policy.accuracy()})
        return {"job": asdict(job), "history": history}

    def _prompts(self, step: int) -> list[int]:
        """Of a step's batch."""
        method = self.job.method
        if method in WITH_CHOICE:
            return self.choice.choose(BATCH).tolist()
        if method in WITH_REPEATS:
            return [self.repeated[place] for place in self.places.next(BATCH)]
        if method.startswith("gradalign"):
            if (step - 1) % STEPS_PER_CHOICE == 0:
                self.problems.choose(lambda rollouts: self._rewards(rollouts, CHOOSING + step))
            return self.problems.next(BATCH)
        num_trusted = {"trusted_only": BATCH, "mixed": BATCH // 2, "mixed_tracin": BATCH // 2}.get(method, 0)
        trusted = [NUM_PROMPTS + place for place in self.orders[1].next(num_trusted)]
        return self.orders[0].next(BATCH - num_trusted) + trusted

    def _rewards(self, rollouts: Sequence[Rollout], step: int) -> np.ndarray:
        """True ones of trusted prompts, whatever the corruption makes of the others."""
        true = np.array([rollout.reward for rollout in rollouts])
        if self.job.method == "clean":
            return true
        prompts = [rollout.prompt for rollout in rollouts]
        texts = [self.tokenizer.decode(rollout.response, skip_special_tokens=True) for rollout in rollouts]
        if self.job.method == "majority":
            return majority_rewards(texts, prompts)
        trusted = np.array(prompts) >= NUM_PROMPTS
        in_source = self.source[np.where(trusted, 0, prompts)]
        wrong = corrupted(self.job.corruption, true, texts, in_source, self.job.seed, step)
        rewards = np.where(trusted, true, wrong)
        return self.labels.rewards(rewards, texts, prompts) if self.job.method == "olr" else rewards

    def _learn_pass_rates(self, prompts: Sequence[int], rewards: np.ndarray, step: int) -> None:
        """The reported ones, of rollouts by the weights after `step - 1` updates."""
        for prompt, passes in zip(prompts, rewards.reshape(-1, GROUP).sum(1).tolist(), strict=True):
            self.choice.observe(prompt, passes, GROUP - passes)
        self.choice.set_weight_version(step)

    def _selection(self, samples: Samples, advantages: torch.Tensor, step: int) -> Selection:
        """All samples, or those whose score is positive and those of trusted prompts."""
        if "tracin" not in self.job.method and self.job.method != "choose_influence":
            return keep_all(len(samples.mask))
        scores, _ = self.scorer.scores(self.policy, samples, advantages, step)
        if scores is None:
            return keep_all(len(samples.mask))
        if self.job.method in WITH_CHOICE:
            groups = samples.prompts[::GROUP].tolist()
            self.choice.observe_influence(groups, scores.reshape(-1, GROUP).sum(1).tolist())
        trusted = samples.prompts.numpy() >= NUM_PROMPTS
        scores = np.where(trusted, np.abs(scores) + 1e-30, scores)
        return select_samples(scores, samples.prompts.tolist(), SelectionSettings(seed=self.job.seed), step)


class Runs:
    """Finished runs in a file, one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.results = {Job(**result["job"]): result for result in map(json.loads, lines)}

    def accuracy(self, job: Job) -> float:
        """The final accuracy of a job."""
        return final_accuracy(self.result(job))

    def result(self, job: Job) -> dict[str, Any]:
        """Of a job, which is run if it has not been."""
        if job.method in WITHOUT_TRUST:
            job = replace(job, trusted=NUM_VALIDATION)
        if job.method in WITHOUT_CORRUPTION:
            job = replace(job, corruption="flips")
        if job not in self.results:
            self.results[job] = Run(job).train()
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.results[job]) + "\n")
            print(f"{job}: {final_accuracy(self.results[job]):.3f}", flush=True)
        return self.results[job]

    def best_rate(self, job: Job) -> float:
        """The best rate on separate seeds."""

        def accuracy(rate: float) -> float:
            jobs = [replace(job, learning_rate=rate, seed=seed) for seed in TUNING_SEEDS]
            return float(np.mean([self.accuracy(each) for each in jobs]))

        return best_rate(accuracy, RATES)


def described(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What results.json says of a job's seeds; rollouts of both kinds, null of runs that did not count them."""
    totals = [result["history"][-1].get("total_rollouts") for result in results]
    rollouts = None if None in totals else float(np.mean(totals))
    return {"final_by_seed": [final_accuracy(result) for result in results], "rollouts": rollouts}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Final accuracy by corruption, method and number of trusted prompts, as Markdown."""
    counts = sorted({row["trusted"] for row in rows})
    lines = [
        "| corruption | method | " + " | ".join(f"{count} trusted" for count in counts) + " | rollouts in all |",
        "|---" * (3 + len(counts)) + "|",
    ]
    for corruption in dict.fromkeys(row["corruption"] for row in rows):
        for method in dict.fromkeys(row["method"] for row in rows):
            own = {r["trusted"]: r for r in rows if (r["corruption"], r["method"]) == (corruption, method)}
            cells = [_cell(own[count]) if count in own else "" for count in counts]
            most = own[max(own)].get("rollouts") if own else None
            cells.append("" if most is None else f"{most:,.0f}")
            lines.append(f"| {corruption} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _case(row: dict[str, Any]) -> tuple[str, int, str]:
    """What a row is of."""
    return row["corruption"], row["trusted"], row["method"]


def _cell(row: dict[str, Any]) -> str:
    """Mean, interval over seeds, and rate."""
    return f"{bootstrap_mean(row['final_by_seed']).render()} at {row['learning_rate']:g}"


def write_report(folder: Path, rows: Sequence[dict[str, Any]]) -> str:
    """Write table.md and, if GRPO is among the methods, crossover.svg into `folder`; returns the text.

    Methods that choose prompts are in the table only: their competitors choose none.
    """
    text = table(rows) + "\n"
    if any(row["method"] == GRPO for row in rows):
        found = gains([row for row in rows if row["method"] not in WITH_CHOICE])
        plot(found, folder / "crossover.svg")
        if judged := verdicts(found):
            text += f"\nPoints over {GRPO} on the same seeds, and the best competitor's:\n\n{render(judged)}\n"
    (folder / "table.md").write_text(text, encoding="utf-8")
    return text


def method_and_rate(text: str) -> tuple[str, float]:
    """Of `METHOD=RATE`."""
    method, _, rate = text.partition("=")
    if method not in METHODS:
        raise argparse.ArgumentTypeError(f"expected METHOD=RATE with one of {', '.join(METHODS)}, got {text!r}")
    return method, float(rate)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corruptions", nargs="+", choices=CORRUPTIONS, default=list(CORRUPTIONS))
    parser.add_argument("--trusted", nargs="+", type=int, default=list(TRUSTED), help="numbers of trusted prompts")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--rates", nargs="+", type=method_and_rate, default=[], metavar="METHOD=RATE", help="learning rates not to tune"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--report", action="store_true", help="report all of results.json again and train nothing")
    args = parser.parse_args(argv)
    stored = args.output / "results.json"
    if args.report:
        if not stored.exists():
            parser.error(f"{stored} is missing: leave --report out, and it is made")
        print(write_report(args.output, json.loads(stored.read_text(encoding="utf-8"))))
        return
    if not (BASE / "config.json").exists():
        parser.error("the base model is missing: run `make demo-data`")
    if not all(1 <= count <= NUM_VALIDATION for count in args.trusted):
        parser.error(f"--trusted must be from 1 to {NUM_VALIDATION}")
    torch.set_num_threads(1)
    runs, text, given = Runs(args.output / "runs.jsonl"), "", dict(args.rates)
    # Those of earlier calls stay, but for what is measured again.
    rows = {_case(row): row for row in (json.loads(stored.read_text()) if stored.exists() else [])}
    for corruption in args.corruptions:
        for trusted in args.trusted:
            for method in args.methods:
                job = Job(method, corruption, trusted, 0.0, 0)
                job = replace(job, learning_rate=given.get(method) or runs.best_rate(job))
                results = [runs.result(replace(job, seed=seed)) for seed in range(args.seeds)]
                row = asdict(job) | described(results)
                rows[_case(row)] = row
            stored.write_text(json.dumps(list(rows.values()), indent=1) + "\n", encoding="utf-8")
            text = write_report(args.output, list(rows.values()))
    print(text)


if __name__ == "__main__":
    main()
