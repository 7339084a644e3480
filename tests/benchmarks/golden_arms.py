"""How each arm of `golden_baselines.py` learns: generators that yield after every update, as long as they are asked.

    sft          AdamW on the golden solutions behind their prompts, closing fence and end of text included, all
                 solutions of the run in every step; the prompt's own tokens are not learned
    grpo         the bare prompts, 4 problems x 16 rollouts per batch in a new random order every turn; verl's estimator
                 and loss (clip .2/.28, token-mean), AdamW. Rollouts without an advantage are left out of the forward,
                 and a batch of nothing else makes no step
    prefix_grpo  the same where the beginning of the golden solution is given, as much of it as the product's controller
                 says: redaction's k without its single tokens, as in QuestA (2507.13266) and AdaBack (2506.18110)
    redaction    the product's controller, visitor, credit, targets and worker, driven as `GoldenTrainer.step` does,
                 with the demo's configuration

All rewards are the product's: a program must be right on the examples and the test pairs.

B: rows. L: tokens of a prompt. T: tokens of a response.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from golden_baselines_protocol import Job
from golden_engine import GoldenEngine, make_worker, take_step
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, get_adv_estimator_fn

from recipe.golden_redaction.method.judging import Answer, Judge
from recipe.golden_redaction.method.labelled_states import StateTokens, mini_batches
from recipe.golden_redaction.method.problems import Problem
from recipe.golden_redaction.method.redaction import RedactionController
from recipe.golden_redaction.method.rollouts import StateVisitor
from recipe.golden_redaction.method.visits import StateVisit, mean_label
from recipe.golden_redaction.settings import GoldenSettings
from recipe.golden_redaction.texts import TextLogProbs
from recipe.golden_redaction.visiting import Visits
from recipe.golden_redaction.worker import RankUpdate
from verl_ext.serving.requests import Continuations

PROBLEMS, GROUP = 4, 16  # of a batch of GRPO, and rollouts of each


@dataclass(frozen=True)
class Bench:
    """What a run learns with.

    Attributes:
        engine: The model that is trained.
        visitor: Asks it about states.
        judge: Runs programs.
        problems: Those whose golden solutions, or rewards, the run may use.
        closing: Token ids that end an answer.
        golden: Settings of golden redaction, the demo's.
        seed: Of the order of problems.
    """

    engine: GoldenEngine
    visitor: StateVisitor
    judge: Judge
    problems: Sequence[Problem]
    closing: tuple[int, ...]
    golden: GoldenSettings
    seed: int


# ------------------------------ responses behind prompts ------------------------------


def padded(
    prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], pad: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(B, L) prompts padded on the left, (B, T) responses padded on the right, (B, T) mask of their tokens."""
    prompts_BL = torch.full((len(prompts), max(map(len, prompts))), pad)
    responses_BT = torch.full((len(prompts), max(map(len, responses))), pad)
    mask_BT = torch.zeros(responses_BT.shape)
    for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        prompts_BL[row, prompts_BL.shape[1] - len(prompt) :] = torch.tensor(list(prompt))
        responses_BT[row, : len(response)] = torch.tensor(list(response))
        mask_BT[row, : len(response)] = 1.0
    return prompts_BL, responses_BT, mask_BT


def sft_loss(engine: GoldenEngine, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> torch.Tensor:
    """Mean negative log-prob of the answers' tokens, in nats; those of the prompts have no part in it."""
    prompts_BL, answers_BT, mask_BT = padded(prompts, answers, engine.pad)
    return -(engine.log_probs(prompts_BL, answers_BT) * mask_BT).sum() / mask_BT.sum()


# ------------------------------ the arms ------------------------------


def steps(bench: Bench, method: str, job: Job) -> Generator[None, None, None]:
    """Of a method with the job's settings; raises ValueError for an unknown one."""
    match method:
        case "sft":
            return sft(bench, job.setting("sft", "rate"))
        case "grpo":
            return grpo(bench, job.setting("grpo", "rate"), int(job.setting("grpo", "updates")))
        case "prefix_grpo":
            return prefix_grpo(bench, job.setting("prefix_grpo", "rate"), int(job.setting("prefix_grpo", "updates")))
        case "redaction":
            return redaction(bench, job.setting("redaction", "rate"))
    raise ValueError(f"expected sft, grpo, prefix_grpo or redaction, got {method!r}")


def sft(bench: Bench, rate: float) -> Generator[None, None, None]:
    """Supervised steps on all golden solutions."""
    optimizer = torch.optim.AdamW(bench.engine.model.parameters(), lr=rate, weight_decay=0.0)
    prompts = [problem.prompt_ids for problem in bench.problems]
    answers = [(*problem.golden_ids, *bench.closing) for problem in bench.problems]
    while True:
        optimizer.zero_grad()
        sft_loss(bench.engine, prompts, answers).backward()
        take_step(bench.engine, optimizer)
        yield


def grpo(bench: Bench, rate: float, updates: int) -> Generator[None, None, None]:
    """Whole solutions from bare prompts; so many optimizer steps per batch."""
    optimizer = torch.optim.AdamW(bench.engine.model.parameters(), lr=rate, weight_decay=0.0)
    for problems in _turns(bench.problems, np.random.default_rng(bench.seed)):
        _learn_from(bench, optimizer, [(problem, len(problem.golden_ids)) for problem in problems], updates)
        yield


def prefix_grpo(bench: Bench, rate: float, updates: int) -> Generator[None, None, None]:
    """Ends of solutions, longer and longer ones."""
    optimizer = torch.optim.AdamW(bench.engine.model.parameters(), lr=rate, weight_decay=0.0)
    by_id = {problem.id: problem for problem in bench.problems}
    controller, texts = _controller(bench), _texts(bench)
    while True:
        states = controller.next_states(PROBLEMS)
        texts.measure(states)
        states = [controller.settle(state, texts.of_golden(state)) for state in states]
        rewards = _learn_from(bench, optimizer, [(by_id[state.problem], state.k) for state in states], updates)
        for state, reward in zip(states, rewards, strict=True):
            controller.observe(state.problem, state.k, reward)
        yield


def _learn_from(
    bench: Bench, optimizer: Any, states: Sequence[tuple[Problem, int]], updates: int
) -> list[float | None]:
    """An update from rollouts of different problems with k tokens hidden each; the mean reward of each."""
    requests = [
        Continuations(problem.state(k), GROUP, bench.golden.max_new_tokens, place)
        for place, (problem, k) in enumerate(states)
    ]
    answers = [
        Answer(problem, problem.given(k), tuple(ids), True)
        for (problem, k), samples in zip(states, bench.engine.generate(requests), strict=True)
        for ids, _ in samples
    ]
    rewards = [rollout.reward for rollout in bench.judge.session()(answers)]
    labelled = [(answer, reward) for answer, reward in zip(answers, rewards, strict=True) if reward is not None]
    if labelled:
        grpo_update(bench.engine, optimizer, *zip(*labelled, strict=True), updates=updates)
    return [mean_label(rewards[start : start + GROUP]) for start in range(0, len(rewards), GROUP)]


def _controller(bench: Bench) -> RedactionController:
    return RedactionController({p.id: len(p.golden_ids) for p in bench.problems}, bench.golden.redaction)


def _texts(bench: Bench) -> TextLogProbs:
    by_id = {problem.id: problem for problem in bench.problems}
    return TextLogProbs(bench.engine, by_id)  # pyright: ignore[reportArgumentType]  (of ServingEngines, one method)


def _turns(problems: Sequence[Problem], rng: np.random.Generator) -> Iterator[list[Problem]]:
    """Batches of different problems; every turn has all of them."""
    turns = np.zeros(len(problems), dtype=np.int64)
    while True:
        chosen = np.lexsort((rng.random(len(problems)), turns))[:PROBLEMS]  # those with the fewest, in a random order
        turns[chosen] += 1
        yield [problems[place] for place in chosen]


def grpo_update(
    engine: GoldenEngine, optimizer: Any, answers: Sequence[Answer], rewards: Sequence[float], *, updates: int
) -> None:
    """Steps on one batch, bounded by the loss's clip around the policy that made it."""
    prompts_BL, responses_BT, mask_BT = padded(
        [(*answer.problem.prompt_ids, *answer.given) for answer in answers],
        [answer.made for answer in answers],
        engine.pad,
    )
    rewards_BT = torch.zeros_like(mask_BT)
    rewards_BT[torch.arange(len(answers)), mask_BT.sum(1).long() - 1] = torch.tensor(rewards)
    groups = np.array([answer.problem.id for answer in answers], dtype=object)
    advantages_BT, _ = get_adv_estimator_fn("grpo")(token_level_rewards=rewards_BT, response_mask=mask_BT, index=groups)
    config = SimpleNamespace(
        clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.28, get=lambda name, default=None: default,
        global_batch_info={"batch_num_tokens": mask_BT.sum()},  # of all rollouts
    )  # fmt: skip
    learned = (advantages_BT != 0).any(1)
    if not learned.any():
        return
    prompts_BL, responses_BT, mask_BT = prompts_BL[learned], responses_BT[learned], mask_BT[learned]
    old_BT = None
    for _ in range(updates):
        log_probs_BT = engine.log_probs(prompts_BL, responses_BT) * mask_BT
        old_BT = log_probs_BT.detach() if old_BT is None else old_BT
        loss, _ = compute_policy_loss_vanilla(
            old_log_prob=old_BT,
            log_prob=log_probs_BT,
            advantages=advantages_BT[learned],
            response_mask=mask_BT,
            loss_agg_mode="token-mean",
            config=config,
        )
        optimizer.zero_grad()
        loss.backward()
        take_step(engine, optimizer)


def redaction(bench: Bench, rate: float) -> Generator[None, None, None]:
    """Golden redaction; a yield without a labelled state has made no step."""
    optimizer = torch.optim.SGD(bench.engine.model.parameters(), lr=rate)
    for _ in redaction_steps(bench, make_worker(bench.engine, optimizer)):
        yield


def redaction_steps(bench: Bench, worker: Any) -> Generator[tuple[list[StateVisit], RankUpdate | None], None, None]:
    """The visits and the update of each step, None without a labelled state; the worker trains the model."""
    golden, by_id = bench.golden, {problem.id: problem for problem in bench.problems}
    controller = _controller(bench)
    visits = Visits(controller, bench.visitor, _texts(bench), by_id, golden.redaction.decided_above, False)
    step = 0
    try:
        while True:
            made = visits.take(golden.entries_per_update, step, lambda name: nullcontext())
            for visit, own in zip(made, own_log_probs(worker, made), strict=True):
                visit.assign_credit(own, golden.credit, golden.targets)
            batches = mini_batches(made, golden.entries_per_update, golden.targets.reduction)
            updates = worker.train_states(batches, None, golden.targets) if batches else [None]
            for visit in made:
                controller.observe(visit.problem, visit.k, visit.credit.state_reward)
            step += 1
            yield made, updates[0]
    finally:
        visits.close()


def own_log_probs(worker: Any, visits: Sequence[StateVisit]) -> list[list[float]]:
    """Of each visit's tokens under the weights that are trained."""
    asked = [StateTokens(visit.ids, visit.tokens) for visit in visits]
    found = worker.state_log_probs(asked, False, False).log_probs
    return [[min(value, 0.0) for value in found[index]] for index in range(len(visits))]
