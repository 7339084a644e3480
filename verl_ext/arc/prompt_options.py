"""`PromptSettings` on a command line."""

import argparse
from typing import get_args

from verl_ext.arc.prompts import DEFAULT, PromptSettings


def add_prompt_arguments(parser: argparse.ArgumentParser) -> None:
    """`--grid_format` and `--test_inputs`."""
    forms = get_args(PromptSettings.model_fields["grid"].annotation)
    parser.add_argument(
        "--grid_format", choices=forms, default=DEFAULT.grid, help="cells of a row: 070 (compact) or 0 7 0 (spaced)"
    )
    parser.add_argument("--test_inputs", action="store_true", help="show the inputs of the test pairs in the prompt")


def prompt_settings(args: argparse.Namespace) -> PromptSettings:
    """Settings from parsed arguments."""
    return PromptSettings(grid=args.grid_format, test_inputs=args.test_inputs)


def describe(settings: PromptSettings) -> str:
    """Settings as configuration overrides."""
    return f"grid={settings.grid}, test_inputs={str(settings.test_inputs).lower()}"


def options(settings: PromptSettings) -> str:
    """Settings as command-line arguments."""
    return f"--grid_format {settings.grid}" + (" --test_inputs" if settings.test_inputs else "")
