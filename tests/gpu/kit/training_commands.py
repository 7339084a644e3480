"""Commands of the real stack on one device: verl's FSDP2 workers and vLLM, SmolLM2-135M on SVAMP. Pure."""

from collections.abc import Sequence
from pathlib import Path

ONE_GPU = (
    "trainer.n_gpus_per_node=1",
    # No flash-attn: there is no wheel for it.
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.model.use_remove_padding=false",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.1",
    # The experiment's values are for the memory and the cores of a CPU.
    # Fixed, not what is left after a profile: other jobs of the kit may run next to it.
    "actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes=4294967296",
    "actor_rollout_ref.rollout.max_num_seqs=256",
    "actor_rollout_ref.rollout.max_num_batched_tokens=8192",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
    # The engine sleeps while the actor is trained.
    "actor_rollout_ref.rollout.free_cache_engine=true",
    # A run of minutes starts sooner with a few CUDA graphs of decoding and without torch.compile.
    "+actor_rollout_ref.rollout.engine_kwargs.vllm.compilation_config="
    """'{"mode":0,"cudagraph_mode":"FULL_DECODE_ONLY"}'""",
    "actor_rollout_ref.rollout.cudagraph_capture_sizes=[1,8,32,64,128,256]",
    # Each worker is a process that imports PyTorch.
    "actor_rollout_ref.rollout.agent.num_workers=2",
    "reward.num_workers=2",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    # A Ray cluster for each run, so that several can share the machine.
    "+ray_kwargs.ray_init.address=local",
    "+ray_kwargs.ray_init.object_store_memory=4000000000",
)
# Uniform sampling generates 256 rollouts per step, about as many as Fast DAPO's screening and continuation, and trains
# on all of them in four updates.
_UNIFORM = ("+signal=plain", "data.gen_batch_size=null", "trainer.total_training_steps=28", "trainer.test_freq=14")
# About 7,000 rollouts each.
METHODS: dict[str, tuple[str, ...]] = {
    "fast_dapo": ("trainer.total_training_steps=30", "trainer.test_freq=15"),
    # 64 rollouts trained on per step, in two updates, as Fast DAPO.
    "filter_groups": (
        "+signal=plain",
        "algorithm.filter_groups.enable=true",
        "algorithm.filter_groups.metric=acc",
        "data.train_batch_size=8",
        "data.gen_batch_size=1",
        "actor_rollout_ref.rollout.n=8",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "trainer.total_training_steps=20",
        "trainer.test_freq=10",
    ),
    **{
        f"uniform_{prompts}x{rollouts}": (
            *_UNIFORM,
            f"data.train_batch_size={prompts}",
            f"actor_rollout_ref.rollout.n={rollouts}",
            f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts // 4}",
        )
        for prompts, rollouts in ((64, 4), (32, 8), (16, 16))
    },
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
