"""The report of a data script: how many rows came in, how many went out, and why rows went."""

from collections import Counter

from verl_ext.core.errors import SignalError


class SourceError(SignalError):
    """An input is missing, unreadable or not the data set that it is taken for."""


class UnusableRow(Exception):
    """A row that cannot be trained or tested on; the message is the reason that the report shows."""


def require_unicode(*texts: str) -> None:
    """Nothing if all texts can be written to a file.

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
    """Print the counts, one a line.

    Args:
        counts: "rows read", and the rows that went, by reason.
        written: Rows that stayed.
    """
    lines = {"rows read": counts["rows read"]}
    lines |= {f"- {reason}": count for reason, count in counts.most_common() if reason != "rows read"}
    lines["= rows written"] = written
    width = max(map(len, lines))
    for label, count in lines.items():
        print(f"  {label:<{width}}  {count:>9,}")
