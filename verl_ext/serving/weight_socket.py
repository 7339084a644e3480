"""A socket for new weights that no other run on the machine uses.

verl names it by Ray's job id, to keep runs apart. Ray counts jobs per cluster, so every run that starts its own cluster
is job 1: of such runs on one machine, some failed at their first weights, and others waited for them forever. Both ends
get the mark of the run in addition.
"""

import os
from typing import Any

import ray
from verl.workers.rollout.vllm_rollout import ServerAdapter

from verl_ext.cluster.engine_resources import RUN_VARIABLE

# Read by the engine's processes for their end of the socket.
JOB_VARIABLE = "VERL_RAY_JOB_ID"


def job_of_run() -> str:
    """Ray's job id, followed by the mark of the run where there is one."""
    job, run = ray.get_runtime_context().get_job_id(), os.environ.get(RUN_VARIABLE)
    return f"{job}-{run}" if run else job


class RunServerAdapter(ServerAdapter):
    """verl's sender of weights, with a socket of this run; `SignalvLLMHttpServer` sets the other end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._pd_role is None:  # separate prefill and decode servers are verl's own, as are their sockets
            self.zmq_handle = self.zmq_handle.replace(ray.get_runtime_context().get_job_id(), job_of_run())
