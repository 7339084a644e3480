"""Visiting states: what the engine is asked for, which programs run, and how their results are used.

The sandbox is the real one. The engine is scripted, with the methods of `verl_ext.serving.engines.ServingEngines`; the
real one is exercised in tests/integration.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from recipe.golden_redaction.method.credit import CreditSettings
from recipe.golden_redaction.method.judging import Answer, ProgramJudge
from recipe.golden_redaction.method.problems import Problem, RewardSettings, hold_out
from recipe.golden_redaction.method.redaction import RedactedState
from recipe.golden_redaction.method.rollouts import StateVisitor
from recipe.golden_redaction.method.visits import Rollout, StateVisit, copying_metrics
from recipe.golden_redaction.settings import GoldenSettings
from verl_ext.arc.prompts import CODE_PREFIX, FENCE
from verl_ext.data.arc_tasks import Pair
from verl_ext.sandbox.policy import SandboxPolicy, SandboxUnavailableError
from verl_ext.sandbox.pool import SandboxPool
from verl_ext.sandbox.results import Execution, ProgramResult, Status
from verl_ext.serving.requests import Continuation, Continuations

TOKENIZER = build_tokenizer()
END = int(TOKENIZER.eos_token_id or 0)
# k = 3 hides `7]]`.
GOLDEN = '\n    - Café.\n    """\n    return [[7]]'
SETTINGS = CreditSettings(num_next_tokens=4, max_actions=3, rollouts_per_action=3, min_labels=1)
MAX_NEW_TOKENS = 50

# The end of a prompt -> its continuations, each with the reason why it ended.
Script = dict[str | tuple[int, ...], list[tuple[str | list[int], str | None]]]


def ids(text: str | Sequence[int]) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False)["input_ids"] if isinstance(text, str) else text)


def token(character: str) -> int:
    (only,) = ids(character)
    return only


def problem(name: str = "a", answer: int = 7) -> Problem:
    # No program can be read from the prompt.
    return Problem(
        name,
        tuple(ids(f"prompt of {name}:")),
        tuple(ids(GOLDEN)),
        (Pair(((0,),), ((7,),)), Pair(((1,),), ((answer,),))),
        (),
    )


class ScriptedEngine:
    """Continues a prompt by the first entry of `script` with a key that the prompt ends with."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Continuations] = []
        self.after_each: Callable[[int], None] = lambda place: None

    def generate(self, requests: Sequence[Continuations]) -> list[list[Continuation]]:
        self.requests += requests
        return [self._answers(request) for request in requests]

    def generate_as_completed(self, requests: Sequence[Continuations]) -> Iterator[tuple[int, list[Continuation]]]:
        """The last request is completed first."""
        self.requests += requests
        for place in reversed(range(len(requests))):
            yield place, self._answers(requests[place])
            self.after_each(place)

    def _answers(self, request: Continuations) -> list[Continuation]:
        prompt = list(request.prompt_ids)
        found = next(made for end, made in self.script.items() if prompt[-len(ids(end)) :] == ids(end))
        assert len(found) == request.num
        return [(ids(text), reason) for text, reason in found]

    def next_token_log_probs(
        self, states: Sequence[Sequence[int]], tokens: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        raise AssertionError("a visit needs no log-probs")


class WatchedExecutor:
    """Passes jobs on to the real sandbox and records them; `breaks(program, runs)` makes an infrastructure error."""

    def __init__(self, pool: SandboxPool, breaks: Callable[[str, int], bool]) -> None:
        self._pool = pool
        self._breaks = breaks
        self.calls: list[list[str]] = []
        self.has_run = threading.Event()

    @property
    def programs(self) -> list[str]:
        """All programs that were run, sorted."""
        return sorted(program for call in self.calls for program in call)

    def check_many(self, jobs: Any, stop_at_first_failure: bool = False) -> list[ProgramResult]:
        jobs = list(jobs)
        self.calls.append([program for program, _ in jobs])
        self.has_run.set()
        broken = ProgramResult((Execution(Status.OK, ((7,),)), Execution(Status.INFRASTRUCTURE_ERROR)))
        results = self._pool.check_many(jobs, stop_at_first_failure)
        return [
            broken if self._breaks(program, self.programs.count(program)) else result
            for (program, _), result in zip(jobs, results, strict=True)
        ]


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(SandboxPolicy(cpu_seconds=5.0), workers=1) as pool:
        yield pool


class Made:
    """A visitor, its engine and its executor."""

    def __init__(
        self, pool: SandboxPool, script: Script, breaks: Callable[[str, int], bool], with_outputs: bool
    ) -> None:
        self.engine = ScriptedEngine(script)
        self.executor = WatchedExecutor(pool, breaks)
        self.phases: list[str] = []
        self.judge = ProgramJudge(self.executor, TOKENIZER, with_outputs)
        self.visitor = StateVisitor(self.engine, self.judge, frozenset([END]), SETTINGS, MAX_NEW_TOKENS)

    def visit(self, *states: tuple[Problem, int]) -> list[StateVisit]:
        def timed(name: str) -> Any:
            self.phases.append(name)
            return nullcontext()

        problems = {problem.id: problem for problem, _ in states}
        return self.visitor.visit([RedactedState(problem.id, k) for problem, k in states], problems, 9, timed)


@pytest.fixture
def make(pool: SandboxPool) -> Callable[..., Made]:
    def make(script: Script, breaks: Callable[[str, int], bool] = lambda *_: False, with_outputs: bool = False) -> Made:
        return Made(pool, script, breaks, with_outputs)

    return make


def source(returned: str) -> str:
    return f'{CODE_PREFIX}\n    - Café.\n    """\n    return {returned}\n'


def stop(*texts: str) -> list[tuple[str | list[int], str | None]]:
    return [(text, "completed") for text in texts]


# One good next token and one bad one; the teacher's is sampled.
TWO_ACTIONS: Script = {
    "[[": stop("8", "7", "8", "7"),
    "[[7": stop("]]\n```", "]] + [", "]]\n```\nwords"),
    "[[8": stop("]]", "]]\n", "]"),
}


# ------------------------------ a visit ------------------------------


def test_the_engine_is_asked_for_next_tokens_and_then_for_rollouts_of_each(make):
    made = make(TWO_ACTIONS)
    made.visit((problem("a"), 3), (problem("b"), 3))
    states = [[*ids(f"prompt of {name}:"), *ids(GOLDEN)[:-3]] for name in ("a", "b")]
    assert made.engine.requests == [
        *(Continuations(state, 4, 1, place) for place, state in enumerate(states)),
        *(
            Continuations([*state, token(action)], 3, MAX_NEW_TOKENS, place, (FENCE,))
            for place, state in enumerate(states)
            for action in "87"
        ),
    ]
    assert made.phases == ["gen", "sandbox"]


def test_a_state_of_another_prompt_begins_with_it(make):
    made, other = make(TWO_ACTIONS), tuple(ids("another prompt:"))
    varied = replace(problem("a"), other_prompts=(other,))
    first, second = made.visitor.visit(
        [RedactedState("a", 3), RedactedState("b", 3, 1)],
        {"a": varied, "b": replace(varied, id="b")},
        9,
        lambda name: nullcontext(),
    )
    assert (first.prompt, first.golden_start) == (0, len(ids("prompt of a:")))
    assert (second.prompt, second.golden_start) == (1, len(other))
    assert second.ids == (*other, *ids(GOLDEN)[:-3])
    assert second.rollouts == first.rollouts
    assert list(made.engine.requests[1].prompt_ids) == list(second.ids)


def test_a_visit_has_the_states_actions_and_the_rollouts_of_each(make):
    (visit,) = make(TWO_ACTIONS).visit((problem(), 3))
    assert (visit.problem, visit.k, visit.weight_version) == ("a", 3, 9)
    assert visit.ids == (*ids("prompt of a:"), *ids(GOLDEN)[:-3])
    assert (visit.teacher, visit.tokens) == (token("7"), (token("8"), token("7")))
    assert visit.rollouts == (
        (
            Rollout("8]]", 0.0, ("wrong_output",)),
            Rollout("8]]\n", 0.0, ("wrong_output",)),
            Rollout("8]", 0.0, ("syntax_error",)),
        ),
        (
            Rollout(
                "7]]\n```",
                1.0,
                (
                    "ok",
                    "ok",
                ),
            ),
            Rollout("7]] + [", 0.0, ("syntax_error",)),
            Rollout(
                "7]]\n```\nwords",
                1.0,
                (
                    "ok",
                    "ok",
                ),
            ),
        ),
    )


def test_equal_programs_of_a_problem_run_once(make):
    made = make(TWO_ACTIONS)
    made.visit((problem("a"), 3), (problem("b", answer=6), 3))
    each = [source("[[8]]"), source("[[8]"), source("[[7]]"), source("[[7]] + [")]
    assert made.executor.programs == sorted(each * 2)
    # The same program has another reward in another problem.
    first, second = make(TWO_ACTIONS).visit((problem("a"), 3), (problem("b", answer=6), 3))
    assert (first.labels[1], second.labels[1]) == ([1.0, 0.0, 1.0], [0.0, 0.0, 0.0])
    assert second.rollouts[1][0].statuses == ("ok", "wrong_output")


def test_programs_are_joined_as_token_ids(make):
    # k hides the second byte of é: state, action and rollout are not valid texts on their own.
    first, second = ids("é")
    k = len(ids(GOLDEN)) - ids(GOLDEN).index(second)
    rest = GOLDEN.partition("é")[2]
    made = make({(first,): [([second], None)] * 4, "Café": stop(rest, rest, rest[:-1])})
    (visit,) = made.visit((problem(), k))
    assert (visit.ids[-1], visit.tokens) == (first, (second,))
    assert made.executor.programs == sorted([source("[[7]]"), source("[[7]")])
    assert visit.labels == [[1.0, 1.0, 0.0]]


def test_nothing_follows_an_action_that_ends_the_text(make):
    # Only the last token is hidden: `return [[7]` is not a program, but the completed golden solution is.
    made = make({"[[7]": [([END], None), ("]", None), ("]", None), ([END], None)], "[[7]]": stop("", "\n", "[0]")})
    (visit,) = made.visit((problem(), 1))
    assert visit.tokens == (END, token("]"))
    assert len(made.engine.requests) == 2
    assert made.engine.requests[1].prompt_ids[-1] == token("]")
    assert visit.labels == [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    assert [one.text for one in visit.rollouts[0]] == ["", "", ""]
    assert made.executor.programs == sorted([source("[[7]"), source("[[7]]"), source("[[7]][0]")])


def test_the_teachers_token_is_an_action_though_never_sampled_and_lost_samples_are_none(make):
    made = make({"[[": [("8", None), ([], "aborted"), ("9", None), ("8", None)], "[[8": stop("", "", ""),
                 "[[9": stop("", "", ""), "[[7": stop("]]", "]]", "]]")})  # fmt: skip
    (visit,) = made.visit((problem(), 3))
    assert visit.tokens == (token("8"), token("9"), token("7"))
    assert visit.labels[2] == [1.0, 1.0, 1.0]


def test_an_aborted_rollout_has_no_label_and_is_not_run(make):
    script = TWO_ACTIONS | {"[[7": [("]]", "completed"), ("]]", "aborted"), ("]", "aborted")]}
    made = make(script, with_outputs=True)
    (visit,) = made.visit((problem(), 3))
    assert visit.labels[1] == [1.0, None, None]
    assert visit.rollouts[1][1] == Rollout("7]]", None, ("infrastructure_error",))
    assert source("[[7]") not in made.executor.programs


# ------------------------------ the sandbox ------------------------------


def test_programs_run_while_other_actions_are_rolled_out(make):
    made = make(TWO_ACTIONS)
    places = []

    def wait(place: int) -> None:
        places.append((place, made.executor.has_run.wait(timeout=60)))

    made.engine.after_each = wait
    made.visit((problem(), 3))
    assert places == [(1, True), (0, True)]  # the first action's programs had run before the second one was there


def test_an_error_of_the_executor_ends_the_visit(make):
    def breaks(program: str, _: int) -> bool:
        raise SandboxUnavailableError("gone")

    with pytest.raises(SandboxUnavailableError, match="gone"):
        make(TWO_ACTIONS, breaks=breaks).visit((problem(), 3))


def test_a_program_that_met_an_infrastructure_error_is_run_once_more(make):
    seven = source("[[7]]")
    once = make(TWO_ACTIONS, breaks=lambda program, calls: program == seven and calls == 1)
    (visit,) = once.visit((problem(), 3))
    assert visit.labels == [[0.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
    assert once.executor.programs.count(seven) == 2
    assert [seven] in once.executor.calls

    always = make(TWO_ACTIONS, breaks=lambda program, _: program == seven)
    (visit,) = always.visit((problem(), 3))
    assert visit.labels == [[0.0, 0.0, 0.0], [None, 0.0, None]]
    assert visit.rollouts[1][0].statuses == ("ok", "infrastructure_error")
    assert always.executor.programs.count(seven) == 2


def test_outputs_are_kept_where_they_are_wanted(make):
    script = {"[[": stop("8", "7", "8", "7"), "[[7": stop("]]", "]", "]]"), "[[8": stop("]]", "]]", "]]")}
    (visit,) = make(script, with_outputs=True).visit((problem(answer=6), 3))
    seven = ((7,),)
    assert visit.rollouts[0][0].outputs == (((8,),),)
    assert [one.outputs for one in visit.rollouts[1]] == [(seven, seven), (None,), (seven, seven)]
    (visit,) = make(script).visit((problem(answer=6), 3))
    assert all(one.outputs is None for action in visit.rollouts for one in action)


def test_answers_without_any_that_can_be_judged_run_nothing(make):
    made = make({})
    lost = Answer(problem(), tuple(ids(GOLDEN)), (token("x"),), is_whole=False)
    assert made.judge.session()([lost]) == [Rollout("x", None, ("infrastructure_error",))]
    assert not any(made.executor.calls)
    assert made.judge.session()([]) == []


# ------------------------------ free rollouts ------------------------------


def test_pass_rates_are_the_labels_of_rollouts_from_the_state_alone(make):
    made = make({"[[": [*stop("7]]", "8]]"), ("7]]", "aborted")], "[[7": stop("]]\n```", "]", "]]")})
    labels = made.visitor.pass_rates(
        [RedactedState("a", 3), RedactedState("b", 2)], {"a": problem("a"), "b": problem("b", answer=6)}, 3
    )
    assert labels == [[1.0, 0.0, None], [0.0, 0.0, 0.0]]
    assert made.engine.requests == [
        Continuations([*ids("prompt of a:"), *ids(GOLDEN)[:-3]], 3, MAX_NEW_TOKENS, 0, (FENCE,)),
        Continuations([*ids("prompt of b:"), *ids(GOLDEN)[:-2]], 3, MAX_NEW_TOKENS, 1, (FENCE,)),
    ]


# ------------------------------ what a reward needs ------------------------------

# Each cell grows by one: two examples, a test pair, and pairs that a generator made.
GROWS = [Pair(((n,),), ((n + 1,),)) for n in range(8)]
COPIED = '\n    - Seen.\n    """\n    return {"[[0]]": [[1]], "[[1]]": [[2]]}.get(str(input_grid), input_grid)'
COPIED_WITH_TEST = COPIED.replace("}.get", ', "[[2]]": [[3]]}.get')
RULE = '\n    - Grows.\n    """\n    return [[cell + 1 for cell in row] for row in input_grid]'


def rewards(made: Made, settings: RewardSettings) -> list[float | None]:
    """Rewards of a program with a table of the examples, of one that also has the test pair, and of the rule."""
    task = Problem("a", (1,), tuple(ids(GOLDEN)), tuple(GROWS[:2]), (GROWS[2],))
    (task,) = hold_out([task], settings)
    answers = [Answer(task, (), tuple(ids(text)), True) for text in (COPIED, COPIED_WITH_TEST, RULE)]
    return [rollout.reward for rollout in made.judge.session()(answers)]


def test_a_table_of_the_examples_earns_nothing(make, tmp_path):
    made = make({})
    assert rewards(made, GoldenSettings().reward) == [0.0, 1.0, 1.0]
    # What the prompt shows is not evidence of a rule.
    assert rewards(made, RewardSettings(test_pairs=False)) == [1.0, 1.0, 1.0]
    fresh = tmp_path / "fresh.jsonl"
    grids = [{"input": pair.input, "output": pair.output} for pair in GROWS[3:]]
    fresh.write_text(json.dumps({"id": "a", "pairs": grids}) + "\n")
    assert rewards(made, RewardSettings(fresh_pairs=str(fresh), num_fresh=1)) == [0.0, 0.0, 1.0]
    assert rewards(made, RewardSettings(test_pairs=False, fresh_pairs=str(fresh))) == [0.0, 0.0, 1.0]


def test_what_is_copied_is_counted(make):
    task = Problem("a", (1,), tuple(ids(GOLDEN)), tuple(GROWS[:2]), (GROWS[2],))
    (task,) = hold_out([task], RewardSettings())
    made = make({})
    visit = StateVisit("a", 1, (1,), 1, (1,), 0)
    wrong = '\n    - Wrong.\n    """\n    return [[9]]'
    visit.rollouts = (
        tuple(made.judge.session()([Answer(task, (), tuple(ids(t)), True) for t in (COPIED, RULE, wrong)])),
    )
    assert [len(rollout.statuses) for rollout in visit.rollouts[0]] == [3, 3, 1]
    assert copying_metrics([visit], {"a": 2}) == {"golden/rollouts/examples_only": pytest.approx(1 / 3)}
