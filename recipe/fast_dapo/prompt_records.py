"""History and text of each prompt: `prompts.jsonl` and `prompt_texts.jsonl`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recipe.fast_dapo.run_files import PROMPT_TEXTS, PROMPTS
from verl_ext.core.json_lines import JsonLines

# Pages show no more; the full text is in the data.
MAX_CHARACTERS = 4000
MAX_TRUTH = 500


class PromptRecords:
    """Writes both files; their lengths are saved in checkpoints.

    Args:
        folder: Folder of the run.
        enable: false: nothing is written.
    """

    def __init__(self, folder: Path, enable: bool) -> None:
        self.events = JsonLines(folder / PROMPTS)
        self.texts = JsonLines(folder / PROMPT_TEXTS)
        self._enable = enable
        self._known: set[str] = set()

    def add_events(self, step: int, events: Iterable[Mapping[str, Any]]) -> None:
        """Append to the prompt history, which reports and tests read."""
        if self._enable:
            self.events.append({"step": step, **event} for event in events)

    def add_prompts(self, rows: Mapping[str, Sequence[Any]]) -> None:
        """Write the texts of prompts that occur for the first time.

        Args:
            rows: `index`, and if the data set has them, `raw_prompt`, `reward_model`, `data_source`.
        """
        if not self._enable:
            return
        names = ("raw_prompt", "reward_model", "data_source")
        columns = {name: list(rows[name]) for name in names if name in rows.keys()}  # noqa: SIM118 - a TensorDict
        new = []
        for place, index in enumerate(list(rows["index"])):
            if str(index) in self._known:
                continue
            self._known.add(str(index))
            prompt, reward_model, source = (columns[name][place] if name in columns else None for name in names)
            new.append(
                {
                    "index": index if isinstance(index, str) else int(index),
                    "prompt": text_of(prompt)[:MAX_CHARACTERS],
                    "ground_truth": _truth(reward_model),
                    "data_source": source,
                }
            )
        if new:
            self.texts.append(new)

    def state_dict(self) -> dict[str, Any]:
        return {"events": self.events.num_bytes, "texts": self.texts.num_bytes}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.events.cut_back_to(state["events"])
        self.texts.cut_back_to(state["texts"])
        self._known = {str(record["index"]) for record in self.texts.read()}


def text_of(prompt: Any) -> str:
    """A prompt's messages as text: the system message, then the user's."""
    if isinstance(prompt, str):
        return prompt
    contents = [message.get("content") for message in prompt or () if isinstance(message, Mapping)]
    return "\n\n".join(content if isinstance(content, str) else _parts(content) for content in contents)


def _parts(content: Any) -> str:
    """The text of a message; of one with images, its text parts."""
    return " ".join(str(part.get("text", "[…]")) for part in content or () if isinstance(part, Mapping))


def _truth(reward_model: Any) -> str | None:
    truth = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None
    return None if truth is None else str(truth)[:MAX_TRUTH]
