"""What is read from a log that vLLM's processes wrote to."""

import subprocess
import sys
from pathlib import Path

import pytest

from verl_ext.serving.engine_log import explain, last_error

CORE = "(EngineCore pid=701) ERROR 11-22 10:14:07 [core.py:1146] "
WORKER = "(Worker pid=733) ERROR 11-22 10:14:07 [multiproc_executor.py:949] "
CAUSE = "torch._inductor.exc.InductorError: OSError: /tmp/torchinductor_me/ab/cab.so: file too short"

# As vLLM writes it: the worker's error, then the core's, then that of the process that waits for the core.
LOG = f"""\
(EngineCore pid=701) INFO 11-22 10:13:50 [core.py:120] Initializing a V1 LLM engine
{WORKER}WorkerProc hit an exception.
{WORKER}Traceback (most recent call last):
{CORE}EngineCore encountered a fatal error.
{WORKER}  File "logprobs.py", line 10, in batched_count_greater_than
{CORE}Traceback (most recent call last):
{WORKER}    return fn(*args)
{WORKER}{CAUSE}
{WORKER}
{WORKER}Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
{CORE}  File "core.py", line 1137, in run_engine_core
{CORE}RuntimeError: Worker failed with error 'OSError: file too short', please check the stack trace above
Traceback (most recent call last):
  File "async_llm.py", line 600, in output_handler
vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "worker.out").write_text(LOG)
    return tmp_path / "worker.out"


def test_the_cause_is_the_workers_own_error_and_not_what_points_at_it(log: Path):
    assert last_error([log]) == CAUSE


def test_what_only_points_at_a_cause_is_better_than_nothing(log: Path):
    log.write_text("\n".join(line for line in LOG.splitlines() if "Worker pid" not in line))
    assert "EngineCore encountered an issue" in last_error([log])


def test_an_engines_error_counts_more_than_a_later_one_of_the_process_that_serves(log: Path):
    log.write_text(LOG + "Traceback (most recent call last):\n  File x\nasyncio.exceptions.CancelledError\n")
    assert last_error([log]) == CAUSE


def test_a_log_without_a_traceback_or_that_is_gone_has_no_error(tmp_path: Path):
    (tmp_path / "quiet").write_text("ValueError: told by somebody, outside of a traceback\n")
    assert last_error([tmp_path / "quiet", tmp_path / "gone"]) is None


def test_people_are_told_the_error_and_where_to_read_on(log: Path):
    assert explain([log]) == f"; the last error in its log: {CAUSE}. Its log: {log}"
    log.write_text("all is well\n")
    assert explain([log]) == f". Its log: {log}"
    assert explain([]) == ""


def test_a_long_error_is_cut(log: Path):
    log.write_text("Traceback (most recent call last):\n  File x\nValueError: " + "long" * 10_000 + "\n")
    assert len(last_error([log])) < 600


def test_a_process_knows_the_files_that_it_writes_into(tmp_path: Path):
    program = "from verl_ext.serving.engine_log import own_logs; print(*own_logs(), sep='\\n')"
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        subprocess.run([sys.executable, "-c", program], stdout=out, stderr=err, check=True)
    assert (tmp_path / "out").read_text().splitlines() == [str(tmp_path / "out"), str(tmp_path / "err")]
    piped = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert piped.stdout.strip() == ""
