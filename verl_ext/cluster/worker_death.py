"""The message when a process of the run has died: which one, and how to continue."""

import re

from ray.exceptions import OutOfMemoryError, RayActorError

from verl_ext.core.errors import WorkerDiedError

# Part of Ray's message: "class_name: RewardLoopWorker\n\tactor_id: …\n\tpid: 4711\n\tnamespace: …\n\tip: …"
_FIELDS = re.compile(r"^\s*(class_name|pid|ip): (\S+)", re.MULTILINE)
_MAX_DEPTH = 10


def find_death(error: BaseException | None) -> RayActorError | OutOfMemoryError | None:
    """Ray's error about a dead actor that caused `error`, or None. Ray keeps the original in `cause`, Python
    elsewhere."""
    for _ in range(_MAX_DEPTH):
        if error is None or isinstance(error, RayActorError | OutOfMemoryError):
            return error
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__
    return None


def explain_death(error: RayActorError | OutOfMemoryError) -> WorkerDiedError:
    """A readable message about the dead actor."""
    text = str(error)
    fields = dict(_FIELDS.findall(text))
    name = fields.get("class_name", "(its name is not known)")
    where = f" (process {fields['pid']} on {fields.get('ip', 'this machine')})" if "pid" in fields else ""
    was_killed_for_memory = isinstance(error, OutOfMemoryError) or "running low on memory" in text
    cause = (
        "Ray ended it because the machine's memory was nearly full: use smaller batches or fewer workers"
        if was_killed_for_memory
        else "it was killed by a person or by the kernel's out-of-memory killer (see `dmesg`), or it crashed"
    )
    return WorkerDiedError(
        f"the worker {name}{where} died: {cause}. The same command resumes from the newest checkpoint."
    )
