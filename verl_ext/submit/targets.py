"""Submission targets: a file rendered from a template of configs/cluster, and the command that submits it."""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jinja2
from omegaconf import DictConfig

from verl_ext.core.errors import ConfigError
from verl_ext.submit.composing import check_shared, describe

TEMPLATES = Path(__file__).resolve().parents[2] / "configs" / "cluster"

# Excluded from the package: large files and those of one machine.
EXCLUDES = (".git", ".venv", "outputs", "tests", "docs", "**/__pycache__", ".*_cache", ".hypothesis", "*.egg-info")

# Resources that Ray counts; on a machine without GPUs they are logical slots (configs/cpu/ray.yaml).
_LOGICAL_CPUS = 64


@dataclass(frozen=True)
class Submission:
    """A rendered file, and the command that submits it.

    Args:
        path: Path of the file.
        text: Its content.
        command: Command that refers to the path.
    """

    path: Path
    text: str
    command: list[str]

    def submit(self) -> int:
        """Write the file, run the command, and return its exit status.

        Raises:
            ConfigError: the command's program is not installed on this machine.
        """
        # Programs of this Python's environment, which need not be activated.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        if shutil.which(self.command[0], path=path) is None:
            raise ConfigError(
                f"{self.command[0]} is not on this machine: submit from one that has it (a login node of the cluster, "
                "an environment with Ray or SkyPilot), or print the submission with --dry-run."
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.text, encoding="utf-8")
        return subprocess.run(self.command, env=os.environ | {"PATH": path}, check=False).returncode

    def __str__(self) -> str:
        return f"# {self.path}\n{self.text}\n# command\n{shlex.join(self.command)}"


def render(template: str, **values: Any) -> str:
    """A template of configs/cluster; a missing value is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    return environment.get_template(template).render(**values)


def slurm(options: argparse.Namespace, config: DictConfig) -> Submission:
    """sbatch with a script that starts Ray on all nodes."""
    run = describe(config)
    run["run_dir"] = str(Path(options.working_dir, run["run_dir"]).resolve())
    sbatch = [f"--{name}={value}" for name in ("partition", "account") if (value := getattr(options, name))]
    sbatch += options.sbatch
    if any("\n" in option for option in sbatch):
        raise ConfigError(f"expected options of sbatch on one line each, got {sbatch!r}")
    container = []
    if options.container:
        mounts = options.mount or [f"{options.working_dir}:{options.working_dir}"]
        container = [f"--container-image={options.container}", f"--container-mounts={','.join(mounts)}"]
    slots = [] if run["gpus"] else [f"--num-gpus={run['slots']}", f"--num-cpus={_LOGICAL_CPUS}"]
    text = render(
        "slurm.sbatch.j2",
        **run,
        time=options.time,
        sbatch=sbatch,
        srun=container,
        ray_start=slots,
        setup=options.setup or _environment_of_this_python(),
        working_dir=options.working_dir,
        command=["python", *options.command],
    )
    path = Path(run["run_dir"], "slurm.sbatch")
    return Submission(path, text, ["sbatch", str(path)])


def _environment_of_this_python() -> list[str]:
    activate = Path(sys.prefix, "bin", "activate")
    return [f"source {shlex.quote(str(activate))}"] if sys.prefix != sys.base_prefix and activate.exists() else []


def ray_job(options: argparse.Namespace, config: DictConfig) -> Submission:
    """`ray job submit` with the package in the runtime environment.

    Raises:
        ConfigError: no Ray answers at the address.
    """
    run = describe(config)
    check_shared(config, options.working_dir)
    if not options.dry_run:
        _check_address(options.address)
    text = render(
        "ray_runtime_env.yaml.j2",
        working_dir=str(options.working_dir),
        excludes=list(EXCLUDES),
        env_vars=run["env_vars"] | _assignments(options.env),
    )
    path = Path("outputs/submit", f"{run['name']}.runtime_env.yaml")
    command = ["ray", "job", "submit", f"--address={options.address}", f"--runtime-env={path}"]
    command += ["--no-wait"] if options.no_wait else []
    # The job uses the head node's resources; the run's own actors request theirs.
    return Submission(path, text, [*command, "--", "python", *options.command])


def _check_address(address: str) -> None:
    from ray.job_submission import JobSubmissionClient

    if urlsplit(address).scheme not in ("http", "https"):
        raise ConfigError(f"expected the address of Ray's dashboard, such as http://HEAD:8265, got {address!r}")
    try:
        JobSubmissionClient(address).get_version()
    except Exception as error:
        raise ConfigError(
            f"no Ray dashboard answers at {address}: {str(error).strip().splitlines()[0]}\nStart Ray with "
            "`ray start --head --dashboard-host=0.0.0.0`, forward its port (`ssh -L 8265:localhost:8265 HEAD`), or "
            "correct --address. A cluster with token authentication wants its token in RAY_AUTH_TOKEN, with "
            "RAY_AUTH_MODE=token."
        ) from error


def sky(options: argparse.Namespace, config: DictConfig) -> Submission:
    """`sky launch` with a task that starts Ray on all machines."""
    run = describe(config)
    check_shared(config, options.working_dir)
    if run["gpus"] and not options.accelerator:
        raise ConfigError("expected --accelerator, such as H100: the configuration does not name the machines' devices")
    text = render(
        "skypilot.yaml.j2",
        **(run | {"env_vars": run["env_vars"] | _assignments(options.env)}),
        accelerator=options.accelerator,
        resources={"infra": options.infra} if options.infra else {},
        working_dir=str(options.working_dir),
        storage=options.storage,
        mount=options.mount,
        setup=options.setup
        or (["pip install -e '.[gpu,report]'"] if run["gpus"] else ["make setup VENV=$HOME/verl-signal"]),
        command=["python", *options.command],
    )
    path = Path("outputs/submit", f"{run['name']}.sky.yaml")
    command = ["sky", "launch", "--yes", f"--cluster={options.cluster or run['name'].replace('_', '-')}", str(path)]
    return Submission(path, text, command)


def _assignments(entries: list[str]) -> dict[str, str]:
    wrong = [entry for entry in entries if "=" not in entry]
    if wrong:
        raise ConfigError(f"expected --env NAME=VALUE, got {wrong[0]!r}")
    return dict(entry.split("=", 1) for entry in entries)
