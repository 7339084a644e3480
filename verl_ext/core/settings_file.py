"""Writes the YAML file of a node of settings from its model: the comment above a key is the field's description."""

from dataclasses import dataclass

import yaml

from verl_ext.core.settings import Settings


@dataclass(frozen=True)
class SettingsFile:
    """A generated file of `configs/`.

    Attributes:
        path: Below `configs/`.
        package: Name of the node in the whole configuration.
        kind: Its model.
        header: Purpose of the file, as comment lines.
    """

    path: str
    package: str
    kind: type[Settings]
    header: str

    def render(self) -> str:
        """The text of the file."""
        lines = [f"# @package {self.package}", *_comment(self.header), ""]
        return "\n".join([*lines, *_fields(self.kind)]) + "\n"


def _fields(kind: type[Settings]) -> list[str]:
    lines: list[str] = []
    for name, field in kind.model_fields.items():
        if field.exclude:  # not set by users
            continue
        default = field.get_default(call_default_factory=True)
        if isinstance(default, Settings):
            inner = [f"  {line}" for line in _fields(type(default))]
            # A node is set apart; its keys have their own descriptions.
            lines += ["", *_comment(field.description or ""), f"{name}:", *inner, ""]
            continue
        value = [*default] if isinstance(default, tuple) else default
        text = yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
        lines += [*_comment(field.description or ""), f"{name}: {text}"]
    # One blank line between two groups, none at the ends.
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return kept[:-1] if kept and not kept[-1] else kept


def _comment(text: str) -> list[str]:
    return [f"# {line}".rstrip() for line in text.splitlines()]
