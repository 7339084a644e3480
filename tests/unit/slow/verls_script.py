"""A script for verl's own command: the options of `examples/grpo_trainer/run_qwen3_4b_fsdp.sh` in its repository.

Left out are the paths of model and data, which every user replaces.
"""

_DATA = """
algorithm.adv_estimator=grpo algorithm.use_kl_in_reward=False
data.train_batch_size=512 data.max_prompt_length=1024 data.max_response_length=1024
data.filter_overlong_prompts=True data.truncation=error
"""
_MODEL = """
model.use_remove_padding=True model.enable_gradient_checkpointing=True
actor.optim.lr=1e-6 actor.ppo_mini_batch_size=256 actor.ppo_micro_batch_size_per_gpu=2
actor.ppo_max_token_len_per_gpu=3000 actor.use_dynamic_bsz=True
actor.use_kl_loss=True actor.kl_loss_coef=0.001 actor.kl_loss_type=low_var_kl actor.entropy_coeff=0
actor.fsdp_config.param_offload=False actor.fsdp_config.optimizer_offload=False
rollout.n=5 rollout.name=vllm rollout.tensor_model_parallel_size=2 rollout.gpu_memory_utilization=0.6
rollout.enable_chunked_prefill=False rollout.enforce_eager=False rollout.free_cache_engine=True
rollout.log_prob_micro_batch_size_per_gpu=2 rollout.log_prob_use_dynamic_bsz=True
rollout.log_prob_max_token_len_per_gpu=4096 rollout.checkpoint_engine.update_weights_bucket_megabytes=4096
ref.log_prob_micro_batch_size_per_gpu=2 ref.fsdp_config.param_offload=True
ref.log_prob_use_dynamic_bsz=True ref.log_prob_max_token_len_per_gpu=8192
"""
_TRAINER = """
trainer.critic_warmup=0 trainer.logger=["console","wandb"]
trainer.project_name=verl_grpo_example_geo3k trainer.experiment_name=glm41v_9b_function_rm
trainer.n_gpus_per_node=8 trainer.nnodes=1 trainer.save_freq=20 trainer.test_freq=5 trainer.total_epochs=15
ray_kwargs.ray_init.runtime_env.py_executable=null
"""
SCRIPT = [*_DATA.split(), *(f"actor_rollout_ref.{option}" for option in _MODEL.split()), *_TRAINER.split()]

# What verl itself needs for each mode: with engines on other devices, a transport for the weights.
MODES = {
    "sync": [],
    "colocate_async": ["trainer.v1.trainer_mode=colocate_async"],
    "separate_async": [
        "trainer.v1.trainer_mode=separate_async",
        "trainer.v1.separate_async.parameter_sync_step=2",
        "actor_rollout_ref.rollout.nnodes=1",
        "actor_rollout_ref.rollout.n_gpus_per_node=8",
        "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl",
        "actor_rollout_ref.model.lora.merge=true",
    ],
}
