"""README files and docs are in plain English: none of the turns of phrase below is in them.

Code, formulas and quoted output are exempt.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from each import check_each

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "docs/**/*.ipynb",
        "recipe/**/*.md",
        "verl_ext/**/*.md",
        "data_preprocess/**/*.md",
        "tests/**/*.md",
    )
    for path in ROOT.glob(pattern)
)


class Turn(NamedTuple):
    """A turn of phrase to avoid.

    Attributes:
        pattern: A regular expression, searched in the prose without regard to line breaks.
        instead: What to write.
        example: A sentence that has it.
    """

    pattern: str
    instead: str
    example: str


_COUNTED = (
    r"(?:\d|(?<!\w)(?:[kMG]?B|ms|[nµ]?s|seconds?|minutes?|hours?|rollouts?|calls?|objects?|rows?|answers?|programs?|tokens?|updates?"
    r"|numbers?|points?|rounds?|times?|generation|samples?|prompts?|steps?|states?|processes))"
)
_UNIT = (
    r"(?:step|rollout|prompt|token|batch|call|update|state|action|second|minute|hour|day|program|sample|row|task|seed|pair"
    r"|node|device|(?:trained|screened) prompt)"
)
TURNS = (
    Turn(
        rf"{_COUNTED} an? {_UNIT}\b(?! is\b| was\b)",
        "'per': seconds per step",
        "It takes 3 seconds a step and 40 rollouts a trained prompt.",
    ),
    Turn(
        r"\b(?:is|are|was|were) to (?:be|come|do|get|go|have|keep|make|move|see|stay)\b",
        "the target, 'must' or 'should'",
        "A preferred token is to go to log p / 2.",
    ),
    Turn(r"\btoo ?(?=[.,;:)|]|$)", "'also' before the verb, or 'as well'", "Its batch was tuned, too."),
    Turn(
        r"\b(?:an?|the) (?:[\w-]+ ){1,3}of (?:your|its|their|our|one's|ones) own\b|\bof (?:yours|ours|mine)\b",
        "'your own reward'",
        "Write a reward of your own.",
    ),
    Turn(
        r"\bsome (?:\d|ten\b|twenty\b|thirty\b|forty\b|fifty\b|a hundred\b)",
        "'about'",
        "Files have some 300 lines.",
    ),
    Turn(
        r"\bholds? (?:\w+ ){1,3}for (?:dead|lost|damaged)\b",
        "'declares … dead'",
        "Ray holds a node for dead after 15 seconds.",
    ),
    Turn(r"\balone ?(?=[.,;:)|]|$)", "'only' before the noun", "It looks at the examples alone."),
    Turn(r"\b(?:[Ee]very|[Aa]ny)body(?:'s)?\b", "who or what is meant: 'every method'", "Everybody's batch was tuned."),
    Turn(r"\bmend(?:s|ed|ing)?\b", "'fix'", "An error that a person can mend."),
    Turn(r"\banew\b", "'again'", "Its prompt is screened anew."),
    Turn(r"\bbeside\b", "'next to', 'in addition to' or 'outside'", "A step costs 2 s beside generation."),
    Turn(
        r"\bgo(?:es)? on\b|\b(?:is|are|was|were) going on\b",
        "'continues', 'resumes' or 'is running'",
        "What is in flight goes on under the next weights.",
    ),
    Turn(r"\bfor want of\b", "'for lack of'", "The session ends for want of turns."),
    Turn(
        r"\bleft behind\b|\bleaves? behind\b",
        "what it is: 'files of a run', 'remaining processes'",
        "It removes what a killed run left behind.",
    ),
    Turn(
        r"(?:^|  |[.:;,(|] ?)[Ww]hat (?:is|was|were|are) (?:bold|in flight|left|mixed|new|over|ready|stale|kept)\b",
        "a noun: 'the rollouts in flight'",
        "What is bold is the default.",
    ),
    Turn(
        r"\b[Ww]hat (?:a|an|the) [\w-]+ (?:has|makes of|knows)\b",
        "a noun: 'the content of a group'",
        "It prints what a group has.",
    ),
    Turn(r"\b[Ww]hat (?:it|they) makes? of\b", "'how it interprets'", "The run says what it makes of three options."),
    Turn(r"\bknown of (?:an?|the|each|every)\b", "'known about'", "What is known of a prompt that was never seen."),
    Turn(
        r"(?<!\bare )(?<!\bis )(?<!\bnot )\ball the same ?(?=[.,;:)|]|$)", "'still'", "The run has ended all the same."
    ),
    Turn(r"\bnow and then\b", "'occasionally'", "It keeps a copy of the weights now and then."),
    Turn(
        r"(?<!\bthere )\b(?:is|are) no \w+ to \w+ (?:by|with|from)\b",
        "'is not a useful …'",
        "The difference is no direction to select by.",
    ),
    Turn(r"\btells? (?:all|nothing|little|much)\b", "'is informative'", "Features that tell nothing cost nothing."),
)

_NOT_PROSE = re.compile(
    r"^( *)(?P<fence>```+|~~~+).*?^\1(?P=fence)\s*$"  # blocks of code
    r"|(?:^ {4}\S[^\n]*\n)+"  # and indented ones
    r"|\$\$.+?\$\$"  # formulas
    r"|`[^`\n]*`"  # names and commands
    r"|\]\([^)]*\)"  # where links lead
    r"|(?<![*\w])\*(?:error|warning|interrupted): [^*]+\*",  # messages of the program
    re.MULTILINE | re.DOTALL,
)


def find(markdown: str) -> list[str]:
    """Every turn to avoid in a page: line, what it says there, and what to say instead."""
    prose = _NOT_PROSE.sub(lambda match: re.sub(r"[^\n]", "·", match[0]), markdown)
    joined = prose.replace("\n", " ")  # a turn may be broken over two lines; places stay
    found = [
        f"line {prose.count(chr(10), 0, match.start()) + 1}: {match[0].strip()!r}: write {turn.instead}"
        for turn in TURNS
        for match in re.finditer(turn.pattern, joined, re.IGNORECASE)
    ]
    return sorted(found)


def _text(page: Path) -> str:
    """The text of a page; of a notebook, without its code."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def test_the_pages_are_found():
    names = {path.relative_to(ROOT).as_posix() for path in PAGES}
    assert names >= {
        "README.md",
        "docs/benchmarks.md",
        "docs/benchmarks/tracin.md",
        "recipe/tracin/README.md",
        "docs/compatibility.md",
        "docs/tutorials/tracin.ipynb",
        "tests/gpu/kit/README.md",
    }


def test_no_page_has_a_turn_to_avoid():
    def check(page: Path) -> None:
        found = find(_text(page))
        assert not found, "\n" + "\n".join(f"    {page.relative_to(ROOT)}, {one}" for one in found)

    check_each(PAGES, check)


@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn.example)
def test_a_bad_sentence_is_found(turn: Turn):
    assert any(turn.instead in one for one in find(f"# Title\n\n{turn.example}\n"))
    assert any(turn.instead in one for one in find("Broken: " + turn.example.replace(" ", "\n")))
    assert find(f"```text\n{turn.example}\n```\n") == []


@pytest.mark.parametrize(
    "code",
    ["    x = 1\n    y = 2\n", "```python\nx = 1\n```\n", "$$\nx = 1\n$$\n", "::: recipe.tracin\n    options:\n"],
)
def test_a_bad_sentence_after_code_is_found(code: str):
    assert find(f"{code}\nIts batch was tuned, too.\n")
    assert find(f"{code}Its batch was tuned, too.\n")


@pytest.mark.parametrize(
    "turn", ["A reward function of your own.", "A class of your own.", "It follows a run that is going on."]
)
def test_its_other_forms_are_found(turn: str):
    assert find(turn)


@pytest.mark.parametrize(
    "sentence",
    [
        "It takes 3 seconds per step, too many for us.",
        "The text alone says little.",
        "Set `what is left`, and see *error: the worker died, too.*",
        "Each recipe has its own trainer, and a step is 0.3 s.",
    ],
)
def test_a_plain_sentence_is_not(sentence: str):
    assert find(sentence) == []
