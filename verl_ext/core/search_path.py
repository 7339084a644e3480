"""Adds our `configs/` to Hydra's search path, in every command whose process imports verl."""

from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


class SignalConfigs(SearchPathPlugin):
    """Our `configs/`, after the command's own files: `+recipe=NAME` is found, and no other file is hidden."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("verl-signal", f"file://{CONFIGS}")
