"""Chooses the rollouts of a step whose texts are kept, and limits their length. Pure."""

import random
from collections.abc import Mapping, Sequence

from omegaconf import DictConfig
from pydantic import Field

from verl_ext.core.settings import Settings, read_node
from verl_ext.core.settings_file import SettingsFile

ROLLOUTS = "rollouts.jsonl"

_PROMPT_SHARE = 0.25  # share of a rollout's room
_END_SHARE = 0.4  # share of a truncated text: the answer is at the end of a response


class RolloutTexts(Settings):
    """Node `rollout_texts`."""

    prompts_per_step: int = Field(default=2, ge=0)
    """Number of random prompts per step whose best and worst rollout are written to rollouts.jsonl; 0: none.
    Golden redaction records all of its rollouts instead (golden.records)."""

    max_kb_per_step: float = Field(default=20.0, gt=0)
    """Maximum characters of all texts of a step; longer ones are truncated in the middle."""


class RecordSettings(Settings):
    """All nodes of the file."""

    rollout_texts: RolloutTexts = RolloutTexts()


FILE = SettingsFile("signal/records.yaml", "_global_", RecordSettings, "The rollout texts that every run keeps.")


def read_rollout_texts(config: DictConfig) -> RolloutTexts:
    """The node of a run's configuration.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    return read_node(config, "rollout_texts", RolloutTexts, f"configs/{FILE.path}")


def draw_prompts(groups: Mapping[str, Sequence[str]], number: int, step: int) -> list[str]:
    """Random prompts of a step, different for each step but the same when a step is repeated.

    Args:
        groups: Prompt -> its rollouts.
        number: How many; all if there are fewer.
        step: Seeds the draw.
    """
    names = list(groups)
    return random.Random(step).sample(names, min(number, len(names)))


def best_and_worst(rewards: Sequence[float]) -> list[int]:
    """Positions of the highest and the lowest reward; one position if all are the same."""
    places = range(len(rewards))
    best, worst = max(places, key=rewards.__getitem__), min(places, key=rewards.__getitem__)
    return [best] if rewards[best] == rewards[worst] else [best, worst]


def fit(prompt: str, response: str, room: int) -> tuple[str, str]:
    """Both texts in at most `room` characters, not counting the marks of omissions.

    The prompt gets a quarter of the room, or more if the response leaves it.
    """
    for_prompt = max(int(_PROMPT_SHARE * room), room - len(response))
    kept = cut(prompt, for_prompt)
    return kept, cut(response, max(0, room - min(len(prompt), for_prompt)))


def cut(text: str, room: int) -> str:
    """The beginning and the end of a text that has more than `room` characters."""
    if len(text) <= room:
        return text
    end = int(_END_SHARE * room)
    left_out = f" […{len(text) - room:,} characters…] "
    return text[: room - end] + left_out + text[len(text) - end :]
