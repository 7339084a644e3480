"""The file of samples: what was written is read back, what was half written is not, and settings never mix."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verl_ext.core.errors import SignalError
from verl_ext.evaluation.statistics.samples import PromptKey, SampleStore, ScoredResponse

SETTINGS = {"model": "m", "n": 2, "temperature": 1.0, "reward": None}


def sample(text: str = "5") -> ScoredResponse:
    return ScoredResponse(text, 1.0, True, text, False, 3)


def fill(path: Path, rows: range = range(4)) -> None:
    store = SampleStore(path, SETTINGS)
    store.add("val", [(PromptKey("a", row), [sample(f"{row}\n\u2028é"), sample()]) for row in rows])
    store.close()


def test_samples_are_there_again(tmp_path: Path):
    path = tmp_path / "folder/samples.jsonl"
    fill(path)
    store = SampleStore(path, SETTINGS)
    assert len(store) == 4
    assert store[PromptKey("a", 2)] == [sample("2\n\u2028é"), sample()]
    assert PromptKey("b", 2) not in store
    assert PromptKey("a", 4) not in store


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_file_cut_anywhere_goes_on_with_what_is_whole(tmp_path: Path, data):
    path = tmp_path / "samples.jsonl"
    path.unlink(missing_ok=True)
    fill(path)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    store = SampleStore(path, SETTINGS)
    assert len(store) == max(whole[:cut].count(b"\n") - 1, 0)
    store.close()
    fill(path)
    assert path.read_bytes() == whole


def test_samples_that_are_known_stay_as_they_are(tmp_path: Path):
    path = tmp_path / "samples.jsonl"
    fill(path)
    before = path.read_bytes()
    store = SampleStore(path, SETTINGS)
    store.add("val", [(PromptKey("a", 1), [sample("other")] * 2)])
    assert store[PromptKey("a", 1)][1] == sample()
    assert path.read_bytes() == before


def test_other_settings_are_refused_and_named(tmp_path: Path):
    path = tmp_path / "samples.jsonl"
    fill(path)
    with pytest.raises(SignalError, match=r"other settings: n was 2, is 4; temperature was 1\.0, is 0\.5") as raised:
        SampleStore(path, SETTINGS | {"n": 4, "temperature": 0.5})
    assert "choose another --output" in str(raised.value)
    fill(path, range(4, 5))  # the refused one holds no lock and changed nothing
    assert len(SampleStore(path, SETTINGS)) == 5


def test_a_setting_that_is_new_is_another_setting(tmp_path: Path):
    fill(tmp_path / "samples.jsonl")
    with pytest.raises(SignalError, match="raw_prompt was None, is True"):
        SampleStore(tmp_path / "samples.jsonl", SETTINGS | {"raw_prompt": True})


@pytest.mark.parametrize("text", ["hello\n", '{"a": 1}\n', '{"evaluation_settings": %s}\n{"row": 1}\n'])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "samples.jsonl"
    text = text.replace("%s", '{"model": "m", "n": 2, "temperature": 1.0, "reward": null}')
    path.write_text(text)
    with pytest.raises(SignalError, match="not a file of samples"):
        SampleStore(path, SETTINGS)
    assert path.read_text() == text


def test_two_evaluations_do_not_write_one_file(tmp_path: Path):
    path = tmp_path / "samples.jsonl"
    first = SampleStore(path, SETTINGS)
    with pytest.raises(SignalError, match="another evaluation"):
        SampleStore(path, SETTINGS)
    first.close()
    SampleStore(path, SETTINGS).close()


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    store = SampleStore(None, SETTINGS)
    store.add("val", [(PromptKey("a", 0), [sample()])])
    store.close()
    assert store[PromptKey("a", 0)] == [sample()]
    assert not list(tmp_path.iterdir())
