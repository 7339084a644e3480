"""The errors that a person is meant to read."""


class SignalError(Exception):
    """Ends a run with its message alone: what was expected, what came, and what to change."""


class ConfigError(SignalError):
    """The configuration contradicts itself, or asks for what does not exist."""


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
