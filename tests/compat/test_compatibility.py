"""What verl has and a recipe does not support is refused, row by row; the documented matrix has the same rows."""

import ast
import copy
import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict

from recipe.tracin.selector import TracInSelector
from verl_ext.core.errors import ConfigError
from verl_ext.launch.compatibility import SHARED, Unsupported, check_compatibility
from verl_ext.launch.recipe import Recipe, recipes

ROOT = Path(__file__).resolve().parents[2]
RECIPES = {recipe.name: recipe for recipe in recipes()}
VERLS_MANAGER = "verl.trainer.ppo.v1.AgentLoopManagerTQ"
MANAGER = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
WITH_TRACIN = "tracin.enable=true tracin.validation.strategy=fixed"

ENGINES = ("megatron", "veomni", "torchtitan")
WEIGHTS_OVER = "actor_rollout_ref.rollout.checkpoint_engine.backend"
LENDING = "trainer.v1.separate_async.hybrid_rollout.enable_switch"
# Two updates per batch.
SEPARATE = (
    "trainer.v1.trainer_mode=separate_async actor_rollout_ref.rollout.nnodes=1 data.train_batch_size=64 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=32 trainer.v1.separate_async.parameter_sync_step=2 "
    f"{WEIGHTS_OVER}=nccl actor_rollout_ref.model.lora.merge=true"
)

# (recipe, overrides, how the sentence begins, what it says to do)
REFUSED = [
    *((name, *case) for name in ("fast_dapo", "tracin") for case in (
        (f"{SEPARATE} actor_rollout_ref.rollout.nnodes=0", "actor_rollout_ref.rollout.nnodes=0", "rollout.nnodes"),
        (f"{SEPARATE} {WEIGHTS_OVER}=naive", WEIGHTS_OVER, "backend=nccl"),
        (f"{SEPARATE} trainer.v1.separate_async.parameter_sync_step=3", "trainer.v1.separate_async", "ppo_mini_batch"),
        (f"{SEPARATE} actor_rollout_ref.model.lora_rank=8 actor_rollout_ref.model.lora.merge=false",
         "actor_rollout_ref.model.lora_rank=8", "lora.merge=true"),
    )),
    ("fast_dapo", f"{SEPARATE} {LENDING}=true", LENDING, "Set it to false"),
    *((name, *case) for name in RECIPES for case in (
        ("trainer.v1.trainer_mode=mine", "trainer.v1.trainer_mode=mine", "sync, colocate_async or separate_async"),
        ("trainer.use_v1=false", "trainer.use_v1=False", "trainer.use_v1=true"),
        ("actor_rollout_ref.hybrid_engine=false", "actor_rollout_ref.hybrid_engine", "hybrid_engine=true"),
        ("trainer.device=cpu actor_rollout_ref.rollout.name=sglang", "actor_rollout_ref.rollout.name=sglang", "vllm"),
        ("model_engine=mine", "model_engine=mine", "torchtitan or veomni"),
        ("trainer.device=cpu model_engine=megatron", "model_engine=megatron: the CPU", "Leave it at dp"),
        ("trainer.device=cpu actor_rollout_ref.actor.strategy=fsdp", "actor_rollout_ref.actor.strategy=fsdp: the CPU",
         "at fsdp2"),
        ("actor_rollout_ref.actor.strategy=megatron", "actor_rollout_ref.actor.strategy=megatron", "set model_engine"),
        ("model_engine=megatron actor_rollout_ref.actor.strategy=fsdp2", "actor_rollout_ref.actor.strategy=fsdp2",
         "Leave it out"),
        ("actor_rollout_ref.ref.strategy=fsdp", "actor_rollout_ref.ref.strategy=fsdp", "Leave it out"),
        ("actor_rollout_ref.model.lora.rank=8", "actor_rollout_ref.model.lora.rank=8", "model.lora_rank"),
        ("actor_rollout_ref.actor.checkpoint.async_save=true", "actor_rollout_ref.actor.checkpoint", "async_save"),
        ("algorithm.rollout_correction.bypass_mode=true", "algorithm.rollout_correction", "max_probs_diff=null"),
        ("critic.enable=true critic.checkpoint.async_save=true", "critic.checkpoint.async_save", "async_save=false"),
        ("critic.enable=true critic.strategy=fsdp", "critic.strategy=fsdp", "Leave it out"),
        ("actor_rollout_ref.rollout.top_p=0.9", "actor_rollout_ref.rollout.top_p=0.9", "max_probs_diff=null"),
        ("actor_rollout_ref.rollout.top_k=20", "actor_rollout_ref.rollout.top_k=20", "val_kwargs.top_k is free"),
    )),
    ("fast_dapo", f"{SEPARATE} model_engine=torchtitan", "model_engine=torchtitan: separate_async", "colocate_async"),
    ("fast_dapo", "model_engine=torchtitan trainer.save_freq=500", "trainer.save_freq=500", "save_freq=-1"),
    ("fast_dapo", "model_engine=torchtitan curriculum.max_num_gen_batches=8", "curriculum.max_num", "at 0"),
    ("fast_dapo", "model_engine=torchtitan critic.enable=true", "critic.strategy=torchtitan", "critic.enable=false"),
    ("fast_dapo", "model_engine=torchtitan algorithm.adv_estimator=gae", "critic.strategy=torchtitan", "than gae"),
    ("fast_dapo", "model_engine=megatron actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_rank=8",
     "model.lora.rank"),
    ("fast_dapo", "model_engine=veomni actor_rollout_ref.model.lora.rank=8", "actor_rollout_ref.model.lora.rank=8",
     "train all weights"),
    ("fast_dapo", f"{SEPARATE} model_engine=megatron actor_rollout_ref.model.lora.rank=8 "
     "actor_rollout_ref.model.lora.merge=false", "actor_rollout_ref.model.lora.rank=8", "lora.merge=true"),
    *((name, f"{given} model_engine={engine}", f"model_engine={engine}: scores", "tracin.enable=false")
      for name, given in (("fast_dapo", WITH_TRACIN), ("tracin", "")) for engine in ENGINES),
    *((name, f"{given} actor_rollout_ref.actor.strategy=fsdp", "actor_rollout_ref.actor.strategy=fsdp: FSDP1",
       "tracin.enable=false") for name, given in (("fast_dapo", WITH_TRACIN), ("tracin", ""))),
    *(("golden_redaction", f"model_engine={engine}", f"model_engine={engine}", "at dp") for engine in ENGINES),
    ("golden_redaction", "actor_rollout_ref.actor.strategy=fsdp", "actor_rollout_ref.actor.strategy=fsdp", "at fsdp2"),
    ("fast_dapo", "reward.reward_model.enable=true", "reward.reward_model.enable=True", "enable_resource_pool=true"),
    ("tracin", "reward.reward_model.enable=true", "reward.reward_model.enable=True", "strategy=in_batch"),
    ("tracin", "data.gen_batch_size=24", "data.gen_batch_size=24", "Leave it out"),
    ("fast_dapo", f"{MANAGER}={VERLS_MANAGER}", MANAGER, "SignalAgentLoopManager"),
    ("fast_dapo", f"{MANAGER}=null", MANAGER, "SignalAgentLoopManager"),
    ("fast_dapo", "+trainer.v1.sync.parameter_sync_step=2", "trainer.v1.sync", "ppo_mini_batch_size"),
    ("fast_dapo", "skip.rollout_tq.enable=true", "skip.rollout_tq.enable", "curriculum.enable=false"),
    ("fast_dapo", "trainer.v1.sampler.max_off_policy_threshold=2", "trainer.v1.sampler", "curriculum.max_staleness"),
    ("fast_dapo", "trainer.v1.sampler.sync_refill_failed_groups=true", "trainer.v1.sampler", "Leave it at false"),
    ("fast_dapo", "data.shuffle=false", "data.shuffle=False", "curriculum.predictor=none"),
    ("fast_dapo", "+data.sampler.class_path=mine.py", "data.sampler", "curriculum.predictor=none"),
    ("tracin", f"{WITH_TRACIN} {MANAGER}={VERLS_MANAGER}", MANAGER, "strategy=in_batch"),
    *(("golden_redaction", f"trainer.v1.trainer_mode={mode}", "trainer.v1.trainer_mode", "at sync")
      for mode in ("colocate_async", "separate_async")),
    ("golden_redaction", "data.gen_batch_size=8", "data.gen_batch_size=8", "golden.entries_per_update"),
    ("golden_redaction", "+data.sampler.class_path=mine.py", "data.sampler", "golden.redaction.order"),
    ("golden_redaction", "data.custom_cls.path=mine.py", "data.custom_cls", "golden.verifier decides"),
    ("golden_redaction", "data.val_max_samples=100", "data.val_max_samples=100", "golden_probes.jsonl"),
    ("golden_redaction", "actor_rollout_ref.rollout.val_kwargs.n=8", "actor_rollout_ref.rollout.val_kwargs.n=8",
     "golden.probe.rollouts"),
    ("golden_redaction", "actor_rollout_ref.rollout.val_kwargs.temperature=1", "actor_rollout_ref.rollout.val_kwargs",
     "as training does"),
    ("golden_redaction", "actor_rollout_ref.rollout.name=sglang", "actor_rollout_ref.rollout.name", "at vllm"),
    ("golden_redaction", "actor_rollout_ref.actor.ppo_epochs=2", "actor_rollout_ref.actor.ppo_epochs=2", "at 1"),
    ("golden_redaction", "actor_rollout_ref.actor.entropy_coeff=0.01", "actor_rollout_ref.actor.entropy", "at 0"),
    ("golden_redaction", "algorithm.adv_estimator=gae", "algorithm.adv_estimator=gae", "at grpo"),
    ("golden_redaction", "algorithm.use_kl_in_reward=true", "algorithm.use_kl_in_reward", "at false"),
    ("golden_redaction", "algorithm.filter_groups.enable=true", "algorithm.filter_groups.enable", "at false"),
    ("golden_redaction", "critic.enable=true", "critic.enable", "at false"),
    ("golden_redaction", "reward.custom_reward_function.path=mine.py", "reward.custom_reward_function", "the sandbox"),
    ("golden_redaction", "reward.reward_model.enable=true", "reward.reward_model.enable", "golden.verifier judges"),
    ("golden_redaction", "trainer.rollout_data_dir=dumps", "trainer.rollout_data_dir=dumps", "verl_ext.report trace"),
    ("golden_redaction", "trainer.validation_data_dir=dumps", "trainer.validation_data_dir", "golden_probes.jsonl"),
    ("golden_redaction", "trainer.log_val_generations=4", "trainer.log_val_generations=4", "golden_probes.jsonl"),
]  # fmt: skip
ACCEPTED = [
    *((name, "") for name in RECIPES),
    *(
        (name, "algorithm.rollout_correction.bypass_mode=true engine_guard.max_probs_diff=null")
        for name in ("fast_dapo", "tracin")
    ),
    ("fast_dapo", "reward.reward_model.enable=true reward.reward_model.enable_resource_pool=true"),
    # The engine reports the log-probs that it is asked for, whatever it samples from.
    ("fast_dapo", "actor_rollout_ref.rollout.top_p=0.9 actor_rollout_ref.rollout.logprobs_mode=raw_logprobs"),
    ("tracin", "critic.enable=false critic.strategy=fsdp"),
    *(
        (name, mode)
        for name in ("fast_dapo", "tracin")
        for mode in ("trainer.v1.trainer_mode=colocate_async", SEPARATE)
    ),
    *((name, f"{SEPARATE} actor_rollout_ref.hybrid_engine=false") for name in ("fast_dapo", "tracin")),
    ("tracin", f"{SEPARATE} {LENDING}=true"),
    ("fast_dapo", f"{SEPARATE} {LENDING}=true actor_rollout_ref.hybrid_engine=false"),
    ("fast_dapo", f"{SEPARATE} actor_rollout_ref.model.lora_rank=8"),
    *(
        (name, f"actor_rollout_ref.rollout.name={engine}")
        for name in ("fast_dapo", "tracin")
        for engine in ("sglang", "trtllm")
    ),
    *(("fast_dapo", f"model_engine={engine}") for engine in (*ENGINES, "dp")),
    ("fast_dapo", "actor_rollout_ref.actor.strategy=fsdp"),
    ("fast_dapo", "actor_rollout_ref.actor.strategy=fsdp critic.strategy=fsdp critic.enable=true"),
    *(("fast_dapo", f"model_engine={engine} critic.enable=true") for engine in ("megatron", "veomni")),
    *(("fast_dapo", f"{SEPARATE} model_engine={engine}") for engine in ENGINES if engine != "torchtitan"),
    # It then keeps no weights.
    (
        "fast_dapo",
        f"{SEPARATE} model_engine=torchtitan algorithm.rollout_correction.bypass_mode=true "
        "engine_guard.max_probs_diff=null",
    ),
    ("fast_dapo", "model_engine=megatron actor_rollout_ref.model.lora.rank=8"),
    # Without influence scores its trainer is verl's.
    *(("tracin", f"tracin.enable=false actor_rollout_ref.model.lora_rank=0 model_engine={e}") for e in ENGINES),
    ("fast_dapo", f"curriculum.enable=false {MANAGER}={VERLS_MANAGER}"),
    ("fast_dapo", f"{MANAGER}=verl_ext.serving.agent_loop.SignalAgentLoopManager"),
    ("fast_dapo", "curriculum.enable=false +trainer.v1.sync.parameter_sync_step=2"),
    ("fast_dapo", "curriculum.predictor=none data.shuffle=false"),
    ("fast_dapo", "trainer_class=half_first.HalfFirstTrainer"),
    ("tracin", f"tracin.enable=true tracin.validation.strategy=in_batch {MANAGER}={VERLS_MANAGER}"),
]


def _check(name: str, overrides: str) -> None:
    config = _asking(name, tuple(option.removeprefix("+") for option in overrides.split()))
    check_compatibility(config, _rows(name, config)[len(SHARED) :])


def _compose(name: str, overrides: str) -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose(name, overrides=overrides.split())


@pytest.mark.parametrize(("name", "overrides", "key", "remedy"), REFUSED)
def test_what_does_not_go_with_a_recipe_is_refused(name: str, overrides: str, key: str, remedy: str):
    with pytest.raises(ConfigError) as caught:
        _check(name, overrides)
    lines = [line for line in str(caught.value).splitlines() if line.startswith(f"  - {key}")]
    assert any(remedy in line for line in lines), caught.value


@pytest.mark.parametrize(("name", "overrides"), ACCEPTED)
def test_what_goes_with_it_is_not(name: str, overrides: str):
    _check(name, overrides)


def test_every_problem_is_named_at_once():
    with pytest.raises(ConfigError) as caught:
        _check("fast_dapo", "trainer.use_v1=false actor_rollout_ref.hybrid_engine=false")
    assert str(caught.value).count("\n  - ") == 2


# ------------------------------ the documented tables ------------------------------

TITLES = {"Fast DAPO": "fast_dapo", "TracIn": "tracin", "golden redaction": "golden_redaction"}
WORKS, COMPOSED, REFUSED_CELL, MEANINGLESS = "works", "composed", "refused", "\u2014"
AS_VERL, BEHIND, OWN = "as verl", "behind the interface", "its reference"
SHOWN = (WORKS, COMPOSED, BEHIND)


CROSSED = "Trainers, engines and methods crossed"


@dataclass(frozen=True)
class Feature:
    """A row of the matrix: a feature of verl, the overrides that ask for it, and the result by recipe."""

    name: str
    options: tuple[str, ...]
    cells: dict[str, str]
    tests: tuple[str, ...]


def _tables() -> dict[str, list[list[str]]]:
    """By heading, the cells of the table below it, without the table's header."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("| "):
            found.setdefault(heading, []).append([cell.strip() for cell in line.strip("|").split(" | ")])
    return {name: rows[1:] for name, rows in found.items()}


def _matrix() -> list[Feature]:
    features = []
    for heading, rows in _tables().items():
        if heading != CROSSED and not heading.startswith("Refused"):
            for name, options, *cells, tests in rows:
                by_recipe = dict(zip(TITLES.values(), cells, strict=True))
                texts = (tuple(re.findall(r"`([^`]+)`", cell)) for cell in (options, tests))
                features.append(Feature(name, *(next(texts), by_recipe, next(texts))))
    return features


MATRIX = _matrix()


@functools.cache
def _default(name: str, engine: str = "dp") -> DictConfig:
    """With missing files: what a recipe says about them, it says about every configuration."""
    files = "data.train_files=none.parquet data.val_files=none.parquet actor_rollout_ref.model.path=/none"
    files += f" model_engine={engine}"
    return _compose(name, f"{files} tracin.validation_files=none.parquet" if "golden" not in name else files)


def _asking(name: str, options: tuple[str, ...]) -> DictConfig:
    # A model engine selects verl's files; the other options are set in the resulting configuration.
    engines = [engine for engine in ENGINES if f"model_engine={engine}" in options]
    config = copy.deepcopy(_default(name, *engines))
    with open_dict(config):
        for option in options:
            key, _, value = option.partition("=")
            OmegaConf.update(config, key, yaml.safe_load(value), force_add=True)
    return config


def _joined(name: str, config: DictConfig) -> list[Recipe]:
    return [recipe for recipe in RECIPES.values() if recipe.name == name or recipe.node in config]


def _rows(name: str, config: DictConfig) -> list[Unsupported]:
    return [*SHARED, *(row for recipe in _joined(name, config) for row in recipe.unsupported)]


def _said(name: str, options: tuple[str, ...]) -> set[str]:
    """All errors about a configuration before Ray starts: from the rows, and from the recipes' own checks."""
    config, said = _asking(name, options), set[str]()
    try:
        check_compatibility(config, _rows(name, config)[len(SHARED) :])
    except ConfigError as error:  # it ends a command: the recipes' checks rely on these refusals
        return set(str(error).splitlines())
    for recipe in _joined(name, config):
        try:
            recipe.check_settings(config)
        except ConfigError as error:
            said |= set(str(error).splitlines())
    return said


@pytest.mark.parametrize("name", RECIPES)
def test_every_cell_of_the_matrix_is_what_happens(name: str):
    anyway, wrong = _said(name, ()), []
    for feature in MATRIX:
        cell = feature.cells[name]
        if not feature.options or cell == MEANINGLESS:
            continue
        found = _said(name, feature.options) - anyway
        if bool(found) != (cell == REFUSED_CELL):
            wrong.append(
                f"{feature.name} ({' '.join(feature.options)}): documented as {cell}, got {found or 'nothing'}"
            )
    assert wrong == []


def test_what_works_or_is_refused_elsewhere_names_the_test_that_shows_it():
    for feature in MATRIX:
        assert set(feature.cells.values()) <= {*SHOWN, AS_VERL, OWN, REFUSED_CELL, MEANINGLESS}, feature.name
        shown = {cell for cell in feature.cells.values() if cell in SHOWN or not feature.options} - {MEANINGLESS}
        assert not shown or feature.tests, feature.name
        for test in feature.tests:
            _check_test(test)


def test_only_vllm_is_said_to_work():
    """The other engines have not been run: tests of a server behind verl's interface run under SGLang's name."""
    by_engine = {option.partition("=")[2]: feature.cells for feature in MATRIX for option in feature.options
                 if option.startswith("actor_rollout_ref.rollout.name=")}  # fmt: skip
    assert by_engine.keys() >= {"sglang", "trtllm"}
    for engine, cells in by_engine.items():
        assert engine == "vllm" or WORKS not in cells.values(), engine


def test_every_trainer_engine_and_method_is_crossed_by_a_test():
    rows = _tables()[CROSSED]
    assert [row[0] for row in rows if row[0]] == ["sync", "colocate_async", "separate_async"]
    assert [row[1] for row in rows] == 3 * ["vLLM", "plain PyTorch", "vLLM, killed", "plain PyTorch, killed"]
    for _, _, *cells in rows:
        for cell in cells:
            tests = re.findall(r"`([^`]+)`", cell)
            assert tests
            for test in tests:
                _check_test(f"tests/integration/{test}")


def _check_test(test: str) -> None:
    """Assert that there is a test of this name."""
    file, _, function = test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert function in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)], test


@pytest.mark.parametrize("name", ["fast_dapo", "tracin"])
def test_every_row_of_the_code_is_asked_for_in_the_matrix(name: str):
    asked = [_asking(name, feature.options) for feature in MATRIX if feature.cells[name] == REFUSED_CELL]
    elsewhere = "actor_rollout_ref.model.path"  # test_tracin_refuses_a_model_of_images
    rows = [row for row in (*SHARED, *RECIPES[name].unsupported) if row.key != elsewhere]
    assert [row.key for row in rows if not any(row.problem(config) for config in asked)] == []


@pytest.mark.parametrize("row", RECIPES["golden_redaction"].unsupported, ids=lambda row: row.key)
def test_golden_redaction_refuses_any_other_value_of_what_does_nothing_in_its_steps(row: Unsupported):
    value = OmegaConf.select(_default("golden_redaction"), row.key)
    other = not value if isinstance(value, bool) else 2 if isinstance(value, int | float) else "another"
    problem = row.problem(_asking("golden_redaction", (f"{row.key}={json.dumps(other)}",)))
    assert problem is not None
    assert "Leave it at" in problem


@pytest.mark.parametrize(
    ("heading", "rows"),
    [
        ("Refused by every recipe", SHARED),
        *((f"Refused by {title}", RECIPES[name].unsupported) for title, name in TITLES.items()),
    ],
)
def test_the_documented_sentences_are_those_of_the_code(heading: str, rows: tuple[Unsupported, ...]):
    assert _tables()[heading] == [[f"`{row.key}`", row.sentence] for row in rows]


# ------------------------------ what overriding a value cannot ask for ------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_another_engine_brings_its_own_options_and_strategy(engine: str):
    """As Hydra composes it: no FSDP options remain, and actor, reference and critic use one engine."""
    config = _compose("fast_dapo", f"model_engine={engine}")
    actor, reference, critic = config.actor_rollout_ref.actor, config.actor_rollout_ref.ref, config.critic
    assert engine in actor
    assert "fsdp_config" not in actor
    assert {actor.strategy, reference.strategy, critic.strategy} == {engine}


def test_the_strategy_of_fsdp_is_one_word_for_all_three():
    config = _compose("fast_dapo", "actor_rollout_ref.actor.strategy=fsdp")
    assert config.actor_rollout_ref.ref.strategy == config.critic.strategy == "fsdp"


@pytest.mark.parametrize("node", ["vision_config", "audio_config", None])
def test_tracin_refuses_a_model_of_images(tmp_path: Path, node: str | None):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "any"} | ({node: {}} if node else {})))
    path = f"actor_rollout_ref.model.path={tmp_path}"
    _check("tracin", f"tracin.enable=false {path}")
    _check("fast_dapo", path)
    if node is None:
        _check("tracin", path)
        return
    with pytest.raises(ConfigError, match=r"images, videos or sounds are not supported.*text-only"):
        _check("tracin", path)


def test_tracin_refuses_the_processor_of_a_model_from_a_hub(tmp_path: Path):
    trainer: Any = SimpleNamespace(
        config=_asking("tracin", ()), processor=object(), run_folder=SimpleNamespace(path=tmp_path)
    )
    with pytest.raises(ConfigError, match="text-only"):
        TracInSelector(trainer).set_up_data()
