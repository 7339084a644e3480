"""Makes traces that follow the schema, for looking at pages without a run. Pure: the same arguments, the same trace.

A realistic trace is made by the recipe's own parts (states, credit, targets): only the policy is made up, by a pass
rate for each token and log-probs that an update moves most of the way to their targets. It has every corner that a
page has to show: states without a label, infrastructure errors, log-probs that were not measured, and hostile text.
"""

import math
import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from data_preprocess.arc_tasks import Task
from recipe.golden_redaction.credit import INFRASTRUCTURE_ERROR, CreditSettings, assign_credit
from recipe.golden_redaction.golden_tasks import read_solution
from recipe.golden_redaction.prompts import encode_golden, encode_prompt, state_ids, teacher_token
from recipe.golden_redaction.records import make_entry
from recipe.golden_redaction.targets import TargetSettings, target_log_probs

HOSTILE = (
    "</script></pre><img src=x onerror=\"window.hacked='text'\"><script>window.hacked='script'</script>{{7*7}}\u2028"
)
FAILURES = ("wrong_output", "runtime_error", "syntax_error", "timeout", "invalid_output")


def realistic_trace(
    tokenizer: Any, tasks: Mapping[str, Task], steps: int = 8, rollouts: int = 16, seed: int = 0
) -> list[dict[str, Any]]:
    """An entry a step and task.

    Args:
        tokenizer: Of the policy.
        tasks: By id; each has a golden solution.
        steps: Of the trainer.
        rollouts: Of an action.
        seed: Of everything that is drawn.
    """
    chance = random.Random(seed)
    entries = []
    hidden = {task: chance.randint(2, 5) for task in tasks}
    for step in range(1, steps + 1):
        for number, (name, task) in enumerate(tasks.items()):
            golden = encode_golden(read_solution(name), tokenizer)
            # The third step has no label anywhere, the fifth a failing sandbox.
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
    # With the action, and from it on as the golden solution goes on, or not.
    texts = [
        tokenizer.decode([token, *golden[len(golden) - k + 1 :]] if token == teacher else [token]) for token in tokens
    ]
    made = [
        [_rollout(chance, task, text, rate, kind) for _ in range(rollouts)]
        for text, rate in zip(texts, rates, strict=True)
    ]
    if kind == "failing":
        # A whole action without a label.
        made[-1] = [{**one, "reward": None, "statuses": [INFRASTRUCTURE_ERROR] * len(task.train)} for one in made[-1]]
    labels = [[one["reward"] for one in own] for own in made]
    credit = assign_credit(labels, log_probs, CreditSettings(rollouts_per_action=rollouts))
    targets = target_log_probs(log_probs, credit.advantages, TargetSettings()).log_probs
    labelled = credit.advantages != 0
    way = np.where(labelled, np.nan_to_num(targets) - log_probs, 0.0)
    # Most go most of the way; some overshoot, some go back.
    moved = np.array([chance.choices((0.7, 1.3, -0.4, 0.0), (6, 2, 1, 1))[0] for _ in tokens]) * way
    after = np.minimum(log_probs + moved + np.array([chance.gauss(0, 0.01) for _ in tokens]) * ~labelled, -1e-4)
    return make_entry(
        step=step,
        weight_version=step - 1,
        problem=task.id,
        k=k,
        prompt_ids=state_ids(encode_prompt(task, tokenizer), golden, k),
        teacher=teacher,
        tokens=tokens,
        rollouts=made,
        credit=credit,
        targets=targets,
        log_probs_before=log_probs,
        # The last step was killed before it could measure.
        log_probs_after_trainer=None if step == 8 else after,
        log_probs_after_engine=None if step in (4, 8) else np.minimum(after + 0.003, -1e-4),
        log_probs_reference=np.minimum(log_probs - 0.05 * step, -1e-4),
    )


def _rollout(chance: random.Random, task: Task, text: str, rate: float, kind: str) -> dict[str, Any]:
    pairs = len(task.train)
    if kind == "failing" and chance.random() < 0.2:
        return {"text": text, "reward": None, "statuses": ["ok"] * (pairs - 1) + [INFRASTRUCTURE_ERROR]}
    if chance.random() < rate:
        outputs = [[list(row) for row in pair.output] for pair in task.train]
        return {"text": text + "\n```", "reward": 1, "statuses": ["ok"] * pairs, "outputs": outputs}
    failure = chance.choice(FAILURES)
    place = chance.randrange(pairs)
    statuses = ["ok"] * place + [failure] + ["ok"] * (pairs - place - 1)
    outputs: list[Any] = [[list(row) for row in pair.output] for pair in task.train]
    outputs[place] = None
    if failure == "wrong_output":
        outputs[place] = [list(row) for row in task.train[place].output]
        outputs[place][0][0] = (outputs[place][0][0] + 3) % 10
    return {
        "text": f"{text}\n    # and then a mistake: {failure}\n```",
        "reward": 0,
        "statuses": statuses,
        "outputs": outputs,
    }


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
