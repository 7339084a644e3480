"""Third-party programs are read, judged in the sandbox and written, each with a reason if it is left out."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_preprocess import arc_programs
from verl_ext.arc.form import hard_coded
from verl_ext.arc.importer.judge import Outcome, Verdict, judge, summary
from verl_ext.arc.importer.modules import Library
from verl_ext.arc.importer.read import Program, Unread, read_library, read_programs
from verl_ext.arc.solutions import GOLDEN, read_pairs
from verl_ext.data.arc_tasks import Pair
from verl_ext.data.row_report import SourceError
from verl_ext.sandbox.executor import PairwiseExecutor
from verl_ext.sandbox.policy import SandboxPolicy
from verl_ext.sandbox.pool import SandboxPool
from verl_ext.sandbox.programs import Programs
from verl_ext.sandbox.results import Execution, Status

TASK, OTHER = "aaaaaaaa", "bbbbbbbb"
TASKS = (TASK, OTHER)
PAIRS = {
    TASK: {"train 0": Pair(((1, 2),), ((2, 1),)), "test 0": Pair(((3, 4),), ((4, 3),))},
    OTHER: {"train 0": Pair(((1,),), ((1,),)), "test 0": Pair(((2,),), ((2,),))},
}
MIRROR = "def solve(grid):\n    return [row[::-1] for row in grid]\n"
LONGER = "def solve(grid):\n    out = []\n    for row in grid:\n        out.append(row[::-1])\n    return out\n"
ARC = Path(__file__).resolve().parents[3] / "shared" / "data" / "arc" / "arc-agi-1_training.json.gz"

needs_data = pytest.mark.skipif(not ARC.is_file(), reason=f"no development data: {ARC.name} is missing")


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    with SandboxPool(SandboxPolicy(cpu_seconds=1.0), workers=1) as pool:
        yield Programs(pool, 2)


def verdicts(texts: list[str], programs: Programs, task: str = TASK) -> dict[str, Outcome]:
    found = [Program(f"number {number}", task, text) for number, text in enumerate(texts)]
    return {outcome.program: outcome for outcome in judge(found, Library(), PAIRS, programs)}


# ------------------------------ verdicts ------------------------------


@pytest.mark.parametrize(
    ("text", "verdict", "reason"),
    [
        (MIRROR, Verdict.ACCEPTED, ""),
        ("def solve(g):\n    return g", Verdict.WRONG, "train 0: wrong output: other cells"),
        ("def solve(g):\n    return [[2, 1]]", Verdict.WRONG, "test 0: wrong output: other cells"),
        ("def solve(g):\n    return g[5]", Verdict.WRONG, "train 0: runtime error: IndexError"),
        ("def solve(g):\n    return 3", Verdict.WRONG, "train 0"),
        ("def solve(g):\n    while True:\n        pass", Verdict.SLOW, "train 0: timeout"),
        ("while True:\n    n = 1\ndef solve(g):\n    return [[n]]", Verdict.SLOW, "train 0: timeout"),
        ("def solve(g):\n    return [0] * 10**10", Verdict.SLOW, "train 0: memory"),
        ("def solve(g):\n    return open('/etc/passwd')", Verdict.UNSAFE, "calls `open`"),
        (
            "import random\ndef solve(g):\n    random._os.fork()\n    return g",
            Verdict.UNSAFE,
            "train 0: forbidden",
        ),
        ("def solve(g):\n    return", Verdict.WRONG, "train 0"),
        ("def solve(:", Verdict.MALFORMED, "line 1"),
        ("def solve(g):\n    break\n    return g", Verdict.MALFORMED, "train 0: syntax error"),
        ("def solve(g):\n    return '" + "1" * 70_000 + "'", Verdict.MALFORMED, "characters: expected at most"),
        (
            "def solve(g):\n" + "".join(f"{' ' * n}if g:\n" for n in range(1, 99)) + " " * 99 + "g",
            Verdict.MALFORMED,
            "levels",
        ),
        ("def solve(g):\n    return '\udc00'", Verdict.MALFORMED, "not valid Python"),
        ("def solve(g):\n    raise ValueError('\\x1b[2J\\nred')", Verdict.WRONG, "ValueError:  [2J red"),
        (
            "import random\ndef solve(g):\n    return [[random.randrange(10) for _ in range(30)]]",
            Verdict.WRONG,
            "train 0: runtime error: ValueError: gives another output for the same input",
        ),
    ],
)
def test_a_program_gets_its_verdict_and_a_reason(text: str, verdict: Verdict, reason: str, programs: Programs):
    (outcome,) = verdicts([text], programs).values()
    assert outcome.verdict is verdict
    assert reason in outcome.reason
    assert bool(outcome.reason) == (verdict is not Verdict.ACCEPTED)
    assert bool(outcome.source) == (verdict is Verdict.ACCEPTED)


def test_the_shortest_right_program_of_a_task_is_taken(programs: Programs):
    wrong_and_short = "def solve(g):\n    return g"
    found = verdicts(
        [LONGER, MIRROR, wrong_and_short, MIRROR.replace("row", "line"), MIRROR + "# the same\n"], programs
    )
    assert [found[f"number {number}"].verdict for number in range(5)] == [
        Verdict.DUPLICATE,
        Verdict.ACCEPTED,
        Verdict.WRONG,
        Verdict.DUPLICATE,
        Verdict.DUPLICATE,
    ]
    assert "number 1 is right and at most as long" in found["number 0"].reason
    assert found["number 4"].reason == "the same program as number 1"


def test_what_a_candidate_lacks_is_said(programs: Programs):
    table = "def solve(g):\n    return [[2, 1]] if g == [[1, 2]] else [[4, 3]]"
    (outcome,) = verdicts([table], programs).values()
    assert outcome.verdict is Verdict.ACCEPTED
    assert any("still to be written" in one for one in outcome.to_do)
    assert any("compares the whole input" in one for one in outcome.to_do)


def test_the_reason_is_that_of_the_form_that_came_furthest(programs: Programs):
    text = "def solve(g):\n    return [[0]] if type(g) is not list else [[2, 1]] if g == [[1, 2]] else g[9]"
    (outcome,) = verdicts([text], programs).values()
    assert outcome.reason.startswith("test 0: runtime error: IndexError")


def test_a_number_that_python_cannot_write_is_reported(programs: Programs):
    (outcome,) = verdicts(
        [f"BIG = 0x{'f' * 9000}\ndef solve(g):\n    return [r[:: -1 if BIG else 1] for r in g]"], programs
    ).values()
    assert outcome.verdict is Verdict.MALFORMED
    assert "Exceeds the limit" in outcome.reason
    assert hard_coded(f"x = 0x{'f' * 9000}") == [f"line 1: cells written as a number: 0x{'f' * 38}"]


class Broken(PairwiseExecutor):
    """A sandbox whose servers always die."""

    def check_many(self, jobs, stop_at_first_failure=False):
        return [self.check(*job, stop_at_first_failure) for job in jobs]

    def close(self) -> None: ...

    def _execute(self, source, grid):
        return Execution(Status.INFRASTRUCTURE_ERROR, detail="no server")


def test_an_error_of_the_sandbox_is_no_verdict_about_the_program():
    (outcome,) = verdicts([MIRROR], Programs(Broken(SandboxPolicy(), {}), 2)).values()
    assert outcome.verdict is Verdict.NOT_JUDGED
    assert "no server" in outcome.reason


def test_the_summary_counts_and_gives_an_example():
    outcomes = [
        Outcome("a.py", TASK, Verdict.ACCEPTED, to_do=("x",)),
        Outcome("b.py", TASK, Verdict.WRONG, "train 0: x"),
    ]
    assert summary(outcomes).splitlines() == [
        "2 programs",
        "  accepted    1",
        "  wrong       1",
        "              such as b.py: train 0: x",
        "1 of the accepted ones still need a person's work before they are golden",
    ]


# ------------------------------ reading ------------------------------


def read(*paths: Path) -> list[Program | Unread]:
    return read_programs(paths, TASKS)


@pytest.mark.parametrize("name", [f"{TASK}.py", f"solve_{TASK}.py", f"{TASK}-v2.py", f"{TASK}/solution.py"])
def test_a_file_is_known_by_the_task_in_its_name(name: str, tmp_path: Path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(MIRROR)
    assert read(tmp_path) == [Program(str(path), TASK, MIRROR)]


def test_a_module_has_a_program_per_function_with_a_task(tmp_path: Path):
    path = tmp_path / "solvers.py"
    path.write_text(f"def solve_{TASK}(I): return I\ndef helper(I): return I\nsolve_{OTHER} = helper\n")
    assert [(one.task, getattr(one, "entry", None)) for one in read(path)] == [
        (TASK, f"solve_{TASK}"),
        (OTHER, f"solve_{OTHER}"),
    ]


@pytest.mark.parametrize("key", ["code", "program", "response"])
def test_rows_of_json_have_programs_also_in_fences(key: str, tmp_path: Path):
    answer = f"First try:\n```python\nx = 1\n```\nBetter:\n```python\n{MIRROR}```\n"
    rows = [{"task_id": TASK, key: answer}, {"task_id": OTHER, key: [MIRROR, LONGER]}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read(path)
    assert [(one.task, getattr(one, "text", None)) for one in found] == [
        (TASK, MIRROR),
        (OTHER, MIRROR),
        (OTHER, LONGER),
    ]
    assert found[1].name == f"{path}:2.1"
    (tmp_path / "rows.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
    assert len(read(tmp_path / "rows.json.gz")) == 3
    (tmp_path / "by_task.json").write_text(json.dumps({TASK: MIRROR, OTHER: [LONGER]}))
    assert [one.task for one in read(tmp_path / "by_task.json")] == [TASK, OTHER]


def test_what_is_no_program_is_kept_with_its_reason(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    lines = ["{", "3", json.dumps({"task_id": TASK}), json.dumps({"task_id": "cccccccc", "code": MIRROR}), ""]
    path.write_text("\n".join([*lines, json.dumps({"task_id": TASK, "code": MIRROR})]))
    (tmp_path / "notes.py").write_text(MIRROR)
    (tmp_path / "damaged.py").write_bytes(b"\xff\xfe")
    (tmp_path / "half.py").write_text("def solve_")
    found = {one.name.rpartition("/")[2]: one for one in read(tmp_path)}
    reasons = {name: one.reason for name, one in found.items() if isinstance(one, Unread)}
    for name, words in {
        "rows.jsonl:1": "expected an object",
        "rows.jsonl:2": "found 3",
        "rows.jsonl:3": "found 'task_id'",
        "rows.jsonl:4": "no task 'cccccccc'",
        "notes.py": "expected a task id",
        "damaged.py": "expected text in UTF-8",
        "half.py": "not valid Python",
    }.items():
        assert words in reasons[name]
    assert set(found) - set(reasons) == {"rows.jsonl:6"}


def test_inputs_that_cannot_be_read_are_errors(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "rows.json").write_text("{")
    (tmp_path / "table.csv").write_text("")
    (tmp_path / "lib.py").write_text("def (")
    for path, words in (
        ("absent", "no such file or folder"),
        ("empty", "found none"),
        ("rows.json", "not readable as JSON"),
        ("table.csv", "expected a file that ends in"),
    ):
        with pytest.raises(SourceError, match=words):
            read(tmp_path / path)
    with pytest.raises(SourceError, match="not valid Python"):
        read_library([tmp_path / "lib.py"])
    with pytest.raises(SourceError, match="no such file"):
        read_library([tmp_path / "absent.py"])
    (tmp_path / "empty" / "lib.py").write_text("")
    with pytest.raises(SourceError, match="another library is called lib"):
        read_library([tmp_path / "empty" / "lib.py"] * 2)


# ------------------------------ the command ------------------------------


def run(folder: Path, *more: str) -> Path:
    pair = {"input": [[1, 2]], "output": [[2, 1]]}
    (folder / "tasks.json").write_text(json.dumps({TASK: {"train": [pair], "test": [pair]}}))
    out = folder / "out"
    tasks = ["--tasks", str(folder / "tasks.json"), "--local_save_dir", str(out), "--workers", "1"]
    arc_programs.main(["--input", str(folder / "programs"), *tasks, *more])
    return out


def test_the_command_writes_candidates_and_a_line_per_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / f"{TASK}.py").write_text("from lib import *\ndef solve(g):\n    return mirror(g)\n")
    (tmp_path / "programs" / f"{TASK}_2.py").write_text("def solve(g):\n    return g\n")
    lib = tmp_path / "programs" / "lib.py"
    lib.write_text("def mirror(g):\n    return [row[::-1] for row in g]\n")
    (tmp_path / "fresh.jsonl").write_text(json.dumps({"id": TASK, "pairs": [{"input": [[5]], "output": [[5]]}]}))
    out = run(tmp_path, "--library", str(lib), "--fresh", str(tmp_path / "fresh.jsonl"))
    assert sorted(path.name for path in out.iterdir()) == [f"{TASK}.py", "report.jsonl"]
    assert "def mirror(g):" in (out / f"{TASK}.py").read_text()
    lines = [json.loads(line) for line in (out / "report.jsonl").read_text().splitlines()]
    assert {Path(line["program"]).name: line["verdict"] for line in lines} == {
        f"{TASK}.py": "accepted",
        f"{TASK}_2.py": "wrong",
    }
    assert "accepted    1" in capsys.readouterr().out


def test_fresh_pairs_have_to_be_solved_as_well(tmp_path: Path):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / f"{TASK}.py").write_text("def solve(g):\n    return [[2, 1]]\n")
    (tmp_path / "fresh.jsonl").write_text(json.dumps({"id": TASK, "pairs": [{"input": [[5]], "output": [[5]]}]}))
    (line,) = (run(tmp_path, "--fresh", str(tmp_path / "fresh.jsonl")) / "report.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"].startswith("fresh 0: wrong output")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--time_limit", "0"], "--time_limit must be above 0"),
        (["--library", "absent.py"], "absent.py: no such file"),
        (["--fresh", "absent.jsonl"], "absent.jsonl: no such file"),
    ],
)
def test_a_wrong_option_ends_in_one_line(option: list[str], words: str, tmp_path: Path):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / f"{TASK}.py").write_text(MIRROR)
    with pytest.raises(SystemExit, match=words):
        run(tmp_path, *option)


def test_candidates_can_be_imported_again(tmp_path: Path):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / f"{TASK}.py").write_text(MIRROR)
    first = run(tmp_path).rename(tmp_path / "first")
    (tmp_path / "programs" / f"{TASK}.py").unlink()
    (tmp_path / "programs").rmdir()
    first.rename(tmp_path / "programs")
    again = run(tmp_path)
    assert len((again / "report.jsonl").read_text().splitlines()) == 1
    assert (again / f"{TASK}.py").read_text() == (tmp_path / "programs" / f"{TASK}.py").read_text()


def test_nothing_is_written_over(tmp_path: Path):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / f"{TASK}.py").write_text(MIRROR)
    out = run(tmp_path)
    (out / f"{TASK}.py").write_text("a person's work")
    with pytest.raises(SystemExit, match="is not empty"):
        run(tmp_path)
    assert (out / f"{TASK}.py").read_text() == "a person's work"


@needs_data
def test_golden_solutions_are_accepted_as_golden(programs: Programs):
    pairs = read_pairs([ARC])
    found = [one for one in read_programs([GOLDEN], pairs) if isinstance(one, Program)][::60]
    outcomes = list(judge(found, Library(), pairs, programs))
    assert outcomes
    assert {(one.verdict, one.to_do) for one in outcomes} == {(Verdict.ACCEPTED, ())}
