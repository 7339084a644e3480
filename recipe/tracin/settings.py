"""The settings of TracIn: read from the configuration once, checked once, before Ray starts. Pure: needs no verl."""

import re
from dataclasses import dataclass, field

from omegaconf import DictConfig

from recipe.tracin.selection import PER_SAMPLE_RULES, SelectionSettings
from recipe.tracin.validation import ValidationSettings
from verl_ext.errors import ConfigError
from verl_ext.settings_node import read_node

LORA = "lora"


@dataclass(frozen=True)
class TracInSettings:
    """Settings of TracIn in any recipe; raises ValueError on a contradiction.

    Attributes:
        enable: false: nothing is scored, and every sample is trained on.
        parameters: Whose gradients are compared: lora (the LoRA factors), or a regular expression that the full names
            of linear modules are searched with.
        one_pass: Decide on each micro-batch as soon as it is scored and keep the gradients of its selected samples as
            the update, without a second forward and backward. Needs a rule that looks at one sample at a time, and one
            update a step (`check_against_actor`).
        selection: See `selection.py`.
        validation: See `validation.py`.
        validation_files: Parquet files of the validation prompts, where the strategy needs any.
        check_identity_every: Steps between two checks that the scores of all samples add up to <their gradient, G>, one
            more product a layer each; 0: never.
        record_scores: Write each sample's score and weight to the run folder.
        record_texts: And the texts of so many samples with a step's highest scores, and as many with its lowest.
    """

    enable: bool = False
    parameters: str = LORA
    one_pass: bool = False
    selection: SelectionSettings = field(default_factory=SelectionSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    validation_files: str | tuple[str, ...] | None = None
    check_identity_every: int = 10
    record_scores: bool = True
    record_texts: int = 4

    def __post_init__(self) -> None:
        for name in ("enable", "one_pass", "record_scores"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} must be true or false, got {getattr(self, name)!r}")
        if type(self.check_identity_every) is not int or self.check_identity_every < 0:
            raise ValueError(f"check_identity_every must be an int >= 0, got {self.check_identity_every!r}: try 10")
        if type(self.record_texts) is not int or self.record_texts < 0:
            raise ValueError(f"record_texts must be an int >= 0, got {self.record_texts!r}: 0 keeps no text")
        if self.enable and self.validation.strategy != "in_batch" and not self.validation_files:
            raise ValueError(
                f"validation.strategy={self.validation.strategy} rolls out validation prompts, but validation_files is "
                "not set: name parquet files of prompts that are not trained on, or use validation.strategy=in_batch"
            )
        if not isinstance(self.parameters, str) or not self.parameters:
            raise ValueError(f"parameters must be {LORA} or a regular expression, got {self.parameters!r}")
        try:
            re.compile(self.parameters)
        except re.error as error:
            raise ValueError(
                f"parameters must be {LORA} or a regular expression, got {self.parameters!r}, which is none: {error}"
            ) from None
        if self.one_pass and (problems := self._against_one_pass()):
            raise ValueError("; ".join(problems))

    def _against_one_pass(self) -> list[str]:
        """What needs all scores of a batch before the first decision."""
        problems, selection = [], self.selection
        if selection.rule not in PER_SAMPLE_RULES:
            problems.append(
                f"one_pass decides on each sample by its own score, but selection.rule={selection.rule} needs those of "
                f"the whole batch first: use {' or '.join(PER_SAMPLE_RULES)}, or one_pass=false"
            )
        for name, value, needed, why in (
            ("selection.min_keep", selection.min_keep, 0, "what fills up is known only at the end"),
            ("selection.baseline", selection.baseline, "before", "the survivors' mean is known only at the end"),
            ("selection.divisibility", selection.divisibility, "pad", "no row can leave the pass that scores it"),
        ):
            if value != needed:
                problems.append(f"one_pass needs {name}={needed}, got {value}: {why}; or set one_pass=false")
        if self.validation.strategy == "in_batch":
            problems.append(
                "one_pass needs the validation gradient before the batch's own, but validation.strategy=in_batch takes "
                "it from that batch: choose another strategy, or one_pass=false"
            )
        return problems


def read_settings(config: DictConfig) -> TracInSettings:
    """Read and check `config.tracin`; without that node TracIn is off.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    groups = {"selection": SelectionSettings, "validation": ValidationSettings}
    return read_node(config, "tracin", TracInSettings, groups, "configs/signal/tracin.yaml")


def check_against_actor(settings: TracInSettings, ppo_epochs: int, num_mini_batches: int) -> None:
    """Refuse what the actor's update cannot do with these settings.

    Args:
        settings: Of the run.
        ppo_epochs: `actor_rollout_ref.actor.ppo_epochs`.
        num_mini_batches: data.train_batch_size / actor.ppo_mini_batch_size.

    Raises:
        ConfigError: with what to change.
    """
    if not (settings.enable and settings.one_pass):
        return
    problems = []
    if ppo_epochs != 1:
        problems.append(f"actor_rollout_ref.actor.ppo_epochs=1, got {ppo_epochs}")
    if num_mini_batches != 1:
        problems.append(
            "actor_rollout_ref.actor.ppo_mini_batch_size=${data.train_batch_size}, got "
            f"{num_mini_batches} mini-batches a step"
        )
    if problems:
        raise ConfigError(
            "tracin.one_pass=true updates with the very gradients that were scored, once a step. It needs "
            + " and ".join(problems)
            + "; or set tracin.one_pass=false"
        )
