"""Options of a run on GPUs whose packages are missing are named before Ray starts."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from verl_ext.launch.preflight import packages

ROOT = Path(__file__).resolve().parents[3]
SDPA = "+actor_rollout_ref.model.override_config.attn_implementation=sdpa"


def _compose(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose("fast_dapo", overrides=list(overrides))


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ((), ["actor_rollout_ref.model.override_config.attn_implementation=flash_attention_2 (verl's default) needs"]),
        ((SDPA,), []),
        (("+backend=cpu",), []),
        # Megatron has its own attention, and sends its weights the same way.
        (("model_engine=megatron",), []),
        (
            ("model_engine=megatron", "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl"),
            ["actor_rollout_ref.rollout.checkpoint_engine.backend=nccl needs cupy: `pip install"],
        ),
        (
            (
                SDPA,
                "actor_rollout_ref.model.use_liger=true",
            ),
            ["actor_rollout_ref.model.use_liger=true needs liger-kernel: install it"],
        ),
        (
            (
                "+actor_rollout_ref.model.override_config.attn_implementation=eager",
                "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl",
            ),
            ["actor_rollout_ref.rollout.checkpoint_engine.backend=nccl needs cupy: `pip install"],
        ),
    ],
)
def test_options_whose_packages_are_not_installed(settings: tuple[str, ...], missing: list[str]):
    """The environment of the tests is the CPU's, which has none of these."""
    found = packages.missing_packages(_compose(*settings), has_critic=False)
    assert [sentence.startswith(start) for sentence, start in zip(found, missing, strict=True)] == [True] * len(missing)


def test_a_critic_has_an_attention_of_its_own():
    config = _compose(SDPA)
    (sentence,) = packages.missing_packages(config, has_critic=True)
    assert sentence.startswith("critic.model.override_config.attn_implementation=flash_attention_2")
    assert "+critic.model.override_config.attn_implementation=sdpa" in sentence


def test_an_installed_package_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "flash_attn.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert packages.missing_packages(_compose(), has_critic=False) == []
