"""Texts of tokens, and where a golden solution lies in a state's token ids."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_ext.arc.prompts import CODE_PREFIX, encode_golden
from verl_ext.arc.solutions import GoldenError, read_solution
from verl_ext.core.errors import ConfigError

_SOLUTION_STARTS_BEHIND = CODE_PREFIX.rpartition("\n")[2].strip()


def load_tokenizer(name: str) -> Any:
    """A Hugging Face tokenizer.

    Raises:
        ConfigError: There is no tokenizer of that name.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"no tokenizer can be loaded from {name!r} ({reason}): give a model's folder or hub name"
        ) from None


def token_texts(ids: Iterable[int], tokenizer: Any) -> dict[int, str]:
    """The text of each token as in the middle of a text: some tokenizers drop a leading space.

    A token that is part of a character becomes a replacement character; an unknown id becomes `<id>`.
    """
    before = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    start = _decode(before, tokenizer)
    texts = {}
    for token in ids:
        try:
            text = _decode([*before, token], tokenizer)
        except (IndexError, KeyError, OverflowError, TypeError):
            text = ""
        own = text.removeprefix(start)
        texts[token] = own if own and text.startswith(start) else f"<{token}>"
    return texts


def _decode(ids: list[int], tokenizer: Any) -> str:
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


@dataclass(frozen=True)
class Solution:
    """The golden solution's place in a problem's states.

    Attributes:
        start: Position of its first token in the ids of a state that does not say so itself.
        ids: Its tokens; None for one that is in no state and no file.
        is_complete: Whether its text was found in verl_ext/arc/golden/ and agrees with the states.
    """

    start: int
    ids: list[int | None]
    is_complete: bool

    def start_in(self, entry: Mapping[str, Any]) -> int:
        """Position of its first token in the ids of an entry's state."""
        return _own_start(entry, self.start)

    def fits(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry's state is a part of a prompt and this solution: golden files change between runs."""
        if _length(entry, self.start) != len(self.ids):
            return False
        known = [*entry["prompt_ids"][self.start_in(entry) :], entry["teacher"]]
        return all(own is None or own == other for own, other in zip(self.ids, known, strict=False))


def find_solution(entries: Sequence[Mapping[str, Any]], tokenizer: Any, texts: Mapping[int, str]) -> Solution:
    """The golden solution of a problem, from its file if that agrees with the newest entry, else from its states.

    Args:
        entries: Entries of one problem, oldest first, at least one.
        tokenizer: Tokenizer of the policy, or None.
        texts: Texts of the tokens; empty without a tokenizer.
    """
    newest = entries[-1]
    total = len(newest["prompt_ids"]) + newest["k"]
    golden = _golden_ids(newest["problem"], tokenizer)
    if golden is not None and len(golden) <= total:
        solution = Solution(total - len(golden), list(golden), True)
        if len(newest["prompt_ids"]) >= solution.start and solution.fits(newest):
            return solution
    start = newest.get("golden_start")
    if start is None:
        same = [entry for entry in entries if len(entry["prompt_ids"]) + entry["k"] == total]
        start = _start(max(same, key=lambda entry: len(entry["prompt_ids"]))["prompt_ids"], texts)
        # Without texts we only know that the tokens hidden in some state belong to the solution.
        start = min(len(entry["prompt_ids"]) for entry in same) if start is None else start
    ids: list[int | None] = [None] * (total - start)
    for entry in reversed(entries):
        if _length(entry, start) == len(ids):
            shown = [*entry["prompt_ids"][_own_start(entry, start) :], entry["teacher"]]
            ids[: len(shown)] = [own if own is not None else other for own, other in zip(ids, shown, strict=False)]
    return Solution(start, ids, False)


def _own_start(entry: Mapping[str, Any], otherwise: int) -> int:
    found = entry.get("golden_start")
    return otherwise if found is None else found


def _length(entry: Mapping[str, Any], start: int) -> int:
    """Tokens of the solution of which an entry's state shows a part."""
    return len(entry["prompt_ids"]) - _own_start(entry, start) + entry["k"]


def _golden_ids(problem: str, tokenizer: Any) -> list[int] | None:
    # A problem's name comes from a file and becomes a path.
    if tokenizer is None or not problem.isalnum():
        return None
    try:
        return encode_golden(read_solution(problem), tokenizer)
    except (GoldenError, ValueError):
        return None


def _start(ids: Sequence[int], texts: Mapping[int, str]) -> int | None:
    """After the last `Observations:`, which ends the prompt."""
    for place in range(len(ids), 0, -1) if texts else ():
        # At least one character per token, so there are no more tokens than characters.
        tail = "".join(texts.get(token, "") for token in ids[max(0, place - len(_SOLUTION_STARTS_BEHIND)) : place])
        if tail.endswith(_SOLUTION_STARTS_BEHIND):
            return place
    return None
