"""The base model of golden redaction's CPU demo: mistakes at fixed sites, joined ids, few undecided tokens."""

import ast
import io
import json
import re
import shutil
import tokenize
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from each import check_each
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from data_preprocess import arc_model
from data_preprocess.arc_model import ArcModelSettings, answer_ids, answer_loss, main, train
from data_preprocess.demo_models import arc_model_report
from data_preprocess.demo_models.arc_lessons import (
    MIN_SITES,
    choose,
    closing_ids,
    make_lesson,
    read_lessons,
    train_tokenizer,
    tutorial_texts,
)
from data_preprocess.demo_models.arc_mistakes import find_sites, with_mistakes
from data_preprocess.demo_models.arc_model_report import golden_probs, pass_rate
from data_preprocess.demo_models.small_model import build_model
from verl_ext.arc.prompts import (
    ASSISTANT_PREFIX,
    CODE_PREFIX,
    PromptSettings,
    SizeLimits,
    decode_answer,
    encode_golden,
    encode_prompt,
    golden_text,
    program,
    user_message,
)
from verl_ext.arc.solutions import read_solution, solution_names
from verl_ext.data.arc_tasks import Pair, Task
from verl_ext.data.row_source import SourceError
from verl_ext.sandbox.policy import SandboxUnavailableError
from verl_ext.sandbox.pool import SandboxPool

ARC = Path(__file__).resolve().parents[4] / "shared" / "data" / "arc" / "arc-agi-1_training.json.gz"
NEEDS_ARC = pytest.mark.skipif(not ARC.is_file(), reason=f"needs {ARC.name}")
# Golden solutions of three levels; the pairs are made up, as a lesson does not run its solution.
NAMES = ("6150a2bd", "5582e5ca", "88a62173")
TINY = ArcModelSettings(
    steps=2, tasks_per_step=2, copies=2, vocab_size=600, hidden_size=32, num_layers=1, num_heads=1, intermediate_size=32
)

DOC = '    Observations:\n    - Max of 1 + 1.\n    Procedure:\n    1. min(0, 1).\n    """\n'


def solution(*lines: str) -> str:
    body = "".join(f"    {line}\n" for line in (*lines, "return result"))
    return f'def solve(input_grid):\n    """\n{DOC}{body}'


def mistakes(*lines: str) -> dict[str, tuple[str, ...]]:
    """The alternatives at each site, by the site's text and its place in the code: `text@place`."""
    source = solution(*lines)
    code = source.index(lines[0])
    return {f"{source[site.start : site.end]}@{site.start - code}": site.alternatives for site in find_sites(source)}


def made_up_task(name: str, colour: int) -> Task:
    grid = tuple(tuple((row + colour) % 10 for _ in range(2 + colour % 3)) for row in range(2))
    return Task(name, (Pair(grid, grid[::-1]),), (Pair(grid, grid),))


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(tutorial_texts(7), 600)


@pytest.fixture(scope="module")
def lessons(tokenizer):
    return [make_lesson(made_up_task(name, n), read_solution(name), tokenizer, 7) for n, name in enumerate(NAMES)]


def write_collection(path: Path, names: tuple[str, ...] = NAMES) -> Path:
    def raw(task: Task) -> dict:
        parts = {"train": task.train, "test": task.test}
        return {part: [{"input": p.input, "output": p.output} for p in pairs] for part, pairs in parts.items()}

    path.write_text(json.dumps({name: raw(made_up_task(name, n)) for n, name in enumerate(names)}))
    return path


# ------------------------------ mistakes ------------------------------


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["result = 3 < 0"], {"3@9": ("2", "4"), "<@11": ("<=", ">"), "0@13": ("1",)}),
        (["result = [-1]"], {"-@10": ("+",), "1@11": ("0", "2")}),
        (["result = min(f())"], {"min@9": ("max",)}),
        (["result = input_grid.append([])"], {"input_grid@9": ("result",), "append@20": ("extend",)}),
        (["result = f(*[])"], {}),
        (["for _ in *f(), ():", "    pass"], {}),
        (["result = 57 * f()"], {"*@12": ("+",)}),
        (["result = not True and f()"], {"and@18": ("or",)}),
        # A variable is replaced by its twin if the function has it, otherwise by the nearest other variable.
        (["height = width = f()", "result = g(height)"], {"height@36": ("width",)}),
        (["a = b = f()", "result = a"], {"a@25": ("result",)}),
        # Names that are bound stay, and so do Python's own names that the function has bound.
        (["for _ in f():", "    result = _"], {}),
        (["result = max = f()"], {}),
        # ast counts columns in bytes.
        (["result = f('ä') + input_grid"], {"+@16": ("-",), "input_grid@18": ("result",)}),
    ],
)
def test_each_kind_of_site_has_its_wrong_texts(lines, expected):
    assert mistakes(*lines) == expected


def test_the_docstring_and_the_return_are_no_sites():
    source = solution("result = input_grid")
    wrong = with_mistakes(source, np.random.default_rng(0), 1.0)
    assert wrong == source.replace("result = input_grid", "result = result")


def test_a_site_is_wrong_as_often_as_asked_and_independently_of_the_others():
    source, rng = solution("result = f(1) == 5"), np.random.default_rng(0)
    seen = Counter()
    for _ in range(4000):
        first, operator, second = with_mistakes(source, rng, 0.3).split("= f(")[1].split("\n")[0].split()
        seen.update({first[0]: 1, operator: 1, second: 1, ("both" if first[0] != "1" and second != "5" else ""): 1})
    shares = {text: count / 4000 for text, count in seen.items()}
    assert {"0", "2", "4", "6", "!="} < shares.keys()
    assert [shares[text] for text in ("1", "==", "5")] == pytest.approx([0.7] * 3, abs=0.03)
    assert [shares[text] for text in ("0", "2", "4", "6")] == pytest.approx([0.15] * 4, abs=0.03)
    assert shares["both"] == pytest.approx(0.09, abs=0.02)


@pytest.mark.parametrize("max_sites", [1, 2, 7])
def test_few_sites_are_spread_to_the_last_one(max_sites):
    source = read_solution("88a62173")
    every, some = find_sites(source), find_sites(source, max_sites)
    assert len(some) == max_sites < len(every)
    assert some[-1] == every[-1]
    places = [every.index(site) for site in some]
    assert places == sorted(set(places))
    if max_sites > 1:
        gaps = np.diff(places)
        assert places[0] == 0
        assert max(gaps) - min(gaps) <= 1


def layout(source: str) -> list[tuple[int, str]]:
    """The layout of the lines: how they are indented, and where logical lines end."""
    kinds = (tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [(token.start[0], tokenize.tok_name[token.type]) for token in tokens if token.type in kinds]


def test_every_golden_solution_with_mistakes_keeps_its_layout_and_is_python():
    def check(name: str) -> None:
        source = read_solution(name)
        assert with_mistakes(source, np.random.default_rng(0), 0.0) == source
        for rate in (0.35, 1.0):
            wrong = with_mistakes(source, np.random.default_rng(1), rate)
            assert wrong != source
            assert layout(wrong) == layout(source)
            tree, right = ast.parse(wrong), ast.parse(source)
            assert ast.get_docstring(tree.body[-1]) == ast.get_docstring(right.body[-1])  # pyright: ignore
            assert wrong.rstrip().endswith("return result")

    check_each(solution_names(), check)


@given(st.sampled_from(solution_names()), st.integers(0, 99), st.floats(0, 1), st.sampled_from([None, 1, 3, 7]))
@settings(max_examples=40, deadline=None)
def test_the_seed_fixes_the_mistakes_and_only_sites_change(name, seed, rate, max_sites):
    source = read_solution(name)
    sites = find_sites(source, max_sites)
    assert sites == find_sites(source, max_sites)
    wrong = with_mistakes(source, np.random.default_rng(seed), rate, max_sites)
    assert wrong == with_mistakes(source, np.random.default_rng(seed), rate, max_sites)
    pattern, done = "", 0
    for site in sites:
        texts = (source[site.start : site.end], *site.alternatives)
        assert len(set(texts)) == len(texts) in (2, 3)
        pattern += re.escape(source[done : site.start]) + f"({'|'.join(map(re.escape, texts))})"
        done = site.end
    assert re.fullmatch(pattern + re.escape(source[done:]), wrong)


# ------------------------------ ids ------------------------------


def test_every_golden_solution_and_its_wrong_copies_round_trip(tokenizer):
    def check(name: str) -> None:
        source = read_solution(name)
        for text in (source, with_mistakes(source, np.random.default_rng(0), 1.0)):
            ids = encode_golden(text, tokenizer)  # refuses a text that does not round-trip
            assert program(decode_answer([*ids, *closing_ids(tokenizer)], tokenizer)) == text
            assert tokenizer.unk_token_id not in ids

    check_each(solution_names(), check)


def test_the_prompt_is_plain_text_with_and_without_the_chat_template(lessons, tokenizer):
    bare = train_tokenizer(tutorial_texts(7), 600)
    bare.chat_template = None
    for lesson in lessons:
        assert tokenizer.decode(lesson.prompt_ids) == user_message(lesson.task) + ASSISTANT_PREFIX
        assert list(lesson.prompt_ids) == encode_prompt(lesson.task, bare)


def test_an_answer_is_a_copy_with_its_own_ids_then_the_fence_then_the_end(lessons, tokenizer):
    lesson = lessons[0]
    right = answer_ids(lesson, tokenizer, np.random.default_rng(0), 0.0)
    assert right == [*lesson.golden_ids, *closing_ids(tokenizer)]
    assert tokenizer.decode(right).endswith("    return result\n```<|endoftext|>")
    wrong = answer_ids(lesson, tokenizer, np.random.default_rng(0), 1.0)
    source = program(decode_answer(wrong, tokenizer))
    assert source == with_mistakes(lesson.source, np.random.default_rng(0), 1.0, 7) != lesson.source
    assert source.startswith(CODE_PREFIX)


def test_the_loss_is_that_of_the_joined_ids_with_the_prompt_unlabelled(lessons, tokenizer):
    """Oracle: the model's own loss, with prompt and answer as one sequence per row, padded on the right."""
    model, rng = build_model(TINY, tokenizer, max_position_embeddings=2048).train(), np.random.default_rng(0)
    prompt = list(lessons[0].prompt_ids)
    answers = [answer_ids(lesson, tokenizer, rng, 0.5) for lesson in lessons]  # of different lengths
    width = len(prompt) + max(map(len, answers))
    ids_BT = torch.full((len(answers), width), tokenizer.pad_token_id)
    labels_BT = torch.full((len(answers), width), -100)
    for row, answer in enumerate(answers):
        ids_BT[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        labels_BT[row, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)

    def loss_and_gradients(loss: torch.Tensor) -> list[torch.Tensor]:
        model.zero_grad()
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        return [loss.detach(), *(gradient.clone() for gradient in gradients if gradient is not None)]

    ours = loss_and_gradients(answer_loss(model, prompt, answers))
    theirs = loss_and_gradients(model(input_ids=ids_BT, labels=labels_BT).loss)
    assert len(ours) == len(theirs) == 1 + len(list(model.parameters()))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_probabilities_of_golden_tokens_are_those_of_the_states(lessons, tokenizer):
    """The state with the last k tokens hidden gives the probability of golden[-k]; then come the tokens that end it."""
    model, lesson = build_model(TINY, tokenizer, max_position_embeddings=2048).eval(), lessons[0]
    probs_T = golden_probs(model, lesson, tokenizer)
    assert probs_T.shape == (len(lesson.golden_ids) + len(closing_ids(tokenizer)),)
    for place, token in ((0, lesson.golden_ids[0]), (9, lesson.golden_ids[9]), (-1, tokenizer.eos_token_id)):
        answer = [*lesson.golden_ids, *closing_ids(tokenizer)]
        state = [*lesson.prompt_ids, *answer[: place % len(answer)]]
        with torch.no_grad():
            expected = model(input_ids=torch.tensor([state])).logits[0, -1].softmax(-1)[token]
        assert probs_T[place] == pytest.approx(expected.item(), rel=1e-4)


# ------------------------------ report ------------------------------


class Recited:
    """Stands in for a model: its answers are these texts, whatever the prompt."""

    def __init__(self, texts, tokenizer):
        answers = [[*tokenizer(text)["input_ids"], *closing_ids(tokenizer)] for text in texts]
        width = max(map(len, answers))
        self._answers = torch.tensor([ids + [tokenizer.pad_token_id] * (width - len(ids)) for ids in answers])

    def generate(self, ids_1T, *, num_return_sequences, **_):
        assert num_return_sequences == len(self._answers)
        return torch.cat([ids_1T.expand(num_return_sequences, -1), self._answers], dim=1)


def test_a_pass_rate_is_the_share_of_answers_that_solve_every_example(tokenizer):
    grids = (((1, 2), (3, 4)), ((0, 5), (6, 6)))
    task = Task("t", tuple(Pair(grid, grid[::-1]) for grid in grids), (Pair(grids[0], grids[0]),))
    lesson = make_lesson(task, solution("result = input_grid[::-1]"), tokenizer)
    shown = next(
        text
        for length in range(1, len(lesson.golden_ids))
        if (text := tokenizer.decode(lesson.golden_ids[:length])).endswith("    result =")
    )
    k = len(lesson.golden_ids) - len(encode_golden(CODE_PREFIX + shown, tokenizer))
    answers = [
        golden_text(solution(line))
        for line in ("result = input_grid[::-1]", "result = input_grid", "result = [", "result = [[3, 4], [1, 2]]")
    ]
    assert all(answer.startswith(shown) for answer in answers)
    try:
        pool = SandboxPool(workers=1)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    with pool:
        model = Recited([answer.removeprefix(shown) for answer in answers], tokenizer)
        assert pass_rate(model, lesson, tokenizer, pool, k=k, samples=4) == 0.25  # pyright: ignore
        model = Recited([answers[0].removeprefix(shown)], tokenizer)
        assert pass_rate(model, lesson, tokenizer, pool, k=k, samples=1) == 1.0  # pyright: ignore


def test_the_report_tells_undecided_tokens_from_sure_and_from_lost_ones(lessons, tokenizer, monkeypatch, capsys):
    probs = np.array([0.1, 0.29, 0.3, 0.5, 0.7, 0.9, 0.93, 1.0])
    monkeypatch.setattr(arc_model_report, "golden_probs", lambda *_: probs)
    arc_model_report.print_report(None, lessons[:1], tokenizer, 0)  # pyright: ignore
    *_, line = capsys.readouterr().out.splitlines()
    lengths = [str(len(lessons[0].prompt_ids)), str(len(lessons[0].golden_ids))]
    assert line.split() == [NAMES[0], *lengths, "4", "0.60", "2", "0.930"]


# ------------------------------ choice ------------------------------


def test_levels_take_turns_and_each_gives_its_smallest_task_first(tokenizer):
    names = ("6150a2bd", "c8f0f002", "d511f180", "5582e5ca", "88a62173", "a416b8f3")
    every = [make_lesson(made_up_task(name, 1), read_solution(name), tokenizer) for name in names]
    chosen = [lesson.task.id for lesson in choose(reversed(every), SizeLimits(), 5)]
    # a416b8f3 is the smallest of all, but has too few sites.
    assert len(every[-1].sites) < MIN_SITES
    assert chosen[:3] == [min(("6150a2bd", "c8f0f002", "d511f180"), key=sizes(every).__getitem__), *chosen[1:3]]
    assert chosen[1:3] == ["5582e5ca", "88a62173"]
    assert [name for name in chosen if name in names[:3]] == sorted(names[:3], key=sizes(every).__getitem__)


def sizes(lessons):
    return {lesson.task.id: lesson.num_tokens for lesson in lessons}


def test_what_is_over_a_limit_is_not_chosen_and_not_taken_by_name(lessons):
    limit = min(len(lesson.golden_ids) for lesson in lessons)
    short = [lesson.task.id for lesson in lessons if len(lesson.golden_ids) == limit]
    assert [lesson.task.id for lesson in choose(lessons, SizeLimits(max_golden_tokens=limit), 1)] == short
    with pytest.raises(SourceError, match=r"from 1 to 1 tasks .* got 2"):
        choose(lessons, SizeLimits(max_golden_tokens=limit), 2)
    with pytest.raises(SourceError, match=f"88a62173: more than {limit} golden tokens"):
        choose(lessons, SizeLimits(max_golden_tokens=limit), ["88a62173"])
    with pytest.raises(SourceError, match="00000000: no such task"):
        choose(lessons, SizeLimits(), ["00000000"])
    named = choose(lessons, SizeLimits(), ["88a62173", "6150a2bd", "88a62173"])
    assert [lesson.task.id for lesson in named] == ["88a62173", "6150a2bd"]


@NEEDS_ARC
def test_eight_tasks_are_chosen_of_the_real_file_within_the_limits():
    tokenizer = train_tokenizer(tutorial_texts(7), ArcModelSettings.vocab_size)
    limits = SizeLimits(max_prompt_tokens=900, max_golden_tokens=200)
    chosen = choose(read_lessons(ARC, tokenizer, 7), limits, 8)
    assert len({lesson.task.id for lesson in chosen}) == 8
    for lesson in chosen:
        assert 60 <= len(lesson.golden_ids) <= 200
        assert len(lesson.sites) in (6, 7)


# ------------------------------ training ------------------------------


def test_one_step_lowers_the_loss(lessons, tokenizer):
    rng = np.random.default_rng(5)
    answers = [answer_ids(lessons[0], tokenizer, rng, 0.3) for _ in range(4)]

    def loss(model) -> float:
        with torch.no_grad():
            return answer_loss(model, lessons[0].prompt_ids, answers).item()

    trained = train(lessons, tokenizer, replace(TINY, steps=1), report_every=0)
    assert loss(trained) < loss(build_model(TINY, tokenizer, max_position_embeddings=2048)) - 0.01


def test_equal_settings_give_equal_weights(lessons, tokenizer):
    first, second, other = (
        train(lessons, tokenizer, changed, report_every=0).state_dict()
        for changed in (TINY, TINY, replace(TINY, mistake_rate=1.0))
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arc")
    words = ["--input", str(write_collection(folder / "tasks.json")), "--local_save_dir", str(folder / "base")]
    words += ["--num_tasks", "2", "--steps", "1", "--samples", "0"]
    main(words)
    return folder / "base", words


def test_the_saved_model_is_as_wide_as_its_tokenizer_and_is_sampled_from_as_it_is(saved):
    folder, _ = saved
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert not model.config.tie_word_embeddings
    stored = json.loads((folder / "generation_config.json").read_text())
    assert stored["eos_token_id"] == tokenizer.eos_token_id == closing_ids(tokenizer)[-1]
    assert not {"temperature", "top_k", "top_p", "repetition_penalty"} & stored.keys()
    source = read_solution("6150a2bd")
    assert program(decode_answer(encode_golden(source, tokenizer), tokenizer)) == source


def test_a_second_call_does_not_train_and_says_what_was_learned(saved, monkeypatch, capsys):
    folder, words = saved
    monkeypatch.setattr(arc_model, "train", None)
    main(words)
    *_, tasks, path = capsys.readouterr().out.splitlines()
    assert tasks == "tasks: 6150a2bd,5582e5ca"
    assert path == str(folder.resolve())
    assert json.loads((folder / "settings.json").read_text())["settings"]["tasks"] == "6150a2bd,5582e5ca"


def test_other_tasks_or_another_seed_are_another_model(saved, monkeypatch):
    _, words = saved
    monkeypatch.setattr(arc_model, "train", lambda *_: pytest.fail("trained"))
    for change in (["--tasks", "88a62173"], ["--seed", "1"], ["--force"]):
        with pytest.raises(pytest.fail.Exception, match="trained"):
            main([*words, *change])


def test_a_model_of_another_prompt_is_noticed_and_trained_again(saved, capsys):
    folder, words = saved
    record = json.loads((folder / "settings.json").read_text())["settings"]
    assert record["prompt"] == {"grid": "compact", "test_inputs": False}
    other = folder.parent / "other"
    shutil.copytree(folder, other)
    main([*words, "--local_save_dir", str(other), "--grid_format", "spaced"])
    assert f"{other} has a model of other settings (prompt): it is replaced" in capsys.readouterr().out
    assert json.loads((other / "settings.json").read_text())["settings"]["prompt"]["grid"] == "spaced"
    main([*words, "--local_save_dir", str(other), "--grid_format", "spaced"])
    assert "is replaced" not in capsys.readouterr().out


def test_a_lesson_has_the_prompt_in_the_form_that_is_asked_for(tokenizer):
    task, form = made_up_task(NAMES[0], 1), PromptSettings(grid="spaced", test_inputs=True)
    lesson = make_lesson(task, read_solution(NAMES[0]), tokenizer, 7, form)
    assert list(lesson.prompt_ids) == encode_prompt(task, tokenizer, form) != encode_prompt(task, tokenizer)


def test_missing_tasks_are_refused_with_where_to_get_them(tmp_path):
    def fails(*words: str) -> str:
        with pytest.raises(SystemExit) as caught:
            main([*words, "--local_save_dir", str(tmp_path / "base")])
        return str(caught.value)

    gone = fails("--input", str(tmp_path / "none.json.gz"))
    for message in (gone, fails()):
        assert "github.com/fchollet/ARC-AGI" in message
        assert "--input FILE" in message
    assert "none.json.gz: no such file" in gone
    other = write_collection(tmp_path / "other.json", ("00000000",))
    assert "no task of it has a golden solution" in fails("--input", str(other))
    assert not (tmp_path / "base").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 8}, "head size"),
        ({"steps": 0}, "at least 1"),
        ({"vocab_size": 100}, "at least 300"),
        ({"mistake_rate": 1.1}, "must be a probability"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ArcModelSettings(**changes)
