"""Run folders as Fast DAPO writes them, without a model: the counts come from its own bookkeeping."""

import json
import random
from pathlib import Path
from typing import Any

from recipe.fast_dapo.curriculum.metrics import CurriculumCounts
from recipe.fast_dapo.run_files import PROMPT_TEXTS, PROMPTS
from recipe.tracin.run_files import INFLUENCE
from verl_ext.core.json_lines import JsonLines
from verl_ext.run.metrics_stream import STEP, MetricsStream
from verl_ext.run.rollout_texts import ROLLOUTS
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.status import StatusFile

# What a user would have typed; the command line of this process depends on how pytest was started.
COMMAND = "python -m recipe.fast_dapo.main +experiment=arithmetic_two_phase actor_rollout_ref.actor.optim.lr=1e-4"
N, N_CONTINUE, SCREENED = 4, 12, 16
HOSTILE = "</script><img src=x onerror=\"window.hacked='made'\"><b>%{x}&lt;"


class MadeRun:
    """A run that learns: prompts become easier; mixed prompts are continued and trained on in the same step.

    Args:
        is_default: 2 + 2 rollouts, and all prompts are trained on (train_on=all); else 4 + 12, and others are dropped.
        slow: Factor of its seconds, and by which it learns more slowly.
    """

    def __init__(
        self, folder: Path, num_prompts: int = 60, seed: int = 0, slow: float = 1.0, is_default: bool = False
    ) -> None:
        self.folder = RunFolder(folder)
        self._metrics = MetricsStream(self.folder.metrics)
        self._prompts = JsonLines(folder / PROMPTS)
        self._texts = JsonLines(folder / PROMPT_TEXTS)
        self._rollouts = JsonLines(folder / ROLLOUTS)
        self.status = StatusFile(self.folder.status)
        self.status.begin()
        self.status.change(command=COMMAND)
        self._chance = random.Random(seed)
        self._n, self._n_continue = (2, 2) if is_default else (N, N_CONTINUE)
        self._is_default = is_default
        self._counts = CurriculumCounts(self._n)
        self._ease = {index: self._chance.uniform(-1.6, 0.6) for index in range(num_prompts)}
        self._names: dict[int, Any] = {index: index for index in self._ease} | {num_prompts - 1: HOSTILE}
        self._slow = slow
        self.step = 0
        self.seconds = 0.0

        self._texts.append(
            {"index": self._names[index], "prompt": self._prompt(index), "ground_truth": str(2 * index)}
            | {"data_source": "sums" if index % 3 else "words"}
            for index in self._ease
        )
        first = {"val-core/arithmetic/acc/mean@1": 0.12, "val-aux/arithmetic/reward/mean@1": 0.12}
        self.folder.write_first_validation(first, seconds=3.0, num_prompts=512)

    def _prompt(self, index: int) -> str:
        asked = HOSTILE if index == len(self._ease) - 1 else f"What is {index} + {index}?"
        return f"You are a careful calculator. {asked} End with the number."

    def write_settings(self, **more: Any) -> None:
        """The configuration as Hydra writes it."""
        folder = self.folder.path / "hydra"
        folder.mkdir()
        config = {
            "engine_guard": {"max_probs_diff": 0.001},
            "curriculum": {"enable": True, "schedule": "merged"},
            "actor_rollout_ref": {"actor": {"optim": {"lr": 1e-4}}, "rollout": {"n": N}},
            "data": {"train_files": HOSTILE},
            **more,
        }
        (folder / "config.yaml").write_text(json.dumps(config))
        (folder / "overrides.yaml").write_text(json.dumps(["+backend=cpu", "actor_rollout_ref.actor.optim.lr=1e-4"]))
        hydra = {"job": {"config_name": "fast_dapo"}, "runtime": {"version": "1.3.2", "choices": {"backend": "cpu"}}}
        (folder / "hydra.yaml").write_text(json.dumps({"hydra": hydra}))

    def train(self, steps: int, **more: float) -> "MadeRun":
        """Append this many steps; `more` goes into the last record."""
        for _ in range(steps):
            record = self._one_step()
            if _ == steps - 1:
                record |= more
            self._metrics.append(record)
        return self

    def finish(self) -> "MadeRun":
        """Write the summary, one hour of wall-clock time after the start."""
        self.status.change(of=self.step)
        self.status.end("finished")
        began = self.status.read()["finished"] - 3600
        self.status.change(started=began, ready=began + 60)
        counts = self._counts.windows["total"]
        self.folder.write_summary(
            {
                "val_accuracy_before": 0.12,
                "val_accuracy_after": self._accuracy(),
                "global_steps": self.step,
                "total_training_steps": self.step,
                "seconds": self.seconds,
                "rollouts_generated": counts["generated_rollouts"],
                "rollouts_trained": counts["trained_rollouts"],
                "seconds_by_phase": {},
            }
        )
        return self

    def _accuracy(self) -> float:
        return round(1 / (1 + 6 * 2.7 ** (-self.step / (25 * self._slow))), 4)

    def _one_step(self) -> dict[str, Any]:
        self.step += 1
        self.status.at_work("training", step=self.step, of=200)
        chance, counts = self._chance, self._counts
        events = []
        for index in chance.sample(sorted(self._ease), SCREENED):
            rate = min(0.98, max(0.02, 0.5 + self._ease[index] / 2 + self.step / (80 * self._slow)))
            n, n_continue = self._n, self._n_continue
            passes = sum(chance.random() < rate for _ in range(n))
            counts.add("generated_rollouts", n)
            counts.add_screening(passes, n)
            name = self._names[index]
            events.append({"event": "screening", "index": name, "samples": n, "passes": passes})
            if passes in (0, n):
                fate = "all_wrong" if passes == 0 else "all_right"
                counts.add(f"{fate}_kept" if self._is_default else fate)
                if not self._is_default:
                    counts.add("uninformative_rollouts", n)
                    continue
                n_continue = 0
            else:
                counts.add("qualified")
                counts.add("generated_rollouts", n_continue)
                passes = sum(chance.random() < rate for _ in range(n_continue))
                events.append({"event": "continuation", "index": name, "samples": n_continue, "passes": passes})
            events.append({"event": "trained", "index": name})
            counts.add("trained")
            counts.add("trained_rollouts", n + n_continue)
        index, right = self.step % 7, f"Two times {self.step % 7} is {2 * (self.step % 7)}."
        kept = {"step": self.step, "index": index, "data_source": "sums", "ground_truth": str(2 * index)}
        kept |= {"prompt": self._prompt(index), "group": {"rollouts": 16, "mean_reward": 0.5}}
        wrong = f"I do not know at step {self.step}. \u202eevil" if self.step % 10 else "no idea " * 4000
        texts = [(right, 1.0), (right, 1.0), (wrong, 0.0)]
        self._rollouts.append(kept | {"response": text, "reward": reward, "tokens": 9} for text, reward in texts)
        self._prompts.append({"step": self.step} | event for event in events)
        timing = {"gen": chance.uniform(2, 3), "old_log_prob": 0.6, "update_actor": chance.uniform(1, 1.4)}
        step_seconds = (sum(timing.values()) + 0.3) * self._slow
        self.seconds += step_seconds
        total = counts.windows["total"]
        record = counts.metrics() | {
            "curriculum/buffered_rollouts": 0.0,
            "curriculum/unaccounted_rollouts": 0.0,
            "actor/entropy": 0.9 * 2.7 ** (-self.step / 60) + chance.uniform(0, 0.05),
            "actor/grad_norm": chance.uniform(0.5, 1.0),
            "critic/score/mean": self._accuracy() + chance.uniform(-0.06, 0.06),
            "engine_guard/probs_diff_mean": 2e-6,
            **{f"timing_s/{name}": seconds * self._slow for name, seconds in timing.items()},
            "timing_s/step": step_seconds,
            "training/total/seconds": self.seconds,
            "training/total/rollouts_generated": total["generated_rollouts"],
            "training/total/rollouts_trained": total["trained_rollouts"],
            STEP: self.step,
        }
        if self.step % 10 == 0:
            record["val-core/arithmetic/acc/mean@1"] = self._accuracy()
            record["timing_s/testing"] = 2.5
        counts.reset("step")
        return record


def write_influence(folder: Path, steps: int, size: int, with_text: bool = False, seed: int = 1) -> None:
    """`influence.jsonl` as TracIn writes it; texts are hostile."""
    chance = random.Random(seed)
    records = []
    for step in range(1, steps + 1):
        for place in range(size):
            reward = float(chance.random() < 0.4)
            score = chance.gauss(0.002 * reward, 0.003) if chance.random() < 0.6 else 0.0
            record = {"step": step, "index": place % 7, "key": f"key-{step}_{place}_0", "reward": reward}
            record |= {"advantage": reward - 0.4, "score": score, "weight": float(score > 0)}
            texts = {"prompt": f"{HOSTILE} What is 1 + 1?", "response": f"It is {place}. \u202e\u2067evil {HOSTILE}"}
            records.append(record | (texts if with_text else {}))
    JsonLines(folder / INFLUENCE).append(records)
