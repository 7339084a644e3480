"""Pieces of the GPU kit: every file comes back as it was, and bad pieces are named."""

import json
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu/kit"))

from pieces import MANIFEST, Manifest, PieceError, Source, find, join, split


def write(folder: Path, contents: list[tuple[str, bytes]]) -> list[Source]:
    """Files 0, 1, … of the given parts."""
    folder.mkdir(exist_ok=True)
    sources = []
    for number, (part, data) in enumerate(contents):
        path = folder / f"{number}"
        path.write_bytes(data)
        sources.append(Source(f"at/{number}.bin", path, part))
    return sources


CONTENTS = [("a", b"0123456789"), ("a", b""), ("b", b"abcdefg"), ("b", b"x")]


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Manifest, Path]:
    """Five pieces of four bytes: a's are 0 to 2, b's 2 to 4."""
    return split(write(tmp_path / "files", CONTENTS), tmp_path / "pieces", 4), tmp_path / "pieces"


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.binary(max_size=40)), min_size=1, max_size=6),
    st.integers(min_value=1, max_value=50),
)
def test_what_is_split_is_joined_again(contents: list[tuple[str, bytes]], piece_bytes: int):
    contents.sort(key=lambda entry: entry[0])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest = split(write(folder / "files", contents), folder / "pieces", piece_bytes)
        assert all(0 < piece.size <= piece_bytes for piece in manifest.pieces)
        assert Manifest.from_json((folder / "pieces" / MANIFEST).read_text()) == manifest
        parts = sorted({part for part, _ in contents})
        paths = join(manifest, parts, [folder / "pieces"], folder / "out")
        assert [path.read_bytes() for path in paths] == [data for _, data in contents]


def test_the_same_files_give_the_same_pieces_and_whole_ones_are_not_written_again(packed, tmp_path: Path):
    manifest, pieces = packed
    before = {path.name: path.stat().st_mtime_ns for path in pieces.glob("piece-*")}
    (pieces / "piece-001").write_bytes(b"....")
    (pieces / "piece-009").write_bytes(b"of an earlier stream")
    assert split(write(tmp_path / "files", CONTENTS), pieces, 4) == manifest
    after = {path.name: path.stat().st_mtime_ns for path in pieces.glob("piece-*")}
    assert after.keys() == before.keys()
    assert {name for name in before if after[name] != before[name]} == {"piece-001"}


def test_a_part_needs_only_its_own_pieces(packed, tmp_path: Path):
    manifest, pieces = packed
    assert [piece.name for piece in manifest.pieces_of(manifest.of_part(["b"]))] == [
        "piece-002",
        "piece-003",
        "piece-004",
    ]
    for number in (3, 4):
        (pieces / f"piece-00{number}").unlink()
    assert [path.read_bytes() for path in join(manifest, ["a"], [pieces], tmp_path / "out")] == [b"0123456789", b""]


def test_missing_and_damaged_pieces_are_named_and_nothing_is_written(packed, tmp_path: Path):
    manifest, pieces = packed
    (pieces / "piece-000").unlink()
    (pieces / "piece-002").write_bytes(b"89aX")
    with pytest.raises(PieceError, match=r"2 of 5 pieces are missing: piece-000, piece-002 \(.*piece-002 damaged\)"):
        join(manifest, ["a", "b"], [pieces], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_pieces_come_from_several_folders_and_a_whole_one_counts(packed, tmp_path: Path):
    manifest, pieces = packed
    other = tmp_path / "other"
    other.mkdir()
    (pieces / "piece-003").rename(other / "piece-003")
    (other / "piece-000").write_bytes(b"bad!")
    found = find(manifest.pieces, [other, pieces])
    assert (found.missing, found.damaged) == ([], [])
    assert found.paths["piece-003"].parent == other
    assert found.paths["piece-000"].parent == pieces


def test_joining_again_needs_no_piece_of_what_is_there(packed, tmp_path: Path):
    manifest, pieces = packed
    first, *_ = join(manifest, ["a", "b"], [pieces], tmp_path / "out")
    first.write_bytes(b"changed")
    (pieces / "piece-004").unlink()
    join(manifest, ["a", "b"], [pieces], tmp_path / "out")
    assert first.read_bytes() == b"0123456789"


@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "a/../../b", ""])
def test_a_member_stays_inside_its_folder(packed, name: str):
    fields = json.loads(packed[0].to_json())
    fields["members"][0]["name"] = name
    with pytest.raises(PieceError, match="expected a path inside the folder"):
        Manifest.from_json(json.dumps(fields))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"members": [{}], "pieces": [], "piece_bytes": 1}'])
def test_a_file_that_is_no_manifest_is_refused(text: str):
    with pytest.raises(PieceError, match=r"not a manifest of pieces"):
        Manifest.from_json(text)


def test_a_name_twice_and_an_unknown_part_are_refused(packed, tmp_path: Path):
    source = write(tmp_path / "files", CONTENTS)[0]
    with pytest.raises(PieceError, match=r"at/0.bin twice"):
        split([source, source], tmp_path / "twice", 4)
    with pytest.raises(PieceError, match=r"no part c was packed\. The parts: a, b"):
        packed[0].of_part(["c"])
