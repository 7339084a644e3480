"""How the time from the command to the first training step is spent: processes, CPU seconds, imports.

    make demo-data
    python tests/benchmarks/cold_start.py --data outputs/data/arithmetic --model outputs/models/arithmetic_base

compares checkouts in turns, so that all share the same machine load; each is a folder and a Python:

    python tests/benchmarks/cold_start.py --data … --model … --repeat 3 \\
        --checkout before=../old:../old/.venv/bin/python --checkout after=.:.venv/bin/python

One RL step of Fast DAPO's demo without validation. The first step is over with the first line in `metrics.jsonl`. A
process is seen when a check (every 0.2 s) finds it, and named by its last title until then; processor seconds are those
up to the first step. With `--imports`, a hook in every interpreter notes which heavy packages it imports; a forked
process has its parent's. Wall-clock depends on what else the machine does, processor seconds hardly.
"""

import argparse
import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
INTERVAL_S = 0.2
TIMEOUT_S = 1800.0

HEAVY = ("torch", "torch._dynamo", "torch._inductor", "torch.distributed", "tensordict", "transformers", "verl", "vllm")
HEAVY += ("ray", "pandas", "pyarrow", "datasets", "scipy", "sympy", "openai")

# Runs in every interpreter before its program does.
HOOK = f"""
import os, sys, time
class _Imports:
    heavy = set({HEAVY!r})
    def find_spec(self, name, path=None, target=None):
        if name in self.heavy:
            self.heavy.discard(name)
            with open(f"{{os.environ['COLD_START_IMPORTS']}}/{{os.getpid()}}", "a") as file:
                file.write(f"{{name}} {{time.process_time():.1f}}\\n")
sys.meta_path.insert(0, _Imports())
"""


@dataclass
class Process:
    """One of the command's processes.

    Args:
        title: its title.
        seen_s: seconds from the command to the first look that found it.
        titled_s: seconds to the first look that found it under this title.
        cpu_s: its processor seconds until the first step.
        imports: heavy packages, in order, that it imported itself.
    """

    title: str
    seen_s: float
    titled_s: float
    cpu_s: float = 0.0
    imports: list[str] = field(default_factory=list)


@dataclass
class Start:
    """One cold start."""

    first_step_s: float
    cpu_s: float
    memory_gib: float
    processes: list[Process]


def short_title(process: psutil.Process) -> str:
    """A short name of a process: `ray::WorkerDict`, `VLLM::EngineCore`, `raylet`, `log_monitor.py`."""
    words = process.cmdline()
    if not words:
        return process.name()
    line = " ".join(words)
    if line.startswith(("ray::", "VLLM::", "verl_signal::")):
        return re.split(r"[.(\s]", line)[0]
    if "python" not in Path(words[0]).name:
        return Path(words[0]).name
    scripts = [Path(word).name for word in words[1:] if word.endswith(".py")]
    modules = [after for before, after in itertools.pairwise(words) if before == "-m"]
    return (modules + scripts + ["python"])[0]


def measure(checkout: Path, python: Path, overrides: list[str], imports: bool) -> Start:
    """Run the command once, to its end."""
    with tempfile.TemporaryDirectory(prefix="cold_start_") as scratch:
        run_dir = Path(scratch) / "run"
        seen_imports = Path(scratch) / "imports"
        seen_imports.mkdir()
        # Keep the user's setting: whether Python may write .pyc files affects the start a lot.
        environment = os.environ | {"PYTHONPATH": str(checkout), "COLD_START_IMPORTS": str(seen_imports)}
        if imports:
            (Path(scratch) / "sitecustomize.py").write_text(HOOK)
            environment["PYTHONPATH"] += os.pathsep + scratch
        command = [str(python), "-m", "recipe.fast_dapo.main", "+backend=cpu", "+experiment=arithmetic_demo"]
        with (Path(scratch) / "log").open("w") as log:
            driver = psutil.Popen(
                [*command, f"run_dir={run_dir}", *overrides], cwd=checkout, env=environment, stdout=log, stderr=log
            )
            began = time.monotonic()
            try:
                start = _watch(driver, run_dir / "metrics.jsonl", began, seen_imports)
                code = driver.wait(timeout=TIMEOUT_S)
            finally:
                _end(driver)
        if start is None or code != 0:
            sys.exit(f"{' '.join(command)} in {checkout} failed:\n{(Path(scratch) / 'log').read_text()[-3000:]}")
        return start


def _watch(driver: psutil.Popen, metrics: Path, began: float, seen_imports: Path) -> Start | None:
    found: dict[tuple[int, float], Process] = {}
    while True:
        now, memory = time.monotonic() - began, 0
        done = metrics.exists() and metrics.read_text().endswith("\n")
        try:
            family = [driver, *driver.children(recursive=True)]
        except psutil.NoSuchProcess:
            return None
        for process in family:
            try:
                with process.oneshot():
                    key, title, times = (process.pid, process.create_time()), short_title(process), process.cpu_times()
                if done:
                    memory += process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                continue
            entry = found.setdefault(key, Process(title, now, now))
            if title != entry.title:
                entry.title, entry.titled_s = title, now
            entry.cpu_s = times.user + times.system
        if done:
            for (pid, _), entry in found.items():
                record = seen_imports / str(pid)
                entry.imports = record.read_text().splitlines() if record.exists() else []
            processes = sorted(found.values(), key=lambda entry: entry.seen_s)
            return Start(now, sum(entry.cpu_s for entry in processes), memory / 2**30, processes)
        if driver.poll() is not None or now > TIMEOUT_S:
            return None
        time.sleep(INTERVAL_S)


def _end(driver: psutil.Popen) -> None:
    if driver.poll() is None:
        driver.terminate()
        driver.wait(timeout=60)


def table(start: Start) -> str:
    """The processes that took at least a fifth of a processor second, in order of appearance."""
    lines = ["| process | seen, s | so called, s | processor seconds | imports, at processor second |"]
    lines.append("|---|---|---|---|---|")
    for entry in start.processes:
        if entry.cpu_s >= 0.2:
            times = f"{entry.seen_s:.1f} | {entry.titled_s:.1f} | {entry.cpu_s:.1f}"
            lines.append(f"| {entry.title} | {times} | {', '.join(entry.imports)} |")
    small = [entry.cpu_s for entry in start.processes if entry.cpu_s < 0.2]
    lines.append(f"| {len(small)} smaller ones | | | {sum(small):.1f} | |")
    lines.append(f"| first step | {start.first_step_s:.1f} | | {start.cpu_s:.1f} | |")
    return "\n".join(lines)


def summary(starts: dict[str, list[Start]]) -> str:
    """One row per checkout."""
    lines = ["| checkout | first step, s (median) | each | processor seconds (median) | memory, GiB |"]
    lines.append("|---|---|---|---|---|")
    for name, measured in starts.items():
        median = statistics.median(start.first_step_s for start in measured)
        each = " / ".join(f"{start.first_step_s:.0f}" for start in measured)
        cpu = statistics.median(start.cpu_s for start in measured)
        memory = statistics.median(start.memory_gib for start in measured)
        lines.append(f"| {name} | {median:.0f} | {each} | {cpu:.0f} | {memory:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure the checkouts in turns and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", action="append", help="NAME=FOLDER:PYTHON; default: this one")
    parser.add_argument("--data", type=Path, required=True, help="folder with train.parquet and val.parquet")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=1, help="turns")
    parser.add_argument("--imports", action="store_true", help="note heavy imports; adds a little time")
    parser.add_argument("--json", type=Path, help="also write everything there")
    parser.add_argument("overrides", nargs="*", help="further settings of the command")
    arguments = parser.parse_args()

    data, model = arguments.data.resolve(), arguments.model.resolve()
    overrides = [f"data.train_files={data}/train.parquet", f"data.val_files={data}/val.parquet"]
    overrides += [f"actor_rollout_ref.model.path={model}", "trainer.total_training_steps=1"]
    overrides += ["trainer.test_freq=-1", "trainer.save_freq=-1", *arguments.overrides]
    checkouts: dict[str, tuple[Path, Path]] = {}
    for entry in arguments.checkout or [f"this={ROOT}:{sys.executable}"]:
        name, _, place = entry.partition("=")
        folder, _, python = place.partition(":")
        # Not resolved: the Python of an environment is a link to another.
        checkouts[name] = (Path(folder).resolve(), Path(python).absolute())

    starts: dict[str, list[Start]] = {name: [] for name in checkouts}
    for turn, (name, (folder, python)) in itertools.product(range(arguments.repeat), checkouts.items()):
        start = measure(folder, python, overrides, arguments.imports)
        starts[name].append(start)
        print(f"\nTurn {turn + 1}, {name}, load {os.getloadavg()[0]:.1f}:\n\n{table(start)}", flush=True)
        if arguments.json:
            everything = {name: [asdict(start) for start in measured] for name, measured in starts.items()}
            arguments.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")
    print(f"\n{summary({name: measured for name, measured in starts.items() if measured})}")


if __name__ == "__main__":
    main()
