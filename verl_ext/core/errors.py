"""User-facing errors."""


class SignalError(Exception):
    """Ends a run with only its message: what was expected, what was found, and what to change."""


class ConfigError(SignalError):
    """The configuration contradicts itself, or refers to something that does not exist."""


class StaleEngineError(SignalError):
    """The rollout engine serves other weights than the actor trains."""


class RolloutEngineError(SignalError):
    """A rollout engine died or hangs."""


class WorkerDiedError(SignalError):
    """A process of the run died."""


class GenerationFailedError(SignalError):
    """No rollout of a generation call succeeded."""


class CheckpointError(SignalError):
    """A checkpoint could not be written, or none can be loaded."""


class ClusterError(SignalError):
    """The Ray cluster cannot be reached, is too small, or lost a node."""
