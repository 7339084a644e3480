"""JSON on a command line."""

import argparse
import json
from typing import Any


def json_object(text: str) -> dict[str, Any]:
    """A JSON object of the command line.

    Raises:
        argparse.ArgumentTypeError: If it is none.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text!r} ({error})") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text!r}")
    return value
