"""Check golden solutions, or estimate a run's pace: `check|pace --help`."""

import argparse
import sys

from recipe.golden_redaction import pace
from verl_ext.arc import check as golden_check
from verl_ext.core.errors import SignalError


def main(argv: list[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m recipe.golden_redaction.golden", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, module in (("check", golden_check), ("pace", pace)):
        command = commands.add_parser(
            name, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    return args.run(args)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (SignalError, BrokenPipeError) as error:
        sys.exit(f"error: {error}")
