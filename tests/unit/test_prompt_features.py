"""What is known about prompts without a rollout, from rows as in data sets: the right numbers, and finite ones."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.fast_dapo.curriculum.prior import FeaturePrior
from recipe.fast_dapo.prompt_features import (
    MAX_ENTRIES,
    MAX_FIELDS,
    MAX_SOURCES,
    PromptFeatures,
    dataset_features,
    prompt_features,
)

MESSAGES = [{"role": "system", "content": "Think."}, {"role": "user", "content": "1+1="}]


def features_of(
    sources: list[Any] | None = None, prompts: list[Any] | None = None, infos: list[Any] | None = None
) -> PromptFeatures:
    """Arguments that are left out are uninformative."""
    num_prompts = len(sources or prompts or infos or [])
    return prompt_features(sources or ["a"] * num_prompts, prompts or [""] * num_prompts, infos or [None] * num_prompts)


def column(features: PromptFeatures, name: str) -> np.ndarray:
    """As in the data set, without the arcsinh."""
    return np.sinh(features.values_PF[:, features.names.index(name)])


# ------------------------------ length ------------------------------


@pytest.mark.parametrize(
    ("prompt", "length"),
    [
        ("12+30=", 6),
        (MESSAGES, 10),
        (np.array(MESSAGES, dtype=object), 10),
        ([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}], 5),
        ([{"role": "user", "content": [{"type": "image", "image": "a.png", "text": None}]}], 0),
        ([{"role": "user", "content": None}], 0),
        (["two", "parts"], 8),
        (None, 0),
        ("", 0),
    ],
)
def test_a_prompts_length_is_that_of_its_text(prompt: Any, length: int):
    assert column(features_of(prompts=[prompt, "x"]), "length") == pytest.approx([length, 1])


# ------------------------------ numbers of extra_info ------------------------------


def test_numbers_and_bools_are_features_and_all_else_is_not():
    info = {
        "index": 7,
        "level": 3,
        "pass_rate": 0.25,
        "is_proof": True,
        "numpy": np.float32(0.5),
        "numpy_bool": np.bool_(True),
        "split": "train",
        "as_text": "5",
        "nothing": None,
        "texts": ["a", "b"],
        "complex": 1j,
    }
    features = features_of(infos=[info, {"level": 5, "index": 8}])
    told = {name.removeprefix("extra_info.") for name in features.names} - {"length"}
    assert told == {"level", "pass_rate", "is_proof", "numpy", "numpy_bool"}
    assert column(features, "extra_info.level") == pytest.approx([3, 5])
    assert column(features, "extra_info.is_proof") == pytest.approx([1, 1])


@pytest.mark.parametrize("lacking", [None, {}, {"level": None}, {"level": "7"}, {"level": float("nan")},
                                     {"level": float("-inf")}, {"level": 10**400}])  # fmt: skip
def test_who_lacks_a_number_gets_the_mean_of_the_others(lacking: Any):
    features = features_of(infos=[{"level": 0}, lacking, {"level": 6}, {"level": -6}])
    assert column(features, "extra_info.level") == pytest.approx([0, 0, 6, -6])


def test_a_field_of_no_finite_number_is_none():
    infos = [{"a": float("nan"), "b": float("inf"), "c": 10**400, "d": "1"}] * 3
    assert features_of(infos=infos).names == ("length",)


def test_entries_of_lists_of_one_length_are_features():
    infos = [
        {"state": [1.0, -50.0], "ragged": [1], "texts": ["a"], "array": np.array([3.0])},
        {"state": (3.0, float("nan")), "ragged": [1, 2], "texts": ["b"], "empty": []},
        None,
        {"state": None, "array": [5.0], "matrix": np.eye(2)},
    ]
    features = features_of(infos=infos)
    assert features.names == ("length", "extra_info.array.0", "extra_info.state.0", "extra_info.state.1")
    # No arcsinh, and the mean for rows that lack it.
    assert features.values_PF[:, 1].tolist() == [3, 4, 4, 5]
    assert features.values_PF[:, 2].tolist() == [1, 3, 2, 2]
    assert features.values_PF[:, 3].tolist() == [-50, -50, -50, -50]


def test_a_list_for_which_there_is_no_room_is_left_out():
    infos = [{"a": [0.0] * (MAX_ENTRIES - 1), "b": [0.0, 0.0], "c": [0.0]}]
    names = features_of(infos=infos).names
    assert len(names) == 1 + MAX_ENTRIES
    assert names[-1] == "extra_info.c.0"


def test_the_fields_that_most_rows_have_come_first_and_the_rest_is_left_out():
    num_fields = MAX_FIELDS + 4
    infos = [{f"f{number:02}": 1.0 for number in range(row, num_fields)} for row in range(num_fields)]
    names = features_of(infos=infos).names
    assert names == ("length", *(f"extra_info.f{number:02}" for number in range(num_fields - 1, 3, -1)))


# ------------------------------ sources ------------------------------


def test_sources_are_numbered_by_their_size_and_each_has_a_feature():
    features = features_of(sources=["math", "code", None, "code", "code", "math"])
    assert features.source_names == ("code", "math", "None")
    assert features.sources_P.tolist() == [1, 0, 2, 0, 0, 1]
    assert features.names == ("length", "source code", "source math", "source None")
    assert features.values_PF[:, 1:].tolist() == np.eye(3)[features.sources_P].tolist()


def test_one_source_is_no_feature():
    features = features_of(sources=["math"] * 3)
    assert features.names == ("length",)
    assert features.sources_P.tolist() == [0, 0, 0]


def test_the_largest_sources_have_a_feature_and_all_have_a_number():
    sources = [f"s{number:02}" for number in range(40) for _ in range(40 - number)]
    features = features_of(sources=sources)
    assert features.names == ("length", *(f"source s{number:02}" for number in range(MAX_SOURCES)))
    assert np.unique(features.sources_P).tolist() == list(range(40))
    small = features.sources_P >= MAX_SOURCES
    assert not features.values_PF[small, 1:].any()
    assert (features.values_PF[~small, 1:].sum(1) == 1).all()


# ------------------------------ data sets ------------------------------


class Frame:
    """The part of a Hugging Face data set that is read."""

    def __init__(self, **columns: list[Any]) -> None:
        self._columns = columns
        self.column_names = list(columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]


class WithFrame:
    """Like verl's data set: never read row by row."""

    def __init__(self, frame: Frame) -> None:
        self.dataframe = frame

    def __len__(self) -> int:
        return len(self.dataframe)


def test_columns_are_read_where_a_data_set_has_them_and_rows_elsewhere():
    sources, infos = ["a", "b", "a"], [{"level": 1}, {"level": 2}, None]
    prompts = [MESSAGES, [{"role": "user", "content": "2+2="}], []]
    expected = prompt_features(sources, prompts, infos)
    frame = Frame(question=prompts, data_source=sources, extra_info=infos)
    rows = [
        {"raw_prompt": prompt, "data_source": source, "extra_info": info}
        for prompt, source, info in zip(prompts, sources, infos, strict=True)
    ]
    for got in (dataset_features(WithFrame(frame), "question"), dataset_features(rows, "question")):
        assert got.names == expected.names == ("length", "extra_info.level", "source a", "source b")
        assert np.array_equal(got.values_PF, expected.values_PF)
        assert got.sources_P.tolist() == [0, 1, 0]


def test_a_data_set_that_tells_nothing_but_prompts_has_their_lengths():
    for dataset in (WithFrame(Frame(prompt=["ab", "c"])), [{"raw_prompt": "ab"}, {"raw_prompt": "c"}]):
        features = dataset_features(dataset, "prompt")
        assert features.names == ("length",)
        assert column(features, "length") == pytest.approx([2, 1])
        assert features.source_names == ("None",)


# ------------------------------ all of it ------------------------------

numbers = st.integers() | st.floats() | st.booleans() | st.sampled_from([10**30, 10**400, np.int64(3), np.float16(2)])
values = numbers | st.text(max_size=4) | st.none() | st.lists(st.integers(), max_size=2)
infos = st.none() | st.dictionaries(st.sampled_from(["index", "level", "digits", "note"]), values)
contents = st.none() | st.text() | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}))
prompts = st.text() | st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": contents}))


@given(rows=st.lists(st.tuples(st.none() | st.text(max_size=2), prompts, infos), min_size=1, max_size=20))
def test_whatever_the_rows_say_the_features_are_finite_and_a_prior_takes_them(rows: list[tuple[Any, Any, Any]]):
    features = prompt_features(*map(list, zip(*rows, strict=True)))
    assert features.values_PF.shape == (len(rows), len(features.names))
    assert np.isfinite(features.values_PF).all()
    assert sorted(set(features.sources_P.tolist())) == list(range(len(features.source_names)))
    prior = FeaturePrior(features.values_PF, (0.2, 0.2), 20)
    prior.fit(np.arange(len(rows)), np.ones(len(rows)), np.zeros(len(rows)))
    assert np.isfinite(prior(np.arange(len(rows)))).all()
