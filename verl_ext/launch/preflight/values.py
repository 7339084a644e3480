"""Values that verl does not check, and that crash or spoil the run when they are first used."""

import importlib
import importlib.util
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_ext.core.worker_modules import worker_modules
from verl_ext.launch.model_backend import layout, layout_problems

_ABSENT = object()

# Logger -> the package that it needs, in addition to those that come with verl.
LOGGER_PACKAGES = {
    "wandb": "wandb",
    "mlflow": "mlflow",
    "swanlab": "swanlab",
    "vemlp_wandb": "volcengine_ml_platform",
    "tensorboard": "tensorboard",
    "clearml": "clearml",
    "trackio": "trackio",
}


@dataclass(frozen=True)
class Number:
    """A numeric option.

    Attributes:
        key: Its name.
        least: The smallest value.
        most: The largest value.
        is_whole: Whether it must be an integer.
        is_open: Whether `least` itself is too small.
        may_be_null: Whether it may be null, so that verl decides.
    """

    key: str
    least: float
    most: float = math.inf
    is_whole: bool = False
    is_open: bool = False
    may_be_null: bool = False

    def problem(self, config: DictConfig) -> str | None:
        """The problem with the option, or None; a missing option is left to verl."""
        value = OmegaConf.select(config, self.key, default=_ABSENT)
        if value is _ABSENT or (value is None and self.may_be_null):
            return None
        is_number = isinstance(value, int if self.is_whole else Real) and not isinstance(value, bool)
        if is_number and self._holds(value):
            return None
        kind = "a whole number" if self.is_whole else "a number"
        bounds = f"above {self.least:g}" if self.is_open else f"of at least {self.least:g}"
        bounds += f" and at most {self.most:g}" if self.most < math.inf else ""
        return f"{self.key} must be {kind} {bounds}{', or null' if self.may_be_null else ''}, got {value!r}"

    def _holds(self, value: Any) -> bool:
        return (self.least < value if self.is_open else self.least <= value) and value <= self.most


def _count(key: str, least: int = 1, *, may_be_null: bool = False) -> Number:
    return Number(key, least, is_whole=True, may_be_null=may_be_null)


_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

NUMBERS = (
    _count("data.train_batch_size"),
    _count("data.max_prompt_length"),
    _count("data.max_response_length"),
    _count("trainer.nnodes"),
    _count("trainer.n_gpus_per_node"),
    _count("trainer.total_epochs"),
    _count("trainer.total_training_steps", may_be_null=True),
    _count("trainer.save_freq", -1),
    _count("trainer.test_freq", -1),
    _count(f"{_ACTOR}.ppo_epochs"),
    _count(f"{_ACTOR}.ppo_mini_batch_size"),
    _count(f"{_ACTOR}.ppo_max_token_len_per_gpu"),
    Number(f"{_ACTOR}.clip_ratio_low", 0),
    Number(f"{_ACTOR}.clip_ratio_high", 0),
    Number(f"{_ACTOR}.optim.lr", 0),
    Number(f"{_ACTOR}.optim.weight_decay", 0),
    _count("trainer.v1.separate_async.parameter_sync_step"),
    Number("trainer.v1.separate_async.num_warmup_batches", 0),
    Number("trainer.v1.colocate_async.num_warmup_batches", 0),
    _count(f"{_ROLLOUT}.nnodes", 0),
    _count(f"{_ROLLOUT}.n_gpus_per_node"),
    _count(f"{_ROLLOUT}.n"),
    Number(f"{_ROLLOUT}.top_p", 0, 1, is_open=True),
    Number(f"{_ROLLOUT}.gpu_memory_utilization", 0, 1, is_open=True),
    _count(f"{_ROLLOUT}.tensor_model_parallel_size"),
    _count(f"{_ROLLOUT}.max_num_seqs"),
    _count(f"{_ROLLOUT}.multi_turn.max_assistant_turns", may_be_null=True),
    _count(f"{_ROLLOUT}.multi_turn.max_user_turns", may_be_null=True),
    _count(f"{_ROLLOUT}.multi_turn.max_parallel_calls"),
    _count(f"{_ROLLOUT}.multi_turn.max_tool_response_length"),
    _count(f"{_ROLLOUT}.val_kwargs.n"),
    Number(f"{_ROLLOUT}.val_kwargs.temperature", 0),
    Number(f"{_ROLLOUT}.val_kwargs.top_p", 0, 1, is_open=True),
    Number("algorithm.gamma", 0, 1),
    Number("algorithm.lam", 0, 1),
)


def check_values(config: DictConfig) -> list[str]:
    """Problems with single options.

    Args:
        config: Of a run.

    Returns:
        One sentence each.
    """
    problems = [problem for number in NUMBERS if (problem := number.problem(config))]
    problems += [*_layout(config), *_temperature(config), *_names(config)]
    return [*problems, *_loggers(config.trainer.logger)]


def _layout(config: DictConfig) -> Iterator[str]:
    trainer = config.trainer
    if all(isinstance(size, int) and size > 0 for size in (trainer.nnodes, trainer.n_gpus_per_node)):
        yield from layout_problems(config)


def _temperature(config: DictConfig) -> Iterator[str]:
    rollout = config.actor_rollout_ref.rollout
    if (problem := Number(f"{_ROLLOUT}.temperature", 0).problem(config)) is not None:
        yield problem
    elif rollout.temperature == 0 and rollout.n != 1:
        yield (
            f"{_ROLLOUT}.temperature=0 makes all rollouts of a prompt equal, so that no group ever has a mixed result. "
            "Set it above 0"
        )


def check_micro_batch(config: DictConfig) -> Iterator[str]:
    """verl ends a run at the first row of prompt and response that is longer than a micro-batch allows."""
    data, actor = config.data, config.actor_rollout_ref.actor
    sizes = (data.max_prompt_length, data.max_response_length, actor.ppo_max_token_len_per_gpu)
    if not actor.use_dynamic_bsz or not all(isinstance(size, int) for size in sizes) or any(_layout(config)):
        return
    ranks = layout(config).token_ranks
    prompt, response, limit = sizes
    if prompt + response > limit * ranks:
        each = f" x {ranks} ranks of a sequence" if ranks > 1 else ""
        yield (
            f"{_ACTOR}.ppo_max_token_len_per_gpu={limit}{each} holds no row of data.max_prompt_length + "
            f"data.max_response_length = {prompt} + {response} tokens: raise it, or lower these"
        )


def _names(config: DictConfig) -> Iterator[str]:
    """Problems with names that verl looks up in its registries at the first step."""
    # A user's modules may register more in the workers, where verl imports them.
    if any(not name.startswith("verl_ext.") for name in worker_modules(config)):
        return
    if config.algorithm.adv_estimator == "gae" and config.critic.enable is False:
        yield (
            "algorithm.adv_estimator=gae needs the values of a critic: set critic.enable=true and critic.model.path, "
            "or another estimator"
        )
    if any(_unknown_names(config)) and config.get("trainer_class"):
        # It may register more; imported only if needed, because it takes seconds.
        try:
            importlib.import_module(str(config.trainer_class).rpartition(".")[0])
        # A user's module may raise anything.
        except Exception as error:
            yield f"trainer_class={config.trainer_class} cannot be imported: {type(error).__name__}: {error}"
            return
    yield from _unknown_names(config)


def _unknown_names(config: DictConfig) -> Iterator[str]:
    from verl.experimental.reward_loop.reward_manager import registry as managers
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY

    registries = (
        ("algorithm.adv_estimator", ADV_ESTIMATOR_REGISTRY),
        (f"{_ACTOR}.policy_loss.loss_mode", POLICY_LOSS_REGISTRY),
    )
    known = {key: {str(getattr(name, "value", name)) for name in registry} for key, registry in registries}
    if config.reward.reward_manager.source == "register":
        known["reward.reward_manager.name"] = set(managers.REWARD_MANAGER)
    for key, names in known.items():
        value = OmegaConf.select(config, key)
        if value is not None and str(getattr(value, "value", value)) not in names:
            yield f"{key} must be one of {', '.join(sorted(names))}; got {value!r}"


def _loggers(given: str | Sequence[str] | None) -> Iterator[str]:
    from verl.utils.tracking import Tracking

    names = [given] if isinstance(given, str) else list(given or [])
    for name in names:
        if name not in Tracking.supported_backend and name != "tracking":
            yield f"trainer.logger must be of {', '.join(Tracking.supported_backend)}; got {name!r}"
        elif importlib.util.find_spec(package := LOGGER_PACKAGES.get(name, "verl")) is None:
            yield f"trainer.logger={name} needs the package {package}: install it, or leave {name} out"


def check_verls_nodes(config: DictConfig) -> list[str]:
    """The errors that verl itself raises in the workers when it builds its rollout and algorithm settings."""
    from verl.utils.config import omega_conf_to_dataclass

    problems = []
    for key in ("actor_rollout_ref.rollout", "algorithm"):
        try:
            omega_conf_to_dataclass(OmegaConf.select(config, key))
        # Errors of Hydra, OmegaConf and verl, whose checks are assertions.
        except Exception as error:
            problems.append(f"{key}: {verls_words(error)}")
    return problems


def verls_words(error: Any) -> str:
    """The sentence of an error in verl's own checks, without Hydra's wrapper."""
    cause = error.__cause__ or error
    lines = [line for line in str(cause).splitlines() if line.strip()] or [type(cause).__name__]
    return lines[0]
