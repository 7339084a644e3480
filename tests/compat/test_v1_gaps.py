"""Options that verl's v1 trainer does not read are refused; verl's own code shows that it does not read them."""

import ast
import copy
import functools
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
import verl
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from verl_ext.core.errors import ConfigError
from verl_ext.launch.compatibility import Unsupported
from verl_ext.launch.recipe import PROJECT_ROOT, check_settings, find_recipe
from verl_ext.launch.v1_gaps import V1_GAPS

RECIPES = ("fast_dapo", "tracin", "golden_redaction")
ENGINES = ("dp", "megatron", "veomni", "torchtitan")
ESTIMATOR = "algorithm.adv_estimator"
# Every row applies in one of these.
WHERE = (
    "critic.enable=true algorithm.filter_groups.enable=true actor_rollout_ref.actor.use_kl_loss=true",
    "model_engine=megatron critic.enable=true",
)
UNREAD = [row for row in V1_GAPS if row.key != ESTIMATOR]


@functools.cache
def _composed(recipe: str, overrides: str) -> DictConfig:
    files = "data.train_files=none.parquet data.val_files=none.parquet actor_rollout_ref.model.path=/none"
    with initialize_config_dir(str(PROJECT_ROOT / "configs"), version_base=None):
        return compose(recipe, overrides=[*files.split(), *overrides.split()])


def _with(config: DictConfig, **values: object) -> DictConfig:
    changed = copy.deepcopy(config)
    with open_dict(changed):
        for key, value in values.items():
            OmegaConf.update(changed, key, value, force_add=True)
    return changed


def _another(config: DictConfig, key: str) -> object:
    value = OmegaConf.select(config, key)
    if isinstance(value, bool):
        return not value
    return value + 7 if isinstance(value, int | float) else "another"


# ------------------------------ the rows ------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    "overrides",
    [
        *(f"model_engine={engine}{critic}" for engine in ENGINES for critic in ("", " critic.enable=true")),
        "+backend=cpu critic.enable=true actor_rollout_ref.actor.use_kl_loss=true",
    ],
)
def test_no_recipe_sets_such_an_option(recipe: str, overrides: str):
    config = _composed(recipe, overrides)
    assert [row.problem(config) for row in V1_GAPS if row.problem(config)] == []


@pytest.mark.parametrize("row", UNREAD, ids=lambda row: row.key)
def test_another_value_is_refused_where_the_row_applies(row: Unsupported):
    configs = [_composed("tracin", where) for where in WHERE]
    problems = [row.problem(_with(config, **{row.key: _another(config, row.key)})) for config in configs]
    assert any(problems)
    assert all(problem is None or re.search(r"\. (Set|Leave|With)", problem) for problem in problems)


@pytest.mark.parametrize(
    ("key", "twin", "value"),
    [
        ("actor_rollout_ref.actor.grad_clip", "actor_rollout_ref.actor.optim.clip_grad", 0.3),
        ("actor_rollout_ref.actor.use_torch_compile", "actor_rollout_ref.actor.fsdp_config.use_torch_compile", False),
        ("actor_rollout_ref.actor.use_fused_kernels", "actor_rollout_ref.model.use_fused_kernels", True),
        ("actor_rollout_ref.actor.use_remove_padding", "actor_rollout_ref.model.use_remove_padding", False),
        ("critic.ppo_max_token_len_per_gpu", "critic.ppo_infer_max_token_len_per_gpu", 9000),
    ],
)
def test_the_value_of_the_option_that_verl_reads_is_accepted(key: str, twin: str, value: object):
    config = _composed("tracin", WHERE[0])
    row = next(row for row in V1_GAPS if row.key == key)
    assert row.problem(_with(config, **{key: value})) is not None
    assert row.problem(_with(config, **{key: value, twin: value})) is None


@pytest.mark.parametrize(
    ("key", "value", "condition"),
    [
        ("critic.grad_clip", 0.3, {"critic.enable": False}),
        ("algorithm.filter_groups.max_num_gen_batches", 4, {"algorithm.filter_groups.enable": False}),
        ("trainer.resume_from_path", "global_step_3", {"trainer.resume_mode": "resume_path"}),
        ("actor_rollout_ref.actor.fsdp_config.use_orig_params", True, {"actor_rollout_ref.actor.strategy": "fsdp"}),
    ],
)
def test_a_row_does_not_apply_elsewhere(key: str, value: object, condition: dict[str, object]):
    config = _composed("tracin", WHERE[0])
    row = next(row for row in V1_GAPS if row.key == key)
    assert row.problem(_with(config, **{key: value})) is not None
    assert row.problem(_with(config, **{key: value} | condition)) is None


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_checks_the_rows(recipe: str):
    config = _with(_composed(recipe, "model_engine=dp"), **{"actor_rollout_ref.actor.grad_clip": 0.3})
    with pytest.raises(ConfigError, match=r"actor\.grad_clip=0\.3: .*actor\.optim\.clip_grad"):
        check_settings(config, find_recipe(recipe))


def test_the_documented_table_is_that_of_the_code():
    lines = (PROJECT_ROOT / "docs/compatibility.md").read_text(encoding="utf-8").splitlines()
    begin = lines.index("## Refused because verl's v1 trainer does not read it")
    table = [line for line in lines[begin:] if line.startswith("| ")][1 : len(V1_GAPS) + 1]
    assert table == [f"| `{row.key}` | {row.sentence} |" for row in V1_GAPS]


# ------------------------------ verl's code ------------------------------

# Older trainers, and dataclasses and YAML files, which have all these names.
NOT_OF_V1 = (
    "trainer/config/",
    "trainer/ppo/ray_trainer.py",
    "trainer/sft_trainer",
    "experimental/fully_async_policy/",
    "experimental/one_step_off_policy/",
    "experimental/separation/",
    "workers/config/",
)
_ENGINES = "workers/engine/{}/transformer_impl.py"
FSDP, MEGATRON, VEOMNI, TITAN, AUTOMODEL = map(
    _ENGINES.format, ("fsdp", "megatron", "veomni", "torchtitan", "automodel")
)
WORKERS, TINKER = "workers/engine_workers.py", "workers/engine_workers_tinker.py"

# Files that read an option of this name at another place: of the model, of the engine, of the actor, of Megatron.
READERS: dict[str, set[str]] = {
    "use_torch_compile": {AUTOMODEL, FSDP, TITAN, VEOMNI},
    "use_fused_kernels": {AUTOMODEL, FSDP, MEGATRON, VEOMNI, WORKERS, TINKER},
    "use_remove_padding": {AUTOMODEL, FSDP, MEGATRON, TITAN, VEOMNI, WORKERS, TINKER},
    # What a worker could compute if the trainer asked for it.
    "calculate_sum_pi_squared": {FSDP, MEGATRON},
    # FSDP1 only.
    "use_orig_params": {FSDP},
    "min_num_params": {"utils/fsdp_utils.py"},
    "enable_train": {"models/mcore/model_forward.py", MEGATRON},
    # The engine's and the actor's; `utils/config.py` only validates.
    "use_dynamic_bsz": {"utils/config.py", MEGATRON, "workers/engine/utils.py", WORKERS, TINKER},
    "ppo_max_token_len_per_gpu": {WORKERS},
    "ulysses_sequence_parallel_size": {"workers/engine/fsdp/fsdp_turbo_impl.py", FSDP, VEOMNI},
    # Validation's; the two rollouts are not of v1, whose agent loops take a field of this name from the prompt.
    "do_sample": {"utils/config.py", "workers/rollout/hf_rollout.py", "workers/rollout/naive/naive_rollout.py"},
    # Reward managers of the older trainer, of which it is an argument.
    "reward_fn_key": {f"workers/reward_manager/{name}.py" for name in ("batch", "dapo", "naive", "prime")},
    # Stored in an attribute, and not used.
    "return_raw_chat": {"utils/dataset/rl_dataset.py"},
    "return_full_prompt": {"utils/dataset/rl_dataset.py"},
    # With resume_mode=resume_path.
    "resume_from_path": {"trainer/ppo/v1/trainer_base.py", "utils/checkpoint/checkpoint_handler.py"},
    # For a warning that it is ignored.
    "max_num_gen_batches": {"trainer/ppo/v1/trainer_base.py"},
}


@functools.cache
def _mentions() -> dict[str, set[str]]:
    """Attributes and texts in verl's code of the v1 trainer -> the files that have them."""
    root, found = Path(verl.__file__).parent, defaultdict[str, set[str]](set)
    for path in root.rglob("*.py"):
        file = path.relative_to(root).as_posix()
        if file.startswith(NOT_OF_V1):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                found[node.attr].add(file)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found[node.value].add(file)
    return found


# LoRA's, see below.
OF_LORA = ("model.lora", "model.target_modules", "model.exclude_modules")
NAMES = sorted(
    {row.key.removesuffix(".path").rpartition(".")[2] for row in UNREAD if not any(part in row.key for part in OF_LORA)}
)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_verl_reads_it_but_at_the_known_places(name: str):
    assert _mentions()[name] == READERS.get(name, set())


def test_megatrons_options_of_lora_and_those_of_the_other_engines_are_apart():
    """Beyond `lora.merge`, which FSDP reads as well."""
    for name in ("lora_alpha", "target_modules", "exclude_modules", "lora_adapter_path"):
        assert MEGATRON not in _mentions()[name]
    assert _mentions()["lora"].isdisjoint({VEOMNI, TITAN})


# ------------------------------ estimators, with what the v1 trainer gives them ------------------------------


def _advantages(estimator: str, **settings: object) -> torch.Tensor:
    """[B, T], B = 6, T = 4, from the fields that `PPOTrainer._compute_advantage` fetches."""
    B, T = 6, 4
    generator = torch.Generator().manual_seed(0)
    fields = {name: -torch.rand(B, T, generator=generator) for name in ("rollout_log_probs", "old_log_probs")}
    fields |= {name: torch.rand(B, T, generator=generator) for name in ("ref_log_prob", "values")}
    rewards_BT = torch.zeros(B, T)
    rewards_BT[:, -1] = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0, 1.0])
    fields |= {"rm_scores": rewards_BT, "token_level_scores": rewards_BT, "token_level_rewards": rewards_BT}
    data = DataProto(batch=TensorDict(fields | {"response_mask": torch.ones(B, T)}, batch_size=B))
    data.non_tensor_batch["uid"] = np.array(["a"] * 3 + ["b"] * 3, dtype=object)
    algorithm = _with(_composed("tracin", "model_engine=dp"), **settings).algorithm
    keys = [f"{uid}_{session}_0" for session, uid in enumerate("aaabbb")]
    computed = compute_advantage_for_multi_trajectories(
        data, batch_keys=keys, adv_estimator=estimator, num_repeat=3, config=algorithm
    )
    return computed.batch["advantages"]


@pytest.mark.parametrize("estimator", sorted(name for name in ADV_ESTIMATOR_REGISTRY if name != "posterior"))
def test_an_estimator_is_refused_where_it_fails(estimator: str):
    row = [row for row in V1_GAPS if row.key == ESTIMATOR and row.is_asked(estimator, DictConfig({}))]
    if not row:
        assert _advantages(estimator).shape == (6, 4)
        return
    keys = {"algorithm.gdpo_reward_keys": ["format", "answer"]} if estimator == "gdpo" else {}
    with pytest.raises((AssertionError, TypeError, KeyError, ValueError)):
        _advantages(estimator, **keys)


def test_pf_ppo_gives_rows_the_advantages_of_others():
    torch.manual_seed(1)
    resampled = _advantages("gae", **{"algorithm.use_pf_ppo": True})
    plain = _advantages("gae")
    assert not torch.equal(resampled, plain)
    assert all(any(torch.equal(row, other) for other in plain) for row in resampled)
