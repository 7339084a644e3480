"""A user's tool, and a task that cannot be solved without it, in a module found only through PYTHONPATH.

A prompt is a key of two letters, the answer a digit that only the tool knows. Some keys refer to another key and take
two calls.
"""

import hashlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import ToolResponse

LETTERS = "abcdefghijklmnop"
# Ends a prompt and the tool's answer in the chat template of `tool_model.py`; the model answers after the last one.
END_OF_MESSAGE = ">"


def entry(key: str) -> str:
    """The table's entry for a key: a digit, or the key of another entry that has one; "?" if it is not a key."""
    if len(key) != 2 or not set(key) <= set(LETTERS):
        return "?"
    digest = hashlib.sha256(key.encode()).digest()
    if not _refers(key):
        return str(digest[1] % 10)
    others = (LETTERS[first % 16] + LETTERS[second % 16] for first, second in pairwise(digest[2:]))
    return next(other for other in others if not _refers(other))


def _refers(key: str) -> bool:
    return hashlib.sha256(key.encode()).digest()[0] % 3 == 0


def solve(key: str) -> str:
    """The digit that a key leads to."""
    found = entry(key)
    return found if found.isdigit() else entry(found)


class LookUp(BaseTool):
    """Looks up a key; small_tools.yaml has its schema."""

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        return ToolResponse(text=entry(str(parameters.get("key")))), 0.0, {}


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Score what the model wrote after the tool's last answer: verl passes the whole session."""
    pred = solution_str.rpartition(END_OF_MESSAGE)[2].strip()
    score = float(pred == ground_truth)
    return {"score": score, "acc": score, "pred": pred}


def compute_graded(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Half of the grade for a session in which the tool answered, half for the right digit."""
    result = compute_score(data_source, solution_str, ground_truth)
    return result | {"score": (float(END_OF_MESSAGE in solution_str) + result["acc"]) / 2}
