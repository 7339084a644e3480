"""The settings of a Fast DAPO run: read from the configuration once, checked once, before Ray starts.

Pure: needs no verl. `resolve_group_size` turns this plugin's two numbers of rollouts into verl's single one.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from omegaconf import DictConfig, OmegaConf, open_dict
from pydantic import Field, ValidationError

from recipe.fast_dapo.curriculum.controller_settings import CurriculumLimits, CurriculumSettings
from recipe.fast_dapo.curriculum.predictor_settings import PredictorSettings
from recipe.fast_dapo.curriculum.screening import Screening
from verl_ext.cluster.pools import has_engines_apart
from verl_ext.core.settings import explain, read_node, refusal
from verl_ext.core.settings_file import SettingsFile

Predictor = Literal["none", "posterior"]
PREDICTORS: tuple[Predictor, ...] = get_args(Predictor)
Baseline = Literal["estimator", "posterior"]
# In verl's registry of advantage estimators; `posterior_advantage.py` registers it.
POSTERIOR_ESTIMATOR = "posterior"
# verl's own option for rollouts that get too old.
STALE = "trainer.v1.sampler.max_off_policy_strategy"


class CurriculumNode(CurriculumLimits):
    """The node `curriculum` of the configuration."""

    enable: bool = True
    """false: no curriculum, n + n_continue rollouts for every prompt; everything else is unchanged. See
    +signal=plain."""

    screening: Screening = "fixed"
    """fixed: all n screening rollouts at once.
    sequential: screening_chunk at a time, until they are mixed or the posterior says that a mixed outcome is not worth
    the next ones; n is the maximum. Needs schedule=streaming and predictor=posterior."""

    screening_chunk: int = Field(default=2, ge=1)
    """Rollouts per stage of sequential screening (the first stage has at least 2)."""

    predictor: Predictor = "posterior"
    """none: prompts come in the data loader's order.
    posterior: by a discounted Beta posterior of each prompt's pass rate; Thompson draws closest to 1/2 come first; with
    graded successes, those with the largest variance."""

    baseline: Baseline = "posterior"
    """estimator: that of algorithm.adv_estimator.
    posterior: the posterior mean of the prompt's pass rate given its other rollouts, with
    algorithm.adv_estimator=posterior. Every rollout then contributes, even a single one or among equal rewards."""

    posterior: PredictorSettings = PredictorSettings()
    """Used with predictor=posterior and baseline=posterior."""

    correction_clip: float | None = Field(default=None, ge=1)
    """Largest Horvitz-Thompson weight; null: no limit. Without one it is at most (n + n_continue) / n."""

    success_metric: str = "acc"
    """Entry of the reward's result that tells success (`acc`, `score`, …); `reward`: the reward itself."""

    record_prompts: bool = True
    """Write prompts.jsonl: the history of each prompt, about 80 bytes per event; and prompt_texts.jsonl: each prompt
    once, with its ground truth, at most 4,000 characters."""

    n: Any = Field(default=None, exclude=True)
    """Written by `resolve_group_size`."""

    n_continue: Any = Field(default=None, exclude=True)
    """Written by `resolve_group_size`."""


FILE = SettingsFile(
    "signal/curriculum.yaml",
    "curriculum",
    CurriculumNode,
    "The curriculum of Fast DAPO: `- signal/curriculum@curriculum` in a recipe's defaults.",
)


@dataclass(frozen=True)
class FastDapoSettings:
    """Settings that the trainer needs in addition to verl's configuration."""

    enable: bool
    success_metric: str
    controller: CurriculumSettings
    engines_apart: bool  # on separate devices, where generation continues while the actor is trained
    predictor: Predictor
    baseline: Baseline
    # posterior of each prompt's pass rate; None if neither of the two above needs it
    posterior: PredictorSettings | None
    screening_chunk: int | None  # rollouts per stage of sequential screening; None: all n at once
    correction_clip: float | None  # largest Horvitz-Thompson weight


def resolve_group_size(config: DictConfig) -> None:
    """Give verl its single number of rollouts per prompt, N = n + n_continue, and the fetch size this requires.

    verl uses `rollout.n` in the arithmetic of mini-batches and advantages, where a group has N rollouts (n_continue,
    if only these are trained on); how a group is built is kept under `curriculum`. Without curriculum and dynamic
    sampling it fetches whole batches and refuses any other `data.gen_batch_size`. Idempotent; changes `config`.
    """
    if not config.curriculum.enable and not OmegaConf.select(config, "algorithm.filter_groups.enable"):
        config.data.gen_batch_size = None
    rollout = config.actor_rollout_ref.rollout
    if "n_continue" not in rollout:
        return
    with open_dict(config):
        config.curriculum.n = rollout.n
        config.curriculum.n_continue = rollout.pop("n_continue")
        if isinstance(config.curriculum.n, int) and isinstance(config.curriculum.n_continue, int):
            only_continuation = config.curriculum.enable and config.curriculum.correction == "continuation_only"
            rollout.n = config.curriculum.n_continue + (0 if only_continuation else config.curriculum.n)


def read_settings(config: DictConfig) -> FastDapoSettings:
    """Read and check the settings of a configuration that `resolve_group_size` has seen.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    problems = _check_batch_arithmetic(config)
    node = read_node(config, "curriculum", CurriculumNode, f"configs/{FILE.path}", also=problems)
    if node.enable:
        problems += _check_curriculum(config, node)
    elif (
        OmegaConf.select(config, "algorithm.filter_groups.enable")
        and config.algorithm.adv_estimator == POSTERIOR_ESTIMATOR
    ):
        problems.append(
            "algorithm.filter_groups keeps groups for their rewards, for which algorithm.adv_estimator=posterior is "
            "biased: set rloo or grpo, as +signal=plain does"
        )
    data = config.data
    # Without the curriculum, no schedule has to fit the trainer's mode.
    ahead, updates = (_batches_ahead(config), _updates_per_step(config)) if node.enable else (0, 1)
    gen_batch_size = data.train_batch_size if data.gen_batch_size is None else data.gen_batch_size
    sizes = {
        "n": node.n,
        "n_continue": node.n_continue,
        "train_batch_size": _per_update(data.train_batch_size, updates),
        "gen_batch_size": _per_update(gen_batch_size, updates),
        "stale": OmegaConf.select(config, STALE),
        # In batches of one update each.
        "ahead": updates * (1 + ahead) - 1 if isinstance(ahead, int | float) else ahead,
        "batches_per_version": updates,
    }
    limits = {name: getattr(node, name) for name in CurriculumLimits.model_fields}
    try:
        controller = CurriculumSettings.model_validate(limits | sizes)
    except ValidationError as error:
        raise refusal([*problems, *_explain_sizes(error, config.trainer.v1.trainer_mode)]) from None
    if problems:
        raise refusal(problems)
    return FastDapoSettings(
        enable=node.enable,
        success_metric=node.success_metric,
        controller=controller,
        engines_apart=has_engines_apart(config),
        predictor=node.predictor,
        baseline=node.baseline,
        posterior=node.posterior if "posterior" in (node.predictor, node.baseline) else None,
        screening_chunk=node.screening_chunk if node.screening == "sequential" else None,
        correction_clip=node.correction_clip,
    )


def _batches_ahead(config: DictConfig) -> float:
    """Number of batches that verl's trainer generates ahead; 0 if it is synchronous.

    The running trainer's class restores its mode before it reads this.
    """
    return _of_the_mode(config, "num_warmup_batches", 0)


def _updates_per_step(config: DictConfig) -> int:
    """How many updates share a batch of `data.train_batch_size` between two synchronisations of weights, each with its
    own prompts; 1 if it is synchronous (see `compatibility`)."""
    updates = _of_the_mode(config, "parameter_sync_step", 1)
    return updates if isinstance(updates, int) and updates > 0 else 1  # which `values` refuses


def _per_update(prompts: Any, updates: int) -> Any:
    """The share of one update; values that are not numbers are left to the caller's checks."""
    return -(prompts // -updates) if isinstance(prompts, int) else prompts


def _of_the_mode(config: DictConfig, name: str, default: Any) -> Any:
    mode = config.trainer.v1.get(config.trainer.v1.trainer_mode)
    return default if mode is None else mode.get(name, default)


def _explain_sizes(error: ValidationError, mode: str) -> list[str]:
    """Report problems in the user's names: some are verl's, the constraints are the curriculum's."""
    problems = explain(error, CurriculumSettings, "sizes", "configs/recipe/fast_dapo.yaml")
    rollout = "actor_rollout_ref.rollout"
    names = {"n": f"{rollout}.n", "n_continue": f"{rollout}.n_continue", "stale": STALE}
    names["ahead"] = f"trainer.v1.{mode}.num_warmup_batches"
    named: list[str] = []
    for entry, problem in zip(error.errors(), problems, strict=True):
        if not entry["loc"]:
            named.append(problem.replace("sizes", "curriculum", 1))
            continue
        name = str(entry["loc"][0])
        named.append(problem.replace(f"sizes.{name}", names.get(name, f"data.{name}"), 1))
    return named


def _check_batch_arithmetic(config: DictConfig) -> list[str]:
    problems = []
    batch, mini_batch = config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size
    if batch % mini_batch != 0:
        problems.append(
            f"data.train_batch_size={batch} must be a multiple of actor_rollout_ref.actor.ppo_mini_batch_size="
            f"{mini_batch}: both count prompts"
        )
    ranks, group = config.trainer.nnodes * config.trainer.n_gpus_per_node, config.actor_rollout_ref.rollout.n
    if isinstance(group, int) and (mini_batch * group) % ranks != 0:
        problems.append(
            f"ppo_mini_batch_size x (n + n_continue) = {mini_batch} x {group} = {mini_batch * group} rollouts must be "
            f"a multiple of the {ranks} ranks (trainer.nnodes x trainer.n_gpus_per_node)"
        )
    return problems


def _check_curriculum(config: DictConfig, node: CurriculumNode) -> list[str]:
    """Settings that contradict a curriculum, with the option that resolves each."""
    problems: list[str] = []
    if node.train_on == "all" and node.baseline != "posterior":
        problems.append(
            "curriculum.train_on=all needs curriculum.baseline=posterior: other baselines learn nothing from a group "
            "of equal rewards, and are biased if the number of rollouts depended on their results. Or set "
            "train_on=qualified"
        )
    estimator = config.algorithm.adv_estimator
    if estimator == POSTERIOR_ESTIMATOR and node.baseline != "posterior":
        problems.append(
            "algorithm.adv_estimator=posterior gets the curriculum's posteriors and stages only with "
            "curriculum.baseline=posterior: set that as well, or algorithm.adv_estimator=rloo | grpo"
        )
    if estimator != POSTERIOR_ESTIMATOR and node.baseline == "posterior":
        problems.append(
            f"algorithm.adv_estimator={estimator} has no effect with curriculum.baseline=posterior: set "
            "algorithm.adv_estimator=posterior; or for the estimator +signal=two_phase, or "
            "curriculum.baseline=estimator with curriculum.train_on=qualified"
        )
    if node.baseline == "posterior" and node.correction != "none":
        problems.append(
            f"curriculum.correction={node.correction} is for baselines that give a group of equal rewards no "
            "advantage. With curriculum.baseline=posterior set curriculum.train_on=all, which needs no correction, "
            "and correction=none"
        )
    if has_engines_apart(config) and node.schedule == "merged":
        problems.append(
            "curriculum.schedule=merged waits for every rollout of a call, and with trainer.v1.trainer_mode="
            "separate_async generation never stops: set schedule=streaming"
        )
    if node.posterior.use_influence and not OmegaConf.select(config, "tracin.enable"):
        problems.append(
            "curriculum.posterior.use_influence=true needs TracIn's scores: set tracin.enable=true and "
            "tracin.validation_files, or use_influence=false"
        )
    if node.posterior.use_influence and OmegaConf.select(config, "tracin.validation.strategy") == "in_batch":
        problems.append(
            "curriculum.posterior.use_influence=true needs a validation set, which tracin.validation.strategy=in_batch "
            "has not: set strategy=quality and tracin.validation_files, or use_influence=false"
        )
    if node.posterior.use_influence and node.predictor != "posterior":
        problems.append(
            f"curriculum.posterior.use_influence=true has no effect with curriculum.predictor={node.predictor}: set "
            "predictor=posterior"
        )
    if node.screening == "sequential":
        for name, value, needed in (
            ("schedule", node.schedule, "streaming"),
            ("predictor", node.predictor, "posterior"),
        ):
            if value != needed:
                problems.append(
                    f"curriculum.screening=sequential needs curriculum.{name}={needed}, got {value}: each prompt's "
                    "posterior decides when it stops, and all stages must come from the same weights"
                )
        why = "stops at the first pass next to a failure"
        problem = node.grading.needs_passes("curriculum.screening=sequential", why, "screening=fixed")
        problems += [] if problem is None else [problem]
    if OmegaConf.select(config, "algorithm.filter_groups.enable"):
        problems.append(
            "algorithm.filter_groups.enable (verl's dynamic sampling) and curriculum.enable both filter prompts: set "
            "one of them to false"
        )
    if OmegaConf.select(config, "trainer.v1.sampler.custom_sampler.path"):
        problems.append("trainer.v1.sampler.custom_sampler needs curriculum.enable=false: unset one of them")
    if config.data.dataloader_num_workers != 0:
        problems.append(
            f"data.dataloader_num_workers must be 0, got {config.data.dataloader_num_workers}: workers fetch ahead of "
            "the controller, and a resumed run would skip those prompts"
        )
    if not config.actor_rollout_ref.rollout.calculate_log_probs and _needs_rollout_log_probs(config):
        problems.append(
            "actor_rollout_ref.rollout.calculate_log_probs must be true for engine_guard and rollout_correction; or "
            "set engine_guard.max_probs_diff=null and algorithm.rollout_correction.rollout_is=null"
        )
    return problems


def _needs_rollout_log_probs(config: DictConfig) -> bool:
    selected: list[Any] = [
        OmegaConf.select(config, "engine_guard.max_probs_diff"),
        OmegaConf.select(config, "algorithm.rollout_correction.rollout_is"),
    ]
    return any(value is not None for value in selected)
