"""The configuration reference, written from the comments in `configs/`: every key, its value there, what it means.

A comment belongs to the key below it. Keys that verl also has are listed with the value that we give them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

# File -> what a reader looks for there.
FILES = {
    "recipe/fast_dapo.yaml": "Fast DAPO",
    "signal/curriculum.yaml": "Fast DAPO: curriculum.*",
    "signal/golden.yaml": "Golden redaction: golden.*",
    "recipe/golden_redaction.yaml": "Golden redaction: the trainer",
    "signal/tracin.yaml": "TracIn: tracin.*, in any recipe",
    "recipe/tracin.yaml": "TracIn: the trainer",
    "signal/base.yaml": "Every recipe",
    "signal/guards.yaml": "Every recipe: what watches the engines",
    "signal/serving.yaml": "Every recipe: what weights the engines serve",
    "cpu/ray.yaml": "+backend=cpu: Ray and processes",
    "cpu/actor.yaml": "+backend=cpu: actor, critic and reference",
    "cpu/rollout.yaml": "+backend=cpu: vLLM",
}
# Of Hydra itself, and the same in every recipe.
_SKIPPED = ("defaults", "hydra")
_PACKAGE = re.compile(r"^# @package (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Key:
    """One key of one file: its path in the whole configuration, its value there, and the comment above it."""

    path: str
    value: Any
    comment: tuple[str, ...]

    @property
    def is_group(self) -> bool:
        """Whether other keys are below it."""
        return isinstance(self.value, dict)


def read_keys(file: Path) -> list[Key]:
    """Every key of a file, in its order.

    Args:
        file: Of Hydra; `# @package NAME` puts its keys below NAME.
    """
    text = file.read_text(encoding="utf-8")
    package = _PACKAGE.search(text)
    prefix = f"{package[1]}." if package is not None and package[1] != "_global_" else ""
    root = yaml.compose(text)
    return [] if root is None else list(_keys(root, prefix, text.splitlines()))


def _keys(node: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[Key]:
    for key, value in node.value:
        if not prefix and key.value in _SKIPPED:
            continue
        plain = yaml.safe_load(yaml.serialize(value))
        yield Key(f"{prefix}{key.value}", plain, _comment_above(key.start_mark.line, lines))
        if isinstance(value, yaml.MappingNode):
            yield from _keys(value, f"{prefix}{key.value}.", lines)


def _comment_above(line: int, lines: list[str]) -> tuple[str, ...]:
    comment: list[str] = []
    for text in reversed(lines[:line]):
        stripped = text.strip()
        if not stripped.startswith("#") or stripped.startswith("# @package"):
            break
        comment.insert(0, stripped.lstrip("#").strip())
    return tuple(comment)


def verl_configuration() -> DictConfig:
    """verl's own configuration, without our keys."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer")


def page(configs: Path) -> str:
    """A section per file: our keys with their comments, then the values that we give to verl's."""
    verl = verl_configuration()
    sections = [_section(file, title, configs, verl) for file, title in FILES.items()]
    return "\n\n".join([*sections, _experiments(configs)])


def _section(file: str, title: str, configs: Path, verl: DictConfig) -> str:
    keys = [key for key in read_keys(configs / file) if not key.is_group or key.comment]
    ours = [key for key in keys if not _is_verls(key.path, verl)]
    theirs = [key for key in keys if _is_verls(key.path, verl) and not key.is_group]
    parts = [f"## {_text(title)}", f"[`configs/{file}`](../configs/{file})"]
    parts += [_definition(key) for key in ours]
    if theirs:
        parts.append("Values that are given to keys of verl:" if ours else "All of these are keys of verl:")
        parts.append("| key | value | |\n| --- | --- | --- |")
        parts[-1] += "".join(f"\n| `{key.path}` | {_value(key)} | {_sentence(key.comment, ' ')} |" for key in theirs)
    return "\n\n".join(parts)


def _is_verls(path: str, verl: DictConfig) -> bool:
    missing = object()
    return OmegaConf.select(verl, path, default=missing, throw_on_missing=False) is not missing or _exists(path, verl)


def _exists(path: str, verl: DictConfig) -> bool:
    """Also for a key whose value is null or missing, which `select` does not tell from one that is not there."""
    parent, _, name = path.rpartition(".")
    node = OmegaConf.select(verl, parent) if parent else verl
    return isinstance(node, DictConfig) and name in node


def _definition(key: Key) -> str:
    anchor = key.path.replace("_", "-").replace(".", "-")
    value = "" if key.is_group else f" = {_value(key)}"
    return f"`{key.path}`{value} {{ #key-{anchor} .key }}\n:   {_sentence(key.comment, '<br>')}"


def _value(key: Key) -> str:
    dumped = yaml.safe_dump(key.value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
    return f"`{dumped}`".replace("|", "&#124;") if key.value is not None else "`null`"


def _sentence(comment: tuple[str, ...], between: str) -> str:
    """The lines of a comment as running text; a line that begins with `choice:` stays a separate line."""
    text = ""
    for line in comment:
        begins = re.match(r"[\w, |.]{1,40}: ", line) is not None
        text += ("" if not text else between if begins else " ") + _text(line)
    return text


def _text(line: str) -> str:
    """A comment is plain text: what would be HTML or Markdown in it is escaped, but for code in backticks."""
    parts = line.split("`")
    for index in range(0, len(parts), 2):
        parts[index] = re.sub(r"([*_\[\]|])", r"\\\1", parts[index].replace("&", "&amp;").replace("<", "&lt;"))
    return "`".join(parts)


def _experiments(configs: Path) -> str:
    rows = ["| `+experiment=` | |", "| --- | --- |"]
    for file in sorted((configs / "experiment").glob("*.yaml")):
        header = []
        for line in file.read_text(encoding="utf-8").splitlines()[1:]:
            if not line.startswith("#") or line.startswith("#   "):
                break
            header.append(line.removeprefix("#").strip())
        rows.append(f"| [`{file.stem}`](../configs/experiment/{file.name}) | {_text(' '.join(header)).rstrip(':')} |")
    return "## Whole runs\n\nEach file's header has the commands.\n\n" + "\n".join(rows)
