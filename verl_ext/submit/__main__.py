"""Submit a run to a cluster: Slurm, a running Ray cluster, or machines that SkyPilot rents. docs/clusters.md says more.

    python -m verl_ext.submit slurm [--partition P] [--time 24:00:00] … -- -m recipe.NAME.main +experiment=…
    python -m verl_ext.submit ray --address http://HEAD:8265 …          -- -m recipe.NAME.main +experiment=…
    python -m verl_ext.submit sky --accelerator H100 …                  -- -m recipe.NAME.main +experiment=…

The run is composed first, so that an invalid configuration is not submitted; its `trainer.nnodes` and `n_gpus_per_node`
determine the size of the cluster. `--dry-run` prints the submission without submitting.
"""

import argparse
import sys
from pathlib import Path

from verl_ext.core.errors import SignalError
from verl_ext.submit.composing import compose
from verl_ext.submit.targets import ray_job, sky, slurm


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m verl_ext.submit", description="Submit a run to a cluster. Its command follows after `--`."
    )
    targets = parser.add_subparsers(dest="target", required=True, metavar="slurm|ray|sky")
    for name, build, text in (
        ("slurm", slurm, "sbatch: Ray on all nodes of a Slurm job"),
        ("ray", ray_job, "ray job submit: a running Ray cluster"),
        ("sky", sky, "sky launch: machines that SkyPilot rents"),
    ):
        target = targets.add_parser(name, help=text, description=text)
        target.set_defaults(build=build)
        target.add_argument("--dry-run", action="store_true", help="print the submission without submitting")
        target.add_argument("--working-dir", type=Path, default=Path.cwd(), help="the checkout (default: here)")
        if name != "slurm":
            target.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="variable of the run")
        if name != "ray":
            target.add_argument("--setup", action="append", metavar="LINE", help="shell line that prepares a node")
    slurm_target, ray_target, sky_target = targets.choices.values()
    slurm_target.add_argument("--partition", help="as sbatch's")
    slurm_target.add_argument("--account", help="as sbatch's")
    slurm_target.add_argument("--time", default="24:00:00", help="limit of the job (default: %(default)s)")
    slurm_target.add_argument("--sbatch", action="append", default=[], metavar="OPTION", help="options for sbatch")
    slurm_target.add_argument("--container", metavar="IMAGE", help="run in this container (pyxis)")
    slurm_target.add_argument("--mount", action="append", metavar="FROM:TO", help="folders mounted into it")
    ray_target.add_argument("--address", required=True, help="of Ray's dashboard: http://HEAD:8265")
    ray_target.add_argument("--no-wait", action="store_true", help="do not follow the job's output")
    sky_target.add_argument("--accelerator", help="name of the GPUs, such as H100")
    sky_target.add_argument("--infra", help="cloud and region, such as aws/us-east-1 or k8s")
    sky_target.add_argument("--cluster", help="SkyPilot's name for the cluster")
    sky_target.add_argument("--storage", metavar="URL", help="bucket for the run folder, such as s3://runs")
    sky_target.add_argument("--mount", default="/storage", help="mount point of the bucket (default: %(default)s)")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Submit, or print with --dry-run; exit status 2 and one message for user errors."""
    arguments = sys.argv[1:] if arguments is None else arguments
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = _parser().parse_args(arguments[:split])
    options.command = arguments[split + 1 :]
    options.working_dir = options.working_dir.resolve()
    try:
        submission = options.build(options, compose(options.command))
        if options.dry_run:
            print(submission)
            return 0
        return submission.submit()
    except SignalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
