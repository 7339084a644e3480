"""The report of a data script: how many rows were read and written, and why rows were dropped."""

from collections import Counter

from verl_ext.core.errors import SignalError


class SourceError(SignalError):
    """An input is missing, unreadable or not the expected data set."""


class UnusableRow(Exception):
    """A row that cannot be trained or tested on; the message is the reason shown in the report."""


def require_unicode(*texts: str) -> None:
    """Check that all texts can be written to a file.

    Raises:
        UnusableRow: One has half of a surrogate pair, as JSON can have it.
    """
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise UnusableRow("broken Unicode") from None


def reasons(counts: Counter[str]) -> str:
    """The counts in one line, for the message of an error."""
    return "; ".join(f"{reason}: {count}" for reason, count in counts.items())


def print_counts(counts: Counter[str], written: int) -> None:
    """Print the counts, one per line.

    Args:
        counts: "rows read", and the dropped rows by reason.
        written: Rows kept.
    """
    lines = {"rows read": counts["rows read"]}
    lines |= {f"- {reason}": count for reason, count in counts.most_common() if reason != "rows read"}
    lines["= rows written"] = written
    width = max(map(len, lines))
    for label, count in lines.items():
        print(f"  {label:<{width}}  {count:>9,}")
