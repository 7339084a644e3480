"""Every symbol and signature of verl, vLLM, TransferQueue and Ray that the plugin relies on.

When a new version moves something, the failing line says what.
"""

import importlib
import inspect

import pytest

# The CPU build of vLLM answers to the name `vllm` only through our alias.
from verl_ext.cpu import distribution_alias

distribution_alias.install()

# (module, attribute path, parameters that we pass or override, in the names that we use)
CONTRACT = [
    ("verl.plugin.platform", "PlatformRegistry.register", ["platform"]),
    ("verl.plugin.platform", "PlatformRegistry.get", ["name"]),
    ("verl.plugin.platform", "get_platform", []),
    ("verl.utils.distributed", "initialize_global_process_group_ray", ["timeout_second", "backend"]),
    ("verl.workers.engine.base", "EngineRegistry.register", ["model_type", "backend", "device"]),
    ("verl.workers.engine.fsdp.transformer_impl", "FSDPEngineWithLMHead._build_fsdp_module", ["module"]),
    ("verl.workers.engine.fsdp.transformer_impl", "FSDPEngineWithValueHead._build_fsdp_module", ["module"]),
    ("verl.workers.rollout.replica", "RolloutReplicaRegistry.register", ["name", "loader"]),
    ("verl.workers.rollout.vllm_rollout.vllm_async_server", "vLLMHttpServer._get_worker_extension_cls", []),
    ("verl.workers.rollout.vllm_rollout.vllm_async_server", "vLLMHttpServer.run_server", ["args"]),
    ("verl.workers.rollout.vllm_rollout.vllm_async_server", "vLLMHttpServer.collective_rpc", ["method"]),
    (
        "verl.workers.rollout.vllm_rollout.utils",
        "vLLMColocateWorkerExtension.update_weights_from_ipc",
        ["peft_config", "base_sync_done", "use_shm"],
    ),
    (
        "verl.workers.rollout.vllm_rollout.utils",
        "vLLMColocateWorkerExtension._update_weights",
        ["weights", "peft_config", "base_sync_done"],
    ),
    ("verl.workers.rollout.vllm_rollout.utils", "vLLMColocateWorkerExtension._iter_all_models", []),
    ("verl.workers.rollout.vllm_rollout.utils", "vLLMColocateWorkerExtension._iter_all_models_with_config", []),
    ("verl.workers.rollout.vllm_rollout.utils", "vLLMColocateWorkerExtension._get_zmq_handle", []),
    (
        "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer",
        "BucketedWeightReceiver.__init__",
        ["zmq_handle", "device", "use_shm"],
    ),
    (
        "verl.workers.rollout.vllm_rollout.bucketed_weight_transfer",
        "BucketedWeightReceiver.receive_weights",
        ["on_bucket_received"],
    ),
    ("verl.trainer.ppo.v1", "register_trainer", ["name"]),
    ("verl.trainer.ppo.v1", "get_trainer_cls", ["name"]),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer.step", ["metrics", "timing_raw"]),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._step_once", ["metrics", "timing_raw", "sample_batch_size"]),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer.prepare_step", []),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer.fit", ["agent_loop_manager"]),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._fetch_one_gen_batch", []),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._build_replay_buffer", []),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._balance_batch", ["batch", "metrics"]),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._compute_old_log_prob", ["batch", "metrics"]),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._compute_ref_log_prob", ["batch", "metrics"]),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._compute_values", ["batch", "metrics"]),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._compute_advantage", ["batch", "metrics"]),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._compute_reward_colocate", ["batch", "metrics"]),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._update_critic", ["batch", "metrics"]),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._update_actor", ["batch", "metrics"]),
    (
        "verl.trainer.ppo.v1.trainer_base",
        "PPOTrainer._compute_metrics",
        ["batch", "metrics", "timing_raw", "global_steps", "epoch"],
    ),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._save_checkpoint", []),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._load_checkpoint", []),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._validate", []),
    ("verl.trainer.ppo.v1.trainer_sync", "PPOTrainerSync.on_init_end", []),
    ("verl.trainer.ppo.v1.trainer_sync", "PPOTrainerSync.on_sample_end", []),
    (
        "verl.trainer.ppo.v1.replay_buffer",
        "ReplayBuffer.sample",
        ["global_steps", "partition_id", "batch_size"],
    ),
    ("verl.trainer.ppo.v1.agent_loop_tq", "AgentLoopManagerTQ.generate_sequences", ["prompts"]),
    ("verl.experimental.agent_loop.agent_loop", "AgentLoopBase._cap_text_prompt_length", ["prompt_ids"]),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer._init_dataloader", []),
    ("verl.utils.dataset.rl_dataset", "collate_fn", ["data_list"]),
    ("verl.experimental.agent_loop", "AgentLoopWorker._run_agent_loop", ["sampling_params", "trajectory"]),
    ("verl.trainer.main_ppo", "run_ppo", ["config", "task_runner_class"]),
    ("verl.trainer.ppo.utils", "need_critic", ["config"]),
    ("verl.trainer.ppo.utils", "need_reference_policy", ["config"]),
    ("verl.utils.config", "validate_config", ["config", "use_reference_policy", "use_critic"]),
    ("verl.utils.device", "auto_set_device", ["config"]),
    ("verl.utils.debug", "marked_timer", ["name", "timing_raw"]),
    ("verl.utils.debug.metrics", "calculate_debug_metrics", ["data"]),
    ("verl.utils.tensordict_utils", "assign_non_tensor_data", ["tensor_dict", "key", "val"]),
    ("verl.utils.tensordict_utils", "assign_non_tensor_stack", ["tensor_dict", "key", "val"]),
    ("transfer_queue", "kv_batch_put", ["keys", "partition_id", "fields", "tags"]),
    ("transfer_queue", "kv_batch_get", ["keys", "partition_id", "select_fields"]),
    ("transfer_queue", "kv_list", ["partition_id"]),
    ("transfer_queue", "kv_clear", ["keys", "partition_id"]),
    ("transfer_queue", "save_checkpoint", ["checkpoint_dir"]),
    ("transfer_queue", "load_checkpoint", ["checkpoint_dir"]),
    ("transfer_queue", "KVBatchMeta.__init__", ["partition_id", "keys", "tags"]),
    ("vllm.model_executor.model_loader.reload", "initialize_layerwise_reload", ["model"]),
    ("vllm.model_executor.model_loader.reload", "finalize_layerwise_reload", ["model", "model_config"]),
    ("vllm.config", "set_current_vllm_config", ["vllm_config"]),
    ("vllm.v1.engine.async_llm", "AsyncLLM.is_sleeping", []),
]


@pytest.mark.parametrize(("module", "path", "parameters"), CONTRACT, ids=lambda v: v if isinstance(v, str) else None)
def test_symbol_exists_with_the_parameters_that_we_use(module: str, path: str, parameters: list[str]):
    target = importlib.import_module(module)
    for name in path.split("."):
        assert hasattr(target, name), f"{module}.{path}: {name!r} is gone"
        target = getattr(target, name)
    signature = inspect.signature(target)
    takes_anything = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    missing = [name for name in parameters if name not in signature.parameters]
    assert takes_anything or not missing, f"{module}.{path}{signature} lost {missing}"


def test_ray_actor_classes_still_give_up_their_plain_class():
    from verl.trainer.main_ppo import TaskRunnerV1
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    from verl_ext.compat import undecorated

    assert hasattr(undecorated(TaskRunnerV1), "init_agent_loop_manager")
    for name in ("_run_prompt", "_run_agent_loop", "_agent_loop_postprocess", "generate_sequences"):
        assert hasattr(undecorated(AgentLoopWorkerTQ), name)


def test_agent_loop_reads_the_number_of_rollouts_from_the_batch_and_passes_unknown_fields_on():
    """`__rollout_n__` and the pass-through of `__first_session__` are conventions, not signatures."""
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    from verl_ext.compat import undecorated

    source = inspect.getsource(undecorated(AgentLoopWorkerTQ)._run_prompt)
    assert 'prompt.pop("__rollout_n__"' in source
    assert "session_id=i, **prompt" in source


def test_step_once_is_still_the_sequence_that_our_copy_follows():
    """`SignalTrainer._step_once` repeats verl's phases; a phase that verl adds must be added there."""
    import re

    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    source = inspect.getsource(PPOTrainer._step_once)
    assert re.findall(r'marked_timer\("(\w+)"', source) == [
        "gen",
        "reward",
        "old_log_prob",
        "ref",
        "values",
        "adv",
        "update_critic",
        "update_actor",
    ]
