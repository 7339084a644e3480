"""TracIn's own trainer with LoRA, its default, in verl's asynchronous trainers: verl collects, TracIn selects.

With engines on the actor's devices (`colocate_async`), they are paused and get whole weights, as everywhere on the CPU,
or only the adapter. With engines on separate devices (`separate_async`), whole weights are sent over gloo.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lab import DATA, Lab
from test_training_asynchronous import COLOCATE, ENGINES_APART, SEPARATE, check_guard

# Needs its own clusters, for several minutes.
pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]

STEPS, PROMPTS, ROLLOUTS, RANK = 4, 8, 8, 4
TRACIN = (
    f"tracin.validation_files={DATA}/val.parquet",
    "tracin.validation.strategy=contrast",
    "tracin.validation.pool_size=48",
    "tracin.validation.k=16",
    "tracin.check_identity_every=1",
    "engine_guard.max_unchecked_steps=1",
    # Between two looks at what has finished, some rollouts begin and end under the same weights: the guard needs these.
    "trainer.v1.sampler.poll_interval_s=1",
    f"data.train_batch_size={PROMPTS}",
    f"actor_rollout_ref.rollout.n={ROLLOUTS}",
    f"actor_rollout_ref.model.lora_rank={RANK}",
    # So large that an engine without the trained adapter would not agree with the actor.
    "actor_rollout_ref.actor.optim.lr=1e-2",
)
MERGED, ADAPTER = "actor_rollout_ref.model.lora.merge=true", "actor_rollout_ref.model.lora.merge=false"
MODES = {
    "colocate_async_merged": (*COLOCATE, MERGED),
    "colocate_async_adapter": (*COLOCATE, ADAPTER),
    "separate_async_merged": (*SEPARATE, ENGINES_APART, MERGED),
}


@dataclass(frozen=True)
class Run:
    """Some steps of a trainer.

    Attributes:
        trainer: Names of the trainer's classes.
        metrics: Of each step.
        scores: Lines of influence.jsonl.
        before, after: Sums of the absolute values of the adapter's second factors, which begin at 0, and of the frozen
            weights.
    """

    trainer: list[str]
    metrics: list[dict[str, Any]]
    scores: list[dict[str, Any]]
    before: dict[str, float]
    after: dict[str, float]


def _weights(trainer: Any) -> dict[str, float]:
    import torch

    trainer._save_checkpoint()
    folder = Path(trainer.config.trainer.default_local_dir) / f"global_step_{trainer.global_steps}" / "actor"
    state = torch.load(folder / "model_world_size_1_rank_0.pt", weights_only=False)
    sums = {"adapter": 0.0, "frozen": 0.0}
    for name, tensor in state.items():
        whole = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        if "lora_A" not in name:
            sums["adapter" if "lora_B" in name else "frozen"] += float(whole.double().abs().sum())
    return sums


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Module-scoped, so that the tests of one mode run together."""
    return request.param


@pytest.fixture(scope="module")
def run(mode: str, labs: Any) -> Run:
    lab: Lab = labs.get(f"lora_{mode}", *TRACIN, *MODES[mode], recipe="tracin")
    before = lab.call(_weights)
    lab.call(lambda trainer: trainer.on_train_begin())  # which generates ahead
    metrics = [lab.step() for _ in range(STEPS)]
    lines = (lab.run_dir / "influence.jsonl").read_text().splitlines()
    classes = lab.call(lambda trainer: [kind.__name__ for kind in type(trainer).__mro__])
    return Run(classes, metrics, [json.loads(line) for line in lines], before, lab.call(_weights))


def test_only_the_adapter_is_trained_by_tracins_own_trainer(run: Run, mode: str):
    assert "TracInTrainer" in run.trainer
    assert ("PPOTrainerSeparateAsync" if mode.startswith("separate") else "PPOTrainerColocateAsync") in run.trainer
    assert run.after["adapter"] > run.before["adapter"] == 0
    assert run.after["frozen"] == run.before["frozen"] > 0


def test_the_engine_serves_the_trained_adapter(run: Run):
    check_guard(run.metrics[1:])


def test_every_rollout_is_scored_once_whatever_weights_generated_it(run: Run):
    trained = [key for each in run.metrics for key in each["batch_keys"]]
    assert len(set(trained)) == len(trained) == STEPS * PROMPTS * ROLLOUTS
    assert Counter(record["key"] for record in run.scores) == Counter(trained)
    assert all(record["weight"] == (record["score"] > 0) for record in run.scores)
    assert len({record["versions"][0] for record in run.scores}) > 1
    assert any(record["versions"][0] < record["step"] - 1 for record in run.scores)
    for each in run.metrics:
        assert each["tracin/identity_error"] < 1e-4
        assert each["tracin/validation_gradient_norm"] > 0
