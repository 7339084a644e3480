"""The settings of golden redaction: read from the configuration once, checked once, before Ray starts. Pure."""

from typing import Annotated, Literal

from omegaconf import DictConfig
from pydantic import Field, model_validator

from recipe.golden_redaction.method.credit import CreditSettings
from recipe.golden_redaction.method.problems import RewardSettings
from recipe.golden_redaction.method.progress import RedactionSettings
from recipe.golden_redaction.method.targets import TargetSettings
from verl_ext.arc.prompts import PromptSettings, SizeLimits
from verl_ext.core.settings import Settings, read_node
from verl_ext.core.settings_file import SettingsFile


class RecordSettings(Settings):
    """Settings of the training entries."""

    enable: bool = True
    """Write every training entry to the run folder."""

    outputs: bool = True
    """Also the grids that programs returned, for the trace viewer to draw."""

    prompt_log_probs: bool = True
    """Also the log-probs of a state's own tokens, under the policy and the reference."""

    warm_start: str | None = Field(default=None, min_length=1)
    """Entries file of an earlier run to start from: each problem continues with the number of hidden tokens it had
    there, and fresh entries are trained on first. null: none."""

    max_staleness: int | None = Field(default=64, ge=0)
    """Maximum weight versions that a fresh entry may be behind the newest of its file. null: no limit."""

    max_log_prob_gap: float | None = Field(default=0.3, ge=0)
    """Maximum mean difference, in nats, between the log-probs of a fresh entry's actions and those under the current
    policy. null: no limit."""


class SandboxSettings(Settings):
    """Where programs run; `sandbox.make_executor` creates the executor."""

    executor: Literal["local", "sandbox_fusion"] = "local"
    """Where programs run. local: processes of this machine. sandbox_fusion: a server of Sandbox Fusion, through verl's
    client."""

    url: str | None = None
    """URL of a Sandbox Fusion server's run_code, such as http://HOST:8080/run_code. null with executor=local."""

    workers: int | None = Field(default=None, ge=1)
    """Number of concurrent programs. null: one per processor with local, 64 calls with sandbox_fusion."""

    require: Literal["minimum", "full"] = "minimum"
    """Isolation of the local executor: full, or minimum, which also works in containers without namespaces."""

    cpu_seconds: float = Field(default=2.0, gt=0)
    """CPU time limit of a program on one input, in seconds; only with executor=local."""

    wall_seconds: float = Field(default=30.0, gt=0)
    """Wall-clock limit of a program on one input, in seconds; the only limit that Sandbox Fusion enforces."""

    memory_mib: int = Field(default=512, ge=1)
    """Memory limit of a program on one input, in MiB. local: beyond the interpreter's own; sandbox_fusion: of the whole
    process."""

    @model_validator(mode="after")
    def _agree(self) -> "SandboxSettings":
        is_url = self.url is not None and self.url.startswith(("http://", "https://"))
        if self.executor == "sandbox_fusion" and not is_url:
            raise ValueError(
                f"executor=sandbox_fusion needs the url of a server's run_code, such as http://HOST:8080/run_code, got "
                f"url={self.url!r}"
            )
        if self.executor == "local" and self.url is not None:
            raise ValueError(
                f"url={self.url!r} has no effect with executor=local: set executor=sandbox_fusion or url=null"
            )
        if self.executor == "sandbox_fusion" and self.require == "full":
            raise ValueError("a server cannot guarantee require=full: use executor=local or require=minimum")
        return self


class ProbeSettings(Settings):
    """Settings of the measurement at `trainer.test_freq`."""

    shares: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(default=(0.25, 0.5, 1.0), min_length=1)
    """Probes run before the first step and every trainer.test_freq steps: free rollouts of every problem with these
    shares of its golden solution hidden, in increasing order. 1.0: all of it."""

    rollouts: int = Field(default=16, ge=1)
    """Rollouts per problem and share."""

    @model_validator(mode="after")
    def _agree(self) -> "ProbeSettings":
        if list(self.shares) != sorted(set(self.shares)):
            raise ValueError(f"shares must be strictly increasing, got {list(self.shares)}")
        return self


class GoldenSettings(Settings):
    """Settings of the token trainer."""

    verifier: Literal["sandbox", "reward"] = "sandbox"
    """What judges an answer. sandbox: it is a program, run on the pairs of an ARC task. reward: the run's reward
    function reads it; the data have a column golden_solution with a worked solution as text."""

    entries_per_update: int = Field(default=4, ge=1)
    """States per update of the actor."""

    sync_every: int = Field(default=1, ge=1)
    """Updates between two copies of the weights to the serving engine; above 1 the entries in between are
    off-policy."""

    visit_ahead: bool = False
    """Visit the next step's states while the actor is trained on this step's: rollouts are then one update older. Needs
    engines that stay awake (rollout.free_cache_engine=false)."""

    max_new_tokens: int = Field(default=1024, ge=1)
    """Maximum tokens of a rollout after its action; a program that is not complete by then fails."""

    num_prompts: int = Field(default=1, ge=1)
    """Number of prompts per task, of which its visits take turns. The first is the data file's; each other one shows as
    many examples in another order, drawn from the task's own and from those pairs of golden.reward.fresh_pairs that no
    reward needs."""

    movement_tolerance: float = Field(default=1e-4, ge=0)
    """Changes of a log-prob up to this many nats count as measurement noise, not as movement."""

    reference: bool = True
    """Also measure the log-probs under the initial policy, once per token."""

    attention_dtype: Literal["bf16"] | None = None
    """bf16: the actor's attention computes in bfloat16 whatever the dtype of the rest. null: same as the rest."""

    tensor_statistics_every: int = Field(default=1, ge=0)
    """Updates between two measurements of the change of every weight tensor. 0: never."""

    redaction: RedactionSettings = RedactionSettings()

    credit: CreditSettings = CreditSettings()

    targets: TargetSettings = TargetSettings()

    prompt: PromptSettings = PromptSettings()

    limits: SizeLimits = SizeLimits()

    records: RecordSettings = RecordSettings()

    reward: RewardSettings = RewardSettings()

    sandbox: SandboxSettings = SandboxSettings()

    probe: ProbeSettings = ProbeSettings()


FILE = SettingsFile(
    "signal/golden.yaml",
    "golden",
    GoldenSettings,
    "Golden redaction: `- signal/golden@golden` in a recipe's defaults, or `+signal=golden`.",
)


def read_settings(config: DictConfig) -> GoldenSettings:
    """Read and check `config.golden`; without that node, the defaults.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    return read_node(config, "golden", GoldenSettings, f"configs/{FILE.path}")
