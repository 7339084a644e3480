"""One run of `golden_baselines.py`: an arm learns, is looked at on its way, and climbs the ladder at its end."""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import golden_arms
import numpy as np
import torch
import yaml
from golden_arms import Bench
from golden_baselines_protocol import Job, split
from golden_engine import GoldenEngine
from golden_meter import Meter, RememberingExecutor
from transformers import AutoModelForCausalLM, AutoTokenizer

from data_preprocess.arc_made import make_tasks
from data_preprocess.demo_models.arc_lessons import closing_ids
from recipe.golden_redaction.evaluate import ATTEMPTS, measure
from recipe.golden_redaction.evaluation.settings import Question
from recipe.golden_redaction.evaluation.states import choose_rungs
from recipe.golden_redaction.evaluation.tables import summarize
from recipe.golden_redaction.method.judging import ProgramJudge
from recipe.golden_redaction.method.problems import Problem, hold_out, read_problems
from recipe.golden_redaction.method.redaction import RedactedState
from recipe.golden_redaction.method.rollouts import StateVisitor
from recipe.golden_redaction.method.visits import mean_label
from recipe.golden_redaction.settings import GoldenSettings
from verl_ext.arc.prompts import decode_answer, program
from verl_ext.data.arc_tasks import Pair
from verl_ext.evaluation.statistics.samples import ScoredResponse
from verl_ext.sandbox.executor import Executor
from verl_ext.sandbox.policy import SandboxPolicy
from verl_ext.sandbox.pool import SandboxPool
from verl_ext.sandbox.programs import Programs
from verl_ext.serving.requests import Continuations

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs/golden_redaction_cpu.yaml"
FRESH_SEED = 1_000  # of the grids of fresh pairs; the demo's own are made with 0
ROOM = 16  # tokens that an answer may have beyond the longest golden solution


@dataclass(frozen=True)
class Material:
    """What all runs of a base model start from.

    Attributes:
        model: Never trained itself.
        tokenizer: Its own.
        problems: With the pairs that a reward needs, from easy to hard.
        golden: Settings of golden redaction: the demo's, with room for every solution.
        fresh: Pairs that no prompt and no reward has, by problem.
    """

    model: Any
    tokenizer: Any
    problems: tuple[Problem, ...]
    golden: GoldenSettings
    fresh: Mapping[str, tuple[Pair, ...]]


@lru_cache(maxsize=1)
def read_material(model: Path, data: Path) -> Material:
    """Of a folder and a parquet file; fresh pairs are made by the golden solutions' own rules."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    demo = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["golden"]
    golden = GoldenSettings.model_validate(demo)
    problems, _ = read_problems([data], tokenizer, golden.limits, prompt=golden.prompt)
    longest = max(len(problem.golden_ids) for problem in problems)
    golden = GoldenSettings.model_validate({**demo, "max_new_tokens": longest + ROOM})
    return Material(
        AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval(),
        tokenizer,
        tuple(hold_out(problems, golden.reward)),
        golden,
        fresh_pairs(problems),
    )


def fresh_pairs(problems: Sequence[Problem]) -> dict[str, tuple[Pair, ...]]:
    """Random grids and what the golden solution makes of them, without pairs of the task itself."""
    tasks = make_tasks([problem.id for problem in problems], FRESH_SEED)
    known = {problem.id: {pair.input for pair in (*problem.pairs, *problem.test_pairs)} for problem in problems}
    found = {
        name: tuple(
            Pair(pair["input"], pair["output"])
            for pair in (*task["train"], *task["test"])
            if pair["input"] not in known[name]
        )
        for name, task in tasks.items()
    }
    return {name: pairs for name, pairs in found.items() if pairs}


class Run:
    """A job with a model.

    Args:
        job: See there.
        material: Its base model is copied.
        executor: Runs programs.
    """

    def __init__(self, job: Job, material: Material, executor: Executor) -> None:
        self.job, self.material = job, material
        self.executor = RememberingExecutor(executor)
        tokenizer = material.tokenizer
        end = int(tokenizer.eos_token_id)
        self.engine = GoldenEngine(copy.deepcopy(material.model), int(tokenizer.pad_token_id), end, job.seed)
        self.judge = ProgramJudge(self.executor, tokenizer, with_outputs=False)
        self.visitor = StateVisitor(
            self.engine, self.judge, frozenset({end}), material.golden.credit, material.golden.max_new_tokens
        )
        self.by_id = {problem.id: problem for problem in material.problems}
        self.trained, self.others = split(list(self.by_id), job.solutions, job.seed)
        self.base = self._text_log_probs()
        self.meter = Meter(self.engine, self.executor)

    def make(self) -> dict[str, Any]:
        """Learn, with looks; the result without its job."""
        bench = Bench(
            self.engine, self.visitor, self.judge, [self.by_id[name] for name in self.trained],
            tuple(closing_ids(self.material.tokenizer)), self.material.golden, self.job.seed,
        )  # fmt: skip
        looks = [self.look()]
        for method, end in self.job.phases():
            steps = golden_arms.steps(bench, method, self.job)
            due = self.job.looks(method, end)
            while due := [share for share in due if share > self._share]:
                while self._share < due[0]:
                    next(steps)
                looks.append(self.look())
            steps.close()
        ladder = {} if self.job.for_tuning else self.ladder()
        return {"looks": looks, "ladder": ladder, "trained": self.trained}

    @property
    def _share(self) -> float:
        """Of the budget, what is spent."""
        return self.meter.cost.passes / self.job.total

    # ------------------------------ what is measured ------------------------------

    def _text_log_probs(self) -> dict[str, np.ndarray]:
        """Of every problem's prompt and golden solution, all tokens but the first."""
        texts = [(*problem.prompt_ids, *problem.golden_ids) for problem in self.material.problems]
        return dict(zip(self.by_id, map(np.array, self.engine.prompt_log_probs(texts)), strict=True))

    def look(self) -> dict[str, Any]:
        """Pass rates of whole solutions, the probability of exactly the golden ones, and drift."""
        cost = self.meter.cost
        with self.meter.paused():
            states = [RedactedState(name, len(problem.golden_ids)) for name, problem in self.by_id.items()]
            labels = self.visitor.pass_rates(states, self.by_id, self.job.samples)
            now = self._text_log_probs()
        rates = {state.problem: mean_label(found) for state, found in zip(states, labels, strict=True)}
        lengths = {name: len(problem.golden_ids) for name, problem in self.by_id.items()}
        golden = {name: math.exp(now[name][-length:].sum()) for name, length in lengths.items()}
        moved = {name: np.abs(now[name] - self.base[name]) for name in lengths}
        drift_prompts = _mean(moved[name][:-length].mean() for name, length in lengths.items())
        drift = _mean(moved[name][-lengths[name] :].mean() for name in self.others)
        return {
            "share": self._share,
            "cost": asdict(cost) | {"passes": cost.passes},
            "pass": _mean(rates[name] for name in self.trained),
            "pass_others": _mean(rates[name] for name in self.others),
            "golden": _mean(golden[name] for name in self.trained),
            "golden_others": _mean(golden[name] for name in self.others),
            "drift": drift,
            "drift_prompts": drift_prompts,
        }

    def ladder(self) -> dict[str, float | None]:
        """Pass rate by rung, as `recipe.golden_redaction.evaluate` has it, and the share solved by vote.

        The visited states are the undecided ones of the base model: those that redaction visits, and the same for
        all arms of a seed.
        """
        lengths = {name: len(problem.golden_ids) for name, problem in self.by_id.items()}
        rungs = choose_rungs(lengths, self._undecided(), (), self.material.fresh)
        states = list(dict.fromkeys(state for rung in rungs for state in rung.states))
        questions = [Question(self.by_id[state.problem], state.k) for state in states]
        with self.meter.paused():
            programs = Programs(self.executor, ATTEMPTS)
            results, _ = measure(questions, self._answers(questions, programs), programs, self.material.fresh)  # pyright: ignore
        found = summarize(rungs, results)["rungs"]
        rates = {rung["name"]: rung["pass rate"] and rung["pass rate"]["value"] for rung in found}
        return rates | {f"{rung['name']}, solved": rung["solved"] and rung["solved"]["value"] for rung in found}

    def _undecided(self) -> dict[str, set[int]]:
        above = self.material.golden.redaction.decided_above or 1.0
        found = {}
        for name in self.trained:
            length = len(self.by_id[name].golden_ids)
            probs = np.exp(self.base[name][-length:])
            found[name] = {k for k in range(1, length + 1) if probs[-k] <= above} or {length}
        return found

    def _answers(self, questions: Sequence[Question], programs: Programs) -> dict[Any, list[ScoredResponse]]:
        """Answers of each question, run on its examples."""
        most = self.material.golden.max_new_tokens
        made = self.engine.generate(
            [Continuations(question.ids, self.job.samples, most, place) for place, question in enumerate(questions)]
        )
        texts = [
            (question, decode_answer([*question.given, *ids], self.material.tokenizer), ids, reason)
            for question, samples in zip(questions, made, strict=True)
            for ids, reason in samples
        ]
        jobs = [(question.problem.id, program(text)) for question, text, _, _ in texts]
        pairs = {name: problem.pairs for name, problem in self.by_id.items()}
        results = programs.run("example", jobs, pairs, stop_at_first_failure=True)
        store: dict[Any, list[ScoredResponse]] = {}
        for (question, text, ids, reason), result in zip(texts, results, strict=True):
            scored = ScoredResponse(
                text, result.reward or 0.0, result.solved, ",".join(result.statuses), reason == "length", len(ids)
            )
            store.setdefault(question.key, []).append(scored)
        return store


def _mean(values: Iterable[float | None]) -> float | None:
    """Of the values that are known; None without any."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def run(job: Job, model: Path, data: Path) -> dict[str, Any]:
    """The result of a job, without it."""
    torch.set_num_threads(1)  # sums that do not depend on the machine
    with SandboxPool(SandboxPolicy(), workers=1) as pool:
        return Run(job, read_material(model, data), pool).make()
