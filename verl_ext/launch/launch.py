"""The steps of every recipe's `main` around verl's `run_ppo`: environment, checks, progress, clean-up, exit code."""

import contextlib
import os
import shlex
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig, OmegaConf, open_dict

from verl_ext.cluster.engine_resources import RUN_VARIABLE
from verl_ext.core.errors import ClusterError, SignalError
from verl_ext.launch.quiet import without_lines
from verl_ext.launch.sigterm import exit_on_sigterm, named_exit
from verl_ext.run.run_folder import RunFolder
from verl_ext.run.status import StatusFile
from verl_ext.trainer import default_reward

PROJECT_ROOT = Path(__file__).resolve().parents[2]


def adopt_environment(config: DictConfig) -> None:
    """Give this process the Ray workers' environment, and the workers our package.

    Must run before verl's trainer is imported: verl chooses its platform on first use. A variable that the user has
    set wins over the configuration.
    """
    with open_dict(config):
        runtime_env = config.ray_kwargs.ray_init.runtime_env
        env_vars = runtime_env.get("env_vars") or {}
        # The entry point needs an installed package and its errors are swallowed; this needs neither and raises.
        env_vars["VERL_USE_EXTERNAL_MODULES"] = _with_item(
            os.environ.get("VERL_USE_EXTERNAL_MODULES", ""), "verl_ext.plugin", ","
        )
        env_vars["PYTHONPATH"] = _with_item(os.environ.get("PYTHONPATH", ""), str(PROJECT_ROOT), os.pathsep)
        env_vars[RUN_VARIABLE] = uuid.uuid4().hex
        runtime_env.env_vars = env_vars
    # In a job of `ray job submit`, this process already has its variables, and Ray rejects duplicates without this.
    os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    for name, value in runtime_env.env_vars.items():
        if name in ("VERL_USE_EXTERNAL_MODULES", "PYTHONPATH", RUN_VARIABLE):
            os.environ[name] = value
        else:
            runtime_env.env_vars[name] = os.environ.setdefault(name, value)

    # verl warns about every engine that is not installed; the one in use is checked.
    warnings.filterwarnings("ignore", r"\w+ engine is not available", UserWarning)

    from verl_ext import plugin

    plugin.register()
    plugin.require_loaded()


def _with_item(value: str, item: str, separator: str) -> str:
    items = [part for part in value.split(separator) if part]
    return separator.join(items if item in items else [*items, item])


def resolve_paths(config: DictConfig, *keys: str) -> None:
    """Make relative paths absolute: Ray workers may start in another folder."""
    with open_dict(config):
        # This one need not exist yet; the others may be hub names or addresses of remote files.
        if "run_dir" in config:
            config.run_dir = str(Path(config.run_dir).expanduser().resolve())
        for key in keys:
            value = OmegaConf.select(config, key)
            if OmegaConf.is_list(value):
                OmegaConf.update(config, key, [_absolute(entry) for entry in value])
            elif isinstance(value, str):
                OmegaConf.update(config, key, _absolute(value))


def _absolute(path: str) -> str:
    # A model's hub name and a remote file's address also look like paths.
    local = Path(path).expanduser()
    return str(local.resolve()) if local.exists() else path


def choose_reward(config: DictConfig) -> None:
    """Without a configured reward function, use the reward functions of this package's data sets for their rows."""
    reward = config.reward
    # verl passes the address of a sandbox only to its own function.
    if not reward.custom_reward_function.path and not reward.sandbox_fusion.url:
        reward.custom_reward_function.path = default_reward.PATH
        reward.custom_reward_function.name = default_reward.compute_score.__name__


@contextlib.contextmanager
def people_errors() -> Iterator[None]:
    """Print only the message and the notes of user-facing errors and exit; other errors keep their traceback."""
    try:
        yield
    except Exception as error:
        known = _find_signal_error(error)
        if known is None:
            raise  # Python prints the notes after the traceback
        _say_end(f"error: {known}", error)
        sys.exit(1)
    except KeyboardInterrupt as error:
        _say_end("interrupted: the same command resumes from the newest checkpoint", error)
        sys.exit(130)
    except SystemExit as error:
        if not isinstance(error.code, str):
            raise
        _say_end(error.code, error)
        sys.exit(1)


def _say_end(message: str, error: BaseException) -> None:
    print(f"\n{message}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)


@contextlib.contextmanager
def pointing_to(folder: RunFolder) -> Iterator[None]:
    """Give an error that ends the run a note: the command that shows where it stopped, and where the logs are."""
    try:
        yield
    except BaseException as error:
        shown = f"where it stopped: python -m verl_ext.report run {shlex.quote(str(folder.path))}"
        logs = StatusFile(folder.status).read().get("logs")
        error.add_note(f"{shown}; logs of workers and engines: {logs}" if logs else shown)
        raise


def explain_end(error: BaseException) -> tuple[str, str]:
    """How a run ended, for `status.json`: `failed` or `interrupted`, and why."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "Ctrl-C"
    if isinstance(error, SystemExit):
        return "interrupted", str(error.code)
    if (known := _find_signal_error(error)) is not None:
        return "failed", str(known)
    # Ray's errors print the whole traceback of a worker, with the cause last.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "failed", f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def _find_signal_error(error: BaseException | None) -> SignalError | None:
    # Ray re-raises a worker's exception as its cause, under a dynamically created class.
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, SignalError):
            return getattr(error, "cause", None) or error  # type: ignore[return-value]
        error, seen = getattr(error, "cause", None) or error.__cause__, seen + 1
    return None


def run(config: DictConfig, run_ppo: Callable[..., Any]) -> None:
    """Run the trainer to its end; always remove engine processes and shared memory afterwards.

    Raises:
        ClusterError: the cluster cannot be reached, or lost a node.
    """
    folder = RunFolder(Path(config.run_dir))
    with pointing_to(folder):
        _run_in(folder, config, run_ppo)


def _run_in(folder: RunFolder, config: DictConfig, run_ppo: Callable[..., Any]) -> None:
    import ray
    from verl.trainer import main_ppo

    from verl_ext.cluster import nodes as cluster
    from verl_ext.cluster.engine_resources import read_ledger, release_recorded
    from verl_ext.launch.recipe import all_figures
    from verl_ext.launch.runner import VerifiedRunner, remote_runner
    from verl_ext.run.progress import FIGURES, show_progress

    cluster.choose_cluster(config)
    cluster.check_address(config)
    for name in release_recorded(read_ledger(folder.engine_ledger)):
        print(f"cleaned up after a killed run: {name}")
    exit_on_sigterm()
    try:
        StatusFile(folder.status).doing("starting Ray")
        progress = show_progress(folder, config.trainer.total_training_steps, {**FIGURES, **all_figures()})
        # A long line with all variables of the workers, including passwords.
        with progress, without_lines(main_ppo, "ray init kwargs:"), named_exit():
            run_ppo(config, task_runner_class=VerifiedRunner(config, remote_runner()))
    except ConnectionError as error:
        if ray.is_initialized():  # of another program
            raise
        raise cluster.unreachable(str(config.ray_kwargs.ray_init.get("address")), error) from error
    finally:
        if ray.is_initialized():
            _end(folder, sys.exception())
        else:
            _end_children()


def _end_children() -> None:
    """Kill the agents of a Ray that was still starting, which would outlive the command by a minute."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _end(folder: RunFolder, error: BaseException | None) -> None:
    """Clean up after a run, on every node; raises if a lost node ended the run."""
    import ray

    from verl_ext.cluster import nodes as cluster
    from verl_ext.cluster.engine_resources import EngineResources, read_ledger, release_recorded

    lost: list[str] = []
    if cluster.owns_cluster():
        # An engine that has already ended no longer shows its mappings, but the ledger has them.
        resources = [EngineResources.of_run(os.environ[RUN_VARIABLE]), *read_ledger(folder.engine_ledger)]
        ray.shutdown()
        release_recorded(resources)
    else:
        lost = cluster.end_run(folder.engine_ledger)
        ray.shutdown()
    folder.engine_ledger.unlink(missing_ok=True)
    if lost and isinstance(error, Exception):
        raise ClusterError(
            f"the Ray cluster lost the node {' and the node '.join(lost)} while the run used it: its machine or Ray "
            "ended (out of memory, pre-empted, network). Start Ray there again, or on another machine, and repeat the "
            f"same command: it resumes from the newest checkpoint in {folder.path}."
        ) from error
