"""Sessions of several turns with a tool, in verl's own `tool_agent` loop, on real Ray, FSDP2 and vLLM.

The model sometimes calls the tool of `small_tools.py`, for one prompt in three twice. The tool's output is part of a
response; the model learns only from its own tokens.
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import pytest
from lab import CHOOSE_SETTINGS, ROOT, Lab
from small_tools import END_OF_MESSAGE, entry
from tool_model import CALL, END_OF_CALL, END_OF_TURN, make_assets

# Needs its own cluster, for several minutes.
pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]

ASSETS = ROOT / "outputs/look_up"
TOOLS = ROOT / "tests/integration/small_tools.yaml"

TWO_PHASE = {"tracin__enable": False}
CHOOSE = TWO_PHASE | CHOOSE_SETTINGS | {"curriculum__schedule": "streaming"}


@pytest.fixture(scope="session")
def tool_overrides() -> list[str]:
    model, data = make_assets(ASSETS)
    return [
        f"actor_rollout_ref.model.path={model}",
        f"data.train_files={data}/train.parquet",
        f"data.val_files={data}/val.parquet",
        "data.max_prompt_length=8",
        "data.max_response_length=32",
        f"reward.custom_reward_function.path={ROOT}/tests/integration/small_tools.py",
        "actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent",
        "actor_rollout_ref.rollout.multi_turn.enable=true",
        f"actor_rollout_ref.rollout.multi_turn.tool_config_path={TOOLS}",
        "actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4",
        f"tracin.validation_files={data}/val.parquet",
    ]


@pytest.fixture
def lab(labs: Any, tool_overrides: list[str]) -> Lab:
    return labs.get(
        "tools",
        *tool_overrides,
        "actor_rollout_ref.actor.optim.lr=1e-3",
        # The greedy model always calls the tool: no single guess is as likely as a call.
        "actor_rollout_ref.rollout.val_kwargs.temperature=1.0",
        "actor_rollout_ref.rollout.val_kwargs.n=16",
        "tracin.enable=true",
        "tracin.parameters=down_proj",
        "tracin.validation.strategy=contrast",
        "tracin.validation.pool_size=32",
        "tracin.validation.k=16",
        "tracin.check_identity_every=1",
    )


@pytest.fixture
def graded_lab(labs: Any, tool_overrides: list[str]) -> Lab:
    return labs.get(
        "graded_tools",
        *tool_overrides,
        "reward.custom_reward_function.name=compute_graded",
        "curriculum.success_metric=reward",
        "curriculum.success_threshold=null",
        "tracin.enable=false",
    )


@dataclass(frozen=True)
class Session:
    """A row as the update sees it, token by token."""

    prompt: str
    tokens: list[str]
    mask: list[int]
    advantages: list[float]
    log_probs: list[float]
    reward: float

    @property
    def pieces(self) -> list[tuple[bool, str]]:
        """Text that the model wrote (True) and text that it was given (False), in order."""
        numbered = groupby(zip(self.mask, self.tokens, strict=True), key=lambda pair: pair[0])
        return [(bool(own), "".join(token for _, token in group)) for own, group in numbered]


def _watch_update(trainer: Any) -> None:
    """Record the rows of the next update."""
    from verl_ext.serving import data_plane

    update = trainer.actor_rollout_wg.update_actor

    def watched(batch: Any) -> Any:
        real = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        names = ["responses", "response_mask", "advantages", "rollout_log_probs", "rm_scores"]
        rows = data_plane.read(real, "train", names)
        trainer.seen = [
            {name: row.tolist() for name, row in zip(names, columns, strict=True)}
            | {
                "tokens": [trainer.tokenizer.decode([token]) for token in columns[0].tolist()],
                "prompt": key.rsplit("_", 2)[0],
            }
            for key, *columns in zip(real, *(rows[name].unbind() for name in names), strict=True)
        ]
        trainer.actor_rollout_wg.update_actor = update
        return update(batch)

    trainer.actor_rollout_wg.update_actor = watched


def _step_with_sessions(lab: Lab) -> tuple[dict[str, Any], list[Session]]:
    lab.call(_watch_update)
    metrics = lab.step()
    rows = lab.call(lambda trainer: trainer.seen)
    sessions = [
        Session(
            row["prompt"],
            row["tokens"],
            row["response_mask"],
            row["advantages"],
            row["rollout_log_probs"],
            sum(row["rm_scores"]),
        )
        for row in rows
    ]
    return metrics, sessions


def _answers(text: str) -> str | None:
    """The tool's answer to the model's text; None if the text is not a call."""
    _, call, rest = text.partition(CALL)
    key, end, _ = rest.partition(END_OF_CALL)
    return f"\n{entry(key)}{END_OF_MESSAGE}" if call and end else None


def _check(session: Session) -> None:
    pieces = session.pieces
    assert pieces[0][0]
    for (own, text), (_, answer) in pairwise(pieces):
        if own:
            assert text.endswith(END_OF_TURN)
            assert answer == _answers(text)
    # One advantage for all of the model's tokens, in every turn; none for the tool's.
    own = {round(advantage, 6) for advantage, mask in zip(session.advantages, session.mask, strict=True) if mask}
    given = {advantage for advantage, mask in zip(session.advantages, session.mask, strict=True) if not mask}
    assert len(own) == 1
    assert given <= {0.0}
    assert all((log_prob < 0) == bool(mask) for log_prob, mask in zip(session.log_probs, session.mask, strict=True))


def _turns(sessions: list[Session]) -> Counter[int]:
    return Counter(sum(own for own, _ in session.pieces) for session in sessions)


def test_two_phases_train_on_every_turn_of_the_model_and_on_nothing_of_the_tool(lab: Lab):
    with lab.settings(**TWO_PHASE):
        metrics, sessions = _step_with_sessions(lab)
    assert len(sessions) == len(metrics["batch_keys"]) == metrics["curriculum/trained_rollouts"] == 8 * 16
    for session in sessions:
        _check(session)
    # Guessed, called once, called twice.
    assert {1, 2, 3} <= set(_turns(sessions))
    assert {session.reward for session in sessions} == {0.0, 1.0}
    assert metrics["engine_guard/probs_diff_max"] < 1e-4
    assert metrics["actor/grad_norm"] > 0


def test_tracin_scores_what_the_model_wrote_and_not_what_the_tool_did(lab: Lab):
    def scores(trainer: Any) -> list[list[float]]:
        """Record scores of one batch: unchanged, with garbage as the tool's or the model's advantages, unchanged."""
        from verl_ext.serving import data_plane

        selector = trainer.selectors[-1]
        select, trainer.seen = selector.select, []

        def score(batch: Any) -> None:
            selector._take_validation_gradient()
            batch.extra_info.update(selector._mini_batch_info(), in_batch=False, check_identity=True)
            trainer.actor_rollout_wg.compute_influence(batch)
            trainer.seen.append(selector._take_scores(batch).tolist())

        def watched(batch: Any) -> Any:
            selector.select = select
            rows = data_plane.read(batch.keys, "train", ["advantages", "response_mask"])
            pairs = list(zip(rows["advantages"].unbind(), rows["response_mask"].unbind(), strict=True))
            whole = [row for row, _ in pairs]
            for advantages in (
                whole,
                [row + 9 * (1 - mask) for row, mask in pairs],
                [row + 9 * mask for row, mask in pairs],
                whole,
            ):
                columns = data_plane.as_columns({"advantages": advantages})
                data_plane.write(batch.keys, "train", columns)
                score(batch)
            return select(batch)

        selector.select = watched
        return []

    with lab.settings(algorithm__adv_estimator="grpo"):
        lab.call(scores)
        metrics = lab.step()
        plain, given, own, again = lab.call(lambda trainer: trainer.seen)
        records = [json.loads(line) for line in (lab.run_dir / "influence.jsonl").read_text().splitlines()]
    assert given == plain == again != own
    assert [record["score"] for record in records] == plain
    # The group's advantages, not diluted by the tool's tokens.
    assert {record["advantage"] > 0 for record in records} == {True, False}
    by_prompt = {}
    for record in records:
        by_prompt.setdefault((record["index"], record["reward"]), set()).add(round(record["advantage"], 5))
    assert all(len(values) == 1 for values in by_prompt.values())
    assert metrics["tracin/identity_error"] < 1e-4
    assert metrics["tracin/validation_gradient_norm"] > 0
    assert 0 < metrics["tracin/num_selected"] < 8 * 16


def test_choose_trains_on_everything_that_it_generated_and_learns_to_ask(lab: Lab):
    def accuracy(trainer: Any) -> float:
        """The accuracy over 16 rollouts per validation prompt."""
        return float(trainer._validate()["val-core/look_up/acc/mean@16"])

    before = lab.call(accuracy)
    with lab.settings(**CHOOSE):
        metrics, sessions = [], []
        for _ in range(25):
            made, seen = _step_with_sessions(lab)
            metrics.append(made)
            sessions.append(seen)
    after = lab.call(accuracy)
    for made, seen in zip(metrics, sessions, strict=True):
        assert made["curriculum/screened"] == 8
        assert (
            8 * 2 <= made["curriculum/generated_rollouts"] == made["curriculum/trained_rollouts"] == len(seen) <= 8 * 4
        )
        for session in seen:
            _check(session)
    assert after > before + 0.1
    # It guesses less often.
    first, last = ([session for step in steps for session in step] for steps in (sessions[:3], sessions[-3:]))
    assert _turns(last)[1] / len(last) < _turns(first)[1] / len(first)


def test_two_phases_train_on_prompts_whose_grades_differ(graded_lab: Lab):
    # Small groups, of which some have no right answer.
    with graded_lab.settings(curriculum__n=2, curriculum__n_continue=2, actor_rollout_ref__rollout__n=4):
        steps = [_step_with_sessions(graded_lab) for _ in range(4)]
    groups = []
    for metrics, sessions in steps:
        assert len(sessions) == metrics["curriculum/trained_rollouts"] == 8 * 4
        by_prompt = defaultdict(list)
        for session in sessions:
            _check(session)
            by_prompt[session.prompt].append(session)
        groups += by_prompt.values()
    assert {session.reward for group in groups for session in group} == {0.0, 0.5, 1.0}
    assert any(max(session.reward for session in group) < 1 for group in groups), "all groups have a right answer"
    for group in groups:
        grades = [session.reward for session in group]
        assert len(grades) == 4
        assert len(set(grades)) > 1
        for session in group:
            # Leave-one-out.
            expected = session.reward - (sum(grades) - session.reward) / 3
            assert session.advantages[0] == pytest.approx(expected, abs=1e-5)


def test_choose_trains_on_graded_sessions_that_it_generated(graded_lab: Lab):
    with graded_lab.settings(**CHOOSE):
        steps = [_step_with_sessions(graded_lab) for _ in range(3)]
    for metrics, sessions in steps:
        generated = metrics["curriculum/generated_rollouts"]
        assert 8 * 2 <= generated == metrics["curriculum/trained_rollouts"] == len(sessions) <= 8 * 4
        for session in sessions:
            _check(session)
    assert {session.reward for _, sessions in steps for session in sessions} == {0.0, 0.5, 1.0}
