"""Golden redaction's requirements on the configuration and data, checked before Ray starts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from omegaconf import DictConfig

from recipe.golden_redaction.method.judging import is_right
from recipe.golden_redaction.method.problems import Problem, hold_out, read_problems, vary_prompts
from recipe.golden_redaction.method.prompt_format import check_model
from recipe.golden_redaction.method.worked import RowFormat, WorkedProblem, check_solutions, read_worked
from recipe.golden_redaction.records.records import warm_start
from recipe.golden_redaction.records.schema import RecordError
from recipe.golden_redaction.sandbox import make_executor
from recipe.golden_redaction.settings import GoldenSettings, read_settings
from verl_ext.arc.prompts import decode_answer
from verl_ext.core.errors import ConfigError
from verl_ext.data.raw_prompt import apply_prompt_format
from verl_ext.data.row_report import reasons
from verl_ext.launch.launch import choose_reward
from verl_ext.launch.preflight.reward import TIMEOUT_S, function_name, in_child, load_function
from verl_ext.sandbox.policy import SandboxUnavailableError

# Golden solutions that the reward function is tried on before Ray starts.
TRIED_SOLUTIONS = 200

AnyProblem = TypeVar("AnyProblem", bound=Problem)


def check_config(config: DictConfig) -> GoldenSettings:
    """Read `config.golden` and reject settings that cannot work with it.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    settings = read_settings(config)
    problems = _problems(config)
    if problems:
        raise ConfigError("golden redaction does not work with this configuration:\n  - " + "\n  - ".join(problems))
    if settings.verifier == "reward":
        choose_reward(config)
        apply_prompt_format(config)
    _check_tasks(config, settings)
    if settings.records.warm_start is not None:
        try:
            warm_start(Path(config.golden.records.warm_start), settings.records.max_staleness)
        except RecordError as error:
            raise ConfigError(f"golden.records.warm_start: {error}") from None
    if settings.verifier == "sandbox":
        try:
            make_executor(settings.sandbox).close()
        except SandboxUnavailableError as error:
            raise ConfigError(f"golden.sandbox: {error}") from None
    return settings


def read_run_problems(config: DictConfig, settings: GoldenSettings, tokenizer: Any) -> tuple[list[Problem], str]:
    """The problems of a run, and in words how many rows were left out for which reason.

    Raises:
        ConfigError: The files are not what the verifier needs, or no problem is left.
    """
    if settings.verifier == "reward":
        found, counts = read_worked(data_files(config), tokenizer, settings.limits, _row_format(config))
        problems = [*draw(found, config.data)]
    else:
        found, counts = read_problems(data_files(config), tokenizer, settings.limits, prompt=settings.prompt)
        problems = hold_out(draw(found, config.data), settings.reward)
        problems = vary_prompts(problems, settings.num_prompts, tokenizer, settings.limits, settings.prompt)
    if len(problems) < len(found):
        counts["left out by data.train_max_samples"] = len(found) - len(problems)
    return problems, reasons(counts)


def draw(problems: Sequence[AnyProblem], data: DictConfig) -> list[AnyProblem]:
    """At most `data.train_max_samples` of the problems that can be used, in their order.

    They are drawn with `data.seed`; without one, with 0, as a resumed run needs the same. With `data.shuffle=false`
    they are the first.
    """
    limit = data.train_max_samples
    if not 0 < limit < len(problems):
        return list(problems)
    if not data.shuffle:
        return list(problems[:limit])
    drawn = np.random.default_rng(data.seed or 0).choice(len(problems), size=limit, replace=False)
    return [problems[place] for place in sorted(drawn)]


def _row_format(config: DictConfig) -> RowFormat:
    template = dict(config.data.apply_chat_template_kwargs)
    if given := config.actor_rollout_ref.model.get("custom_chat_template"):
        template["chat_template"] = given
    return RowFormat(config.data.prompt_key, template)


def data_files(config: DictConfig) -> list[str]:
    """`data.train_files` as a list."""
    files = config.data.train_files
    return [files] if isinstance(files, str) else list(files)


def _problems(config: DictConfig) -> list[str]:
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    problems = []
    selectors = ["selectors"] if config.get("selectors") else []
    selectors += [f"{name}.enable" for name, node in config.items() if _brings_a_selector(node) and node.get("enable")]
    if selectors:
        problems.append(f"there are no rollouts for a selector to choose from: unset {' and '.join(selectors)}")
    if (rollout.temperature, rollout.top_p, rollout.top_k) != (1.0, 1.0, -1):
        problems.append(
            "states and rollouts must be samples of the policy: set rollout.temperature=1.0, top_p=1.0, top_k=-1, "
            f"got {rollout.temperature}, {rollout.top_p} and {rollout.top_k}"
        )
    if rollout.name != "vllm":
        problems.append(f"only vLLM returns the log-probs of given tokens: set rollout.name=vllm, got {rollout.name}")
    sequence_parallel = max(
        actor.get("ulysses_sequence_parallel_size") or 1, actor.fsdp_config.get("ulysses_sequence_parallel_size") or 1
    )
    if sequence_parallel > 1:
        problems.append("a rank must see whole states: set actor.ulysses_sequence_parallel_size=1")
    if config.actor_rollout_ref.model.get("use_fused_kernels", False):
        problems.append("fused kernels return no logits, which are needed: set model.use_fused_kernels=false")
    if str(actor.fsdp_config.get("dtype", "")) in ("fp16", "float16"):
        problems.append("float16 with a gradient scaler is not supported: set actor.fsdp_config.dtype to bfloat16")
    if not rollout.enable_chunked_prefill and _asks_for_texts(config.golden):
        problems.append(
            "the engine computes the log-probs of whole texts, and has no memory for the logits of a whole prompt at "
            "once: set rollout.enable_chunked_prefill=true, so that a chunk has rollout.max_num_batched_tokens tokens"
        )
    if config.golden.visit_ahead and rollout.free_cache_engine:
        problems.append(
            "golden.visit_ahead=true uses the engines while the actor is trained, when they would be asleep: set "
            "rollout.free_cache_engine=false (they keep their memory then), or golden.visit_ahead=false"
        )
    if config.golden.verifier == "reward":
        problems += _of_programs(config)
    if config.golden.reference != actor.use_kl_loss:
        problems.append(
            "verl builds a reference policy only with actor.use_kl_loss=true (its KL loss itself is not used here): "
            f"set it to {str(config.golden.reference).lower()}, as golden.reference is"
        )
    return problems


def _of_programs(config: DictConfig) -> list[str]:
    """Settings that only programs of ARC tasks have a use for, where they are not at their defaults."""
    own, default = read_settings(config), GoldenSettings()
    changed = [
        name for name in ("prompt", "num_prompts", "reward", "sandbox") if getattr(own, name) != getattr(default, name)
    ]
    if own.limits.max_cells is not None:
        changed.append("limits.max_cells")
    return [
        f"golden.{name} is for programs of ARC tasks: leave it at its default with golden.verifier=reward"
        for name in changed
    ]


def _asks_for_texts(golden: DictConfig) -> bool:
    return golden.redaction.decided_above is not None or golden.records.prompt_log_probs


def _brings_a_selector(node: Any) -> bool:
    return isinstance(node, DictConfig) and "part" in node


def _check_tasks(config: DictConfig, settings: GoldenSettings) -> None:
    from transformers import AutoConfig
    from verl.utils.tokenizer import hf_tokenizer

    path = config.actor_rollout_ref.model.path
    try:
        tokenizer, model = hf_tokenizer(path), AutoConfig.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"actor_rollout_ref.model.path={path}: found no model with a tokenizer ({str(error).splitlines()[0]})"
        ) from None
    is_program = settings.verifier == "sandbox"
    if is_program:
        check_model(Path(path), settings.prompt)
    problems, left_out = read_run_problems(config, settings, tokenizer)
    print(f"{len(problems)} problems ({left_out}), {_range(problems)}")
    print(f"rewards: {_reward(problems) if is_program else _check_verifier(config, problems, tokenizer)}")
    if config.data.val_files != config.data.train_files:
        print("data.val_files: not used; probes measure the training problems, recipe.golden_redaction.evaluate others")
    states = settings.entries_per_update * settings.sync_every
    if settings.visit_ahead and len(problems) < 2 * states:
        raise ConfigError(
            f"golden.visit_ahead=true visits {states} problems while {states} others are trained on, but there are "
            f"{len(problems)}: add tasks, lower golden.entries_per_update or golden.sync_every, or set "
            "golden.visit_ahead=false"
        )
    longest = max(max(map(len, problem.prompts)) + len(problem.golden_ids) for problem in problems)
    needed = longest + settings.max_new_tokens
    given = config.actor_rollout_ref.rollout.max_model_len or model.max_position_embeddings
    if needed > given:
        raise ConfigError(
            f"the longest prompt and golden solution with golden.max_new_tokens={settings.max_new_tokens} take "
            f"{needed} tokens, but the engine's context has {given}: lower max_new_tokens, set "
            "golden.limits.max_prompt_tokens, or raise rollout.max_model_len"
        )


def _check_verifier(config: DictConfig, problems: Sequence[Problem], tokenizer: Any) -> str:
    """Try the reward function on the first golden solutions; what was tried, in words."""
    first = [problem for problem in problems[:TRIED_SOLUTIONS] if isinstance(problem, WorkedProblem)]
    name, texts = function_name(config), [decode_answer(problem.golden_ids, tokenizer) for problem in first]

    def try_all() -> list[bool]:
        function = load_function(config)
        return [is_right(function, problem.case, text) for problem, text in zip(first, texts, strict=True)]

    passes = in_child(try_all, TIMEOUT_S)  # a user's function may hang, fail, or end its process
    if isinstance(passes, str):
        raise ConfigError(f"{name}: {passes}")
    check_solutions(first, passes, tokenizer)
    return f"{name}, which calls the first {len(first)} golden solutions right"


def _reward(problems: list[Problem]) -> str:
    shown, held_out = (sum(map(len, pairs)) for pairs in zip(*((p.pairs, p.held_out) for p in problems), strict=True))
    without = sum(not problem.held_out for problem in problems)
    text = f"{shown} examples and {held_out} pairs that no prompt has"
    if not without:
        return text
    return f"{text}; {without} problem(s) have none of these, so a program that copies the examples is rewarded"


def _range(problems: list[Problem]) -> str:
    prompts = [len(prompt) for problem in problems for prompt in problem.prompts]
    golden = [len(problem.golden_ids) for problem in problems]
    return f"prompts of {min(prompts)} to {max(prompts)} tokens, golden solutions of {min(golden)} to {max(golden)}"
