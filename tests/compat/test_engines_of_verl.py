"""What `verl_ext.launch.model_backend` says about verl's engines, checked against verl.

Engines whose libraries are not installed cannot be imported, so their source is checked.
"""

import ast
import copy
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from torch.testing._internal.distributed.fake_pg import FakeStore

from verl_ext.core.compat import MODEL_ENGINES as NEEDED
from verl_ext.launch.model_backend import FSDP, MEGATRON, MODEL_ENGINES, TORCHTITAN, VEOMNI, ModelEngine, layout
from verl_ext.run.checkpoints import MEGATRON_CONTENTS

ROOT = Path(__file__).resolve().parents[2]
VERL = Path(importlib.util.find_spec("verl").submodule_search_locations[0])  # type: ignore[union-attr,index]
FOLDERS = {FSDP.name: "fsdp"}
RANKS = 8


@cache
def _source(engine: str) -> ast.Module:
    folder = FOLDERS.get(engine, engine)
    return ast.parse((VERL / f"workers/engine/{folder}/transformer_impl.py").read_text(encoding="utf-8"))


def _function(engine: str, name: str) -> ast.FunctionDef:
    found = [node for node in ast.walk(_source(engine)) if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[0]


def _calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(name):
            yield call


@cache
def _composed(engine: str) -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose("fast_dapo", overrides=[f"model_engine={engine}", f"trainer.n_gpus_per_node={RANKS}"])


def _config(engine: ModelEngine, **sizes: Any) -> DictConfig:
    config = copy.deepcopy(_composed(engine.name))
    for name, size in sizes.items():
        OmegaConf.update(config, f"actor_rollout_ref.actor.{engine.node}.{name}", size)
    return config


@pytest.mark.parametrize("engine", MODEL_ENGINES.values(), ids=lambda engine: engine.name)
def test_the_table_is_that_of_verls_engines(engine: ModelEngine):
    config = _composed(engine.name)
    actor, critic = config.actor_rollout_ref.actor, config.critic
    sizes = {
        f"actor.{engine.node}": actor[engine.node],
        f"ref.{engine.node}": config.actor_rollout_ref.ref[engine.node],
    }
    if engine.has_critic:
        sizes["critic"] = critic[engine.critic_node]
    for owner, node in sizes.items():
        assert set(engine.sizes) | set(engine.saved_by) <= set(node), owner
    # The strategies, and whether there is a critic, are what the engine registers itself for.
    registered: dict[str, set[str]] = {}
    for call in _calls(_source(engine.name), "EngineRegistry.register"):
        given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        backends = given["backend"] if isinstance(given["backend"], list) else [given["backend"]]
        registered.setdefault(given["model_type"], set()).update(backends)
    assert registered["language_model"] == set(engine.strategies)
    assert ("value_model" in registered) == engine.has_critic


@pytest.mark.parametrize(
    ("engine", "option"),
    [
        (FSDP, "ulysses_sequence_parallel_size"),
        (MEGATRON, "context_parallel_size"),
        (TORCHTITAN, "tensor_parallel_size"),
        (VEOMNI, "ulysses_size"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_micro_batch_has_the_tokens_of_verls_sp_size(engine: ModelEngine, option: str):
    given = [
        ast.unparse(keyword.value)
        for call in _calls(_function(engine.name, "forward_backward_batch"), "assign_non_tensor")
        for keyword in call.keywords
        if keyword.arg == "sp_size"
    ]
    assert [name.rpartition(".")[2] for name in given] == [option]
    ours = next(name for name in engine.sizes if name.startswith(option.removesuffix("_size")))
    assert layout(_config(engine, **{ours: 2})).token_ranks == 2


@pytest.fixture
def _eight_ranks() -> Iterator[None]:
    """This process pretends to be the first of eight ranks."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    yield
    dist.destroy_process_group()


def _data_parallel_size(engine: str, names: dict[str, Any], engine_object: Any) -> int:
    """Run verl's own function, with `names` in place of the engine's library."""
    function = copy.deepcopy(_function(engine, "get_data_parallel_size"))
    module = ast.fix_missing_locations(ast.Module([function], []))
    exec(compile(module, "verl", "exec"), names)
    return names["get_data_parallel_size"](engine_object)


@pytest.mark.usefixtures("_eight_ranks")
@pytest.mark.parametrize("ulysses", [1, 2, 8])
def test_fsdp_and_veomni_divide_the_ranks_by_ulysses(ulysses: int):
    import torch

    state = SimpleNamespace(get_parallel_state=lambda: SimpleNamespace(ulysses_size=ulysses))
    verls = SimpleNamespace(ulysses_sequence_parallel_size=ulysses)
    fsdp = _data_parallel_size("dp", {"torch": torch}, verls)
    veomni = _data_parallel_size("veomni", {"torch": torch, "parallel_state": state}, None)
    assert layout(_config(FSDP, ulysses_sequence_parallel_size=ulysses)).data_parallel == fsdp == RANKS // ulysses
    assert layout(_config(VEOMNI, ulysses_parallel_size=ulysses)).data_parallel == veomni


def test_torchtitan_multiplies_its_two_sizes():
    sizes = {"data_parallel_shard_size": 2, "data_parallel_replicate_size": 2, "tensor_parallel_size": 2}
    config = _config(TORCHTITAN, **sizes)
    verls = SimpleNamespace(engine_config=config.actor_rollout_ref.actor.torchtitan)
    assert layout(config).data_parallel == _data_parallel_size("torchtitan", {}, verls) == 4


@pytest.mark.parametrize(("tensor", "pipeline", "context"), [(1, 1, 1), (2, 1, 1), (2, 2, 1), (1, 2, 2), (2, 2, 2)])
def test_megatrons_rows_are_divided_as_verl_validates_them(tensor: int, pipeline: int, context: int):
    """verl requires a batch that its data-parallel groups can share; the smallest has one row per group."""
    from verl.utils.config import validate_config

    config = _config(
        MEGATRON,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        context_parallel_size=context,
    )
    groups = layout(config).data_parallel
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    actor.use_dynamic_bsz, actor.ppo_micro_batch_size_per_gpu, rollout.n = False, 1, 1
    rollout.log_prob_micro_batch_size_per_gpu = 1
    config.data.train_batch_size = actor.ppo_mini_batch_size = groups
    validate_config(config, use_reference_policy=False, use_critic=False)
    if groups > 1:
        config.data.train_batch_size = groups + 1
        with pytest.raises(AssertionError, match=rf"minimal possible batch size \({groups}\)"):
            validate_config(config, use_reference_policy=False, use_critic=False)


def test_megatron_and_veomni_make_their_groups_once():
    """VeOmni's own function returns with a warning if they exist; verl calls it for every model."""
    assert "if mpu.is_initialized()" in ast.unparse(_function("megatron", "_init_device_mesh"))
    assert list(_calls(_function("veomni", "__init__"), "parallel_state.init_parallel_state"))
    assert {engine.name for engine in MODEL_ENGINES.values() if engine.is_shared} == {"megatron", "veomni"}


def test_torchtitan_is_told_no_interval_of_checkpoints():
    (call,) = _calls(_function("torchtitan", "__init__"), "CheckpointManager.Config")
    assert "interval" not in {keyword.arg for keyword in call.keywords}
    assert "last_step" not in ast.unparse(_function("torchtitan", "save_checkpoint"))


def test_an_engine_without_lora_never_asks_for_it():
    for engine in MODEL_ENGINES.values():
        asked = "lora_rank" in ast.unparse(_source(engine.name)) or "peft_cls" in ast.unparse(_source(engine.name))
        # VeOmni's engine notes a LoRA rank, and builds its model without LoRA.
        builds = "lora" in ast.unparse(_function("veomni", "_build_model_optimizer")) if engine is VEOMNI else asked
        assert builds == (engine.lora_rank is not None), engine.name


def test_nothing_in_verl_ever_finishes_a_save_in_the_background():
    sources = {path: path.read_text(encoding="utf-8") for path in VERL.rglob("*.py")}
    assert any("schedule_async_request" in text for text in sources.values())
    assert not [path for path, text in sources.items() if "finalize_async_calls" in text]


def test_megatrons_checkpoints_say_what_is_read_of_them():
    path = VERL / "utils/checkpoint/megatron_checkpoint_manager.py"
    manager = ast.parse(path.read_text(encoding="utf-8"))
    (build,) = [
        node
        for node in ast.walk(manager)
        if isinstance(node, ast.FunctionDef) and node.name == "_build_checkpoint_manifest"
    ]
    keys = {key.value for node in ast.walk(build) if isinstance(node, ast.Dict) for key in node.keys if key}
    assert {"role", "world_size", "backend", "peft"} <= keys
    assert f'"{MEGATRON_CONTENTS}"' in (VERL / "utils/megatron_utils.py").read_text(encoding="utf-8")


def test_what_is_needed_is_what_verl_names():
    from importlib.metadata import requires

    assert set(NEEDED) == set(MODEL_ENGINES)
    named = [line.partition(";")[0].strip() for line in requires("verl") or ()]
    for wanted in NEEDED.values():
        for name, versions in wanted.items():
            if name != "torchtitan":  # verl names none
                assert (f"{name}=={versions[0]}" if versions else name) in named
