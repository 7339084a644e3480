"""Finds the questions of a test set that a training question repeats, verbatim or reworded. Pure functions.

*Same text*: equal `math_text.same_text_key`.

*Reworded*: the same numbers, and at least 60 % of the test question's 5-grams. Sentences that only prescribe the form
of the answer are removed first ("… in the form m/n, what is m+n?", which DAPO and AMC23 word each in their own way), as
are figures and LaTeX markup. The numbers distinguish the many problems of MATH that differ in nothing else; a question
without any number is compared only by its 5-grams. Word n-grams are the common measure of contamination (GPT-3,
arXiv:2005.14165, appendix C); length and threshold were set by reading all pairs of
DAPO-Math-17k with AMC23 and MATH-500: between 50 % and 80 % the counts hardly change.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from data_preprocess.math.text import INVISIBLE, same_text_key, unify

NGRAM = 5
MIN_SHARE = 0.6

_FIGURE = re.compile(r"\[asy\].*?\[/asy\]", re.S)
_SENTENCE_END = re.compile(r"(?<=[.?!])(?=\s|the )")  # DAPO appends its own sentence: "…$PM$.The answer is …"
_ANSWER_FORM = re.compile(
    r"answer|relatively prime|in the form|gcd\(m|"
    r"(?:value|compute|find|what is|provide|give)[^.?]{0,20}\b[a-z]\s*(?:\^2)?\s*\+\s*[a-z]\b"
)
_MARKUP = re.compile(r"\\(?:text|operatorname|mathrm|begin|end)(?![a-z])|\\?[{}]")
_TOKEN = re.compile(r"\\?[a-z]+|\d+|[^\s\w,.]")


@dataclass(frozen=True)
class Fingerprint:
    """The features that questions are compared by.

    Attributes:
        key: `same_text_key`.
        grams: The 5-grams of its words, without the parts listed in the module's docstring.
        numbers: Its numbers, as text.
    """

    key: str
    grams: frozenset[tuple[str, ...]]
    numbers: frozenset[str]


def fingerprint(question: str) -> Fingerprint:
    """The fingerprint of a question without instructions."""
    first, *others = _SENTENCE_END.split(_FIGURE.sub(" ", unify(question)))
    text = " ".join([first, *(sentence for sentence in others if not _ANSWER_FORM.search(sentence))])
    words = _TOKEN.findall(_MARKUP.sub(" ", INVISIBLE.sub(" ", text)))
    grams = frozenset(tuple(words[i : i + NGRAM]) for i in range(max(1, len(words) - NGRAM + 1)))
    return Fingerprint(same_text_key(question), grams, frozenset(word for word in words if word.isdigit()))


@dataclass(frozen=True)
class Hits:
    """Indices of the test questions, from 0, that one question repeats; `reworded` excludes those in `same_text`."""

    same_text: frozenset[int]
    reworded: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.same_text or self.reworded)


class OverlapIndex:
    """Looks up questions in a test set, in time that hardly grows with the test set."""

    def __init__(self, questions: Iterable[str]) -> None:
        self._tests = [fingerprint(question) for question in questions]
        self._by_key: dict[str, set[int]] = {}
        self._by_gram: dict[tuple[str, ...], list[int]] = {}
        for number, test in enumerate(self._tests):
            self._by_key.setdefault(test.key, set()).add(number)
            for gram in test.grams:
                self._by_gram.setdefault(gram, []).append(number)

    def __len__(self) -> int:
        return len(self._tests)

    def find(self, question: Fingerprint) -> Hits:
        """The test questions that `question` repeats."""
        same = frozenset(self._by_key.get(question.key, ()))
        shared = Counter(number for gram in question.grams for number in self._by_gram.get(gram, ()))
        reworded = {
            number
            for number, count in shared.items()
            if count >= MIN_SHARE * len(self._tests[number].grams) and question.numbers == self._tests[number].numbers
        }
        return Hits(same, frozenset(reworded) - same)
