"""What is known about a run before Ray starts, module by module; whole commands are in test_command_lines.py."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict
from safetensors.torch import save_file
from stand_ins import make_data, make_model
from verl.trainer.ppo.core_algos import register_adv_est

from recipe.fast_dapo.settings import resolve_group_size
from verl_ext.launch.preflight import machine, model_files, options, prompts, resumed, reward, values
from verl_ext.launch.preflight.verdicts import Case, Success, Trial, Verdict, trial_problems, try_case
from verl_ext.launch.recipe import recipes

ROOT = Path(__file__).resolve().parents[3]


def _compose(*overrides: str, recipe: str = "fast_dapo") -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose(recipe, overrides=list(overrides))


@pytest.fixture(scope="module")
def config() -> DictConfig:
    """The demo's configuration; no test changes it."""
    return _compose("+backend=cpu", "+experiment=arithmetic_two_phase")


def _changed(config: DictConfig, **settings: object) -> DictConfig:
    """A copy with these settings, in whose names `__` stands for the dot."""
    copy = OmegaConf.create(OmegaConf.to_container(config))
    with open_dict(copy):
        for name, value in settings.items():
            OmegaConf.update(copy, name.replace("__", "."), value, force_add=True)
    assert isinstance(copy, DictConfig)
    return copy


# ------------------------------ names ------------------------------


@pytest.mark.parametrize("recipe", sorted(recipe.name for recipe in recipes()))
def test_shipped_experiments_have_known_names_only(recipe: str):
    known = _compose(recipe=recipe)
    for file in sorted((ROOT / "configs/experiment").glob("*.yaml")):
        is_golden = "golden" in file.stem
        if is_golden == (recipe == "golden_redaction") and (recipe == "tracin") <= file.stem.startswith("tracin"):
            assert options.unknown_options(_compose(f"+experiment={file.stem}", recipe=recipe), known) == [], file
    assert options.unknown_options(_compose("+backend=cpu", recipe=recipe), known) == []


def test_a_name_in_a_file_of_the_users_is_found(config: DictConfig):
    wrong = _changed(config, actor_rollout_ref__rollout__gpu_memory_utilisation=0.5)
    (problem,) = options.unknown_options(wrong, config)
    assert problem == (
        "actor_rollout_ref.rollout.gpu_memory_utilisation does not exist; did you mean "
        "actor_rollout_ref.rollout.gpu_memory_utilization?"
    )


def test_names_of_others_are_left_alone(config: DictConfig):
    wanted = {
        "ray_kwargs__ray_init__address": "local",
        "reward__custom_reward_function__reward_kwargs": {"scale": 2},
        "actor_rollout_ref__model__override_config__rope_theta": 1e6,
        "actor_rollout_ref__rollout__engine_kwargs__vllm__max_logprobs": 4,
        "data__apply_chat_template_kwargs__enable_thinking": False,
        "trainer__v1__sync__parameter_sync_step": 1,
        "my_selector": {"share": 0.5},
    }
    assert options.unknown_options(_changed(config, **wanted), config) == []


def test_what_verl_reads_without_declaring_it_is_still_read_there():
    import verl

    folder = Path(verl.__file__).parent
    source = "".join(file.read_text(encoding="utf-8") for file in folder.rglob("*.py"))
    for names in options.READ_BY_VERL.values():
        for name in names:
            assert f'"{name}"' in source or f".{name}" in source, name


# ------------------------------ values ------------------------------


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (4, None),
        (0, "must be a whole number of at least 1, got 0"),
        (True, "must be a whole number of at least 1, got True"),
        (2.5, "must be a whole number of at least 1, got 2.5"),
        ("4", "must be a whole number of at least 1, got '4'"),
        (None, "must be a whole number of at least 1, got None"),
    ],
)
def test_a_count_is_a_whole_number(config: DictConfig, value: object, problem: str | None):
    found = values.check_values(_changed(config, trainer__total_epochs=value))
    assert found == ([] if problem is None else [f"trainer.total_epochs {problem}"])


def test_bounds_are_inside_or_outside():
    number = values.Number("x", 0, 1, is_open=True)
    assert [number.problem(OmegaConf.create({"x": x})) is None for x in (0, 0.001, 1, 1.001)] == [
        False,
        True,
        True,
        False,
    ]
    assert number.problem(OmegaConf.create({})) is None


def test_an_estimator_of_the_users_own_is_known_when_it_is_registered(config: DictConfig):
    mine = _changed(config, algorithm__adv_estimator="of_this_test")
    assert "algorithm.adv_estimator must be one of" in values.check_values(mine)[0]
    # verl imports such a module only in the workers.
    assert values.check_values(_changed(mine, actor_rollout_ref__model__external_lib="my_package")) == []
    register_adv_est("of_this_test")(lambda *_: None)
    assert values.check_values(mine) == []


def test_an_estimator_that_the_trainers_module_registers_is_known(
    config: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(tmp_path)
    lines = ["from verl.trainer.ppo.core_algos import register_adv_est", "register_adv_est('of_a_trainer')(print)"]
    (tmp_path / "my_trainer.py").write_text("\n".join(lines))
    (tmp_path / "my_broken_trainer.py").write_text("1 / 0")
    mine = _changed(config, algorithm__adv_estimator="of_a_trainer", trainer_class="my_broken_trainer.Mine")
    assert values.check_values(mine) == [
        "trainer_class=my_broken_trainer.Mine cannot be imported: ZeroDivisionError: division by zero"
    ]
    assert values.check_values(_changed(mine, trainer_class="my_trainer.Mine")) == []
    # The module is not imported if all names are known.
    assert values.check_values(_changed(config, trainer_class="my_broken_trainer.Mine")) == []


PROBLEMS_OF_A_NEW_PROCESS = """
import sys
from hydra import compose, initialize_config_dir
from verl_ext.launch.preflight import values
with initialize_config_dir(sys.argv[1], version_base=None):
    config = compose(sys.argv[2], overrides=["+backend=cpu", "algorithm.adv_estimator=posterior"])
print(values.check_values(config))
"""


@pytest.mark.parametrize(("recipe", "problem"), [("fast_dapo", "[]"), ("tracin", "got 'posterior'\"]")])
def test_the_posterior_baseline_is_known_to_fast_dapo_and_to_nobody_else(recipe: str, problem: str):
    """In a process that has registered nothing yet, like that of every command."""
    command = [sys.executable, "-c", PROBLEMS_OF_A_NEW_PROCESS, str(ROOT / "configs"), recipe]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1].endswith(problem), done.stderr


def test_a_sequence_over_several_ranks_may_be_longer(config: DictConfig):
    tight = _changed(config, actor_rollout_ref__actor__ppo_max_token_len_per_gpu=15)
    (problem,) = values.check_micro_batch(tight)
    assert "holds no row of data.max_prompt_length + data.max_response_length = 20 + 10" in problem
    long = _changed(tight, actor_rollout_ref__actor__fsdp_config__ulysses_sequence_parallel_size=2)
    both = _changed(long, trainer__n_gpus_per_node=2)
    assert [*values.check_values(both), *values.check_micro_batch(both)] == []
    assert (
        "ulysses_sequence_parallel_size=2 does not divide trainer.nnodes x n_gpus_per_node = 1 ranks"
        in values.check_values(long)[0]
    )


def test_verls_own_words_are_kept(config: DictConfig):
    wrong = _changed(config, actor_rollout_ref__rollout__pipeline_model_parallel_size=2)
    resolve_group_size(wrong)
    (problem,) = values.check_verls_nodes(wrong)
    assert problem.startswith("actor_rollout_ref.rollout: ")
    assert "pipeline" in problem


# ------------------------------ model ------------------------------


def test_a_model_with_several_files_of_weights(tmp_path: Path):
    make_model(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert model_files.model_problem(str(tmp_path)) == (
        "1 of 2 files of weights are missing, such as model-00002-of-00002.safetensors: copy the model again"
    )
    os.link(tmp_path / "model-00001-of-00002.safetensors", tmp_path / "model-00002-of-00002.safetensors")
    assert model_files.model_problem(str(tmp_path)) is None


def test_a_checkpoint_is_to_be_merged(tmp_path: Path):
    (tmp_path / "model_world_size_1_rank_0.pt").touch()
    assert "python -m verl.model_merger merge" in (model_files.model_problem(str(tmp_path)) or "")


@pytest.mark.parametrize("path", ["hdfs://cluster/model", "Qwen/Qwen2.5-1.5B"])
def test_what_is_elsewhere_is_not_looked_for(path: str):
    assert model_files.model_problem(path) is None


def test_a_response_needs_room_in_the_context(config: DictConfig):
    room = SimpleNamespace(max_position_embeddings=30)
    assert model_files.context_problem(config, room) is None
    assert "the model's context is 29" in (
        model_files.context_problem(config, SimpleNamespace(max_position_embeddings=29)) or ""
    )
    shorter = _changed(config, actor_rollout_ref__rollout__max_model_len=25)
    assert "or raise max_model_len" in (model_files.context_problem(shorter, room) or "")
    longer = _changed(config, actor_rollout_ref__rollout__max_model_len=31)
    assert "more than the model's context of 30" in (model_files.context_problem(longer, room) or "")
    assert model_files.context_problem(config, None) is None


def test_every_weight_fits_into_the_bucket_of_the_cpu_backend(config: DictConfig, tmp_path: Path):
    save_file(
        {"embed": torch.zeros(1024, 300, dtype=torch.bfloat16), "bias": torch.zeros(8)}, tmp_path / "a.safetensors"
    )
    with_model = _changed(config, actor_rollout_ref__model__path=str(tmp_path))
    bucket = {"actor_rollout_ref__rollout__checkpoint_engine__update_weights_bucket_megabytes": 1}
    assert model_files.bucket_problem(with_model) is None
    assert model_files.bucket_problem(_changed(with_model, **bucket)) == (
        "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=1, but the weight embed takes "
        "1.2 MB: set it to 2 or more"
    )
    of_half = {"actor_rollout_ref__actor__fsdp_config__model_dtype": "bf16"}
    assert model_files.bucket_problem(_changed(with_model, **bucket, **of_half)) is None
    # Between GPUs, verl sends a large weight separately; a model on a hub is not known.
    assert model_files.bucket_problem(_changed(with_model, **bucket, trainer__device="cuda")) is None
    elsewhere = {"actor_rollout_ref__model__path": "Qwen/Qwen2.5-1.5B"}
    assert model_files.bucket_problem(_changed(with_model, **bucket, **elsewhere)) is None


# ------------------------------ reward ------------------------------

CASE = Case("source", "7", {"index": 0}, "train.parquet, row 0")
SUCCESS = Success("acc", 0.5, "metric", "threshold")


def test_an_answer_is_given_in_every_form():
    seen: list[str] = []

    def compute_score(data_source, solution_str, ground_truth, extra_info):
        seen.append(solution_str)
        return {"score": float("boxed{7}" in solution_str), "pred": solution_str}

    trial = try_case(compute_score, CASE)
    assert seen == ["I do not know.", "7", "\\boxed{7}", "Answer: 7", "#### 7"]
    assert [verdict.score for verdict in trial.right] == [0, 1, 0, 0]
    (problem,) = trial_problems(trial, SUCCESS, "mine")
    assert "metric=acc is not among what mine returns for data_source=source (train.parquet, row 0): score." in problem


@pytest.mark.parametrize(
    ("threshold", "scores", "is_refused"),
    [
        (0.5, (0, 1), False),
        (1, (0, 1), True),
        (5, (-1, 1), True),
        # The rewards of longer answers are not known.
        (5, (0.2, 0.4), False),
        (5, (1, 1), False),
    ],
)
def test_a_threshold_that_no_right_answer_passes(threshold: float, scores: tuple[float, float], is_refused: bool):
    verdicts = [Verdict(float(score), {"acc": float(score)}) for score in scores]
    trial = Trial(CASE, verdicts[0], (verdicts[1],))
    success = Success("acc", threshold, "metric", "threshold")
    assert bool(list(trial_problems(trial, success, "mine"))) == is_refused


@pytest.mark.parametrize(("scores", "refused"), [((0, 0.3), None), ((0, 1), None), ((-1, 1), "-1"), ((0.2, 10), "10")])
def test_a_reward_that_is_no_grade(scores: tuple[float, float], refused: str | None):
    verdicts = [Verdict(float(score), {"acc": float(score)}) for score in scores]
    trial = Trial(CASE, verdicts[0], (verdicts[1],))
    found = list(trial_problems(trial, Success("acc", None, "metric", "threshold"), "mine"))
    expected = f"metric=acc is {refused} for data_source=source .*threshold=null expects a grade from 0 to 1: scale"
    assert len(found) == (refused is not None)
    assert refused is None or re.match(expected, found[0])


def test_a_reward_that_is_no_number():
    trial = try_case(lambda **_: float("nan"), CASE)
    assert list(trial_problems(trial, None, "mine")) == [
        "mine gave a reward that is not a finite number for data_source=source (train.parquet, row 0)"
    ]


def test_a_function_that_hangs_is_given_up():
    assert reward.in_child(lambda: time.sleep(60) or [], 0.2) == "did not answer within 0.2 s"


# ------------------------------ prompts ------------------------------


def test_one_case_per_data_source(tmp_path: Path):
    for name, source in (("a", "one"), ("b", "two"), ("c", "one")):
        make_data(tmp_path / f"{name}.parquet", [3, 4], data_source=source)
    found = prompts.cases([str(tmp_path / f"{name}.parquet") for name in "abc"])
    assert [(case.data_source, case.ground_truth, Path(case.where).name) for case in found] == [
        ("one", "4", "a.parquet, row 0"),
        ("two", "4", "b.parquet, row 0"),
    ]


def test_shared_prompts_are_counted_per_file(tmp_path: Path):
    for name, numbers in (("train", range(10)), ("other", range(10, 14)), ("half", range(8, 12))):
        make_data(tmp_path / f"{name}.parquet", numbers)
    train, other, half = (str(tmp_path / f"{name}.parquet") for name in ("train", "other", "half"))
    (warning,) = prompts.shared_prompts([train], [other, half], "prompt")
    assert warning.startswith(f"2 of 4 prompts of {half} are also trained on")


# ------------------------------ resumed ------------------------------


def test_a_run_that_goes_on_as_it_was(config: DictConfig, tmp_path: Path):
    assert resumed.changes(tmp_path, config) == ([], [])
    resumed.write_settings(tmp_path, config)
    longer = _changed(config, trainer__total_training_steps=40, trainer__save_freq=1, run_dir="elsewhere")
    assert resumed.changes(tmp_path, longer) == ([], [])
    assert "env_vars" not in (tmp_path / resumed.FILE).read_text()  # they may hold keys


def test_what_the_checkpoint_decides_is_refused_and_the_rest_is_said(config: DictConfig, tmp_path: Path):
    resumed.write_settings(tmp_path, config)
    changed = _changed(config, actor_rollout_ref__actor__optim__lr=1e-5, algorithm__adv_estimator="grpo")
    problems, warnings = resumed.changes(tmp_path, changed)
    (problem,) = problems
    assert problem.startswith("actor_rollout_ref.actor.optim.lr was 0.0003 and is 1e-05, but the run resumes from its")
    assert "actor_rollout_ref.actor.checkpoint.load_contents=[model,extra]" in problem
    assert warnings == ['algorithm.adv_estimator was "rloo" and is "grpo" from here on']
    without = _changed(changed, actor_rollout_ref__actor__checkpoint__load_contents=["model", "extra"])
    assert resumed.changes(tmp_path, without)[0] == []


# ------------------------------ machine ------------------------------


def test_folders_that_cannot_be_written_to(tmp_path: Path):
    (tmp_path / "file").touch()
    assert machine.output_problem(str(tmp_path / "new/folder")) is None
    assert machine.output_problem(str(tmp_path / "file/below")) == f"{tmp_path / 'file'} is a file: name a folder"
    assert machine.output_problem("s3://bucket/run") is None


@pytest.mark.parametrize("flag", ["avx512_bf16", "amx_bf16", "bf16"])
def test_processors_with_bfloat16(flag: str, tmp_path: Path):
    (file := tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu avx2 {flag} sse\n")
    assert machine.has_bfloat16(file)
    file.write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512f sse\n")
    assert not machine.has_bfloat16(file)
    assert machine.has_bfloat16(tmp_path / "missing")


def test_bfloat16_on_a_processor_without_it(config: DictConfig, monkeypatch: pytest.MonkeyPatch):
    asked = _changed(config, actor_rollout_ref__rollout__dtype="bfloat16")
    monkeypatch.setattr(machine, "has_bfloat16", lambda: True)
    assert machine.bfloat16_warnings(asked) == []
    monkeypatch.setattr(machine, "has_bfloat16", lambda: False)
    assert machine.bfloat16_warnings(config) == []
    (warning,) = machine.bfloat16_warnings(asked)
    assert warning.startswith("actor_rollout_ref.rollout.dtype=bfloat16: this processor has no")
    assert warning.endswith("slower than with actor_rollout_ref.rollout.dtype=float32")
    both = {"actor_rollout_ref__actor__fsdp_config__mixed_precision__param_dtype": "bf16"}
    (warning,) = machine.bfloat16_warnings(_changed(asked, **both))
    assert warning.endswith("param_dtype=fp32")
    assert "dtype=bfloat16 and actor_rollout_ref.actor.fsdp" in warning
    assert machine.bfloat16_warnings(_changed(asked, trainer__device="cuda")) == []


def test_more_devices_than_there_are(config: DictConfig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    cores = os.cpu_count() or 1
    assert machine.check_devices(_changed(config, trainer__n_gpus_per_node=cores)) == []
    (problem,) = machine.check_devices(_changed(config, trainer__n_gpus_per_node=cores + 1))
    assert problem.startswith(f"trainer.n_gpus_per_node={cores + 1}, but this machine has {cores} cores")
    (problem,) = machine.check_devices(_changed(config, trainer__nnodes=2))
    assert "needs a Ray cluster" in problem
    apart = {"trainer__v1__trainer_mode": "separate_async", "trainer__n_gpus_per_node": cores}
    rollout = {"actor_rollout_ref__rollout__n_gpus_per_node": 1}
    (problem,) = machine.check_devices(_changed(config, **apart, **rollout, actor_rollout_ref__rollout__nnodes=1))
    assert problem.startswith(
        f"actor_rollout_ref.rollout.n_gpus_per_node=1 in addition to trainer.n_gpus_per_node={cores}, but"
    )
    (problem,) = machine.check_devices(_changed(config, **apart, **rollout, actor_rollout_ref__rollout__nnodes=2))
    assert problem.startswith("actor_rollout_ref.rollout.nnodes=2 needs a Ray cluster")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert machine.check_devices(_changed(config, trainer__nnodes=2)) == []
