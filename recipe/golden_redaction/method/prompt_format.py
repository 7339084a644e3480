"""Checks that data, model and run use the same prompt format. Pure except for reading a file.

A run makes its own prompts. But people look at the prompts of the data file, and a small model knows only the grid
format it was trained on: with another format its pass rates would silently be 0.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verl_ext.arc.prompt_options import describe, options
from verl_ext.arc.prompts import PromptSettings, user_message
from verl_ext.core.errors import ConfigError
from verl_ext.data.arc_tasks import Task

FORMS = tuple(PromptSettings(grid=grid, test_inputs=shown) for grid in ("compact", "spaced") for shown in (False, True))
# Models made before this was configurable have no record of it.
FIRST_FORM = PromptSettings(grid="spaced")


def check_prompt(task: Task, row: Mapping[str, Any], settings: PromptSettings) -> None:
    """Check that a data file's prompt of a task equals the one that the run makes.

    Raises:
        ConfigError: It is not.
    """
    text = row["prompt"][-1]["content"]
    if text == user_message(task, settings):
        return
    own = [form for form in FORMS if text == user_message(task, form)]
    given = f"with {describe(own[0])}" if own else "by another version of data_preprocess.arc, or it was changed since"
    remedy = f", or set golden.prompt (of an evaluation: {options(own[0])}) as in the file" if own else ""
    raise ConfigError(
        f"the prompt of task {task.id} was made {given}, and this run makes prompts with {describe(settings)}: run "
        f"data_preprocess.arc again with {options(settings)}{remedy}"
    )


def check_model(folder: Path, settings: PromptSettings) -> None:
    """Check that a model of data_preprocess.arc_model was trained on such prompts; other models accept any.

    Raises:
        ConfigError: Its folder says that it was trained on other prompts.
    """
    try:
        record = json.loads((folder / "settings.json").read_text(encoding="utf-8"))["settings"]
        if "tasks" not in record:  # written by another program
            return
        trained = PromptSettings(**record["prompt"]) if "prompt" in record else FIRST_FORM
    except (OSError, ValueError, KeyError, TypeError):
        return
    if trained != settings:
        raise ConfigError(
            f"{folder} was trained on prompts with {describe(trained)}, and this run makes them with "
            f"{describe(settings)}: set golden.prompt (of an evaluation: {options(trained)}) as the model needs it, or "
            f"train it again (data_preprocess.arc_model {options(settings)})"
        )
