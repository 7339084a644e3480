"""Files as one stream that is cut into pieces small enough for a transfer, and put together again.

Only Python's standard library: a bare machine runs it before anything is installed.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

MEBIBYTE = 2**20
MANIFEST = "manifest.json"
BLOCK = 4 * MEBIBYTE


class PieceError(Exception):
    """A piece is missing or damaged; one sentence says which, and what to do."""


@dataclass(frozen=True)
class Source:
    """A file to pack.

    Attributes:
        name: Its relative path after unpacking, with slashes.
        path: The file.
        part: The part that needs it; parts follow each other in the stream, so each needs only some of the pieces.
    """

    name: str
    path: Path
    part: str


@dataclass(frozen=True)
class Member:
    """A packed file: its place in the stream, in bytes, and its expected content."""

    name: str
    part: str
    start: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Piece:
    """A file with the next `size` bytes of the stream."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of all pieces.

    Attributes:
        piece_bytes: Size of every piece but the last.
        members: In the order of the stream.
        pieces: In the order of the stream.
    """

    piece_bytes: int
    members: tuple[Member, ...]
    pieces: tuple[Piece, ...]

    def to_json(self) -> str:
        """The JSON for `from_json`."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Read what `to_json` wrote.

        Raises:
            PieceError: It is not a manifest, or a member would be written outside its folder.
        """
        try:
            fields = json.loads(text)
            members = tuple(Member(**member) for member in fields["members"])
            manifest = cls(fields["piece_bytes"], members, tuple(Piece(**piece) for piece in fields["pieces"]))
        except (KeyError, TypeError, ValueError) as error:
            raise PieceError(f"{MANIFEST} is not a manifest of pieces ({error}). Pack again.") from error
        for member in members:
            _check_name(member.name)
        return manifest

    def of_part(self, parts: Iterable[str]) -> list[Member]:
        """The members of some parts.

        Raises:
            PieceError: There is no such part.
        """
        wanted, known = set(parts), {member.part for member in self.members}
        if unknown := sorted(wanted - known):
            raise PieceError(f"no part {', '.join(unknown)} was packed. The parts: {', '.join(sorted(known))}.")
        return [member for member in self.members if member.part in wanted]

    def pieces_of(self, members: Iterable[Member]) -> list[Piece]:
        """The pieces that some members are in, in order."""
        numbers: set[int] = set()
        for member in members:
            if member.size:
                last = (member.start + member.size - 1) // self.piece_bytes
                numbers.update(range(member.start // self.piece_bytes, last + 1))
        return [self.pieces[number] for number in sorted(numbers)]


def split(sources: Sequence[Source], folder: Path, piece_bytes: int) -> Manifest:
    """Write the pieces and their manifest. The same files give the same pieces; existing pieces stay.

    Args:
        sources: In the order of the stream.
        folder: Created if missing. Pieces of an earlier stream that do not belong to this one are removed.
        piece_bytes: Maximum size of a piece.

    Raises:
        PieceError: A name occurs twice or leads outside the folder.
    """
    names = [source.name for source in sources]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PieceError(f"expected every file once, got {', '.join(twice)} twice.")
    for name in names:
        _check_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    members: list[Member] = []
    pieces: list[Piece] = []
    for number, data in enumerate(_cut(_read(sources, members), piece_bytes)):
        piece = Piece(f"piece-{number:03}", len(data), hashlib.sha256(data).hexdigest())
        if not is_whole(folder / piece.name, piece):
            write_atomically(folder / piece.name, data)
        pieces.append(piece)
    manifest = Manifest(piece_bytes, tuple(members), tuple(pieces))
    kept = {piece.name for piece in pieces}
    for path in folder.glob("piece-*"):
        if path.name not in kept:
            path.unlink()
    write_atomically(folder / MANIFEST, manifest.to_json().encode())
    return manifest


def _read(sources: Sequence[Source], members: list[Member]) -> Iterator[bytes]:
    """The stream, block by block; `members` grows with it."""
    position = 0
    for source in sources:
        digest, start = hashlib.sha256(), position
        with source.path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
                position += len(block)
                yield block
        members.append(Member(source.name, source.part, start, position - start, digest.hexdigest()))


def _cut(blocks: Iterable[bytes], size: int) -> Iterator[bytes]:
    held = bytearray()
    for block in blocks:
        held += block
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)


@dataclass(frozen=True)
class Found:
    """Which pieces are available.

    Attributes:
        paths: Paths of complete pieces, by name.
        missing: Names of the others, in order.
        damaged: Files with a piece's name but other content.
    """

    paths: dict[str, Path]
    missing: list[str]
    damaged: list[Path]


def find(pieces: Sequence[Piece], folders: Sequence[Path]) -> Found:
    """Look for pieces in several folders; a complete one in any of them counts."""
    paths: dict[str, Path] = {}
    damaged: list[Path] = []
    for piece in pieces:
        for folder in folders:
            path = folder / piece.name
            if is_whole(path, piece):
                paths[piece.name] = path
                break
            if path.exists():
                damaged.append(path)
    missing = [piece.name for piece in pieces if piece.name not in paths]
    return Found(paths, missing, [path for path in damaged if path.name in missing])


def join(manifest: Manifest, parts: Sequence[str], folders: Sequence[Path], target: Path) -> list[Path]:
    """Write the members of some parts below `target`; complete ones that exist stay.

    Returns:
        Their paths, in order.

    Raises:
        PieceError: Pieces are missing or damaged; nothing was written.
    """
    members = manifest.of_part(parts)
    absent = [member for member in members if not _is_written(target / member.name, member)]
    found = find(manifest.pieces_of(absent), folders)
    if found.missing:
        raise PieceError(describe(found, len(manifest.pieces_of(members))))
    for member in absent:
        data = hashlib.sha256()
        path = target / member.name
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".unfinished")
        with unfinished.open("wb") as file:
            for block in _bytes_of(manifest, member, found.paths):
                data.update(block)
                file.write(block)
        if data.hexdigest() != member.sha256:
            raise PieceError(f"{member.name} came out damaged although its pieces are whole. Pack again.")
        os.replace(unfinished, path)
    return [target / member.name for member in members]


def describe(found: Found, total: int) -> str:
    """What is missing, in a sentence."""
    damaged = f" ({', '.join(map(str, found.damaged))} damaged)" if found.damaged else ""
    return f"{len(found.missing)} of {total} pieces are missing: {', '.join(found.missing)}{damaged}. Bring them."


def _bytes_of(manifest: Manifest, member: Member, paths: dict[str, Path]) -> Iterator[bytes]:
    position, end = member.start, member.start + member.size
    while position < end:
        number, offset = divmod(position, manifest.piece_bytes)
        with paths[manifest.pieces[number].name].open("rb") as file:
            file.seek(offset)
            block = file.read(min(BLOCK, end - position))
        position += len(block)
        yield block


def is_whole(path: Path, piece: Piece) -> bool:
    """Whether a file has exactly the piece's bytes."""
    return path.is_file() and path.stat().st_size == piece.size and hash_of(path) == piece.sha256


def _is_written(path: Path, member: Member) -> bool:
    return path.is_file() and path.stat().st_size == member.size and hash_of(path) == member.sha256


def hash_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """A reader sees the earlier file or the whole new one, even if the writer is killed."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_bytes(data)
    os.replace(unfinished, path)


def _check_name(name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise PieceError(f"expected a path inside the folder, got {name!r}. Pack again.")
