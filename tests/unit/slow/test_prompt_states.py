"""data_preprocess.prompt_states: the states of a real (small, untrained) model, and the files they are written to."""

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from data_preprocess.demo_models.small_model import SmallModelSettings, build_model
from data_preprocess.prompt_states import StateError, encode, last_states, main, principal_components, with_states
from recipe.fast_dapo.prompt_features import prompt_features
from verl_ext.data.schema import make_row, write_parquet

TEXTS = ("1+1=", "123456-98765=", "7-3=", "12+12=")


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory, tokenizer):
    folder = tmp_path_factory.mktemp("model")
    untrained = build_model(SmallModelSettings(steps=1, weight_decay=0.0), tokenizer, max_position_embeddings=64)
    untrained.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(model_folder):
    from transformers import AutoModel

    return AutoModel.from_pretrained(model_folder).eval()


def rows_of(texts):
    return [make_row("sums", text, "2", index=i, split="train", ability="math") for i, text in enumerate(texts)]


def write(path, texts=TEXTS):
    write_parquet(rows_of(texts), path)
    return path


# ------------------------------ states ------------------------------


@settings(max_examples=20)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8), tokens_per_batch=st.integers(1, 40), data=st.data()
)
def test_a_state_is_that_of_the_prompt_alone(model, lengths, tokens_per_batch, data):
    ids = st.integers(0, model.config.vocab_size - 1)
    prompts = [data.draw(st.lists(ids, min_size=length, max_size=length)) for length in lengths]
    alone = [model(torch.tensor([prompt])).last_hidden_state[0, -1].detach() for prompt in prompts]
    np.testing.assert_allclose(last_states(model, prompts, tokens_per_batch), torch.stack(alone), atol=1e-5)


@settings(max_examples=20)
@given(beginning=st.integers(1, 6), lengths=st.lists(st.integers(0, 5), min_size=2, max_size=8), data=st.data())
def test_prompts_that_begin_alike_have_the_same_states(model, beginning, lengths, data):
    ids = st.integers(0, model.config.vocab_size - 1)
    common = data.draw(st.lists(ids, min_size=beginning, max_size=beginning))
    prompts = [[*common, *data.draw(st.lists(ids, min_size=length, max_size=length))] for length in lengths]
    alone = [model(torch.tensor([prompt])).last_hidden_state[0, -1].detach() for prompt in prompts]
    np.testing.assert_allclose(last_states(model, prompts, 20), torch.stack(alone), atol=1e-5)


def shapes_computed(model, prompts):
    """Of the ids in each call of the model."""
    shapes = []
    hook = model.register_forward_pre_hook(lambda module, args: shapes.append(tuple(args[0].shape)))
    try:
        last_states(model, prompts, 100)
    finally:
        hook.remove()
    return shapes


def test_what_prompts_begin_with_is_computed_once(model):
    assert shapes_computed(model, [[1, 2, 3, 4], [1, 2, 3, 5, 6], [1, 2, 3]]) == [(1, 2), (3, 3)]


def test_a_model_with_windows_of_attention_computes_whole_prompts(tokenizer):
    from transformers import MistralConfig, MistralModel

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=3,
    )  # fmt: skip
    windowed = MistralModel(config).eval()
    prompts = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6, 7], [1, 2, 3, 4, 8]]
    alone = [windowed(torch.tensor([prompt])).last_hidden_state[0, -1].detach() for prompt in prompts]
    np.testing.assert_allclose(last_states(windowed, prompts, 100), torch.stack(alone), atol=1e-5)
    assert shapes_computed(windowed, prompts)[-1] == (3, 6)


def test_states_that_are_not_finite_are_refused(model_folder):
    from transformers import AutoModel

    broken = AutoModel.from_pretrained(model_folder).eval()
    with torch.no_grad():
        broken.norm.weight[0] = float("inf")
    with pytest.raises(StateError, match="--dtype float32"):
        last_states(broken, [[1, 2]], 100)


def test_prompts_are_rendered_as_verl_renders_them(tokenizer):
    from verl.utils.tokenizer import normalize_token_ids
    from verl.utils.tokenizer.chat_template import apply_chat_template

    prompts = [row["prompt"] for row in rows_of(TEXTS)]
    verls = [normalize_token_ids(apply_chat_template(tokenizer, messages)) for messages in prompts]
    assert encode(prompts, tokenizer, {}, "file") == verls


# ------------------------------ components ------------------------------


def test_components_are_those_of_the_singular_value_decomposition():
    states = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32) * np.array([5, 4, 3, 2, 1, 0.5]) + 7
    components, share = principal_components(states, 3)
    centred = states - states.mean(0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    expected = left[:, :3] * sizes[:3] / sizes[0] * np.sqrt(50)
    np.testing.assert_allclose(np.abs(components), np.abs(expected), atol=1e-5)
    assert share == pytest.approx((sizes[:3] ** 2).sum() / (sizes**2).sum())
    assert components[:, 0].std() == pytest.approx(1)


@pytest.mark.parametrize(("num_prompts", "dimensions", "expected"), [(3, 8, 3), (8, 3, 3), (1, 4, 1)])
def test_there_are_no_more_components_than_prompts_or_dimensions(num_prompts, dimensions, expected):
    components, share = principal_components(np.ones((num_prompts, dimensions)), 16)
    assert components.shape == (num_prompts, expected)
    assert not components.any()
    assert share == 0


# ------------------------------ files ------------------------------


@pytest.mark.parametrize("info", [[{"index": 1, "level": None}, None], [None, None], None])
def test_all_else_in_a_row_stays(info):
    table = pa.table({"prompt": ["a", "b"], "n": [1, 2]} | ({} if info is None else {"extra_info": info}))
    after = with_states(table, np.array([[0.5, 1.0], [2.0, 3.0]])).to_pylist()
    before = table.to_pylist()
    for old, new, state in zip(before, after, ([0.5, 1.0], [2.0, 3.0]), strict=True):
        told = new.pop("extra_info")
        assert told.pop("prompt_state") == state
        assert told == (dict.fromkeys(told) | (old.pop("extra_info", None) or {}))
        assert new == old


def test_the_command_writes_files_that_the_prior_learns_from(tmp_path, model_folder, model, tokenizer, capsys):
    files = [write(tmp_path / "a.parquet"), write(tmp_path / "b.parquet", ("8+8=", "9+9="))]
    main(["--model", str(model_folder), "--input", *map(str, files), "--local_save_dir", str(tmp_path / "out"),
          "--components", "2"])  # fmt: skip
    frames = [datasets.Dataset.from_parquet(str(tmp_path / "out" / file.name)) for file in files]
    prompts = [messages for frame in frames for messages in frame["prompt"]]
    expected, share = principal_components(last_states(model, encode(prompts, tokenizer, {}, "file"), 100), 2)
    got = np.array([info["prompt_state"] for frame in frames for info in frame["extra_info"]])
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert f"2 components explain {share:.0%}" in capsys.readouterr().out
    features = prompt_features(["sums"] * 4, frames[0]["prompt"], frames[0]["extra_info"])
    assert features.names == ("length", "extra_info.prompt_state.0", "extra_info.prompt_state.1")
    np.testing.assert_allclose(features.values_PF[:, 1:], expected[:4], atol=1e-5)


def test_a_second_call_replaces_the_states(tmp_path, model_folder):
    write(tmp_path / "a.parquet")
    for source, target, count in (("", "first", "1"), ("first", "second", "2")):
        main(["--model", str(model_folder), "--input", str(tmp_path / source / "a.parquet"), "--local_save_dir",
              str(tmp_path / target), "--components", count])  # fmt: skip
    info = pq.read_table(tmp_path / "second/a.parquet")["extra_info"].to_pylist()
    assert [len(row["prompt_state"]) for row in info] == [2] * len(TEXTS)


@pytest.mark.parametrize(
    ("inputs", "extra", "message"),
    [
        (["a.parquet"], ["--local_save_dir", "."], "a.parquet would be overwritten. Name another folder"),
        (["a.parquet", "more/a.parquet"], [], "two input files have the same name"),
        (["gone.parquet"], [], "gone.parquet"),
        (["a.parquet"], ["--prompt_key", "question"], "question"),
        (["a.parquet"], ["--model", "more"], "--model more: neither a folder with a model"),
        (["parts.parquet"], [], "parts.parquet, row 0: expected prompts of text, got parts"),
        (["text_info.parquet"], [], "text_info.parquet"),
        (["a.jsonl"], [], "a.jsonl: expected a file whose name ends in .parquet"),
        (["bare.parquet"], [], None),
        (["a.parquet"], ["--chat_template_kwargs", '{"chat_template": "{{ oops() }}"}'], "cannot render a prompt"),
        (["a.parquet"], ["--chat_template_kwargs", '{"chat_template": " "}'], None),
        (["a.parquet"], ["--chat_template_kwargs", '{"chat_template": ""}'], "4 prompts have no tokens"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(tmp_path, model_folder, monkeypatch, inputs, extra, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more").mkdir()
    write(tmp_path / "a.parquet")
    write(tmp_path / "more/a.parquet")
    messages = [[{"role": "user", "content": text}] for text in TEXTS]
    pq.write_table(pa.table({"prompt": messages}), tmp_path / "bare.parquet")
    pq.write_table(pa.table({"prompt": messages, "extra_info": ["{}"] * 4}), tmp_path / "text_info.parquet")
    (tmp_path / "a.jsonl").write_text("{}")
    parts = [{"role": "user", "content": [{"type": "text", "text": "1+1="}]}]
    write_parquet([make_row("sums", parts, "2", index=0, split="train", ability="math")], tmp_path / "parts.parquet")
    command = ["--model", str(model_folder), "--input", *inputs, "--local_save_dir", "out", *extra]
    if message is None:
        main(command)
        return
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert message in str(ended.value.code)
    assert "\n" not in str(ended.value.code)
