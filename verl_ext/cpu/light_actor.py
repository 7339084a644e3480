"""An actor class that other processes can use without importing its implementation."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any


def light_actor(cls: type) -> type:
    """A class with the public methods of `cls`, which is imported only where an instance is created.

    Ray loads an actor's class in every process that gets its handle. With the class of a vLLM server, the load balancer
    and every agent loop worker would import all of vLLM, 13 CPU seconds each.

    Args:
        cls: importable by its name; its methods, including coroutines, are called remotely.
    """
    module, name = cls.__module__, cls.__qualname__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self._instance = getattr(importlib.import_module(module), name)(*args, **kwargs)

    methods: dict[str, Any] = {"__init__": __init__}
    for method, function in inspect.getmembers(cls, inspect.isfunction):
        if not method.startswith("_"):
            methods[method] = _forward(method, inspect.iscoroutinefunction(function))
    # A class that is not in a module is pickled by value; one in a module, by reference.
    return type(cls.__name__, (), methods)


def _forward(method: str, is_coroutine: bool) -> Callable[..., Any]:
    async def call_coroutine(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await getattr(self._instance, method)(*args, **kwargs)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._instance, method)(*args, **kwargs)

    return call_coroutine if is_coroutine else call
