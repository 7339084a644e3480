"""Several engines with the same model, each in its own process on its own GPUs, that share every batch of prompts.

vLLM refuses `LLM(data_parallel_size=...)` in one process; its own example of offline data parallelism also starts
processes. These are independent, which works for dense models and mixtures of experts.
"""

import contextlib
import gc
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from verl_ext.core.errors import RolloutEngineError, SignalError

Response = tuple[list[int], bool]
T = TypeVar("T")


class Engine(Protocol):
    """Samples responses: `sampling.Sampler`, or several of them."""

    def generate(
        self,
        prompts: Sequence[list[int]],
        seeds: Sequence[int],
        *,
        n: int,
        temperature: float,
        max_response_length: int,
        top_p: float = 1.0,
        top_k: int = -1,
    ) -> list[list[Response]]:
        """For each prompt, its `n` responses: token ids, and whether the length limit cut them off."""
        ...


def split_devices(visible: Sequence[str], tensor_parallel_size: int, data_parallel_size: int) -> list[list[str]]:
    """The GPUs of each engine.

    Args:
        visible: The GPUs of this machine that may be used, as CUDA_VISIBLE_DEVICES names them.
        tensor_parallel_size: GPUs of one engine.
        data_parallel_size: Engines.

    Raises:
        SignalError: If there are too few.

    Example:
        >>> split_devices(["0", "1", "2", "3", "4"], 2, 2)
        [['0', '1'], ['2', '3']]
    """
    needed = tensor_parallel_size * data_parallel_size
    if needed > len(visible):
        raise SignalError(
            f"--data_parallel_size {data_parallel_size} with --tensor_parallel_size {tensor_parallel_size} needs "
            f"{needed} GPUs, and {len(visible)} can be used here. Lower one of them."
        )
    return [list(visible[start : start + tensor_parallel_size]) for start in range(0, needed, tensor_parallel_size)]


def visible_devices() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return named or [str(number) for number in range(torch.cuda.device_count())]


class Replicas:
    """Engines that share every batch of prompts; a context manager that stops them.

    Prompt i goes to engine i modulo their number, so neighbours, which are often similar, are spread.

    Args:
        make: Creates an engine; it is called in each process and must be picklable.
        devices: GPUs of each engine, as CUDA_VISIBLE_DEVICES names them.

    Raises:
        RolloutEngineError: If a process dies.
    """

    def __init__(self, make: Callable[[], Engine], devices: Sequence[Sequence[str]]) -> None:
        context = get_context("spawn")
        self._processes = [ProcessPoolExecutor(1, mp_context=context) for _ in devices]
        try:
            self._results([
                process.submit(_start, make, ",".join(names))
                for process, names in zip(self._processes, devices, strict=True)
            ])  # fmt: skip
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Replicas":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def generate(
        self,
        prompts: Sequence[list[int]],
        seeds: Sequence[int],
        *,
        n: int,
        temperature: float,
        max_response_length: int,
        top_p: float = 1.0,
        top_k: int = -1,
    ) -> list[list[Response]]:
        """As `Sampler.generate`, in the order of the prompts."""
        sampling = {
            "n": n,
            "temperature": temperature,
            "max_response_length": max_response_length,
            "top_p": top_p,
            "top_k": top_k,
        }
        step = len(self._processes)
        parts = self._results([
            process.submit(_generate, prompts[number::step], seeds[number::step], sampling)
            for number, process in enumerate(self._processes)
        ])  # fmt: skip
        responses: list[list[Response]] = [[] for _ in prompts]
        for number, part in enumerate(parts):
            responses[number::step] = part
        return responses

    def close(self) -> None:
        """Stop the engines and their processes."""
        for process in self._processes:
            with contextlib.suppress(RuntimeError):  # dead, or closed before
                process.submit(_stop)
            process.shutdown()

    @staticmethod
    def _results(futures: Sequence[Future[T]]) -> list[T]:
        try:
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            raise RolloutEngineError(
                "the process of one of the engines of --data_parallel_size died; its last output is above. With "
                "--output the samples so far are kept: run the same command to continue."
            ) from error


# Main function of a process of `Replicas`.
_engine: Engine | None = None


def _start(make: Callable[[], Engine], devices: str) -> None:
    global _engine
    os.environ["CUDA_VISIBLE_DEVICES"] = devices  # before CUDA is initialized here
    _engine = make()


def _generate(prompts: Sequence[list[int]], seeds: Sequence[int], sampling: dict[str, Any]) -> list[list[Response]]:
    assert _engine is not None
    return _engine.generate(prompts, seeds, **sampling)


def _stop() -> None:
    """vLLM stops its own processes when the engine is garbage-collected; a process like this one runs no exit
    handlers."""
    global _engine
    _engine = None
    gc.collect()
