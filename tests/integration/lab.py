"""A trainer on real Ray, FSDP2 and vLLM that stops before `fit` and is driven by its owner, step by step.

Starting one takes minutes and a step takes seconds, so tests and benchmarks share one and change its settings.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from verl_ext.launch.recipe import undocumented

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "outputs/models/arithmetic_base"
DATA = ROOT / "outputs/data/arithmetic"

TINY = [
    "+backend=cpu",
    "+experiment=arithmetic_two_phase",
    "data.val_max_samples=128",
    "data.train_batch_size=8",
    "data.gen_batch_size=24",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "trainer.total_training_steps=1000",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    f"data.train_files={DATA}/train.parquet",
    f"data.val_files={DATA}/val.parquet",
    f"actor_rollout_ref.model.path={MODEL}",
]

# For `Lab.settings`: choose prompts by the posterior of their pass rates, and train on every rollout.
CHOOSE_SETTINGS = {
    "curriculum__predictor": "posterior",
    "curriculum__train_on": "all",
    "curriculum__baseline": "posterior",
    "curriculum__n": 2,
    "curriculum__n_continue": 2,
    "actor_rollout_ref__rollout__n": 4,
    "algorithm__adv_estimator": "posterior",
}

# Where torch would cache compiled code, in a lab's run folder.
COMPILED = "compiled"

# Overrides for the other recipes. Golden redaction's configuration is its demo: callers add data and model.
LONG = ["trainer.total_training_steps=1000", "trainer.test_freq=-1", "trainer.save_freq=-1"]
BASES = {
    "golden_redaction_cpu": LONG,
    "tracin": [
        "+backend=cpu",
        "+experiment=tracin_arithmetic",
        f"data.train_files={DATA}/train.parquet",
        f"data.val_files={DATA}/val.parquet",
        f"actor_rollout_ref.model.path={MODEL}",
        *LONG,
    ],
}


def compose_config(*overrides: str, recipe: str = "fast_dapo", base: Sequence[str] | None = None) -> DictConfig:
    """A run on the CPU backend, by default a tiny one; `base` are the overrides of another."""
    first = BASES.get(recipe, TINY) if base is None else base
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose(recipe, overrides=[*first, *overrides])


class Lab:
    """A trainer in a Ray actor, and a way to run a function on it there."""

    def __init__(self, actor: Any, run_dir: Path) -> None:
        self._actor = actor
        self.run_dir = run_dir

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run `function(trainer, *args)` in the trainer's process; an exception there is raised here."""
        import ray

        # The workers cannot import test modules: send the code along.
        for module in (function.__module__, __name__):
            ray.cloudpickle.register_pickle_by_value(sys.modules[module])
        try:
            return ray.get(self._actor.call.remote(function, *args))
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None

    def step(self) -> dict[str, Any]:
        """Make one whole RL step, as verl's `fit` does; returns its metrics."""
        metrics = self.call(_make_step)
        assert metrics.get("curriculum/unaccounted_rollouts", 0) == 0
        assert undocumented(metrics) == [], "metrics without an entry in a metric_glossary.py"
        return metrics

    def kill_worker(self, title: str) -> None:
        """Kill (SIGKILL) the first of the trainer's Ray processes with this title, such as `WorkerDict`."""
        import psutil

        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if f"ray::{title}" in " ".join(process.cmdline()):
                    process.kill()
                    return
        raise LookupError(f"no process ray::{title}")

    @contextmanager
    def settings(self, **changes: Any) -> Iterator[None]:
        """Start over with other settings, restored at the end; names as in the configuration, with `__` for dots."""
        before = self.call(_change_settings, {name.replace("__", "."): value for name, value in changes.items()})
        try:
            yield
        finally:
            self.call(_change_settings, before)


def is_corrected(metrics: Mapping[str, float]) -> bool:
    """Whether any token's importance weight differs from 1 by more than rounding (2e-5 for fresh rollouts).

    The effective sample size is no measure of that: it is 1 in float32 if only a few tokens differ by less than 1 %.
    """
    weights = metrics["rollout_corr/rollout_is_min"], metrics["rollout_corr/rollout_is_max"]
    return max(abs(weight - 1) for weight in weights) > 1e-4


def start_over(trainer: Any) -> None:
    """Forget all prompts and their rollouts, and rebuild the parts from the configuration."""
    from verl_ext.serving import data_plane

    for part in trainer.parts.values():
        part.end()
    with contextlib.suppress(RuntimeError):  # nothing is in flight any more
        while True:  # an asynchronous trainer has rollouts in flight between its steps
            trainer.agent_loop_manager.finished_reports()
    for partition in ("train", "influence"):
        data_plane.clear(list(data_plane.tags(partition)), partition)
    trainer.build_parts()
    trainer._init_dataloader()


def _change_settings(trainer: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """Change the configuration and rebuild what was built from it; returns the previous values."""
    from omegaconf import OmegaConf, open_dict

    before = {name: OmegaConf.select(trainer.config, name) for name in changes}
    with open_dict(trainer.config):
        for name, value in changes.items():
            OmegaConf.update(trainer.config, name, value)
    trainer.replay_buffer.verl = trainer._build_replay_buffer()
    start_over(trainer)
    return before


def _make_step(trainer: Any) -> dict[str, Any]:
    from verl.utils.debug import marked_timer

    from verl_ext.serving import data_plane

    metrics: dict[str, Any] = {}
    trainer.timing_raw = {}
    with marked_timer("step", trainer.timing_raw):
        trainer.on_step_begin()
        batch = trainer.step(metrics, trainer.timing_raw)
        trainer.on_step_end()
    trainer._compute_metrics(batch, metrics, trainer.timing_raw, global_steps=trainer.global_steps, epoch=0)
    metrics["batch_keys"] = list(batch.keys)
    data_plane.clear(batch.keys, batch.partition_id)
    trainer.global_steps += 1
    return metrics


def _lab_actor_class() -> Any:
    import ray

    from verl_ext.launch.runner import SignalTaskRunner

    class LabRunner(SignalTaskRunner):
        """verl's task runner, which stops before `fit` and runs given functions on its trainer."""

        def start(self, config: DictConfig) -> None:
            from verl.trainer.ppo.v1 import get_trainer_cls

            config.transfer_queue.enable = True
            self.config = config
            self.prepare(config)
            self.trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config=config)
            self.trainer.init()
            self.init_agent_loop_manager()
            self.trainer.agent_loop_manager = self.agent_loop_manager
            self.trainer.global_steps += 1
            self.trainer.prev_step_profile = self.trainer.curr_step_profile = self.trainer.next_step_profile = False
            # Checks that make no step themselves still need the state that a step leaves.
            self.trainer.timing_raw = {}
            self.trainer.on_step_begin()

        def call(self, function: Callable[..., Any], *args: Any) -> Any:
            return function(self.trainer, *args)

    return ray.remote(LabRunner)


@contextmanager
def open_lab(
    run_dir: Path, *overrides: str, recipe: str = "fast_dapo", base: Sequence[str] | None = None
) -> Iterator[Lab]:
    """Start Ray and a trainer in an actor, ready for its first step; stop both at the end."""
    config = compose_config(f"run_dir={run_dir}", *overrides, recipe=recipe, base=base)

    from verl_ext.launch import launch

    launch.adopt_environment(config)

    import ray
    from omegaconf import OmegaConf
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    from verl_ext.cluster.engine_resources import release_ledger
    from verl_ext.run.run_folder import RunFolder

    ray_init = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)
    runtime_env = get_ppo_ray_runtime_env(config)
    # As for a user who has put a folder of parts there.
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    own = {"TRANSFER_QUEUE_ENABLE": "1", "PYTHONPATH": paths}
    runtime_env["env_vars"] |= ray_init["runtime_env"]["env_vars"] | own
    # No process may need a compiler, on any path that a check takes.
    runtime_env["env_vars"] |= {"CXX": "/nonexistent", "TORCHINDUCTOR_CACHE_DIR": f"{run_dir}/{COMPILED}"}
    ray.init(**(ray_init | {"runtime_env": runtime_env}))
    try:
        actor = _lab_actor_class().remote()
        ray.get(actor.start.remote(config))
        yield Lab(actor, run_dir)
    finally:
        ray.shutdown()
        release_ledger(RunFolder(run_dir).engine_ledger)
