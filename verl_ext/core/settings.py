"""Settings as pydantic models: one place for a setting's name, type, default, range and description.

    class WatchdogSettings(Settings):
        interval_s: float = Field(default=5.0, gt=0)
        \"\"\"Seconds between two looks at the engines.\"\"\"

`read_node` reads a node of the configuration into such a model and names every problem at once; `settings_file` writes
the YAML file of a node, whose comments are the descriptions. Pure: needs no verl.
"""

import difflib
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from verl_ext.core.errors import ConfigError


class Settings(BaseModel):
    """Frozen; rejects unknown names and values of another type: neither "1" nor true is an int.

    Raises:
        ValueError: names every problem, see `explain`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ValueError("; ".join(explain(error, type(self), "", "its class"))) from None

    # So that pydantic builds nested nodes without calling `__init__`, and reports the full path of an error.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


Kind = TypeVar("Kind", bound=Settings)


def read_node(config: DictConfig, name: str, kind: type[Kind], config_file: str, also: Sequence[str] = ()) -> Kind:
    """Read and check `config.<name>`; without that node, the defaults. Lists become tuples.

    Args:
        config: Configuration of the run.
        name: Name of the node.
        kind: Model of the node.
        config_file: Where the node is documented, for messages.
        also: Problems of the rest of the configuration, to be reported with the node's own.

    Raises:
        ConfigError: names every problem found, with what to change.
    """
    node = OmegaConf.select(config, name)
    if node is None:
        return kind()
    try:
        values = OmegaConf.to_container(node, resolve=True, throw_on_missing=True) if _is_node(node) else node
    except OmegaConfBaseException as error:
        raise ConfigError(f"{name} cannot be read: {error}") from None
    return build(kind, values, name, config_file, also)


def build(kind: type[Kind], values: Any, name: str, config_file: str, also: Sequence[str] = ()) -> Kind:
    """Settings from the user's values; arguments and errors as in `read_node`."""
    try:
        return kind.model_validate(_with_tuples(values))
    except ValidationError as error:
        problems = [*explain(error, kind, name, config_file), *also]
    raise refusal(problems)


def refusal(problems: list[str]) -> ConfigError:
    """The error that lists problems of a configuration."""
    return ConfigError("The configuration cannot be run:\n  - " + "\n  - ".join(problems))


def explain(error: ValidationError, kind: type[Settings], name: str, config_file: str) -> list[str]:
    """The problems that pydantic found, in terms of the configuration.

    Args:
        error: The error from validating `kind`.
        kind: Model of the node.
        name: Name of the node.
        config_file: Where the node is documented.
    """
    problems: list[str] = []
    named: set[str] = set()  # pydantic also reports a list with a wrong element as too short
    for entry in error.errors():
        where, model, field = name, kind, None
        for part in entry["loc"]:
            inner = _model_of(field) if field is not None else None
            if field is not None and inner is None:  # an element of a list: the whole list is named
                break
            model = inner or model
            where, field = f"{where}.{part}".removeprefix("."), model.model_fields.get(str(part))
        value = entry["input"]
        if entry["type"] == "extra_forbidden":
            key = str(entry["loc"][-1])
            near = difflib.get_close_matches(key, model.model_fields, n=1)
            parent = where.removesuffix(key)
            known = f"did you mean {parent}{near[0]}?" if near else f"known: {', '.join(model.model_fields)}"
            problems.append(f"{where} does not exist; {known}")
        elif entry["type"] == "value_error":  # of our validators, whose message is complete
            problems.append(f"{where}: {entry.get('ctx', {}).get('error')}".removeprefix(": "))
        elif field is None or entry["type"] == "model_type":
            problems.append(f"{where} must be a mapping of settings, got {value!r}: see {config_file}")
        else:
            default = "null" if field.default is None else field.default
            problem = f"{where} must be {describe(field)}, got {_plain(value)!r}: the default is {_plain(default)}"
            problems += [] if where in named else [problem]
            named.add(where)
    return problems


def describe(field: FieldInfo) -> str:
    """The values that a field accepts, in words: `an int >= 1 or null`."""
    return _describe(field.annotation, field.metadata)


def _describe(kind: Any, metadata: list[Any]) -> str:
    arguments = get_args(kind)
    if hasattr(kind, "__metadata__"):  # Annotated
        return _describe(arguments[0], list(kind.__metadata__[0].metadata))
    if NoneType in arguments:
        others = [_describe(part, metadata) for part in arguments if part is not NoneType]
        return f"{' or '.join(others)} or null"
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(value) for value in arguments)
    if get_origin(kind) is tuple and Ellipsis not in arguments:
        return f"a list of {len(arguments)}, each {_describe(arguments[0], [])}"
    if get_origin(kind) is tuple:
        return f"a list, each {_describe(arguments[0], [])}"
    names = {bool: "true or false", int: "an int", float: "a number", str: "a text"}
    return names.get(kind, "a mapping of settings") + _range(metadata)


def _range(metadata: list[Any]) -> str:
    bounds = {type(bound): getattr(bound, type(bound).__name__.lower()) for bound in metadata if _is_bound(bound)}
    low, high = bounds.get(Ge, bounds.get(Gt)), bounds.get(Le, bounds.get(Lt))
    if low is not None and high is not None:
        return f" in {'[' if Ge in bounds else '('}{low}, {high}{']' if Le in bounds else ')'}"
    signs = {Ge: ">=", Gt: ">", Le: "<=", Lt: "<"}
    return "".join(f" {signs[kind]} {bound}" for kind, bound in bounds.items())


def _is_bound(constraint: Any) -> bool:
    return isinstance(constraint, Ge | Gt | Le | Lt)


def _model_of(field: FieldInfo) -> type[Settings] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Settings) else None


def _is_node(value: Any) -> bool:
    return OmegaConf.is_config(value)


def _with_tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _with_tuples(inner) for name, inner in value.items()}
    return tuple(_with_tuples(inner) for inner in value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
