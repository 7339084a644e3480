"""Which wheels a bare machine needs, from the wheels themselves.

Only Python's standard library and `packaging`, which pip brings along.
"""

import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

from pieces import PieceError

# Never packed: gigabytes that a machine with PyTorch already has.
OF_PYTORCH = ("torch", "torchvision", "torchaudio", "triton")
OF_CUDA = ("nvidia-", "cuda-")
# Never packed either, 0.7 GB: kernels for other models and devices, video, and trackers, which runs of the kit do
# without. vLLM samples with FlashInfer unless VLLM_USE_FLASHINFER_SAMPLER=0 (`command_steps.py`); without its binaries,
# FlashInfer would be compiled at the engine's start, for minutes.
UNUSED = frozenset(
    {
        *("flashinfer-python", "flashinfer-cubin", "tokenspeed-mla", "tokenspeed-triton", "tilelang", "z3-solver"),
        *("av", "torchcodec", "wandb"),
    }
)
# For `read_present`: the machine has it, in a version that nobody wrote down.
ANY = "*"
# Packages that need another version of these than the machine has would not run there.
FIXED = ("torch",)
_NAME = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


@dataclass(frozen=True)
class Wheel:
    """A wheel file: its distribution's name in normal form, version, and the normal names of what it requires.

    Requirements of an extra are under the extra's name, all others under "".
    """

    path: Path
    name: str
    version: str
    requires: Mapping[str, frozenset[str]]


def normal(name: str) -> str:
    """A distribution's name in the form in which package indices compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_wheel(path: Path) -> Wheel:
    """Name, version and requirements from a wheel's own metadata.

    Raises:
        PieceError: It is not a wheel.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            text = archive.read(name).decode("utf-8")
    except (StopIteration, zipfile.BadZipFile, OSError) as error:
        raise PieceError(f"{path} is not a wheel. Download it again.") from error
    fields = Parser().parsestr(text, headersonly=True)
    requires: dict[str, set[str]] = {"": set()}
    for line in fields.get_all("Requires-Dist", []):
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        found = _NAME.match(requirement)
        if found:
            requires.setdefault(extra[1] if extra else "", set()).add(normal(found[1]))
    plain = {extra: frozenset(names) for extra, names in requires.items()}
    return Wheel(path, normal(str(fields["Name"])), str(fields["Version"]), plain)


def read_wheels(folder: Path) -> dict[str, Wheel]:
    """All wheels of a folder, by name.

    Raises:
        PieceError: There is none, or two of one distribution: pip would stop the whole installation.
    """
    wheels: dict[str, Wheel] = {}
    for path in sorted(folder.glob("*.whl")):
        wheel = read_wheel(path)
        if wheel.name in wheels:
            raise PieceError(f"{path.name} and {wheels[wheel.name].path.name} belong to the same package. Remove one.")
        wheels[wheel.name] = wheel
    if not wheels:
        raise PieceError(f"expected wheels in {folder}, found none. Name another --wheels, or --download.")
    return wheels


def closure(roots: Iterable[str], wheels: Mapping[str, Wheel]) -> set[str]:
    """The roots and their requirements, without extras, as far as there are wheels of them."""
    found: set[str] = set()
    waiting = [normal(name) for name in roots]
    while waiting:
        name = waiting.pop()
        if name in wheels and name not in found:
            found.add(name)
            waiting += wheels[name].requires[""]
    return found


def read_present(text: str) -> dict[str, str]:
    """Names and versions of a `pip freeze` or `pip list --format=freeze`; a line with a name alone means `ANY`."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    pairs = [line.partition("==") for line in lines if re.fullmatch(r"[A-Za-z0-9._-]+(==\S+)?", line)]
    return {normal(name): version or ANY for name, _, version in pairs}


def is_present(name: str, version: str, present: Mapping[str, str]) -> bool:
    """Whether the machine has this version of a package, or a version that is good enough."""
    return present.get(name) in (version, ANY)


def is_of_pytorch(name: str) -> bool:
    """Whether it comes with PyTorch's own installation."""
    return name in OF_PYTORCH or name.startswith(OF_CUDA)


def to_carry(wheels: Mapping[str, Wheel], present: Mapping[str, str]) -> list[Wheel]:
    """The wheels that the machine lacks, or has in another version; PyTorch's own and `UNUSED` are left out.

    Raises:
        PieceError: The machine's PyTorch is of another version than the wheels expect.
    """
    for name in FIXED:
        if name in wheels and present.get(name, ANY) != ANY:
            wanted, has = wheels[name].version.split("+")[0], present[name].split("+")[0]
            if wanted != has:
                raise PieceError(f"the machine has {name} {has}, but the wheels need {wanted}: they would not run.")
    lacking = (wheel for name, wheel in sorted(wheels.items()) if not is_present(name, wheel.version, present))
    return [wheel for wheel in lacking if not is_of_pytorch(wheel.name) and wheel.name not in UNUSED]
