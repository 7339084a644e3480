"""Commands of the real stack on one device: verl's FSDP2 workers and vLLM, SmolLM2-135M on SVAMP. Pure."""

from collections.abc import Sequence
from pathlib import Path

ONE_GPU = (
    "trainer.n_gpus_per_node=1",
    # No flash-attn: there is no wheel for it.
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.model.use_remove_padding=false",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.3",
    # The experiment's values are for the memory and the cores of a CPU.
    # Fixed, not what is left after a profile: other jobs of the kit may run next to it.
    "actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes=4294967296",
    "actor_rollout_ref.rollout.max_num_seqs=256",
    "actor_rollout_ref.rollout.max_num_batched_tokens=8192",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384",
    # The engine sleeps while the actor is trained.
    "actor_rollout_ref.rollout.free_cache_engine=true",
)
METHODS: dict[str, tuple[str, ...]] = {
    "fast_dapo": (),
    # As many rollouts trained on per step as Fast DAPO has, in as many updates.
    "uniform": (
        "+signal=plain",
        "data.train_batch_size=16",
        "data.gen_batch_size=null",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    ),
}


def training_command(device: str, root: Path, run_dir: Path, overrides: Sequence[str] = ()) -> list[str]:
    """The words after `python`: a run, which the same command continues.

    Args:
        device: "cuda" or "cpu".
        root: Folder of the sources, with model and data in `outputs`.
        run_dir: Folder of the run.
        overrides: Further overrides.
    """
    backend = ("+backend=cpu",) if device == "cpu" else ()
    return [
        *("-m", "recipe.fast_dapo.main", *backend, "+experiment=smollm2_svamp_cpu"),
        *(() if device == "cpu" else ONE_GPU),
        f"actor_rollout_ref.model.path={root}/outputs/models/smollm2_135m",
        f"data.train_files={root}/outputs/data/svamp/svamp.parquet",
        f"data.val_files={root}/outputs/data/svamp/svamp_test.parquet",
        f"run_dir={run_dir}",
        *overrides,
    ]
