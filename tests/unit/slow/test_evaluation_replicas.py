"""Several engines that share the prompts: real processes with their own GPUs, and an echo in place of vLLM."""

import functools
import os

import pytest

from verl_ext.core.errors import RolloutEngineError, SignalError
from verl_ext.evaluation.replicas import Replicas, split_devices, visible_devices

SAMPLING = {"n": 2, "temperature": 0.5, "max_response_length": 7}


class Echo:
    """Answers with its process, its GPUs, the prompt, the seed and the settings; dies on the prompt [0]."""

    def __init__(self, failure: str | None = None) -> None:
        if failure is not None:
            raise SignalError(failure)
        # Read when the engine is created, as CUDA does.
        self.devices = [int(name) for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]

    def generate(self, prompts, seeds, *, n, temperature, max_response_length, top_p=1.0, top_k=-1):
        if [0] in prompts:
            os._exit(1)
        facts = [os.getpid(), sum(self.devices), max_response_length, top_k]
        return [[([*facts, *ids, seed], temperature == 0.5)] * n for ids, seed in zip(prompts, seeds, strict=True)]


def test_every_prompt_is_answered_in_its_place_by_one_of_the_engines():
    with Replicas(Echo, [["0", "1"], ["2", "3"]]) as engines:
        responses = engines.generate([[n] for n in range(10, 15)], range(5), top_k=3, **SAMPLING)
        assert engines.generate([[9]], [0], **SAMPLING)[0][0][0][3:] == [-1, 9, 0]  # fewer prompts than engines
    assert [len(samples) for samples in responses] == [2] * 5
    assert [samples[0][0][4:] for samples in responses] == [[10, 0], [11, 1], [12, 2], [13, 3], [14, 4]]
    assert [samples[0][0][1:4] for samples in responses] == [[1, 7, 3], [5, 7, 3]] * 2 + [[1, 7, 3]]
    processes = {samples[0][0][0] for samples in responses}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert not any(os.path.exists(f"/proc/{process}") for process in processes)


def test_an_engine_that_cannot_start_says_why():
    with pytest.raises(SignalError, match="no room for the cache"):
        Replicas(functools.partial(Echo, "no room for the cache"), [["0"], ["1"]])


def test_an_engine_that_dies_is_an_error_of_one_line():
    with Replicas(Echo, [["0"], ["1"]]) as engines, pytest.raises(RolloutEngineError, match="died"):
        engines.generate([[1], [0]], [0, 1], **SAMPLING)


def test_each_engine_has_gpus_of_its_own():
    assert split_devices(["a", "b", "c", "d", "e"], 2, 2) == [["a", "b"], ["c", "d"]]
    with pytest.raises(SignalError, match="needs 6 GPUs, and 5 can be used here"):
        split_devices(["0"] * 5, 3, 2)


def test_gpus_are_those_that_the_environment_allows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-5f")
    assert visible_devices() == ["2", "GPU-5f"]
