"""Puts the pieces together on a machine with PyTorch, installs what is in them, and checks the versions.

    python tests/gpu/kit/assemble.py --pieces PIECES [MORE_PIECES …] --to KIT --part plain
    export PYTHONPATH=KIT/packages
    cd KIT/sources && python tests/gpu/kit/run.py leaderboard --state STATE

Pieces may arrive a few at a time: complete ones are kept in KIT/pieces, and the last line says which are missing (exit
code 3). A second call does only the remaining work. No network is used. Needs Python 3.11 and pip.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pieces import MANIFEST, Manifest, PieceError, describe, find, join

PARTS = ("plain", "engine")
# Exit code when pieces are missing.
UNFINISHED = 3
CHECK = """
from verl_ext.core import compat
print({**compat.check_versions(), **(compat.check_engine("vllm") if %r else {})})
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Do what can be done with the available pieces; returns the exit code."""
    args = _parser().parse_args(argv)
    to: Path = args.to.resolve()
    # "engine" builds on "plain".
    parts = PARTS[: PARTS.index(args.part) + 1]
    try:
        manifest = keep_pieces(args.pieces, to / "pieces")
        members = manifest.of_part(parts)
        found = find(manifest.pieces_of(members), [to / "pieces"])
        if found.missing:
            print(describe(found, len(manifest.pieces_of(members))))
            return UNFINISHED
        files = join(manifest, parts, [to / "pieces"], to / "files")
        unpack_sources(to)
        install([path for path in files if path.suffix == ".whl"], to / "packages", args.part)
        print(check(to / "packages", to, "engine" in parts), end="")
        place(to)
    except PieceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{to}: ready. export PYTHONPATH={to / 'packages'} && cd {to / 'sources'}")
    return 0


def keep_pieces(folders: Sequence[Path], kept: Path) -> Manifest:
    """Copy complete pieces to where the next call finds them.

    Raises:
        PieceError: No folder has a manifest, or two have different ones.
    """
    texts = {path.read_text(encoding="utf-8") for path in (f / MANIFEST for f in (*folders, kept)) if path.is_file()}
    if len(texts) != 1:
        what = "found none" if not texts else f"found {len(texts)} different ones"
        raise PieceError(
            f"expected one {MANIFEST} in {', '.join(map(str, folders))}, {what}. Bring those of one packing."
        )
    (text,) = texts
    manifest = Manifest.from_json(text)
    kept.mkdir(parents=True, exist_ok=True)
    (kept / MANIFEST).write_text(text, encoding="utf-8")
    for name, path in find(manifest.pieces, [kept, *folders]).paths.items():
        if path.parent != kept:
            shutil.copyfile(path, kept / f"{name}.unfinished")
            (kept / f"{name}.unfinished").replace(kept / name)
    return manifest


def unpack_sources(to: Path) -> None:
    """Unpack the sources into `to/sources`; files that runs wrote there stay."""
    with tarfile.open(to / "files/sources.tar") as archive:
        archive.extractall(to / "sources", filter="data")


def install(wheels: Sequence[Path], packages: Path, part: str) -> None:
    """Install all wheels at once, without resolving requirements; do nothing if the same ones are installed.

    Raises:
        PieceError: pip failed; its last line says why.
    """
    stamp, names = packages / f".{part}", "\n".join(path.name for path in wheels)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == names:
        return
    options = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--upgrade"]
    ended = subprocess.run(
        [sys.executable, "-m", "pip", *options, "--target", str(packages), *map(str, wheels)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise PieceError(f"pip could not install the wheels: {(ended.stderr.strip() or '?').splitlines()[-1]}")
    # Else each of a run's thirty processes compiles what it imports.
    words = [sys.executable, "-m", "compileall", "-q", "-j", "0", str(packages)]
    subprocess.run(words, capture_output=True, check=False)
    stamp.write_text(names, encoding="utf-8")


def check(packages: Path, to: Path, with_engine: bool) -> str:
    """What verl-signal's own check of versions finds.

    Raises:
        PieceError: The check refuses them.
    """
    variables = os.environ | {"PYTHONPATH": f"{packages}{os.pathsep}{to / 'sources'}", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-c", CHECK % with_engine]
    ended = subprocess.run(words, cwd=to, env=variables, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise PieceError(f"the installed versions are refused: {ended.stderr.strip()[-1000:]}")
    return ended.stdout


def place(to: Path) -> None:
    """Put model and data where the runs look for them; a GGUF file is converted.

    Raises:
        PieceError: It cannot be converted.
    """
    data = to / "sources/outputs/data/svamp"
    data.mkdir(parents=True, exist_ok=True)
    for path in sorted((to / "files/data").glob("*.parquet")):
        shutil.copyfile(path, data / path.name)
    model, packed = to / "sources/outputs/models/smollm2_135m", to / "files/model"
    if (packed / "smollm2_135m").is_dir():
        shutil.copytree(packed / "smollm2_135m", model, dirs_exist_ok=True)
        return
    words = [sys.executable, "-m", "data_preprocess.pretrained_model", "--gguf", str(packed / "smollm2_135m.gguf")]
    ended = subprocess.run(
        [*words, "--local_save_dir", str(model)],
        cwd=to / "sources",
        env=os.environ | {"PYTHONPATH": str(to / "packages")},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise PieceError(f"the model could not be converted: {ended.stderr.strip()[-1000:]}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pieces", type=Path, nargs="+", required=True, help="folders that hold the pieces")
    parser.add_argument("--to", type=Path, required=True, help="folder to assemble everything in")
    parser.add_argument(
        "--part", choices=PARTS, default="engine", help="which part; 'plain' needs fewer pieces (%(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
