"""The leaderboard's published figures: a JSON file, and the tables of README and docs that are drawn from it.

    python tests/benchmarks/leaderboard_summary.py outputs/benchmarks/fast_dapo_leaderboard  # publish a finished run
    python tests/benchmarks/leaderboard_summary.py                                           # draw the tables again

A run of `fast_dapo_leaderboard.py` leaves `summary.json` in its folder. Publishing adds its rows to
`docs/assets/leaderboard.json` (a method's row on a pool replaces the earlier one) and copies the pictures. The tables
stand in the pages between comments, `<!-- leaderboard: NAME -->` and `<!-- end -->`; a test compares them.
"""

import argparse
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from efficiency_report import TARGETS
from leaderboard_protocol import METHODS, POOLS, Result
from leaderboard_report import PRICES, Needed, Ratio, best_uniform, lines, name_of
from pydantic import BaseModel, ConfigDict, TypeAdapter

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "docs/assets"
PUBLISHED = ASSETS / "leaderboard.json"
# By their names in a run's folder: the picture of the README, and that of all pools.
PICTURES = {"curves_B.svg": ASSETS / "leaderboard.svg", "curves.svg": ASSETS / "leaderboard_pools.svg"}
PAGES = (ROOT / "README.md", ROOT / "docs/benchmarks.md", ROOT / "docs/benchmarks/fast_dapo.md")
LAST = name_of(TARGETS[-1])
# What we published before choose: a table of other methods says so.
OURS = ("two_phase",)
POOL_TITLES = {
    "B": "B, 65 % hopeless prompts",
    "C": "C, the hardest",
    "E": "E, many prompts can be learned",
    "D": "D, three sources, one in an unknown format",
    "T": "T, responses with a long tail",
}
_MARKED = re.compile(r"(<!-- leaderboard: ([\w ]+) -->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)


class Estimate(BaseModel):
    """A mean over seeds, or a ratio of two, with its 95 % bootstrap interval.

    Attributes:
        low, high: Bounds of the interval; null for a single seed.
        sign: Empty, or what the value is a bound of: ">" the true value may be larger, "<" smaller, "?" both.
    """

    model_config = ConfigDict(frozen=True)
    value: float
    low: float | None = None
    high: float | None = None
    sign: str = ""


class Row(BaseModel):
    """A method on a pool.

    Attributes:
        learning_rate, batch, group, updates: Tuned settings: `batch` prompts of `group` rollouts, `updates` optimizer
            steps on each batch.
        seeds: Number of reported seeds.
        reached: Number of seeds that reached the last target.
        rollouts: Rollouts generated until each target, by its name: +15.
        trained: Rollouts trained on until the last target, counted once per update; null where only a table of the run
            is left.
        ratio: How many times fewer rollouts the method needs to the last target than the better uniform method; null
            where uniform sampling was not run.
        costs: Tokens generated and trained on until the last target, at each of `leaderboard_report.PRICES`, relative
            to the better uniform method.
        is_baseline: Whether this is the better uniform method.
    """

    model_config = ConfigDict(frozen=True)
    pool: str
    method: str
    learning_rate: float
    batch: int
    group: int
    updates: int
    seeds: int
    reached: int
    rollouts: dict[str, Estimate]
    trained: Estimate | None
    ratio: Estimate | None
    costs: list[Estimate | None]
    is_baseline: bool


_ROWS = TypeAdapter(list[Row])


def summarize(results: Sequence[Result]) -> list[Row]:
    """One row per pool and method; in each pool the best method first."""
    rows = []
    for pool in dict.fromkeys(result["job"]["pool"] for result in results):
        own = [result for result in results if result["job"]["pool"] == pool]
        baseline = best_uniform(own)
        for line in lines(own):
            settings, last = line.job.settings, line.rollouts[LAST]
            row = Row(
                pool=pool,
                method=line.job.method,
                learning_rate=settings.learning_rate,
                batch=settings.batch,
                group=settings.group,
                updates=settings.updates,
                seeds=len(last.by_seed),
                reached=last.reached,
                rollouts={name: _of_seeds(value) for name, value in line.rollouts.items()},
                trained=_of_seeds(line.trained),
                ratio=_of_ratio(line.gain),
                costs=[_of_ratio(cost) for cost in line.costs],
                is_baseline=line.job.method == baseline,
            )
            rows.append(row)
    return rows


def _of_seeds(value: Needed) -> Estimate:
    low, high = value.interval() or (None, None)
    return Estimate(value=value.mean, low=low, high=high, sign=">" * value.is_bound)


def _of_ratio(value: Ratio | None) -> Estimate | None:
    if value is None:
        return None
    low, high = value.interval or (None, None)
    return Estimate(value=value.value, low=low, high=high, sign=value.sign)


def read(path: Path) -> list[Row]:
    """The rows of a file that `write` wrote.

    Raises:
        ValueError: The file has something else.
    """
    return _ROWS.validate_json(path.read_bytes())


def write(path: Path, rows: Sequence[Row]) -> None:
    """One line of JSON per row."""
    text = ",\n".join(row.model_dump_json() for row in rows)
    path.write_text(f"[\n{text}\n]\n", encoding="utf-8")


def merge(known: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """The known rows, replaced and completed by the new ones; pools in order, in each the best method first.

    Raises:
        ValueError: A pool would have new rows next to old ones: another run's rows must not be compared with these.
    """
    kept = [row for row in known if (row.pool, row.method) not in {(own.pool, own.method) for own in new}]
    for pool in dict.fromkeys(row.pool for row in new):
        if old := [row.method for row in kept if row.pool == pool]:
            raise ValueError(
                f"pool {pool} has published rows that this run lacks, {', '.join(old)}: run these methods in the same "
                "folder, so that all rows of a pool have the same base model"
            )
    order = list(POOLS)
    return sorted([*kept, *new], key=lambda row: (order.index(row.pool), row.rollouts[LAST].value))


def of_pool(rows: Sequence[Row], pool: str) -> list[Row]:
    """A pool's rows, in their order."""
    return [row for row in rows if row.pool == pool]


def full_table(rows: Sequence[Row]) -> str:
    """All columns of the methods on one pool; rollouts in thousands."""
    made, trained = PRICES[0]
    head = ["method", "prompts x rollouts, rate, updates", *(name_of(gain) for gain in TARGETS)]
    head += ["x uniform", f"trained to {LAST}", f"cost {made} : {trained}"]
    return _table(
        head,
        [
            [
                METHODS[row.method].title,
                _settings(row),
                *(thousands(value) for value in row.rollouts.values()),
                "1" if row.is_baseline else times(row.ratio),
                "" if row.trained is None else thousands(row.trained, with_interval=False),
                "1" if row.is_baseline else times(row.costs[0], with_interval=False, digits=2),
            ]
            for row in rows
        ],
    )


def pools_table(rows: Sequence[Row]) -> str:
    """The methods on several pools below each other, without costs; rollouts in thousands."""
    body = []
    for pool in POOLS:
        for place, row in enumerate(of_pool(rows, pool)):
            body.append(
                [
                    POOL_TITLES[pool] if place == 0 else "",
                    METHODS[row.method].title,
                    _settings(row),
                    *(thousands(value) for value in row.rollouts.values()),
                    "1" if row.is_baseline else times(row.ratio),
                ]
            )
    head = ["pool", "method", "prompts x rollouts, rate, updates", *(name_of(gain) for gain in TARGETS), "x uniform"]
    return _table(head, body)


def headline_table(rows: Sequence[Row], pools: Sequence[str]) -> str:
    """choose against uniform sampling and against the best other method, one row per pool; rollouts in thousands."""
    head = ["pool", "Fast DAPO (choose)", "without prompt features", "tuned uniform sampling", "best other method"]
    body = []
    for pool in pools:
        own = {row.method: row for row in of_pool(rows, pool)}
        uniform = next(row for row in own.values() if row.is_baseline)
        others = [row for name, row in own.items() if not name.startswith(("choose", "uniform"))]
        cells = [POOL_TITLES[pool], f"**{thousands(own['choose'].rollouts[LAST], with_interval=False)}**"]
        cells += [thousands(row.rollouts[LAST], with_interval=False) for row in (own["choose_flat"], uniform)]
        if others:
            best = min(others, key=lambda row: row.rollouts[LAST].value)
            title = METHODS[best.method].title + ", also ours" * (best.method in OURS)
            cells.append(f"{thousands(best.rollouts[LAST], with_interval=False)} ({title})")
        else:
            cells.append("not run")
        body.append([*cells, f"**{times(own['choose'].ratio)}**", times(own["choose_flat"].ratio)])
    return _table([*head, "x uniform", "x uniform without features"], body)


def short_table(rows: Sequence[Row], pools: Sequence[str]) -> str:
    """choose against uniform sampling, one row per pool; rollouts in thousands."""
    body = []
    for pool in pools:
        own = {row.method: row for row in of_pool(rows, pool)}
        uniform = next(row for row in own.values() if row.is_baseline)
        needed = [thousands(row.rollouts[LAST], with_interval=False) for row in (own["choose"], uniform)]
        body.append([POOL_TITLES[pool], f"**{needed[0]}**", needed[1], f"**{times(own['choose'].ratio)}**"])
    return _table(["pool", "Fast DAPO", "tuned uniform sampling", "times fewer"], body)


TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "pool B": lambda rows: full_table(of_pool(rows, "B")),
    "other pools": lambda rows: pools_table([row for row in rows if row.pool != "B"]),
    "all pools": lambda rows: headline_table(rows, [pool for pool in POOLS if of_pool(rows, pool)]),
    "short": lambda rows: short_table(rows, ["B", "C", "E"]),
}


def fill(page: str, rows: Sequence[Row]) -> str:
    """A page with its tables drawn again.

    Raises:
        ValueError: The page names a table that there is not.
    """

    def table(match: re.Match[str]) -> str:
        if match[2] not in TABLES:
            raise ValueError(f"expected one of the tables {', '.join(TABLES)}, got {match[2]!r}")
        return f"{match[1]}{TABLES[match[2]](rows)}\n{match[3]}"

    return _MARKED.sub(table, page)


def _settings(row: Row) -> str:
    rate = f"{row.learning_rate:.1e}".replace("e-0", "e-").replace(".0e", "e")
    return f"{row.batch} x {row.group}, {rate}, {row.updates}"


def thousands(value: Estimate, *, with_interval: bool = True) -> str:
    """1.2 [1.1, 1.3], or > 23.3 for a bound."""
    return _text(value, 1000, 1, with_interval)


def times(value: Estimate | None, *, with_interval: bool = True, digits: int = 1) -> str:
    """A ratio, with its interval."""
    return "" if value is None else _text(value, 1, digits, with_interval)


def _text(value: Estimate, unit: float, digits: int, with_interval: bool) -> str:
    text = f"{value.sign} {value.value / unit:.{digits}f}".strip()
    if not with_interval or value.low is None or value.high is None:
        return text
    return f"{text} [{value.low / unit:.{digits}f}, {value.high / unit:.{digits}f}]"


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    first, *rest = ["| " + " | ".join(row) + " |" for row in (head, *body)]
    return "\n".join([first, "|" + "---|" * len(head), *rest]).replace("|  |", "| |")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", metavar="DIR", help="output folder of a finished run: publish it")
    args = parser.parse_args(arguments)
    rows = read(PUBLISHED) if PUBLISHED.exists() else []
    if args.run is not None:
        try:
            rows = merge(rows, read(args.run / "summary.json"))
        except (OSError, ValueError) as error:
            parser.error(str(error))
        write(PUBLISHED, rows)
        for name, picture in PICTURES.items():
            shutil.copyfile(args.run / name, picture)
    for page in PAGES:
        page.write_text(fill(page.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
