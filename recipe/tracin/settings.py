"""The settings of TracIn: read from the configuration once, checked once, before Ray starts. Pure: needs no verl."""

import re
from typing import Literal

from omegaconf import DictConfig
from pydantic import Field, model_validator

from recipe.tracin.method.selection import PER_SAMPLE_RULES, SelectionSettings
from recipe.tracin.method.validation import ValidationSettings
from verl_ext.core.settings import Settings, read_node
from verl_ext.core.settings_file import SettingsFile

LORA = "lora"
Preconditioner = Literal["adam", "none"]


class TracInSettings(Settings):
    """Settings of TracIn in any recipe."""

    enable: bool = False
    """true: every sample of a step is scored by <its gradient, the validation gradient>, and the update sees only the
    selected ones."""

    part: str = Field(default="recipe.tracin.selector.TracInSelector", min_length=1)
    """Class that joins the trainer if enable is true; set your own to extend it."""

    parameters: str = Field(default=LORA, min_length=1)
    """Whose gradients are compared. lora: the LoRA factors; anything else: a regular expression searched in the names
    of linear modules, such as `layers\\.(20|21)\\..*down_proj`."""

    preconditioner: Preconditioner = "adam"
    """The vector that a sample's gradient is multiplied with. adam: AdamW's direction for the validation gradient, by
    the second moments of the optimizer's state; the same as none before the first update. none: the validation
    gradient, as for plain gradient descent."""

    one_pass: bool = False
    """true: no second forward and backward, a sample's gradient joins the update as soon as its score is known. For
    rule=positive or none, unit=rollout, min_keep=0, baseline=before, divisibility=pad, and one epoch per step. With
    several mini-batches per step, each is scored with the weights that it updates."""

    selection: SelectionSettings = SelectionSettings()

    validation: ValidationSettings = ValidationSettings()

    validation_files: str | tuple[str, ...] | None = None
    """Parquet files of the validation prompts; not the evaluation prompts, or the evaluation is no longer blind."""

    check_identity_every: int = Field(default=10, ge=0)
    """Steps between two checks that all scores add up to <the batch's gradient, the validation gradient>
    (metric tracin/identity_error), which cost one more product per layer; 0: never."""

    record_scores: bool = True
    """Write each sample's score and weight to the run folder."""

    record_texts: int = Field(default=4, ge=0)
    """Number of samples per step whose texts are written for each of: the highest scores, the lowest scores, and the
    largest disagreements of score and reward (highest scores of the lowest reward, and vice versa). 0: none."""

    @model_validator(mode="after")
    def _agree(self) -> "TracInSettings":
        if self.enable and self.validation.strategy != "in_batch" and not self.validation_files:
            raise ValueError(
                f"validation.strategy={self.validation.strategy} rolls out validation prompts, but validation_files is "
                "not set: name parquet files of prompts that are not trained on, or use validation.strategy=in_batch"
            )
        try:
            re.compile(self.parameters)
        except re.error as error:
            raise ValueError(
                f"parameters must be {LORA} or a regular expression, got {self.parameters!r}, which is none: {error}"
            ) from None
        if self.one_pass and (problems := self._against_one_pass()):
            raise ValueError("; ".join(problems))
        return self

    def _against_one_pass(self) -> list[str]:
        """Settings that need all scores of a batch before the first decision."""
        problems, selection = [], self.selection
        if selection.rule not in PER_SAMPLE_RULES:
            problems.append(
                f"one_pass decides on each sample by its own score, but selection.rule={selection.rule} needs those of "
                f"the whole batch first: use {' or '.join(PER_SAMPLE_RULES)}, or one_pass=false"
            )
        for name, value, needed, why in (
            ("selection.unit", selection.unit, "rollout", "a prompt's score is known only with its last rollout"),
            ("selection.min_keep", selection.min_keep, 0, "added samples are known only at the end"),
            ("selection.baseline", selection.baseline, "before", "the survivors' mean is known only at the end"),
            ("selection.divisibility", selection.divisibility, "pad", "no row can be removed while it is scored"),
        ):
            if value != needed:
                problems.append(f"one_pass needs {name}={needed}, got {value}: {why}; or set one_pass=false")
        if self.validation.strategy == "in_batch":
            problems.append(
                "one_pass needs the validation gradient before the batch's own, but validation.strategy=in_batch takes "
                "it from that batch: choose another strategy, or one_pass=false"
            )
        return problems


FILE = SettingsFile(
    "signal/tracin.yaml",
    "tracin",
    TracInSettings,
    "TracIn in any recipe: `- signal/tracin@tracin` in its defaults, or `+signal=tracin tracin.enable=true`.",
)


def read_settings(config: DictConfig) -> TracInSettings:
    """Read and check `config.tracin`; without that node TracIn is off.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    return read_node(config, "tracin", TracInSettings, f"configs/{FILE.path}")


def share_text(share: float) -> str:
    """A sentence about the share of the trained weights that scores cover."""
    if share == 1:
        return "scores cover all trained parameters"
    return f"scores cover {share:.1%} of the trained parameters, without the others (embeddings, modules_to_save)"
