"""The executor that a configuration asks for."""

from recipe.golden_redaction.settings import SandboxSettings
from verl_ext.sandbox.executor import Executor
from verl_ext.sandbox.fusion import DEFAULT_WORKERS, SandboxFusionExecutor
from verl_ext.sandbox.policy import SandboxPolicy
from verl_ext.sandbox.pool import SandboxPool


def make_executor(settings: SandboxSettings) -> Executor:
    """A started executor, to be closed by its user; it belongs to the process that made it.

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
