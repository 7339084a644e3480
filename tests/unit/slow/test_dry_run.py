"""`dry_run=true`: everything is checked and counted, and nothing starts."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from stand_ins import make_toxicity_classifier
from transformers import AutoConfig, Qwen2Config, Qwen2ForCausalLM

from recipe.fast_dapo.recipe import RECIPE as FAST_DAPO
from recipe.golden_redaction.recipe import RECIPE as GOLDEN_REDACTION
from recipe.tracin.recipe import RECIPE as TRACIN
from verl_ext.core.errors import ConfigError
from verl_ext.data.schema import make_row, write_parquet
from verl_ext.launch import dry_run, launch
from verl_ext.launch.data_checks import DataError
from verl_ext.launch.estimate import BatchArithmetic, Storage, memory_estimate, num_lora_parameters, num_parameters
from verl_ext.launch.preflight.checks import Findings
from verl_ext.launch.train import train

ROOT = Path(__file__).resolve().parents[3]
MATH_RUNS = ("dapo17k_qwen2_5_1_5b", "dapo17k_qwen2_5_math_1_5b", "dapo17k_qwen2_5_math_7b", "dapo17k_qwen3_4b")
BASELINES = ("dapo17k_rloo", "dapo17k_grpo", "dapo17k_dapo", "dapo17k_two_phase")


# ------------------------------ batches ------------------------------


def test_a_step_in_numbers():
    batch = BatchArithmetic(prompts=128, group_size=16, mini_batch_prompts=32, epochs=2, ranks=8)
    assert (batch.rollouts, batch.mini_batches, batch.updates) == (2048, 4, 8)
    assert (batch.rows_per_rank, batch.update_rows_per_rank) == (256, 64)


def test_what_does_not_divide_is_rounded_up():
    batch = BatchArithmetic(prompts=5, group_size=3, mini_batch_prompts=2, epochs=1, ranks=4)
    assert (batch.mini_batches, batch.rows_per_rank, batch.update_rows_per_rank) == (3, 4, 2)


# ------------------------------ memory ------------------------------


def test_memory_of_a_billion_parameters_on_eight_gpus():
    estimate = memory_estimate(
        10**9, storage=Storage.sharded(8), tensor_parallel=2, utilization=0.6, gpu_bytes=80 * 10**9
    )
    assert estimate == {
        "weights": 500_000_000,
        "gradients": 500_000_000,
        "optimizer": 1_000_000_000,
        "serving": 1_000_000_000,
        "update": 2_000_000_000,
        "generation": 1_500_000_000,
        # Generation needs 1.5e9 / 0.4, the update 2e9, the engine 1e9 / 0.6.
        "smallest_gpu": 3_750_000_000,
        "kv_cache": 47_000_000_000,
    }


def test_sgd_keeps_no_states():
    estimate = memory_estimate(1000, optimizer_states=0)
    assert (estimate["optimizer"], estimate["update"], estimate["generation"]) == (0, 8000, 4000)


def test_lora_has_gradients_and_states_of_its_factors_alone():
    estimate = memory_estimate(1000, num_trained=10)
    assert [estimate[name] for name in ("weights", "gradients", "optimizer")] == [4000, 40, 80]


@pytest.mark.parametrize(("is_offloaded", "left"), [((True, False), 8000), ((False, True), 4000), ((True, True), 0)])
def test_what_is_offloaded_leaves_room_for_the_engine(is_offloaded: tuple[bool, bool], left: int):
    assert memory_estimate(1000, is_offloaded=is_offloaded)["generation"] == left


def test_the_engine_or_the_update_may_decide_the_smallest_gpu():
    assert memory_estimate(1000, storage=Storage.sharded(100), utilization=0.1)["smallest_gpu"] == 20_000
    # The update decides with 16000, since generation may use all of the GPU but a tenth.
    assert memory_estimate(1000, utilization=0.2, is_offloaded=(True, True))["smallest_gpu"] == 16_000


def test_no_kv_cache_is_claimed_for_an_unknown_gpu_and_a_lack_of_room_is_negative():
    assert "kv_cache" not in memory_estimate(1000)
    assert memory_estimate(1000, gpu_bytes=3000)["kv_cache"] == -500


# ------------------------------ parameters ------------------------------


def _tiny(is_tied: bool = False, vocab_size: int = 32) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=is_tied,
        max_position_embeddings=16384,
    )


# Parameters of a layer: query 8x8 + 8, key and value 8x4 + 4 each, output 8x8, MLP 3 x 8x16, two norms of 8.
LAYER = 72 + 2 * 36 + 64 + 3 * 128 + 16


@pytest.mark.parametrize(("is_tied", "embeddings"), [(True, 32 * 8), (False, 2 * 32 * 8)])
def test_tied_embeddings_are_counted_once(is_tied: bool, embeddings: int):
    assert num_parameters(_tiny(is_tied)) == embeddings + 2 * LAYER + 8


def test_the_size_of_a_real_model_is_known_without_its_weights():
    qwen = Qwen2Config(
        vocab_size=151936,
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    assert num_parameters(qwen) == 1_543_714_304  # 1.54 billion, as in the model card of Qwen2.5-1.5B


def test_loras_factors_as_peft_makes_them():
    from peft import LoraConfig, get_peft_model

    for targets in ("all-linear", ["q_proj", "down_proj"]):
        model = get_peft_model(Qwen2ForCausalLM(_tiny()), LoraConfig(r=4, target_modules=targets))
        made = sum(parameter.numel() for name, parameter in model.named_parameters() if "lora_" in name)
        assert num_lora_parameters(_tiny(), 4, targets) == made > 0


# ------------------------------ the whole ------------------------------


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model, and a tokenizer with a chat template."""
    from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer

    path = tmp_path_factory.mktemp("model")
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(path)
    Qwen2ForCausalLM(_tiny(vocab_size=len(tokenizer))).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """600 training prompts and 7 validation prompts."""
    folder = tmp_path_factory.mktemp("data")
    paths = {}
    for name, offset, count in (("train", 0, 600), ("val", 600, 7)):
        rows = [
            make_row("arithmetic", f"{index}+1=", "2", index=index, split=name, ability="math")
            for index in range(offset, offset + count)
        ]
        paths[name] = folder / f"{name}.parquet"
        write_parquet(rows, paths[name])
    return paths


@pytest.fixture
def _nothing_starts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Starting a run fails the test, Ray must not be running at the end, and the environment is restored."""
    before, path = dict(os.environ), list(sys.path)
    monkeypatch.setattr(launch, "run", lambda *_: pytest.fail("a dry run started the trainer"))
    yield
    import ray

    assert not ray.is_initialized()
    os.environ.clear()
    os.environ.update(before)
    sys.path[:] = path


def _compose(*overrides: str, recipe: str = "fast_dapo") -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose(recipe, overrides=["dry_run=true", *overrides])


def _with_stand_ins(model_dir: Path, files: Mapping[str, Path | str], run_dir: Path) -> list[str]:
    return [
        f"actor_rollout_ref.model.path={model_dir}",
        f"data.train_files={files['train']}",
        f"data.val_files={files['val']}",
        f"run_dir={run_dir}",
    ]


@pytest.mark.usefixtures("_nothing_starts")
def test_the_demos_dry_run(model_dir: Path, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    real = ROOT / "outputs/models/arithmetic_base"
    has_assets = real.exists() and (ROOT / "outputs/data/arithmetic/val.parquet").exists()
    stand_ins = [f"run_dir={tmp_path}"] if has_assets else _with_stand_ins(model_dir, files, tmp_path)
    train(_compose("+backend=cpu", "+experiment=arithmetic_two_phase", *stand_ins), FAST_DAPO)
    printed = capsys.readouterr().out
    assert "verl 0.9.1" in printed
    assert f"train.parquet: {'1,024' if has_assets else '600'} rows" in printed
    assert "48 prompts x 4 = 192 screening rollouts" in printed
    assert "16 prompts x 16 rollouts = 256 rollouts" in printed
    assert "2 mini-batches of 8 prompts x 1 (ppo_epochs) = 2 updates" in printed
    assert "20 steps, 40 updates, 5,120 rows trained on" in printed
    assert f"{num_parameters(AutoConfig.from_pretrained(real if has_assets else model_dir)):,} parameters" in printed
    assert "KV cache 256.0 MiB" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_nothing_starts")
def test_files_of_verls_scripts_pass_a_dry_run(model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Each numbered from 0, with numbers as ground truths: verl also accepts the configuration that reads them."""
    rows = [
        {
            "prompt": [{"role": "user", "content": f"{n}+1="}],
            "data_source": "a",
            "reward_model": {"ground_truth": n + 1},
            "extra_info": {"index": n},
        }
        for n in range(200)
    ]
    files = {}
    for name in ("a", "b"):
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(json.dumps(rows))
    both = f"[{files['a']},{files['b']}]"
    stand_ins = _with_stand_ins(model_dir, {"train": both, "val": both}, tmp_path / "run")
    config = _compose("+backend=cpu", "+experiment=arithmetic_two_phase", *stand_ins)
    train(config, FAST_DAPO)
    printed = capsys.readouterr().out
    assert printed.count("Each prompt gets an index made of its content") == 1
    assert f"{files['b']}: 200 rows" in printed
    assert config.data.custom_cls.name == "IndexedDataset"


@pytest.mark.usefixtures("_nothing_starts")
def test_a_finished_run_can_be_checked_again(model_dir: Path, files: dict[str, Path], tmp_path: Path, capsys):
    (tmp_path / "summary.json").write_text('{"total_training_steps": 20, "global_steps": 20}')
    stand_ins = _with_stand_ins(model_dir, files, tmp_path)
    train(_compose("+backend=cpu", "+experiment=arithmetic_two_phase", *stand_ins), FAST_DAPO)
    assert "a step" in capsys.readouterr().out


@pytest.mark.usefixtures("_nothing_starts")
def test_a_dry_run_finds_what_a_run_would(model_dir: Path, files: dict[str, Path], tmp_path: Path):
    config = _compose(
        "+backend=cpu",
        "+experiment=arithmetic_two_phase",
        *_with_stand_ins(model_dir, files, tmp_path),
        "data.max_prompt_length=3",
    )
    with pytest.raises(DataError, match=r"Prompts longer than data\.max_prompt_length=3"):
        train(config, FAST_DAPO)


@pytest.mark.usefixtures("_nothing_starts")
@pytest.mark.parametrize("experiment", [*MATH_RUNS, *(f"[{MATH_RUNS[0]},{baseline}]" for baseline in BASELINES)])
def test_runs_on_dapo_17k_pass_a_dry_run(
    experiment: str, model_dir: Path, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """With stand-ins for model and data; the rest comes from the configuration."""
    config = _compose(f"+experiment={experiment}", *_with_stand_ins(model_dir, files, tmp_path))
    train(config, FAST_DAPO)
    printed = capsys.readouterr().out
    groups = "128 prompts x 16" if "[" in experiment else "512 prompts x 4"
    assert f"{groups} rollouts = 2,048 rollouts" in printed
    assert "256 rows on each of 8 ranks, 64 of an update" in printed
    assert "at gpu_memory_utilization=0.6: more than" in printed
    assert ("screening rollouts" in printed) == ("[" not in experiment or "two_phase" in experiment)
    assert ("reference policy waits" in printed) == ("grpo" in experiment)
    assert "not installed on this machine: actor_rollout_ref.model.override_config.attn_implementation" in printed


@pytest.mark.usefixtures("_nothing_starts")
def test_a_machine_with_gpus_needs_their_packages(
    model_dir: Path, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("verl_ext.launch.preflight.machine.num_devices", lambda device: 8)
    for mode in ("dry_run=true", "dry_run=false"):
        config = _compose(f"+experiment={MATH_RUNS[0]}", *_with_stand_ins(model_dir, files, tmp_path), mode)
        with pytest.raises(ConfigError, match=r"attn_implementation=flash_attention_2 .* needs flash-attn: install it"):
            train(config, FAST_DAPO)


@pytest.mark.usefixtures("_nothing_starts")
def test_tracin_passes_a_dry_run_and_counts_loras_factors(
    model_dir: Path, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    make_toxicity_classifier(tmp_path / "classifier")
    stand_ins = [*_with_stand_ins(model_dir, files, tmp_path), f"tracin.validation_files={files['val']}"]
    stand_ins += [f"reward.custom_reward_function.reward_kwargs.model_path={tmp_path / 'classifier'}"]
    train(_compose("+experiment=tracin_toxicity_qwen2_5_1_5b", *stand_ins, recipe="tracin"), TRACIN)
    lora = num_lora_parameters(AutoConfig.from_pretrained(model_dir), 16, "all-linear")
    printed = capsys.readouterr().out
    assert f"{lora:,} of LoRA are trained" in printed
    assert "256 rows on each of 4 ranks, 128 of an update" in printed


@pytest.mark.parametrize("experiment", ["golden_arc_qwen2_5_1_5b", "golden_arc_qwen3_4b"])
def test_golden_redactions_step_is_counted_in_states(experiment: str, model_dir: Path, files: dict[str, Path]):
    stand_ins = [f"data.train_files={files['train']}", f"actor_rollout_ref.model.path={model_dir}"]
    text = dry_run.report(
        _compose(f"+experiment={experiment}", *stand_ins, recipe="golden_redaction"), {}, GOLDEN_REDACTION, Findings()
    )
    # 16 states x 8 actions x 16 rollouts.
    assert "16 states, at most 8 actions each, 2,048 rollouts in all" in text
    assert "1 x 16 per update, at most 2 on each of 8 ranks" in text
    assert "SGD 0.0 KiB" in text


def test_the_cache_of_a_gpu_that_is_there_is_estimated(
    model_dir: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dry_run, "_gpu_bytes", lambda _: 10 * 2**30)
    stand_ins = [f"data.train_files={files['train']}", f"actor_rollout_ref.model.path={model_dir}"]
    config = _compose("+experiment=golden_arc_qwen3_4b", *stand_ins, recipe="golden_redaction")
    # 0.6 of 10 GiB, minus some KiB of weights.
    assert "KV cache at most 6.0 GiB of this machine's 10.0 GiB" in dry_run.report(
        config, {}, GOLDEN_REDACTION, Findings()
    )


def test_what_is_not_parquet_is_counted_and_what_is_elsewhere_is_said(model_dir: Path, tmp_path: Path):
    row = {"prompt": [{"role": "user", "content": "1+1="}], "data_source": "a", "reward_model": {"ground_truth": 2}}
    picture = row | {"images": [{"path": "a.png"}]}
    for name, rows in (("train", [row] * 3), ("val", [picture])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = _compose(
        "+backend=cpu",
        "+experiment=arithmetic_two_phase",
        f"data.train_files=[{tmp_path}/train.jsonl,s3://bucket/more.parquet]",
        f"data.val_files={tmp_path}/val.jsonl",
        f"actor_rollout_ref.model.path={model_dir}",
        "+curriculum.n=4",
    )
    text = dry_run.report(config, {}, FAST_DAPO, Findings())
    assert f"{tmp_path}/train.jsonl: 3 rows" in text
    assert "s3://bucket/more.parquet: not read before the run starts" in text
    assert re.search(f"longest prompt +4 tokens in {tmp_path}/train.jsonl", text)
    assert re.search(f"longest prompt +not known in {tmp_path}/val.jsonl: prompts are more than text", text)


def test_a_model_that_is_not_here_is_said_and_does_not_fail(files: dict[str, Path]):
    config = _compose(
        "+backend=cpu",
        "+experiment=arithmetic_two_phase",
        f"data.train_files={files['train']}",
        f"data.val_files={files['val']}",
        "actor_rollout_ref.model.path=./not/here",
        "data.filter_overlong_prompts=true",
        # As the recipe's check sets them.
        "++actor_rollout_ref.rollout.n=16",
        "+curriculum.n=4",
    )
    text = dry_run.report(config, {}, FAST_DAPO, Findings())
    assert "longest prompt" in text
    assert "not known: actor_rollout_ref.model.path=./not/here: no tokenizer could be loaded" in text
    assert "not estimated: the configuration of ./not/here is neither local nor cached" in text


def test_prompts_that_will_be_left_out_are_counted(model_dir: Path, files: dict[str, Path]):
    config = _compose(
        "+backend=cpu",
        "+experiment=arithmetic_two_phase",
        f"data.train_files={files['train']}",
        f"data.val_files={files['val']}",
        f"actor_rollout_ref.model.path={model_dir}",
        "data.filter_overlong_prompts=true",
        "data.max_prompt_length=4",
        "+curriculum.n=4",
    )
    # A character is a token: 0+1= has 4, and the 590 numbers from 10 on have more.
    text = dry_run.report(config, {}, FAST_DAPO, Findings())
    assert f"6 tokens in {files['train']}, 590 over data.max_prompt_length=4 are left out" in text
