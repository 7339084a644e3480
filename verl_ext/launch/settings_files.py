"""Writes the files of `configs/` that are generated from the recipes' settings.

    python -m verl_ext.launch.settings_files

A setting is declared once, in its model: name, type, range, default and description. The YAML file of its node shows
the same to users and Hydra; a test fails if it must be regenerated.
"""

import importlib
from pathlib import Path

from verl_ext.core.settings_file import SettingsFile
from verl_ext.run import rollout_texts
from verl_ext.serving import settings as serving

ROOT = Path(__file__).resolve().parents[2]


def settings_files() -> list[SettingsFile]:
    """The files of all recipes: `FILE` in a recipe's `settings.py`, if defined."""
    names = sorted(path.parent.name for path in ROOT.glob("recipe/*/settings.py"))
    modules = [importlib.import_module(f"recipe.{name}.settings") for name in names]
    shared = [serving.FILE, serving.SERVING_FILE, rollout_texts.FILE]
    return [*shared, *(module.FILE for module in modules if hasattr(module, "FILE"))]


def main() -> None:
    """Entry point of the command line."""
    for file in settings_files():
        (ROOT / "configs" / file.path).write_text(file.render(), encoding="utf-8")
        print(f"written: configs/{file.path}")


if __name__ == "__main__":
    main()
