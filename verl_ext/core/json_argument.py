"""JSON objects as command-line arguments."""

import argparse
import json
from typing import Any


def json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object from the command line.

    Raises:
        argparse.ArgumentTypeError: If it is not a JSON object.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text!r} ({error})") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text!r}")
    return value
