"""Metric glossaries, and the glossary of the metrics that all recipes share.

A glossary maps a name to (unit, meaning). A part of a name in braces stands for any text without a slash, so
`sandbox/{status}` is `sandbox/ok` and the others; `{set}`, the name of a validation set, may have slashes, as
`openai/gsm8k` has. Each recipe has its own in `metric_glossary.py`, next to the code that logs it;
`verl_ext.launch.recipe` collects them.
"""

import functools
import re
from collections.abc import Mapping

Glossary = Mapping[str, tuple[str, str]]

# Prefixes of this plugin's metrics, in every recipe.
PREFIXES = ("engine_guard/", "training/total/", "timing_s/")

METRICS: Glossary = {
    "engine_guard/fresh_rollouts": ("rollouts", "trained rollouts that the current weights generated"),
    "engine_guard/earlier_rollouts": ("rollouts", "rollouts of earlier weights, compared with a copy of these weights"),
    "engine_guard/probs_diff_mean": ("probability", "mean of |p_rollout - p_actor| over the tokens of these rollouts"),
    "engine_guard/probs_diff_max": ("probability", "largest |p_rollout - p_actor| over the same tokens"),
    "engine_guard/pearson_corr": ("correlation", "correlation of both probabilities over the same tokens"),
    "training/total/seconds": ("s", "training steps since the start of the run, validation excluded"),
    "training/total/rollouts_generated": ("rollouts", "generated since the start of the run"),
    "training/total/rollouts_trained": ("rollouts", "trained on since the start of the run"),
    "training/total/tokens_generated": ("tokens", "response tokens of rollouts_generated"),
    "training/total/tokens_trained": ("tokens", "response tokens of rollouts_trained"),
    "timing_s/step": ("s", "the whole step"),
    "timing_s/collect": ("s", "everything while the engines are awake (verl's gen): gen, and all other generation"),
    "timing_s/gen": ("s", "waiting for rollouts"),
    "timing_s/reward": ("s", "rewards, where the reward model shares the actor's devices"),
    "timing_s/old_log_prob": ("s", "log-probs under the actor before its update"),
    "timing_s/engine_guard": ("s", "comparing the engine's probabilities with the actor's"),
    "timing_s/ref": ("s", "log-probs under the reference policy"),
    "timing_s/values": ("s", "the critic's values"),
    "timing_s/adv": ("s", "advantages"),
    "timing_s/update_critic": ("s", "the critic's update"),
    "timing_s/select": ("s", "choosing the samples that the update sees"),
    "timing_s/update_actor": ("s", "the policy's update"),
    "timing_s/after_update": ("s", "undoing changes made only for the update, and observing the new weights"),
    "timing_s/update_weights": ("s", "sending the new weights to the engines"),
    "timing_s/save_checkpoint": ("s", "writing the checkpoint"),
    "timing_s/testing": ("s", "validation"),
}


# verl's own metrics, for the pages.
VERLS_METRICS: Glossary = {
    "val-core/{set}/{reward}/mean@{n}": ("score", "mean over a validation set's prompts, n samples each"),
    "val-core/{set}/{reward}/best@{n}/mean": ("score", "mean over prompts of the best of n samples"),
    "val-core/{set}/{reward}/maj@{n}/mean": ("score", "mean over prompts of the most frequent answer of n samples"),
    "val-core/{set}/{reward}/{choice}@{n}/std": ("score", "deviation of this over draws of n samples, mean of prompts"),
    "val-aux/num_turns/{statistic}": ("turns", "messages of a validation rollout, the model's and its environment's"),
    "val-aux/{set}/{value}/mean@{n}": (
        "value",
        "mean over a validation set's prompts of what the reward function returns",
    ),
    "val-aux/{set}/{value}/std@{n}": ("value", "deviation among the n samples of a prompt, mean of the prompts"),
    "val-aux/{set}/{value}/best@{n}/mean": ("value", "mean over prompts of the highest of n samples"),
    "val-aux/{set}/{value}/worst@{n}/mean": ("value", "mean over prompts of the lowest of n samples"),
    "val-aux/{set}/{value}/maj@{n}/mean": ("value", "mean over prompts of the most frequent answer of n samples"),
    "val-aux/{set}/{value}/{choice}@{n}/std": ("value", "deviation of this over draws of n samples, mean of prompts"),
    "critic/score/{statistic}": ("score", "reward of the batch's rollouts, as the reward function returns it"),
    "critic/rewards/{statistic}": ("score", "the same with a KL penalty, if that is part of the reward"),
    "critic/advantages/{statistic}": ("advantage", "of the tokens that are trained on"),
    "critic/returns/{statistic}": ("score", "return that advantages are computed from, before a baseline"),
    "critic/values/{statistic}": ("score", "the critic's prediction of the return"),
    "critic/vf_explained_var": ("fraction", "share of the returns' variance that the critic predicts; below 0: none"),
    "critic/vf_loss": ("score²", "the critic's loss: half its squared error, after clipping"),
    "critic/vf_clipfrac": ("fraction", "tokens whose predicted value left the critic's clip range"),
    "critic/vpred_mean": ("score", "mean value that the critic predicts during its update"),
    "actor/entropy": ("nats", "mean entropy of the policy per token: near 0, rollouts of a prompt become alike"),
    "actor/entropy_loss": ("nats", "mean entropy of the policy per token"),
    "actor/pg_loss": ("loss", "policy gradient loss; its size is not informative, NaN is"),
    "actor/pg_clipfrac": ("fraction", "tokens whose probability ratio left the clip range from above"),
    "actor/pg_clipfrac_lower": ("fraction", "tokens of negative advantage that the second clip bound caught"),
    "actor/ppo_kl": ("nats", "approximate KL of the updated policy from the one that generated, per token"),
    "actor/kl_loss": ("nats", "KL from the reference policy, as part of the loss"),
    "actor/kl_coef": ("factor", "weight of kl_loss in the loss"),
    "actor/reward_kl_penalty": ("nats", "KL from the reference policy, as part of the reward, mean per token"),
    "actor/reward_kl_penalty_coeff": ("factor", "weight of reward_kl_penalty in the reward"),
    "{model}/loss": ("loss", "all parts of the loss together; its size is not informative, NaN is"),
    "{model}/grad_norm": ("norm", "norm of the gradient before clipping, mean over the step's updates"),
    "{model}/lr": ("rate", "learning rate"),
    "{model}/perf/max_memory_allocated_gb": ("GB", "peak memory of tensors on a device"),
    "{model}/perf/max_memory_reserved_gb": ("GB", "peak memory that PyTorch holds on a device, its cache included"),
    "{model}/perf/cpu_memory_used_gb": ("GB", "main memory that all programs of the machine use"),
    "response_length/{statistic}": ("tokens", "of the responses; clip_ratio: fraction that reached the limit"),
    "response_length_non_aborted/{statistic}": ("tokens", "the same without the responses that are empty"),
    "response/aborted_ratio": ("fraction", "responses that are empty: their generation was aborted"),
    "prompt_length/{statistic}": ("tokens", "of the prompts; clip_ratio: fraction that reached the limit"),
    "num_turns/{statistic}": ("turns", "messages of a rollout, the model's and its environment's"),
    "training/num_turns/{statistic}": ("turns", "messages of a rollout, the model's and its environment's"),
    "tool_call_counts/{statistic}": ("calls", "tool calls of a rollout"),
    "global_seqlen/min": ("tokens", "of the rank with the fewest, before rollouts are distributed evenly"),
    "global_seqlen/max": ("tokens", "of the rank with the most, before rollouts are distributed evenly"),
    "global_seqlen/minmax_diff": ("tokens", "difference of the two"),
    "global_seqlen/balanced_min": ("tokens", "of the rank with the fewest, as trained"),
    "global_seqlen/balanced_max": ("tokens", "of the rank with the most, as trained"),
    "global_seqlen/mean": ("tokens", "prompts and responses of the batch per rank"),
    "training/off_policy/trajectory_spans/{statistic}": ("versions", "of the weights that generated one rollout"),
    "training/off_policy/trajectory_staleness/{statistic}": (
        "updates",
        "of the weights between the newest that generated a rollout and those that are trained",
    ),
    "training/off_policy/trajectory_staleness_worst/{statistic}": ("updates", "the same from the oldest weights"),
    "{phase}/off_policy/evicted_samples": ("prompts", "dropped because their rollouts were too old"),
    "{phase}/off_policy/evicted_samples_staleness/{statistic}": ("versions", "of the weights since these were begun"),
    "{phase}/filter_groups/evicted_samples": ("prompts", "dropped because all their rollouts have the same reward"),
    "{phase}/filter_groups/discarded_surplus_samples": ("prompts", "dropped because the batch was already full"),
    "{phase}/rollout_failure/evicted_samples": ("prompts", "dropped because their rollouts failed"),
    "training/rollout_probs_diff_valid": ("0 or 1", "whether there was a token to compare"),
    "training/rollout_probs_diff_{statistic}": ("probability", "of |p_rollout - p_actor| over the batch's tokens"),
    "training/rollout_actor_probs_pearson_corr": ("correlation", "of both probabilities over the same tokens"),
    "training/epoch": ("epochs", "epoch of verl's data loader"),
    "training/global_step": ("steps", "RL steps so far"),
    # With rollout correction: `old` is the actor before its update, `rollout` the engine that generated.
    **{
        f"{where}rollout_corr/{name}": entry
        for where in ("", "actor/")  # "actor/": with bypass_mode
        for name, entry in {
            "kl": ("nats", "KL of the engine's policy from the actor's, mean of log p_rollout - log p_old"),
            "k3_kl": ("nats", "the same KL by the k3 estimator, which has less variance"),
            "training_ppl": ("perplexity", "of the rollouts under the actor, mean"),
            "training_log_ppl": ("nats", "mean of its logarithm: -log p_old per token"),
            "rollout_ppl": ("perplexity", "of the rollouts under the engine, mean"),
            "rollout_log_ppl": ("nats", "mean of its logarithm: -log p_rollout per token"),
            "ppl_ratio": ("ratio", "perplexity under the actor / under the engine, mean of the rollouts"),
            "log_ppl_abs_diff": ("nats", "mean |difference| of both log perplexities of a rollout"),
            "log_ppl_diff": ("nats", "mean difference of both log perplexities of a rollout"),
            "log_ppl_diff_{statistic}": ("nats", "difference of both log perplexities of a rollout"),
            "chi2_token": ("variance", "mean of (p_old / p_rollout)² - 1 over the tokens"),
            "chi2_seq": ("variance", "the same of whole rollouts"),
            "rollout_is_eff_sample_size": ("fraction", "effective sample size of the importance weights; 1: all equal"),
            "rollout_is_ratio_fraction_high": ("fraction", "weights above the upper threshold, before they are cut"),
            "rollout_is_ratio_fraction_low": ("fraction", "weights below the lower threshold"),
            "rollout_is_oob_ratio": ("fraction", "tokens whose weight is out of bounds and was set to 0"),
            "rollout_is_batch_norm_factor": ("factor", "mean weight, by which the weights are divided"),
            "rollout_is_seq_fraction_high": ("fraction", "rollouts whose mean weight is above the upper threshold"),
            "rollout_is_seq_fraction_low": ("fraction", "rollouts whose mean weight is below the lower threshold"),
            "rollout_is_seq_max_deviation": ("factor", "maximum |mean weight of a rollout - 1|"),
            "rollout_is_seq_{statistic}": ("factor", "of the mean importance weight of a rollout"),
            "rollout_is_{statistic}": ("factor", "of the importance weights p_old / p_rollout, after they are cut"),
            "rollout_rs_masked_fraction": ("fraction", "tokens that rejection sampling left out"),
            "rollout_rs_seq_masked_fraction": ("fraction", "rollouts of which it left out a token"),
            "rollout_rs_{option}_masked_fraction": ("fraction", "tokens, or rollouts (seq), that this option left out"),
            "rollout_rs_{option}_fraction_high": ("fraction", "tokens, or rollouts (seq), above its upper threshold"),
            "rollout_rs_{option}_fraction_low": ("fraction", "tokens, or rollouts (seq), below its lower threshold"),
            "rollout_rs_{statistic}": ("value", "of what this option compares with its thresholds; seq: of rollouts"),
        }.items()
    },
    "rollout/moe/max_vio/{part}": ("fraction", "load of a layer's busiest expert above an equal share"),
    "rollout/moe/min_vio/{part}": ("fraction", "load of a layer's least used expert relative to an equal share"),
    "rollout/moe/avg_vio/{part}": ("fraction", "mean |deviation| of a layer's experts from an equal share"),
    "rollout/moe/routed_experts_found": ("0 or 1", "whether the engine returned which experts it used"),
    "rollout/moe/routed_expert_assignments": (
        "assignments",
        "of tokens to experts that these shares are computed from",
    ),
    "rollout/spec_accept_rate": ("fraction", "drafted tokens that were accepted, mean of the rollouts"),
    "rollout/spec_accept_length": ("tokens", "per verification in speculative decoding, mean of the rollouts"),
    "variance_proxy/proxy1_signal_strength": ("norm²", "squared norm of the batch's gradient"),
    "variance_proxy/proxy2_total_power": ("norm²", "estimated mean squared norm of a rollout's gradient"),
    "variance_proxy/proxy3_pure_noise": ("norm²", "variance of the batch's gradient, estimated from the two above"),
    "variance_proxy/expected_a_squared": ("advantage²", "mean squared advantage of a rollout"),
    "variance_proxy/expected_w": ("norm²", "estimated squared norm of the gradient of a rollout's log-prob, mean"),
    "separate_async/switch/threshold_ratio": ("fraction", "share of a batch that must wait before engines train"),
    "separate_async/switch/wait_samples": ("prompts", "that the trainer waited for in this step"),
    "separate_async/switch/idle": ("0 or 1", "whether the trainer was idle in this step"),
    "separate_async/decision/sampleable_count": ("prompts", "ready to be trained"),
    "separate_async/decision/remaining": ("prompts", "that are still missing"),
    "separate_async/decision/should_switch_to_rollout": ("0 or 1", "whether the trainer's devices generate as well"),
    "separate_async/decision/per_sample_time_seconds": ("s", "waiting per missing prompt so far"),
    "separate_async/decision/effective_switch_cost_seconds": ("s", "that a switch of these devices costs"),
    "actor/distillation/{value}": ("loss", "of learning from a teacher; mass: probability of the tokens compared"),
    "perf/total_num_tokens": ("tokens", "prompts and responses of the batch"),
    "perf/throughput": ("tokens/s", "tokens of the batch per second and device"),
    "perf/mfu/{model}": ("fraction", "share of the devices' peak FLOP/s that was used"),
    "perf/time_per_step": ("s", "the whole step"),
    "timing_s/{phase}": ("s", "seconds of this part of the step"),
    "timing_per_token_ms/{phase}": ("ms", "milliseconds of this part per token"),
}


def is_verls(name: str) -> bool:
    """Whether a metric is in one of verl's groups, so that it is verl's own if no glossary describes it."""
    return name.partition("/")[0] in _verls_groups()


@functools.cache
def _verls_groups() -> frozenset[str]:
    return frozenset(group for name in VERLS_METRICS if "{" not in (group := name.partition("/")[0]))


def find_entry(name: str, glossary: Glossary) -> str | None:
    """The glossary's entry for a metric: its name, or the pattern that matches it; None without one."""
    if name in glossary:
        return name
    return next((entry for entry in glossary if "{" in entry and _pattern(entry).fullmatch(name)), None)


@functools.cache
def _pattern(entry: str) -> re.Pattern[str]:
    # Literals and the names in braces take turns.
    parts = re.split(r"\{(\w+)\}", entry)
    literals, names = parts[::2], parts[1::2]
    inserted = [".+" if name == "set" else "[^/]+" for name in names]
    return re.compile("".join(re.escape(text) + part for text, part in zip(literals, [*inserted, ""], strict=True)))
