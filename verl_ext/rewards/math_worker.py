"""Child process of `math_pool`: compares answers with verl's own math-verify function, one JSON line at a time.

Run as a script by its path, never imported by the package: verl's file is loaded by its path as well, because `import
verl` would bring torch and Ray into every worker (16 s and 460 MB instead of 3 s and 80 MB on two cores).

    python -P math_worker.py VERL_MATH_VERIFY_FILE CPU_SECONDS MEMORY_GIB

Answers `"ready"` once everything is imported, or `{"error": traceback}`; then for each line `[gold, answer]` a number.
"""

import importlib.util
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path


def load_verify(verl_file: str) -> Callable[[str, str], float]:
    """`_verify_in_subprocess(gold_boxed, answer_boxed)` of verl, called once so that its regular expressions are
    compiled."""
    spec = importlib.util.spec_from_file_location("verl_math_verify", verl_file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{verl_file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    verify = module._verify_in_subprocess
    if verify(r"\boxed{\frac{1}{2}}", r"\boxed{0.5}") != 1.0:
        raise RuntimeError(
            "math_verify does not find 1/2 equal to 0.5: is math-verify installed in its pinned version?"
        )
    return verify


def limit_memory(gib: float) -> None:
    """Limit the additional address space: a power of two big integers must not use up the machine's memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    limit = pages * resource.getpagesize() + int(gib * 2**30)
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(verl_file: str, cpu_seconds: float, memory_gib: float) -> None:
    """Answer until the parent closes our standard input, which also happens when it dies."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries is not a reply
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and closes our input
    # A parent's thread may block signals, which its children inherit.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF, signal.SIGALRM})

    def reply(value: object) -> None:
        replies.write(json.dumps(value) + "\n")
        replies.flush()

    try:
        verify = load_verify(verl_file)
        limit_memory(memory_gib)
    except Exception:
        reply({"error": traceback.format_exc()})
        return
    reply("ready")
    for line in sys.stdin:
        gold, answer = json.loads(line)
        # SIGPROF's default action is the kernel's: it ends this process even inside one long big-integer power,
        # where the Python-level alarm of math_verify is never handled, and even if the parent is gone.
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        try:
            score = float(verify("\\boxed{" + gold + "}", "\\boxed{" + answer + "}"))
        except BaseException:  # math_verify's timeout is not an Exception; no answer may end this process
            score = 0.0
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        reply(score)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))
