"""All checks between the recipe's own checks and Ray's start."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from verl_ext.core.settings import refusal
from verl_ext.data.raw_prompt import load_tokenizer
from verl_ext.launch.data_checks import custom_dataset, find_files, is_judged_by_function, makes_own_rows
from verl_ext.launch.preflight import agents, machine, model_files, packages, prompts, resumed
from verl_ext.launch.preflight.options import name_fsdps, unknown_options
from verl_ext.launch.preflight.reward import check_reward
from verl_ext.launch.preflight.values import check_micro_batch, check_values, check_verls_nodes, verls_words
from verl_ext.launch.preflight.verdicts import Success
from verl_ext.launch.quiet import without_lines
from verl_ext.run.checkpoints import CheckpointFolder


@dataclass
class Findings:
    """Findings before Ray starts.

    Attributes:
        problems: The run cannot work, or would ignore a setting.
        warnings: The run works, but users should know.
        rows: (name, text) lines of a dry run.
    """

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)

    def refuse(self) -> None:
        """Raise the problems found so far.

        Raises:
            ConfigError: There are problems; names all of them.
        """
        if self.problems:
            raise refusal(self.problems)

    def warn(self) -> None:
        """Print the warnings."""
        for warning in self.warnings:
            print(f"warning: {warning}", file=sys.stderr)


def check_names(config: DictConfig) -> None:
    """Reject options that nothing reads, in a configuration that Hydra composed from the command line.

    Raises:
        ConfigError: Names every one of them, and what was probably meant.
    """
    if not HydraConfig.initialized():
        return
    hydra = HydraConfig.get()
    # With verl's own command the recipe's file is an override. The engine decides which options exist.
    bases = [each for each in hydra.overrides.task if each.lstrip("+").startswith(("recipe=", "model_engine="))]
    loader, name = GlobalHydra.instance().config_loader(), hydra.job.config_name
    if config.trainer.device == "cpu" and config.model_engine != "dp":
        return  # the CPU backend's own options are FSDP's, and the engine is refused in one sentence after this
    problems = unknown_options(config, loader.load_configuration(name, bases, RunMode.RUN))
    if problems and config.model_engine != "dp":
        of_fsdp = loader.load_configuration(name, [*bases, "model_engine=dp"], RunMode.RUN)
        problems = name_fsdps(problems, of_fsdp, config.model_engine)
    if problems:
        raise refusal(problems)


def check_options(config: DictConfig, *, scores_rollouts: bool) -> None:
    """Reject single values that cannot work, incomplete models, and folders that cannot be written to.

    Args:
        config: Of a run.
        scores_rollouts: Whether it trains on verl's rows of prompt and response.

    Raises:
        ConfigError: Names every problem.
    """
    problems = [*check_values(config), *(check_micro_batch(config) if scores_rollouts else ())]
    problems += machine.check_outputs(config)
    problems += [*model_files.check_models(config, has_critic=_has_critic(config)), *agents.check_agents(config)]
    Findings(problems or check_verls_nodes(config)).refuse()


def check_with_verl(config: DictConfig) -> None:
    """verl's own checks, whose errors are assertions and the like.

    Raises:
        ConfigError: In verl's words.
    """
    from verl.trainer.ppo.utils import need_reference_policy
    from verl.utils import config as verls

    use_reference_policy, use_critic = need_reference_policy(config), _has_critic(config)
    try:
        with without_lines(verls, "[validate_config] All configuration checks passed"):
            verls.validate_config(config, use_reference_policy=use_reference_policy, use_critic=use_critic)
    # Assertions, and the errors of Hydra and OmegaConf when verl builds its dataclasses.
    except Exception as error:
        raise refusal([f"verl refuses it: {verls_words(error)}"]) from None


def check_rest(config: DictConfig, *, scores_rollouts: bool, success: Success | None) -> Findings:
    """Check lengths, reward, prompts, devices, and the settings of a resumed run.

    Args:
        config: Configuration that has passed all other checks.
        scores_rollouts: Whether rewards come from verl's reward manager.
        success: The recipe's criterion of success.

    Returns:
        Warnings and the lines of a dry run.

    Raises:
        ConfigError: Names every problem.
    """
    found = Findings()
    train, val = (_files(config, name) for name in ("train_files", "val_files"))
    if scores_rollouts:
        context = model_files.context_problem(config, _model_config(config))
        found.problems += [context] if context else []
    bucket = model_files.bucket_problem(config)
    found.problems += [bucket] if bucket else []
    if scores_rollouts and is_judged_by_function(config):
        report = check_reward(config, prompts.cases([*train, *val]), success)
        found.problems += report.problems
        found.rows += report.rows
    if scores_rollouts:
        found.warnings += prompts.shared_prompts(train, val, config.data.prompt_key)
        _check_agents(config, train, val, found)
    if config.trainer.resume_mode == "auto" and CheckpointFolder(Path(config.trainer.default_local_dir)).steps():
        problems, warnings = resumed.changes(Path(config.run_dir), config)
        found.problems += problems
        found.warnings += warnings
    _check_packages(config, found)
    found.warnings += machine.bfloat16_warnings(config)
    if config.dry_run:
        found.rows += machine.device_rows(config)
    else:
        found.problems += machine.check_devices(config)
    found.refuse()
    return found


def _check_agents(config: DictConfig, train: Sequence[str], val: Sequence[str], found: Findings) -> None:
    calls = agents.check_calls(config, train, val)
    found.problems += calls.problems
    found.rows += [("tools", calls.summary)] if calls.summary else []
    model = _model_config(config)
    # An image model's processor renders prompts itself.
    if calls.shows_tools and model is not None and not hasattr(model, "vision_config"):
        problems, warnings = agents.check_template(config, load_tokenizer(config), model.model_type)
        found.problems += problems
        found.warnings += warnings


def _check_packages(config: DictConfig, found: Findings) -> None:
    """A machine with GPUs needs them; one without may check a run, or start it on a cluster that has them."""
    missing = packages.missing_packages(config, has_critic=_has_critic(config))
    if machine.num_devices(config.trainer.device):
        found.problems += missing
    elif config.dry_run:
        found.rows += [("packages", f"not installed on this machine: {text}") for text in missing]
    else:
        found.warnings += [f"not installed on this machine: {text}" for text in missing]


def _has_critic(config: DictConfig) -> bool:
    from verl.trainer.ppo.utils import need_critic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it logs each time what it concludes from the estimator
        return need_critic(config)


def _files(config: DictConfig, name: str) -> tuple[str, ...]:
    """The local files; none if a user's class creates the rows."""
    if makes_own_rows(custom_dataset(config.data)):
        return ()
    return find_files(config.data, config.data[name]).local


def _model_config(config: DictConfig) -> Any:
    """Configuration of a local model; None otherwise."""
    from transformers import AutoConfig

    model = config.actor_rollout_ref.model
    try:
        return AutoConfig.from_pretrained(
            model.get("hf_config_path") or model.path,
            local_files_only=True,
            trust_remote_code=bool(model.get("trust_remote_code", False)),
        )
    except (OSError, ValueError):
        return None
