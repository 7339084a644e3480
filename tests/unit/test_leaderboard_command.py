"""The leaderboard's command, with made-up runs: what it writes, what it reuses, and what it refuses."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import fast_dapo_leaderboard
from fast_dapo_leaderboard import main, read_tuned, write_tuned
from leaderboard_play import play, rising
from leaderboard_protocol import METHODS, Job, Settings
from test_leaderboard_store import AtOnce


class Lab:
    """Makes a run at once; the larger the batch, the slower it learns."""

    def __init__(self) -> None:
        self.made: list[Job] = []

    def run(self, job: Job) -> dict:
        self.made.append(job)
        return play(job, rising(0.08 - 0.0001 * job.settings.batch - 0.001 * job.seed))


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    lab = Lab()
    for name in ("arithmetic_base", "chains_base", "domains_base"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "model.safetensors").write_bytes(name.encode())
    monkeypatch.setattr(fast_dapo_leaderboard, "MODELS", tmp_path / "models")
    monkeypatch.setattr(fast_dapo_leaderboard, "run_in_worker", lab.run)
    monkeypatch.setattr(fast_dapo_leaderboard, "start_workers", lambda count: AtOnce())
    return lab


def call(folder: Path, *more: str, methods: tuple[str, ...] = ("uniform_rloo", "greso")) -> None:
    main(["--quick", "--output", str(folder), "--methods", *methods, *more])


def test_the_balanced_form_has_a_folder_and_published_settings_of_its_own(lab: Lab, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(fast_dapo_leaderboard, "ROOT", tmp_path)
    monkeypatch.setattr(fast_dapo_leaderboard, "OUTPUT", tmp_path / "board")
    monkeypatch.setattr(fast_dapo_leaderboard, "PUBLISHED", tmp_path / "published.json")
    write_tuned(tmp_path / "published_balanced.json", {"B": {"greso": Settings(3e-4, 64, 2, 1)}})
    main(["--balanced", "--published", "--methods", "greso", "--pools", "B", "--seeds", "1"])
    (job,) = lab.made
    assert (job.price, job.budget, job.settings) == (1.0, 120_000, Settings(3e-4, 64, 2, 1))
    assert (tmp_path / "board_balanced/results.json").exists()


def test_a_quick_call_writes_everything(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture):
    folder = tmp_path / "board"
    call(folder)
    names = {
        "tuning.jsonl",
        "runs.jsonl",
        "tuned.json",
        "results.json",
        "leaderboard.md",
        "curves.svg",
        "curves_B.svg",
        "summary.json",
    }
    assert {path.name for path in folder.iterdir()} == names | {"base_models.json"}
    rows = json.loads((folder / "results.json").read_text())
    assert [(row["method"], row["pool"], row["seed"]) for row in rows] == [
        (method, "B", seed) for method in ("uniform_rloo", "greso") for seed in range(2)
    ]
    # The smallest batch is the fastest.
    assert {row["settings"]["batch"] for row in rows} == {16}
    assert all(job.seed >= 100 for job in lab.made[: -len(rows)])
    out = capsys.readouterr().out
    assert "Altogether at most" in out
    assert out.index("pool B, tuning") < out.index("pool B, reported") < out.index("## Pool B")


def test_a_second_call_makes_no_run_and_writes_the_same(lab: Lab, tmp_path: Path):
    folder = tmp_path / "board"
    call(folder)
    written = {path.name: path.read_text() for path in folder.iterdir()}
    lab.made.clear()
    call(folder)
    assert lab.made == []
    assert {path.name: path.read_text() for path in folder.iterdir()} == written


def test_one_row_again_with_the_settings_of_another_run(lab: Lab, tmp_path: Path):
    call(tmp_path / "board")
    rows = json.loads((tmp_path / "board/results.json").read_text())
    lab.made.clear()
    call(tmp_path / "again", "--settings", str(tmp_path / "board/tuned.json"), methods=("greso",))
    assert [job.seed for job in lab.made] == [0, 1]  # nothing is tuned
    assert json.loads((tmp_path / "again/results.json").read_text()) == rows[2:]
    assert "Settings: tuned.json." in (tmp_path / "again/leaderboard.md").read_text()


def test_to_the_end_goes_on_after_the_target(lab: Lab, tmp_path: Path):
    call(tmp_path, "--seeds", "1", "--to-the-end", methods=("greso",))
    assert lab.made[-1].after == 10_000
    assert "| 0 of 1 (at most" in (tmp_path / "leaderboard.md").read_text()


def test_tuned_settings_of_other_methods_and_pools_are_kept(tmp_path: Path):
    path, settings = tmp_path / "tuned.json", Settings(3e-4, 64, 2, 1)
    write_tuned(path, {"B": {"greso": settings}, "E": {"dps": settings}})
    other = Settings(1.5e-4, 16, 4, 2)
    write_tuned(path, {"B": {"dps": other}})
    assert read_tuned(path) == {"B": {"greso": settings, "dps": other}, "E": {"dps": settings}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "grpo"], "invalid choice: 'grpo'"),
        (["--pools", "Z"], "invalid choice: 'Z'"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--workers", "-1"], "--workers must be at least 1, got -1"),
        (["--settings", "nowhere.json"], "no tuned settings at nowhere.json"),
        (["--settings", __file__], "is not a file of tuned settings"),
        (["--settings", "empty.json"], "empty.json has no settings of uniform_rloo"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    Path("empty.json").write_text("{}")
    with pytest.raises(SystemExit) as exit_:
        main(["--output", str(tmp_path / "board"), *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert lab.made == []


def test_runs_of_another_base_model_are_not_mixed_in(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture):
    call(tmp_path / "board")
    (tmp_path / "models/arithmetic_base/model.safetensors").write_bytes(b"another")
    with pytest.raises(SystemExit):
        call(tmp_path / "board")
    assert "has runs of another arithmetic_base: give another --output" in capsys.readouterr().err
    (tmp_path / "models/arithmetic_base/model.safetensors").unlink()
    with pytest.raises(SystemExit):
        call(tmp_path / "board")
    assert "the base model of pool B is missing" in capsys.readouterr().err


def test_every_factory_is_named_as_module_and_name():
    benchmarks = Path(fast_dapo_leaderboard.__file__).parent
    for entry in METHODS.values():
        module, name = entry.factory.split(":")
        assert name in (benchmarks / f"{module}.py").read_text()
