"""That data, model and run agree on how a task is shown. Pure but for reading a file.

A run makes its prompts itself. But the prompts of the data file are what people look at, and a small model that was
trained on one form of the grids knows no other: in another form its pass rates would be 0 without an error.
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
# Models that were made before there was a choice have no record of it.
FIRST_FORM = PromptSettings(grid="spaced")


def check_prompt(task: Task, row: Mapping[str, Any], settings: PromptSettings) -> None:
    """The prompt that a data file has of a task must be the one that the run makes.

    Raises:
        ConfigError: It is not.
    """
    text = row["prompt"][-1]["content"]
    if text == user_message(task, settings):
        return
    own = [form for form in FORMS if text == user_message(task, form)]
    given = f"with {describe(own[0])}" if own else "by another version of data_preprocess.arc, or changed since"
    remedy = f", or set golden.prompt (of an evaluation: {options(own[0])}) as the file has it" if own else ""
    raise ConfigError(
        f"the prompt of task {task.id} was made {given}, and this run makes prompts with {describe(settings)}: run "
        f"data_preprocess.arc again with {options(settings)}{remedy}"
    )


def check_model(folder: Path, settings: PromptSettings) -> None:
    """A model of data_preprocess.arc_model must have been trained on such prompts; others take any.

    Raises:
        ConfigError: Its folder says that it was trained on others.
    """
    try:
        record = json.loads((folder / "settings.json").read_text(encoding="utf-8"))["settings"]
        if "tasks" not in record:  # another program's
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
