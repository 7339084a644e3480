"""Creates the configured judge of answers, and the executor of programs."""

from typing import Any

from omegaconf import DictConfig

from recipe.golden_redaction.method.judging import Judge, ProgramJudge, RewardJudge
from recipe.golden_redaction.settings import GoldenSettings, SandboxSettings
from verl_ext.launch.preflight.reward import load_function
from verl_ext.sandbox.executor import Executor
from verl_ext.sandbox.fusion import DEFAULT_WORKERS, SandboxFusionExecutor
from verl_ext.sandbox.policy import SandboxPolicy
from verl_ext.sandbox.pool import SandboxPool


def make_executor(settings: SandboxSettings) -> Executor:
    """A started executor, which the caller must close; it belongs to the process that created it.

    Raises:
        SandboxUnavailableError: This machine cannot give the isolation that `settings.require` promises, or the server
            does not answer.
    """
    policy = SandboxPolicy(
        cpu_seconds=settings.cpu_seconds,
        wall_seconds=settings.wall_seconds,
        memory_mib=settings.memory_mib,
        require=settings.require,
    )
    if settings.executor == "sandbox_fusion":
        from verl.utils.reward_score.sandbox_fusion.utils import call_sandbox_api

        assert settings.url is not None  # checked by the settings
        return SandboxFusionExecutor(settings.url, call_sandbox_api, policy, settings.workers or DEFAULT_WORKERS)
    return SandboxPool(policy, settings.workers)


def make_judge(config: DictConfig, settings: GoldenSettings, tokenizer: Any) -> Judge:
    """A judge, to be closed by its user; errors as of `make_executor`.

    Args:
        config: Of the run, for its reward function.
        settings: Its `golden`.
        tokenizer: Of the policy.
    """
    if settings.verifier == "reward":
        return RewardJudge(load_function(config), tokenizer)
    return ProgramJudge(make_executor(settings.sandbox), tokenizer, settings.records.outputs)
