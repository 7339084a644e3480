"""The worlds of `fast_dapo_safety.py`: what is asked, what the trainer sees of the answers, and how choose is driven.

A scenario is a function of a run's seed. All methods of a seed have the same prompts, and the same of them damaged.
Held-out prompts are never damaged, and what is measured on them is always the exact answer.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import chain_sums
import domain_sums
import leaderboard_tasks
import numpy as np
from choosing_method import Choose
from learning_lab import Rollout
from learning_tasks import Question, Task, build_task
from safety_methods import AheadChoose, GradedChoose, LateChoose, VarianceChoose
from safety_protocol import NUM_PROMPTS

HELD_OUT = 512

DAMAGED = "differences"  # the source whose ground truths or rewards are wrong
DAMAGED_SHARE = 0.1

FAILED_SHARE = 0.05
# Of every 40 steps, 2 in a row are silent in one source: 5 %.
OUTAGE_CYCLE, OUTAGE_STEPS = 40, 2

SLOW = "long"
DELAYS = range(1, 7)  # steps

# Chains by their number of terms. A third of the learnable ones are long; no right answer of the others is longer than
# the limit, five of six long ones are.
LENGTHS = {"short": range(2, 3), "middle": range(3, 4), "long": range(4, 100)}
RESPONSE_LIMIT = 14

Grade = Callable[[Sequence[Rollout], int], list[Rollout]]


def as_it_is(rollouts: Sequence[Rollout], version: int) -> list[Rollout]:
    """What the trainer sees where nothing is wrong."""
    return list(rollouts)


@dataclass(frozen=True)
class World:
    """What a run happens in.

    Attributes:
        grade: What the trainer sees of rollouts that were sampled under a weight version, the right ones with reward 1.
            It may remember what it was asked: one for each run.
        choose: Makes the method choose.
        damaged: (P,) bool, prompts whose rewards are wrong throughout.
    """

    task: Task
    grade: Grade = as_it_is
    choose: Callable[..., Choose] = Choose
    damaged: np.ndarray | None = None


def format_to_be_found(seed: int) -> World:
    """A third of the prompts wants brackets around the answer, which the base model writes in one of 65 responses.

    In real life: a data source whose parser wants \\boxed{}, tool calls, or a language the model hardly uses. Nearly
    all pass rates are 0 at first, although the sums are no harder; a method that skips prompts that never pass never
    finds out.
    """
    return World(leaderboard_tasks.make_task("D", NUM_PROMPTS, held_out=HELD_OUT))


def swapped_rewards(seed: int) -> World:
    """A tenth of the differences, of each kind, has the answer of another one as ground truth.

    In real life: data with shifted or mixed-up labels. The wrong answers are of prompts of the same kind with as many
    digits, so that they are sometimes hit, and such a prompt looks like one that is hard but not hopeless.
    """
    task, kinds = _two_sources()
    damaged = damaged_prompts(task, kinds, seed)
    return World(replace(task, answers=swapped_answers(task, kinds, damaged, seed)), damaged=damaged)


def inverted_rewards(seed: int) -> World:
    """In a tenth of the differences, of each kind, the right answer has reward 0 and any other has 1.

    In real life: a checker with its sign wrong, or a judge that can be talked over. As the policy learns, these pass
    rates fall through 1/2, where a choice by pass rates likes prompts best, while those of sound prompts leave it.
    """
    task, kinds = _two_sources()
    damaged = damaged_prompts(task, kinds, seed)

    def grade(rollouts: Sequence[Rollout], version: int) -> list[Rollout]:
        return [replace(r, reward=1.0 - r.reward) if damaged[r.prompt] else r for r in rollouts]

    return World(task, grade, damaged=damaged)


def failing_environments(seed: int) -> World:
    """5 % of all rollouts have reward 0 whatever they say, and in 5 % of the steps all of one source have 0.

    In real life: sandboxes that time out, and a grader that is down for a while. Two steps on end in every 40, in one
    of the two sources: a choice by pass rates takes it for prompts that have become hopeless, in all of a source.
    """
    task, _ = _two_sources()
    rng = np.random.default_rng([seed, 2])

    def grade(rollouts: Sequence[Rollout], version: int) -> list[Rollout]:
        failed = rng.random(len(rollouts)) < FAILED_SHARE
        silent = silent_source(seed, version, len(task.domain_names))
        return [
            replace(r, reward=0.0) if fails or task.domains[r.prompt] == silent else r
            for r, fails in zip(rollouts, failed, strict=True)
        ]

    return World(task, grade)


def slow_hard_prompts(seed: int) -> World:
    """Every call for a long chain comes back 1 to 6 steps late, and what is older than 4 steps is dropped.

    In real life: a fully asynchronous trainer that waits for nothing, where hard problems have the longest responses. A
    prompt that is continued is late twice, so that mixed ones are dropped more often than the others. Uniform waits for
    all.
    """
    return World(_chains(("short", "long")), choose=functools.partial(LateChoose, slow=SLOW, delays=DELAYS))


def slow_waited_for(seed: int) -> World:
    """The same prompts, and both methods wait: all rollouts of a step are of its weights.

    In real life: Fast DAPO in the synchronous trainer, which waits for every rollout before an update. It costs time,
    which this measure does not see, and tells what of the scenario before is due to being late.
    """
    return World(_chains(("short", "long")))


def slow_ahead(seed: int) -> World:
    """The same prompts as late; a batch is trained on without them, but nothing grows too old.

    In real life: Fast DAPO in verl's asynchronous trainers, with one batch ahead. Long chains come up to 4 steps late,
    and what cannot come in time is waited for.
    """
    return World(_chains(("short", "long")), choose=functools.partial(AheadChoose, slow=SLOW, delays=DELAYS))


def length_bias(seed: int) -> World:
    """Chains of four terms or more, a third of the learnable ones, hardly ever fit into a response, and then fail.

    In real life: `data.max_response_length` below what a part of the data needs. Pass rates, lengths and cut-offs go
    together. The long domain is measured without the limit: what is learned there comes from the others only.
    """
    return World(_chains(tuple(LENGTHS)), cut_off)


def graded(seed: int) -> World:
    """The reward is the share of right digits; what is measured is the exact answer.

    In real life: partial credit, such as the share of unit tests that pass. A wrong answer also teaches, and no group
    of wrong answers is without a signal; a choice by exact pass rates does not see that. A third of the prompts are
    hopeless: with twice as many, which also have partial credit, uniform hardly learns within 20,000 rollouts.
    """
    task, _ = _two_sources(hopeless_kept=1 / 3)

    def grade(rollouts: Sequence[Rollout], version: int) -> list[Rollout]:
        return [replace(r, reward=share_right(r.response, task.answers[r.prompt])) for r in rollouts]

    return World(task, grade, GradedChoose)


def graded_successes(seed: int) -> World:
    """The same rewards, and prompts are chosen by how much these vary.

    In real life: `curriculum.success_threshold=null` although some answers are right and others are not.
    """
    return replace(graded(seed), choose=VarianceChoose)


WORLDS = {
    "format": format_to_be_found,
    "swapped_rewards": swapped_rewards,
    "inverted_rewards": inverted_rewards,
    "failing_environments": failing_environments,
    "slow_hard_prompts": slow_hard_prompts,
    "slow_waited_for": slow_waited_for,
    "slow_ahead": slow_ahead,
    "length_bias": length_bias,
    "graded": graded,
    "graded_successes": graded_successes,
}


# ------------------------------ tasks ------------------------------


@functools.cache
def _two_sources(hopeless_kept: float = 1.0) -> tuple[Task, np.ndarray]:
    """Sums and differences, like pool B (65 % hopeless, 25 % easy, 10 % core) each; (P,) the kinds.

    Args:
        hopeless_kept: Share of the hopeless prompts of a larger pool that are in this one.
    """
    others = 1 - domain_sums.SHARES[DAMAGED].hopeless
    num_drawn = round(NUM_PROMPTS / (others + hopeless_kept * (1 - others)))
    drawn, unseen = (
        [question for question in part if question.domain != "boxed"]
        for part in domain_sums.draw_pool(num_drawn * 3 // 2, HELD_OUT * 3 // 2, seed=0)
    )
    learnable = [question for question in drawn if question.kind != "hopeless"]
    hopeless = [question for question in drawn if question.kind == "hopeless"][: NUM_PROMPTS - len(learnable)]
    kept = {question.text for question in [*learnable, *hopeless]}
    questions = [question for question in drawn if question.text in kept]
    task = build_task(questions, unseen, max_prompt=domain_sums.MAX_PROMPT, max_response=domain_sums.MAX_RESPONSE)
    return task, np.array([question.kind for question in questions])


@functools.cache
def _chains(names: tuple[str, ...]) -> Task:
    """Pool T, its chains by their number of terms; those of three are long ones where no class is theirs."""
    questions, unseen = ([replace(q, domain=_length_class(q, names)) for q in part] for part in _drawn_chains())
    return build_task(questions, unseen, max_prompt=chain_sums.MAX_PROMPT, max_response=chain_sums.MAX_RESPONSE)


@functools.cache
def _drawn_chains() -> tuple[list[Question], list[Question]]:
    return chain_sums.draw_pool(NUM_PROMPTS, HELD_OUT, seed=0)


def _length_class(question: Question, names: Sequence[str]) -> str:
    return next((name for name in names if question.fields["terms"] in LENGTHS[name]), "long")


# ------------------------------ damage ------------------------------


def damaged_prompts(task: Task, kinds: np.ndarray, seed: int) -> np.ndarray:
    """(P,) bool: a tenth of the damaged source's prompts of each kind."""
    rng = np.random.default_rng([seed, 1])
    damaged = np.zeros(len(kinds), dtype=bool)
    for kind in np.unique(kinds):
        own = np.flatnonzero((kinds == kind) & (task.domains == task.domain_names.index(DAMAGED)))
        damaged[rng.choice(own, round(DAMAGED_SHARE * len(own)), replace=False)] = True
    return damaged


def swapped_answers(task: Task, kinds: np.ndarray, damaged: np.ndarray, seed: int) -> list[list[int]]:
    """The answers, with those of the damaged prompts from others of the same source, kind and length."""
    rng = np.random.default_rng([seed, 3])
    answers = list(task.answers)
    for place in np.flatnonzero(damaged):
        alike = np.flatnonzero((kinds == kinds[place]) & (task.domains == task.domains[place]))
        others = [i for i in alike if len(task.answers[i]) == len(answers[place]) and task.answers[i] != answers[place]]
        answers[place] = task.answers[rng.choice(others)]
    return answers


def silent_source(seed: int, version: int, num_sources: int) -> int | None:
    """The source whose grader is down at a step, if any."""
    cycle, step = divmod(version, OUTAGE_CYCLE)
    rng = np.random.default_rng([seed, 5, cycle])
    start, source = rng.integers(OUTAGE_CYCLE - OUTAGE_STEPS + 1), rng.integers(num_sources)
    return int(source) if start <= step < start + OUTAGE_STEPS else None


def cut_off(rollouts: Sequence[Rollout], version: int) -> list[Rollout]:
    """Responses end at the limit, and one that ends there has failed."""
    return [
        replace(r, response=r.response[:RESPONSE_LIMIT], log_probs=r.log_probs[:RESPONSE_LIMIT], reward=0.0)
        if len(r.response) > RESPONSE_LIMIT
        else r
        for r in rollouts
    ]


def share_right(response: Sequence[int], answer: Sequence[int]) -> float:
    """Of the tokens of the longer of both, the share at which they are equal: 1 for the right answer only.

    Example:
        >>> share_right([1, 2, 3], [1, 5, 3, 4])
        0.5
    """
    return sum(a == b for a, b in zip(response, answer, strict=False)) / max(len(response), len(answer))
