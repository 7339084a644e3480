"""The settings of golden redaction: read from the configuration once, checked once, before Ray starts. Pure."""

import math
from dataclasses import dataclass, field

from omegaconf import DictConfig

from recipe.golden_redaction.credit import CreditSettings
from recipe.golden_redaction.prompts import SizeLimits
from recipe.golden_redaction.redaction import RedactionSettings
from recipe.golden_redaction.targets import TargetSettings
from verl_ext.sandbox.policy import LEVELS
from verl_ext.settings_node import read_node

CONFIG_FILE = "configs/signal/golden.yaml"


@dataclass(frozen=True)
class RecordSettings:
    """Settings of the training entries; raises ValueError on a contradiction.

    Attributes:
        enable: Write every training entry to the run folder.
        outputs: Also the grids that programs returned, which the trace viewer draws.
        prompt_log_probs: Also the log-probs of the state's own tokens, under the policy and the reference.
        warm_start: File of an earlier run's entries that this one begins with; None: none.
        max_staleness: Weight versions that an entry may be behind the newest of that file; None: any number.
    """

    enable: bool = True
    outputs: bool = True
    prompt_log_probs: bool = True
    warm_start: str | None = None
    max_staleness: int | None = 8

    def __post_init__(self) -> None:
        for name in ("enable", "outputs", "prompt_log_probs"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} must be true or false, got {getattr(self, name)!r}")
        if self.warm_start is not None and (not isinstance(self.warm_start, str) or not self.warm_start):
            raise ValueError(f"warm_start must be the path of a file of entries or null, got {self.warm_start!r}")
        if self.max_staleness is not None and (type(self.max_staleness) is not int or self.max_staleness < 0):
            raise ValueError(f"max_staleness must be an int >= 0 or null, got {self.max_staleness!r}: null takes all")


@dataclass(frozen=True)
class ProbeSettings:
    """Settings of the measurement at `trainer.test_freq`; raises ValueError on a value out of range.

    Attributes:
        shares: Of each golden solution, how much is hidden from a free rollout, each in (0, 1]; 1: all of it.
        rollouts: Of each problem and share.
    """

    shares: tuple[float, ...] = (0.25, 0.5, 1.0)
    rollouts: int = 16

    def __post_init__(self) -> None:
        shares = self.shares
        if not isinstance(shares, tuple) or not shares:
            raise ValueError(f"shares must be a list of numbers in (0, 1], at least one, got {shares!r}")
        if not all(type(share) in (int, float) and 0 < share <= 1 for share in shares):
            raise ValueError(f"shares must be numbers in (0, 1], got {list(shares)}")
        if list(shares) != sorted(set(shares)):
            raise ValueError(f"shares must rise, each there once, got {list(shares)}")
        if type(self.rollouts) is not int or self.rollouts < 1:
            raise ValueError(f"rollouts must be an int >= 1, got {self.rollouts!r}")


@dataclass(frozen=True)
class SandboxSettings:
    """Where programs run; `sandbox.make_executor` makes it. Raises ValueError on a contradiction.

    Attributes:
        executor: "local" (`verl_ext.sandbox.pool`) or "sandbox_fusion" (a server of Sandbox Fusion).
        url: Of the server's run_code, for sandbox_fusion alone.
        workers: Programs (local) or calls (sandbox_fusion) at the same time; None: one a processor, or 64 calls.
        require: Isolation of the local executor, a key of `verl_ext.sandbox.policy.LEVELS`. A server's is unknown.
        cpu_seconds: Processor time of a program on one input; local alone.
        wall_seconds: Time on the clock, the only one that Sandbox Fusion keeps.
        memory_mib: Local: beyond what the interpreter needs; sandbox_fusion: of the whole process.
    """

    executor: str = "local"
    url: str | None = None
    workers: int | None = None
    require: str = "minimum"
    cpu_seconds: float = 2.0
    wall_seconds: float = 30.0
    memory_mib: int = 512

    def __post_init__(self) -> None:
        if self.executor not in ("local", "sandbox_fusion"):
            raise ValueError(f"executor must be local or sandbox_fusion, got {self.executor!r}")
        is_url = isinstance(self.url, str) and self.url.startswith(("http://", "https://"))
        if self.executor == "sandbox_fusion" and not is_url:
            raise ValueError(
                f"executor=sandbox_fusion needs the url of a server's run_code, such as http://HOST:8080/run_code, got "
                f"url={self.url!r}"
            )
        if self.executor == "local" and self.url is not None:
            raise ValueError(
                f"url={self.url!r} has no use with executor=local: set executor=sandbox_fusion or url=null"
            )
        if self.require not in LEVELS:
            raise ValueError(f"require must be one of {', '.join(sorted(LEVELS))}, got {self.require!r}")
        if self.executor == "sandbox_fusion" and self.require == "full":
            raise ValueError("require=full cannot be promised of a server: use executor=local or require=minimum")
        if self.workers is not None and (type(self.workers) is not int or self.workers < 1):
            raise ValueError(f"workers must be an int >= 1 or null, got {self.workers!r}")
        if type(self.memory_mib) is not int or self.memory_mib < 1:
            raise ValueError(f"memory_mib must be an int >= 1, got {self.memory_mib!r}: try 512")
        for name in ("cpu_seconds", "wall_seconds"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value < math.inf:
                raise ValueError(f"{name} must be a number of seconds above 0, got {value!r}")


@dataclass(frozen=True)
class GoldenSettings:
    """Settings of the token trainer; raises ValueError on a value out of range.

    Attributes:
        entries_per_update: States of one update of the actor.
        sync_every: Updates between two copies of the weights to the serving engine.
        max_new_tokens: Tokens of a rollout after its action.
        movement_tolerance: Nats that a log-prob may differ by without having moved.
        reference: Measure the log-probs of the reference policy, too; they are computed once and kept.
        attention_dtype: "bf16": the attention of actor and reference computes in bfloat16 whatever the rest does; None:
            as the rest.
        tensor_statistics_every: Updates between two measurements of every weight tensor's change; 0: never.
        redaction: See `redaction.py`.
        credit: See `credit.py`.
        targets: See `targets.py`.
        limits: See `prompts.py`.
        records: See `RecordSettings`.
        sandbox: See `SandboxSettings`.
        probe: See `ProbeSettings`.
    """

    entries_per_update: int = 4
    sync_every: int = 1
    max_new_tokens: int = 1024
    movement_tolerance: float = 1e-4
    reference: bool = True
    attention_dtype: str | None = None
    tensor_statistics_every: int = 1
    redaction: RedactionSettings = field(default_factory=RedactionSettings)
    credit: CreditSettings = field(default_factory=CreditSettings)
    targets: TargetSettings = field(default_factory=TargetSettings)
    limits: SizeLimits = field(default_factory=SizeLimits)
    records: RecordSettings = field(default_factory=RecordSettings)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    probe: ProbeSettings = field(default_factory=ProbeSettings)

    def __post_init__(self) -> None:
        for name in ("entries_per_update", "sync_every", "max_new_tokens"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name} must be an int >= 1, got {getattr(self, name)!r}: change {name}")
        if type(self.reference) is not bool:
            raise ValueError(f"reference must be true or false, got {self.reference!r}")
        if self.attention_dtype not in (None, "bf16"):
            raise ValueError(f"attention_dtype must be bf16 or null, got {self.attention_dtype!r}")
        if type(self.tensor_statistics_every) is not int or self.tensor_statistics_every < 0:
            raise ValueError(f"tensor_statistics_every must be an int >= 0, got {self.tensor_statistics_every!r}")
        tolerance = self.movement_tolerance
        if type(tolerance) not in (int, float) or not 0 <= tolerance < float("inf"):
            raise ValueError(f"movement_tolerance must be a number of nats >= 0, got {tolerance!r}: try 1e-4")


_GROUPS = {
    "redaction": RedactionSettings,
    "credit": CreditSettings,
    "targets": TargetSettings,
    "limits": SizeLimits,
    "records": RecordSettings,
    "sandbox": SandboxSettings,
    "probe": ProbeSettings,
}


def read_settings(config: DictConfig) -> GoldenSettings:
    """Read and check `config.golden`; without that node, the defaults.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    return read_node(config, "golden", GoldenSettings, _GROUPS, CONFIG_FILE)
