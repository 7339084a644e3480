"""The pure folders: what import-linter's contract in pyproject.toml keeps free of Ray, verl and vLLM.

`make test` requires 95 % line coverage of them, and pyright checks their types. As a script, this prints coverage's
`--include`.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]


def pure_modules() -> list[str]:
    """As import-linter knows them: packages and modules, `recipe.*.settings` for those of all recipes."""
    contracts = SETTINGS["importlinter"]["contracts"]
    (pure,) = [contract for contract in contracts if contract["name"].startswith("Pure folders")]
    return pure["source_modules"]


def pure_files() -> Iterator[Path]:
    """Every file in them, relative to the repository. `recipe.*` means the recipes in the repository."""
    for module in pure_modules():
        pattern = module.replace(".", "/")
        found = [*ROOT.glob(f"{pattern}.py"), *ROOT.glob(f"{pattern}/**/*.py")]
        assert found, f"pyproject.toml: nothing is at {module}, which must be pure. Correct import-linter's contract"
        yield from (path.relative_to(ROOT) for path in found)


if __name__ == "__main__":  # for `coverage report --include`
    patterns = (module.replace(".", "/") for module in pure_modules())
    print(",".join(f"{pattern}.py,{pattern}/*" for pattern in patterns))
