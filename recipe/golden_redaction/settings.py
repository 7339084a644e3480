"""The settings of golden redaction: read from the configuration once, checked once, before Ray starts. Pure."""

from dataclasses import dataclass, field

from omegaconf import DictConfig

from recipe.golden_redaction.credit import CreditSettings
from recipe.golden_redaction.prompts import SizeLimits
from recipe.golden_redaction.redaction import RedactionSettings
from recipe.golden_redaction.targets import TargetSettings
from verl_ext.settings_node import read_node

CONFIG_FILE = "configs/signal/golden.yaml"


@dataclass(frozen=True)
class RecordSettings:
    """Settings of the training entries; raises ValueError on a contradiction.

    Attributes:
        enable: Write every training entry to the run folder.
        warm_start: File of an earlier run's entries that this one begins with; None: none.
        max_staleness: Weight versions that an entry may be behind the newest of that file; None: any number.
    """

    enable: bool = True
    warm_start: str | None = None
    max_staleness: int | None = 8

    def __post_init__(self) -> None:
        if type(self.enable) is not bool:
            raise ValueError(f"enable must be true or false, got {self.enable!r}")
        if self.warm_start is not None and (not isinstance(self.warm_start, str) or not self.warm_start):
            raise ValueError(f"warm_start must be the path of a file of entries or null, got {self.warm_start!r}")
        if self.max_staleness is not None and (type(self.max_staleness) is not int or self.max_staleness < 0):
            raise ValueError(f"max_staleness must be an int >= 0 or null, got {self.max_staleness!r}: null takes all")


@dataclass(frozen=True)
class GoldenSettings:
    """Settings of the token trainer; raises ValueError on a value out of range.

    Attributes:
        entries_per_update: States of one update of the actor.
        sync_every: Updates between two copies of the weights to the serving engine.
        max_new_tokens: Tokens of a rollout after its action.
        movement_tolerance: Nats that a log-prob may differ by without having moved.
        redaction: See `redaction.py`.
        credit: See `credit.py`.
        targets: See `targets.py`.
        limits: See `prompts.py`.
        records: See `RecordSettings`.
    """

    entries_per_update: int = 4
    sync_every: int = 1
    max_new_tokens: int = 1024
    movement_tolerance: float = 1e-4
    redaction: RedactionSettings = field(default_factory=RedactionSettings)
    credit: CreditSettings = field(default_factory=CreditSettings)
    targets: TargetSettings = field(default_factory=TargetSettings)
    limits: SizeLimits = field(default_factory=SizeLimits)
    records: RecordSettings = field(default_factory=RecordSettings)

    def __post_init__(self) -> None:
        for name in ("entries_per_update", "sync_every", "max_new_tokens"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name} must be an int >= 1, got {getattr(self, name)!r}: change {name}")
        tolerance = self.movement_tolerance
        if type(tolerance) not in (int, float) or not 0 <= tolerance < float("inf"):
            raise ValueError(f"movement_tolerance must be a number of nats >= 0, got {tolerance!r}: try 1e-4")


_GROUPS = {
    "redaction": RedactionSettings,
    "credit": CreditSettings,
    "targets": TargetSettings,
    "limits": SizeLimits,
    "records": RecordSettings,
}


def read_settings(config: DictConfig) -> GoldenSettings:
    """Read and check `config.golden`; without that node, the defaults.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    return read_node(config, "golden", GoldenSettings, _GROUPS, CONFIG_FILE)
