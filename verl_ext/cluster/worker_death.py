"""What to tell people when a process of the run is gone: which one, and how to go on."""

import re

from ray.exceptions import OutOfMemoryError, RayActorError

from verl_ext.core.errors import WorkerDiedError

# Of Ray's message: "class_name: RewardLoopWorker\n\tactor_id: …\n\tpid: 4711\n\tnamespace: …\n\tip: …"
_FIELDS = re.compile(r"^\s*(class_name|pid|ip): (\S+)", re.MULTILINE)
_MAX_DEPTH = 10


def find_death(error: BaseException | None) -> RayActorError | OutOfMemoryError | None:
    """Ray's error of a dead actor behind `error`, or None. Ray has the original under `cause`, Python elsewhere."""
    for _ in range(_MAX_DEPTH):
        if error is None or isinstance(error, RayActorError | OutOfMemoryError):
            return error
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__
    return None


def explain_death(error: RayActorError | OutOfMemoryError) -> WorkerDiedError:
    """The same for people."""
    text = str(error)
    fields = dict(_FIELDS.findall(text))
    name = fields.get("class_name", "(its name is not known)")
    where = f" (process {fields['pid']} on {fields.get('ip', 'this machine')})" if "pid" in fields else ""
    was_killed_for_memory = isinstance(error, OutOfMemoryError) or "running low on memory" in text
    cause = (
        "Ray ended it because the machine's memory was nearly full: use smaller batches or fewer workers"
        if was_killed_for_memory
        else "it was killed, by a person or by the kernel for want of memory (`dmesg` tells), or it crashed"
    )
    return WorkerDiedError(
        f"the worker {name}{where} died: {cause}. The same command resumes from the newest checkpoint."
    )
