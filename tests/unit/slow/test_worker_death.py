"""A dead process is found behind other errors, and reported by name."""

import pytest
from ray.exceptions import OutOfMemoryError, RayActorError

from verl_ext.cluster.worker_death import explain_death, find_death

# As Ray prints it.
TEXT = """The actor died unexpectedly before finishing this task.
\tclass_name: RewardLoopWorker
\tactor_id: 1bd3a0
\tpid: 4711
\tname: reward_loop_worker_0
\tnamespace: a
\tip: 10.0.0.7
The actor is dead because its worker process has died. There are some potential root causes. (1) The process is
killed by SIGKILL by OOM killer due to high memory usage."""


def test_the_process_is_named_with_what_to_do():
    message = str(explain_death(RayActorError(error_msg=TEXT)))
    assert message.startswith(
        "the worker RewardLoopWorker (process 4711 on 10.0.0.7) died: it was killed by a person or"
    )
    assert message.endswith("The same command resumes from the newest checkpoint.")


def test_rays_own_memory_monitor_is_told_apart():
    message = str(explain_death(OutOfMemoryError("Task was killed due to the node running low on memory.")))
    assert "the machine's memory was nearly full: use smaller batches or fewer workers" in message


def test_a_death_is_found_behind_other_errors():
    death, other = RayActorError(error_msg=TEXT), RuntimeError("a rollout failed")
    other.__cause__ = death
    assert find_death(other) is death
    assert find_death(None) is None
    assert find_death(ValueError("of something else")) is None


def test_errors_that_name_each_other_as_their_cause_are_no_endless_search():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert find_death(first) is None


@pytest.mark.parametrize("text", ["", "no fields at all"])
def test_a_message_without_names_is_a_sentence_still(text: str):
    assert str(explain_death(RayActorError(error_msg=text))).startswith("the worker (its name is not known) died: ")
