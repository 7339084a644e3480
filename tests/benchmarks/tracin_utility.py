"""The value of TracIn's selection when rewards are wrong: 30 % of the training rewards are reversed at random.

    python tests/benchmarks/tracin_utility.py              # tuned rates, 3 seeds; about 3 hours on one core
    python tests/benchmarks/tracin_utility.py --quick      # one seed, few steps, one rate, under 3 minutes

The demo's arithmetic (pool E: 40 % hopeless, 22 % easy, 38 % learnable prompts) and base model, LoRA r=8 on all linear
layers, 16 prompts x 16 rollouts per batch, one AdamW step per batch, GRPO, for every method. Only the rewards of
training rollouts are reversed, by the same draws for all methods of a seed. Rewards of validation rollouts are clean,
and so is the accuracy: the exact pass@1 on 512 held-out learnable prompts, every 5 steps; the mean of the last three
looks is the final one. The 512 validation prompts are neither trained on nor held out. The policy is plain PyTorch
(`learning_lab.py`, `influence_methods.py`); scores, validation set, selection and denominators are the product's files,
estimator and loss are verl's. Rates: the best mean of whole runs on two other seeds, of a grid that grows while its
edge is the best.

Validation rollouts also count as rollouts: accuracy is given once at equal training rollouts and once at equal rollouts
of both kinds. Methods in brackets are diagnoses: `exact` has a G without sampling noise, from the right answers of the
validation prompts; `validation_only` makes its steps along G itself and does not look at the training rollouts.

Of others: `iif` has IIF's validation loss and new rollouts of the whole validation set at every step (`iif_loss.py`).
Experiments: `top_half` and `top_half_cosine` keep the better half, by the inner product and by the cosine; `tokens`
drops tokens instead of rollouts (`token_influence.py`); `quality_64_lora` has a preconditioner with LoRA's structure
instead of AdamW's diagonal (`lora_preconditioner.py`).

AUROC: the chance that an unreversed sample scores higher than a reversed one. A reported reward of 1 is reversed more
often than one of 0 (most rollouts are wrong), so a score that merely followed the reported reward would be off .5:
`reported 1` and `reported 0` compare only samples of the same reported reward.

Finished runs are kept in outputs/benchmarks/tracin_utility/runs.jsonl: a second call only adds what is missing.

PREDICTION, written before the first run of this script (four steps of `contrast` had been seen while its parts were put
together: AUROC .33 to .56, split-half agreement -.05 to .43, so nothing good is expected of it). Accuracy .27 at first;
after 60 steps (40 are run, for time): clean rewards .55, GRPO .42, random drop .37, reward filter .38, quality .40,
contrast .41, in_batch .42, fixed .46, exact .52. AUROC over informative groups: quality .52, contrast .52, in_batch
.50, fixed .57, exact .65; all of these but in_batch's with p < .001, as 10,000 samples are many. Split-half agreement:
quality .4, contrast .2, fixed .2. The last five methods but `exact` were added after first runs of 15 and 20 steps, in
which contrast and fixed with cached rollouts fell to an accuracy of 0: they have no prediction. Of the newer ones,
against quality_64_adam and before their first run: iif +3 points at equal training rollouts (its G is of 512 new
rollouts), -6 at equal rollouts of both kinds, which it has three times; quality_64_lora -1, as AdamW does not step that
way. Against quality_once_adam: top_half -1; top_half_cosine 0; tokens -2, as half of every good rollout goes with it.
clean_once_adam loses .5 points against clean, where clean_adam loses 1.4. The methods with 64 of 512 were added after
that: the least likely would do as well as the whole pool, .53 (once_64_adam was the first of them to run), and the
drawn ones .45 to .48.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from influence_methods import InfluencePolicy, PromptOrder, choose_samples, make_influence_task
from influence_report import FINAL_LOOKS, final_accuracy, write_report
from influence_scores import Scorer
from lying_rewards import describe_samples, flip, is_mixed
from rate_search import best_rate
from token_influence import kept_tokens
from utility_methods import METHODS, ONE_SEED

GROUP, BATCH, NUM_PROMPTS, NUM_VALIDATION = 16, 16, 1024, 512
ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "outputs/models/arithmetic_base"
OUTPUT = ROOT / "outputs/benchmarks/tracin_utility"
# Of half as many steps, a single seed chose rates that were too high: TracIn had .423 at .004, and .497 at .002.
TUNING_SEEDS = (100, 101)
RATES = (1e-3, 2e-3, 4e-3)
QUICK_RATE = 1e-3
STEPS, STEPS_PER_LOOK = 40, 5
FLIPPED = 0.3


@dataclass(frozen=True)
class Job:
    """One training run."""

    method: str
    learning_rate: float
    seed: int
    steps: int = STEPS


def run(job: Job) -> dict:
    """Train to the end of a job; returns its history and what is known about its scores."""
    method = METHODS[job.method]
    data = make_influence_task(NUM_PROMPTS, NUM_VALIDATION)
    policy = InfluencePolicy(BASE, data.task, learning_rate=job.learning_rate, seed=job.seed)
    scorer = None
    if method.validation is not None:
        gradient_only = method.rule == "validation_only"
        scorer = Scorer(
            data,
            method.validation,
            exact=method.exact,
            gradient_only=gradient_only,
            weighted=method.weighted,
            sequence=method.sequence,
            preconditioner=method.preconditioner,
            cosine=method.cosine,
        )
    order, began = PromptOrder(NUM_PROMPTS, job.seed), time.process_time()
    history = [{"step": 0, "rollouts": 0, "total_rollouts": 0, "accuracy": policy.accuracy()}]
    columns: list[dict[str, np.ndarray]] = []  # of all samples, step by step
    names = ("half_agreement", "exact_agreement", "identity_error", "tokens_kept")
    gradients: dict[str, list[float]] = {name: [] for name in names}
    for step in range(1, job.steps + 1):
        rollouts = policy.sample([prompt for prompt in order.next(BATCH) for _ in range(GROUP)])
        clean = np.array([rollout.reward for rollout in rollouts])
        rewards, flipped = flip(clean, FLIPPED if method.lies else 0.0, job.seed, step)
        samples = policy.tensors(rollouts)
        advantages_BT = policy.advantages(samples, rewards)
        advantages = advantages_BT[:, 0].numpy()
        scores = None
        if scorer is not None:
            scores, metrics = scorer.scores(policy, samples, advantages_BT, step)
            if (scores is not None or scorer.gradient_only) and step % STEPS_PER_LOOK == 1:
                metrics["exact_agreement"] = scorer.agreement_with_exact(policy)
            for name, value in metrics.items():
                gradients[name].append(value)
        selection = choose_samples(method, scores, rewards, [rollout.prompt for rollout in rollouts], job.seed, step)
        if method.rule == "validation_only":
            policy.step_along_validation_gradient()
        elif method.rule == "tokens" and scores is not None:
            kept_BT = kept_tokens(policy, samples, advantages_BT)
            policy.step_on_tokens(samples, advantages_BT, kept_BT)
            gradients["tokens_kept"].append(float(kept_BT.sum() / samples.mask.sum()))
        else:
            policy.step(samples, advantages_BT, selection)
        if scorer is not None and not selection.is_empty:
            scorer.after_update(policy)
        columns.append(
            {
                "flipped": flipped,
                "informative": advantages != 0,
                "learnable": is_mixed(clean, GROUP),
                "reported": rewards,
                "kept": selection.kept,
                # Scores of different steps are comparable only in units of the step.
                "score": np.full(len(clean), np.nan) if scores is None else scores / np.sqrt(np.mean(scores**2)),
            }
        )
        if step % STEPS_PER_LOOK == 0 or step == job.steps:
            trained_on = step * BATCH * GROUP
            total = trained_on + (scorer.num_rollouts if scorer else 0)
            look = {"step": step, "rollouts": trained_on, "total_rollouts": total, "accuracy": policy.accuracy()}
            history.append(look)
    table = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    return {
        "job": asdict(job),
        "history": history,
        "seconds": time.process_time() - began,
        "samples": describe_samples(table),
        "gradients": {name: float(np.mean(values)) for name, values in gradients.items() if values},
    }


class Runs:
    """Finished runs in a file, one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self.results = {Job(**result["job"]): result for result in map(json.loads, lines)}

    def finish(self, jobs: Sequence[Job]) -> list[dict]:
        """Run missing jobs one after the other; returns the results of all `jobs`."""
        for job in dict.fromkeys(jobs):
            if job not in self.results:
                self.results[job] = run(job)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(self.results[job]) + "\n")
                print(_line(self.results[job]), flush=True)
        return [self.results[job] for job in jobs]


def tuned_rate(runs: Runs, method: str, tuning: list[Job]) -> float:
    """The best on separate seeds; `tuning` grows by the runs that it took."""

    def accuracy(rate: float) -> float:
        jobs = [Job(method, rate, seed) for seed in TUNING_SEEDS]
        tuning.extend(jobs)
        return float(np.mean([final_accuracy(result) for result in runs.finish(jobs)]))

    return best_rate(accuracy, RATES)


def _line(result: dict) -> str:
    job, samples, gradients = result["job"], result["samples"], result["gradients"]
    return (
        f"{job['method']} lr {job['learning_rate']:g} seed {job['seed']}: {final_accuracy(result):.3f}, "
        f"AUROC {samples.get('auroc_informative', float('nan')):.3f}, kept {samples['selection_ratio']:.2f}, "
        f"halves {gradients.get('half_agreement', float('nan')):.2f}, "
        f"exact {gradients.get('exact_agreement', float('nan')):.2f}, {result['seconds']:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, few steps, no tuning, under 3 minutes")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--output", type=Path, help=f"folder, by default {OUTPUT.relative_to(ROOT)} (quick/ in it)")
    args = parser.parse_args()
    if not (BASE / "config.json").exists():
        parser.error("the base model is missing: run `make demo-data`")
    torch.set_num_threads(1)
    output = args.output or (OUTPUT / "quick" if args.quick else OUTPUT)
    runs = Runs(output / "runs.jsonl")
    tuning: list[Job] = []
    if args.quick:
        steps = FINAL_LOOKS * STEPS_PER_LOOK
        jobs = [Job(method, QUICK_RATE, 0, steps) for method in args.methods]
    else:
        rates = {method: tuned_rate(runs, method, tuning) for method in args.methods}
        jobs = [
            Job(method, rates[method], seed)
            for seed in range(args.seeds)
            for method in args.methods
            if seed == 0 or method not in ONE_SEED
        ]
    results = runs.finish(jobs)
    names = {name: method.name for name, method in METHODS.items()}
    print(write_report(output, results, [runs.results[job] for job in tuning], names))


if __name__ == "__main__":
    main()
