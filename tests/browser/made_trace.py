"""Makes traces that follow the schema, to view pages without a run. Pure: the same arguments give the same trace.

A realistic trace is made by the recipe's own parts (states, credit, targets). Only the policy is simulated, by a pass
rate for each token and log-probs that an update moves most of the way to their targets. It has every special case that
a page must show: states without a label, infrastructure errors, log-probs that were not measured, and hostile text.
"""

import math
import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from recipe.golden_redaction.method.credit import CreditSettings
from recipe.golden_redaction.method.targets import TargetSettings
from recipe.golden_redaction.method.visits import Rollout, StateVisit
from recipe.golden_redaction.records.records import make_entry
from verl_ext.arc.prompts import encode_golden, encode_prompt, state_ids, teacher_token
from verl_ext.arc.solutions import read_solution
from verl_ext.data.arc_tasks import Grid, Task

HOSTILE = (
    "</script></pre><img src=x onerror=\"window.hacked='text'\"><script>window.hacked='script'</script>{{7*7}}\u2028"
)
FAILED = "infrastructure_error"
FAILURES = ("wrong_output", "runtime_error", "syntax_error", "timeout", "invalid_output")


def realistic_trace(
    tokenizer: Any, tasks: Mapping[str, Task], steps: int = 8, rollouts: int = 16, seed: int = 0
) -> list[dict[str, Any]]:
    """One entry per step and task.

    Args:
        tokenizer: The policy's tokenizer.
        tasks: Tasks by id; each has a golden solution.
        steps: Number of trainer steps.
        rollouts: Rollouts per action.
        seed: Random seed.
    """
    chance = random.Random(seed)
    entries = []
    hidden = {task: chance.randint(2, 5) for task in tasks}
    for step in range(1, steps + 1):
        for number, (name, task) in enumerate(tasks.items()):
            golden = encode_golden(read_solution(name), tokenizer)
            # The third step has no labels, the fifth a failing sandbox.
            kind = {3: "even", 5: "failing"}.get(step, "plain")
            entry = _entry(chance, tokenizer, task, golden, min(hidden[name], len(golden)), step, rollouts, kind)
            if number == 0 and step == 2:
                entry["actions"][0]["rollouts"][0]["text"] = HOSTILE
                entry["prompt_log_probs"] = _prompt_log_probs(chance, len(entry["prompt_ids"]))
            entries.append(entry)
            reward = entry["state_reward"] or 0.0
            hidden[name] = max(1, min(len(golden), hidden[name] + (4 if reward > 0.6 else -2 if reward < 0.3 else 0)))
    return entries


def _entry(
    chance: random.Random, tokenizer: Any, task: Task, golden: list[int], k: int, step: int, rollouts: int, kind: str
) -> dict[str, Any]:
    teacher = teacher_token(golden, k)
    others = [token for token in dict.fromkeys(chance.choices(golden, k=6)) if token != teacher]
    tokens = [teacher, *others[: chance.randint(1, 4)]]
    chance.shuffle(tokens)
    weights = np.array([chance.uniform(0.2, 1.0) * (2 if token == teacher else 1) for token in tokens])
    log_probs = np.log(weights / weights.sum() * chance.uniform(0.7, 0.98))
    rates = [
        0.5 if kind == "even" else 0.9 if token == teacher else chance.choice((0.05, 0.1, 0.5)) for token in tokens
    ]
    # The action, followed by the rest of the golden solution if it is the teacher's.
    texts = [
        tokenizer.decode([token, *golden[len(golden) - k + 1 :]] if token == teacher else [token]) for token in tokens
    ]
    made = [
        tuple(_rollout(chance, task, text, rate, kind) for _ in range(rollouts))
        for text, rate in zip(texts, rates, strict=True)
    ]
    if kind == "failing":
        # An action without any label.
        made[-1] = tuple(Rollout(one.text, None, (FAILED,) * len(task.train), one.outputs) for one in made[-1])
    visit = StateVisit(
        task.id,
        k,
        tuple(state_ids(encode_prompt(task, tokenizer), golden, k)),
        teacher,
        tuple(tokens),
        weight_version=step - 1,
        rollouts=tuple(made),
    )
    visit.assign_credit(log_probs.tolist(), CreditSettings(rollouts_per_action=rollouts), TargetSettings())
    labelled = visit.credit.advantages != 0
    way = np.where(labelled, np.nan_to_num(visit.targets.log_probs) - log_probs, 0.0)
    # Most tokens move most of the way; some overshoot, some move back, some stay.
    moved = np.array([chance.choices((0.7, 1.3, -0.4, 0.0), (6, 2, 1, 1))[0] for _ in tokens]) * way
    after = np.minimum(log_probs + moved + np.array([chance.gauss(0, 0.01) for _ in tokens]) * ~labelled, -1e-4)
    if step != 8:  # the last step was killed before it could measure
        visit.trainer["after"] = after.tolist()
    if step not in (4, 8):
        visit.engine["after"] = np.minimum(after + 0.003, -1e-4).tolist()
    visit.reference = np.minimum(log_probs - 0.05 * step, -1e-4).tolist()
    return make_entry(visit, step)


def _rollout(chance: random.Random, task: Task, text: str, rate: float, kind: str) -> Rollout:
    pairs = len(task.train)
    if kind == "failing" and chance.random() < 0.2:
        return Rollout(text, None, ("ok",) * (pairs - 1) + (FAILED,))
    outputs: list[Grid | None] = [pair.output for pair in task.train]
    if chance.random() < rate:
        return Rollout(text + "\n```", 1, ("ok",) * pairs, tuple(outputs))
    failure = chance.choice(FAILURES)
    place = chance.randrange(pairs)
    statuses = ("ok",) * place + (failure,) + ("ok",) * (pairs - place - 1)
    outputs[place] = None
    if failure == "wrong_output":
        (first, *row), *rows = task.train[place].output
        outputs[place] = (((first + 3) % 10, *row), *rows)
    return Rollout(f"{text}\n    # and then a mistake: {failure}\n```", 0, statuses, tuple(outputs))


def _prompt_log_probs(chance: random.Random, length: int) -> dict[str, list[float | None]]:
    policy: list[float | None] = [None, *(-abs(chance.gauss(0, 2)) for _ in range(length - 1))]
    reference = [None if value is None else min(0.0, value + chance.gauss(0, 0.5)) for value in policy]
    return {"policy": policy, "reference": reference}


def large_trace(num_problems: int = 1000, num_rollouts: int = 100_000, seed: int = 0) -> list[dict[str, Any]]:
    """Entries of 5 actions x 5 rollouts, in turn over the problems; texts of about 500 characters, no two alike."""
    chance = random.Random(seed)
    words = [f"{name}{number}" for name in ("row", "cell", "grid", "colour", "result") for number in range(40)]
    prompts = [[chance.randrange(30_000) for _ in range(1200)] for _ in range(num_problems)]
    actions, rollouts = 5, 5
    entries = []
    for place in range(num_rollouts // (actions * rollouts)):
        problem, step = place % num_problems, place // num_problems + 1
        tokens = chance.sample(range(30_000), actions)
        made = []
        for number, token in enumerate(tokens):
            labels = [chance.randrange(2) for _ in range(rollouts)]
            before = math.log(0.05 + 0.1 * chance.random())
            advantage = (1, -1, 0, 0, 0)[number] if place % 3 == 0 else 0
            made.append(
                {
                    "token": token,
                    "rollouts": [
                        {
                            "text": " ".join(chance.choices(words, k=75)),
                            "reward": label,
                            "statuses": ["ok", "ok" if label else "wrong_output"],
                        }
                        for label in labels
                    ],
                    "reward": sum(labels) / rollouts,
                    "confidence": chance.random(),
                    "advantage": advantage,
                    "target": {1: before / 2, -1: before * 2, 0: None}[advantage],
                    "log_prob_before": before,
                    "log_prob_after_trainer": before + 0.1 * advantage,
                    "log_prob_after_engine": None,
                    "log_prob_reference": before - 0.1,
                }
            )
        k = 40 - step
        entries.append(
            {
                "schema": 1,
                "step": step,
                "weight_version": step - 1,
                "problem": f"{problem:08x}",
                "k": k,
                "prompt_ids": prompts[problem][: 1200 - k],
                "teacher": tokens[0],
                "state_reward": chance.random(),
                "coverage": 0.5,
                "actions": made,
            }
        )
    return entries
