"""Model engines other than FSDP2, as far as they run without their libraries and a GPU: up to the first worker."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, open_dict
from stand_ins import StandIns, make_stand_ins

from recipe.fast_dapo.recipe import RECIPE
from verl_ext.core import compat
from verl_ext.core.compat import IncompatibleVersionError, check_model_engine
from verl_ext.launch import launch
from verl_ext.launch.train import train

ROOT = Path(__file__).resolve().parents[3]
ACTOR = "actor_rollout_ref.actor"
TENSOR_2 = f"{ACTOR}.megatron.tensor_model_parallel_size=2"


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    return make_stand_ins(tmp_path_factory.mktemp("stand_ins"))


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Starting a run fails the test, and the environment is restored."""
    before, path = dict(os.environ), list(sys.path)
    monkeypatch.setattr(launch, "run", lambda *_: pytest.fail("a dry run started the trainer"))
    yield
    os.environ.clear()
    os.environ.update(before)
    sys.path[:] = path


def _compose(stand_ins: StandIns, folder: Path, *overrides: str) -> DictConfig:
    common = [
        f"data.train_files={stand_ins.data('train')}",
        f"data.val_files={stand_ins.data('val')}",
        f"actor_rollout_ref.model.path={stand_ins.model()}",
        f"critic.model.path={stand_ins.model()}",
        f"run_dir={folder}",
        "data.max_prompt_length=20",
        "data.max_response_length=10",
        "dry_run=true",
    ]
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose("fast_dapo", overrides=[*common, *overrides])


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["model_engine=megatron", TENSOR_2], "256 rows on each of 4 groups of 2 ranks, 256 of an update"),
        (["model_engine=megatron", TENSOR_2, "actor_rollout_ref.model.lora.rank=4"], "of LoRA are trained"),
        (["model_engine=veomni"], "128 rows on each of 8 ranks"),
        (["model_engine=veomni", f"{ACTOR}.veomni.ulysses_parallel_size=2"], "256 rows on each of 4 groups of 2 ranks"),
        (["model_engine=torchtitan", f"{ACTOR}.torchtitan.data_parallel_shard_size=8"], "128 rows on each of 8 ranks"),
        ([f"{ACTOR}.strategy=fsdp"], "128 rows on each of 8 ranks"),
        (["model_engine=veomni", "trainer.v1.trainer_mode=colocate_async"], "128 rows on each of 8 ranks"),
        (
            ["model_engine=megatron", f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.megatron.optimizer_offload=true"],
            "the reference policy comes on top",
        ),
        (
            ["model_engine=megatron", "critic.enable=true"],
            "the critic comes on top",
        ),
        (
            ["model_engine=veomni", "critic.enable=true"],
            "the critic comes on top",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_run_with_another_engine_passes_all_checks(
    overrides: list[str],
    expected: str,
    stand_ins: StandIns,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """Our checks, verl's validation, and the dataclasses that verl's workers make of actor, reference and critic."""
    from verl.utils.config import omega_conf_to_dataclass

    monkeypatch.setenv(compat.SKIP_VARIABLE, "1")
    config = _compose(stand_ins, tmp_path, *overrides)
    train(config, RECIPE)
    printed = capsys.readouterr().out
    assert expected in printed
    assert "nothing was started" in printed
    actor, critic = omega_conf_to_dataclass(config.actor_rollout_ref.actor), omega_conf_to_dataclass(config.critic)
    assert actor.engine.strategy == critic.strategy == actor.strategy
    assert omega_conf_to_dataclass(_as_the_worker_has_it(config)).engine.forward_only


def _as_the_worker_has_it(config: DictConfig) -> DictConfig:
    """The reference policy's node after `ActorRolloutRefWorker.init_model`."""
    reference = config.actor_rollout_ref.ref
    with open_dict(reference):
        for name in ("micro_batch_size", "micro_batch_size_per_gpu", "use_dynamic_bsz", "max_token_len_per_gpu"):
            ours = name if name == "use_dynamic_bsz" else f"ppo_{name}"
            reference[ours] = reference.pop(f"log_prob_{name}")
        reference.ppo_mini_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size
    return reference


def test_bytes_of_megatrons_ranks(
    stand_ins: StandIns, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """With weights in bfloat16, gradients in float32 take twice as many bytes."""
    monkeypatch.setenv(compat.SKIP_VARIABLE, "1")
    train(_compose(stand_ins, tmp_path, "model_engine=megatron", "trainer.n_gpus_per_node=1"), RECIPE)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "update " in line and "weights " in line]
    weights, gradients, adam = (
        float(part.split()[-2]) for part in line.partition("weights")[2].split(";")[0].split(",")
    )
    assert gradients == pytest.approx(2 * weights, rel=0.1)
    assert adam == pytest.approx(6 * weights, rel=0.1)


# ------------------------------ what an engine needs ------------------------------


@pytest.mark.parametrize(
    ("engine", "vanilla", "expected"),
    [
        ("megatron", False, "megatron-core is not installed; megatron-core and megatron-bridge==0.5.2 are needed"),
        ("megatron", True, "mbridge is not installed; megatron-core and mbridge are needed"),
        ("veomni", False, "veomni is not installed; veomni==0.1.11 is needed"),
        ("torchtitan", False, "torchtitan is not installed; torchtitan is needed"),
    ],
)
def test_an_engine_that_is_not_installed_is_a_sentence(engine: str, vanilla: bool, expected: str):
    with pytest.raises(IncompatibleVersionError, match=f"model_engine={engine}, and {expected}"):
        check_model_engine(engine, has_vanilla_bridge=vanilla)


def test_fsdp_needs_nothing_more():
    assert check_model_engine("dp") == {}


def _install(folder: Path, name: str, version: str) -> None:
    """A distribution with an empty package."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    facts = folder / f"{name}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_another_version_than_verls_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    _install(tmp_path, "veomni", "0.1.12")
    with pytest.raises(IncompatibleVersionError, match=r"veomni 0\.1\.12 is installed; .*veomni==0\.1\.11"):
        check_model_engine("veomni")


def test_a_library_without_what_verl_imports_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """verl itself continues without the engine, and a worker says that it is unknown."""
    monkeypatch.syspath_prepend(tmp_path)
    _install(tmp_path, "torchtitan", "9.0")
    with pytest.raises(IncompatibleVersionError, match=r"with torchtitan 9\.0 \(No module named 'torchtitan\."):
        check_model_engine("torchtitan")
    sys.modules.pop("torchtitan", None)
