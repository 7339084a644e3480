"""Run folders as finished runs leave them."""

import json
from typing import Any


def end(run: Any, steps: int, **more: Any) -> None:
    """Write the summary of a run that has ended.

    Args:
        run: With a `folder`.
        steps: That it made.
        **more: Entries of its summary.
    """
    run.folder.mkdir(parents=True, exist_ok=True)
    (run.folder / "summary.json").write_text(json.dumps({"global_steps": steps, **more}))
