"""verl's own data, read by verl's own data set: every kind that the checks accept, and an index for each prompt."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from PIL import Image
from stored_rows import Engine, QuietTrainer, StoredRows
from torch.utils.data import DataLoader
from verl.trainer.ppo.utils import create_rl_dataset
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from recipe.fast_dapo.collector import Curriculum
from recipe.fast_dapo.settings import resolve_group_size
from verl_ext.core.errors import SignalError
from verl_ext.data.prompt_index import prompt_indices
from verl_ext.launch.data_checks import INDEXED_DATASET, DataError, check_data, find_files
from verl_ext.serving.indexed_dataset import IndexedDataset

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    build_tokenizer().save_pretrained(path)
    return path


def make(number: int, **changes: Any) -> dict[str, Any]:
    """A row as verl's scripts for GSM8K write it; `...` leaves a column out."""
    row = {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"{number}+1="}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(number + 1)},
        "extra_info": {"split": "train", "index": number, "question": f"{number}+1="},
    }
    return {name: value for name, value in (row | changes).items() if value is not ...}


def save(rows: list[dict[str, Any]], path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(json.dumps(rows))
    return str(path)


def compose_config(model_dir: Path, train: list[str], *overrides: str, val: list[str] | None = None) -> DictConfig:
    settings = [
        f"data.train_files={json.dumps(train)}",
        f"data.val_files={json.dumps(val or train[:1])}",
        f"actor_rollout_ref.model.path={model_dir}",
        "data.train_batch_size=2",
        "data.gen_batch_size=2",
        "data.filter_overlong_prompts=false",
    ]
    with initialize_config_dir(str(ROOT / "configs"), version_base=None):
        return compose("fast_dapo", overrides=[*settings, *overrides])


def load(config: DictConfig, processor: Any = None, max_samples: int = -1) -> Any:
    """The training data, made as in verl's trainer."""
    return create_rl_dataset(
        config.data.train_files, config.data, build_tokenizer(), processor, is_train=True, max_samples=max_samples
    )


def is_indexed(config: DictConfig) -> bool:
    return (config.data.custom_cls.path, config.data.custom_cls.name) == INDEXED_DATASET


# ------------------------------ every kind ------------------------------

IMAGE_PARTS = [{"type": "image", "image": "a.png", "text": None}, {"type": "text", "image": None, "text": "What?"}]


@pytest.mark.parametrize("ending", ["parquet", "json", "jsonl"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reward_model": {"style": "rule", "ground_truth": 3}},
        {"reward_model": {"style": "rule", "ground_truth": [1, 2]}},
        {"reward_model": {"style": "rule", "ground_truth": {"tests": ["a"]}}},
        {"ability": ...},
        {"extra_info": ...},
        {"extra_info": None},
        {"extra_info": {"split": "train"}},
        {"extra_info": {"index": 0.5}},
        {"prompt": [{"role": "user", "content": IMAGE_PARTS}]},
    ],
    ids=lambda changes: "+".join(changes) or "as verl",
)
def test_rows_are_verls_with_an_index_each(model_dir: Path, tmp_path: Path, changes: dict[str, Any], ending: str):
    """The same rows in two files, numbered from 0 in both."""
    files = [save([make(n, **changes) for n in range(3)], tmp_path / name / f"train.{ending}") for name in "ab"]
    config = compose_config(model_dir, files)
    check_data(config)
    assert is_indexed(config)
    ours, verls = load(config), RLHFDataset(files, build_tokenizer(), config.data)
    assert isinstance(ours, IndexedDataset)
    assert len({row["index"] for row in ours}) == 6
    assert prompt_indices(ours) == [row["index"] for row in ours]
    # The reward function gets what verl would give it: apart from `index`, the rows are verl's.
    for own, plain in zip(ours, verls, strict=True):
        assert {**own, "index": 0, "dummy_tensor": 0} == {**plain, "index": 0, "dummy_tensor": 0}


def test_values_of_several_types_in_a_json_file(model_dir: Path, tmp_path: Path):
    truths = [3, "three", [3], {"x": 3}]
    rows = [make(n, reward_model={"ground_truth": truth}, extra_info=...) for n, truth in enumerate(truths)]
    config = compose_config(model_dir, [save(rows, tmp_path / "a.jsonl")])
    check_data(config)
    dataset = load(config)
    assert [row["reward_model"]["ground_truth"] for row in dataset] == truths
    assert len(set(prompt_indices(dataset))) == 4


def test_images_of_one_question_are_told_apart(model_dir: Path, tmp_path: Path):
    """As in Geometry3K: images in their own column, `<image>` in the text."""

    def png(colour: int) -> dict[str, Any]:
        path = tmp_path / f"{colour}.png"
        Image.fromarray(np.full((4, 4), colour, dtype=np.uint8)).save(path)
        return {"bytes": path.read_bytes(), "path": None}

    question = [{"role": "user", "content": "<image>Find x."}]
    rows = [make(0, prompt=question, images=[png(colour)]) for colour in (10, 200)]
    config = compose_config(model_dir, [save(rows, tmp_path / "a.parquet")])
    check_data(config)
    first, second = load(config, processor=object())
    assert first["raw_prompt"][0]["content"][0]["image"].getpixel((0, 0)) == 10
    assert second["raw_prompt"][0]["content"][0]["image"].getpixel((0, 0)) == 200
    assert first["index"] != second["index"]
    assert not second["index"].startswith(first["index"])


def test_a_prompt_of_another_name_is_measured_and_read(model_dir: Path, tmp_path: Path):
    rows = [make(n, prompt=..., question=make(n)["prompt"]) for n in range(3)]
    config = compose_config(model_dir, [save(rows, tmp_path / "a.parquet")], "data.prompt_key=question")
    check_data(config)
    assert load(config)[2]["raw_prompt"] == [{"role": "user", "content": "2+1="}]
    config.data.max_prompt_length = 3
    with pytest.raises(DataError, match="3 of 3 prompts, the longest 4 tokens"):
        check_data(config)


def test_a_pattern_is_read_as_verl_reads_it(model_dir: Path, tmp_path: Path):
    for number in range(3):
        save([make(number)], tmp_path / f"train-{number}.parquet")
    config = compose_config(model_dir, [f"{tmp_path}/train-*.parquet"])
    check_data(config)
    assert sorted(row["index"] for row in load(config)) == [0, 1, 2]


# ------------------------------ when an index is made ------------------------------


def test_a_name_that_verl_takes_for_a_pattern_is_refused(model_dir: Path, tmp_path: Path):
    config = compose_config(model_dir, [save([make(0), make(1)], tmp_path / "train[0].parquet")])
    with pytest.raises(ValueError, match="all the data_files are invalid"):
        load(config)
    with pytest.raises(DataError, match=r"train\[0\]\.parquet: no file matches"):
        check_data(config)


def test_files_with_their_own_index_are_read_by_verls_class(model_dir: Path, tmp_path: Path, capsys):
    config = compose_config(model_dir, [save([make(n) for n in range(3)], tmp_path / "a.parquet")])
    check_data(config)
    assert config.data.custom_cls.path is None
    dataset = load(config)
    assert type(dataset) is RLHFDataset
    assert prompt_indices(dataset) == [0, 1, 2]
    assert "made of its content" not in capsys.readouterr().out


def test_it_is_said_once_and_a_second_check_changes_nothing(model_dir: Path, tmp_path: Path, capsys):
    files = [save([make(n) for n in range(3)], tmp_path / name) for name in ("a.parquet", "b.parquet")]
    config = compose_config(model_dir, files)
    check_data(config)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "made of its content" in line]
    assert "data.train_files: 3 value(s) of extra_info.index are repeated: 0 (row 0 of " in line
    check_data(config)
    assert is_indexed(config)


def test_validation_files_may_both_be_numbered_from_0(model_dir: Path, tmp_path: Path):
    train, *val = (save([make(n) for n in range(3)], tmp_path / f"{name}.parquet") for name in "abc")
    config = compose_config(model_dir, [train], val=val)
    check_data(config)
    assert config.data.custom_cls.path is None


def test_the_class_leaves_an_index_that_is_unique(model_dir: Path, tmp_path: Path):
    """It is also set where files cannot be read before the run."""
    config = compose_config(model_dir, [save([make(n) for n in (4, 5)], tmp_path / "a.parquet")])
    config.data.custom_cls.path, config.data.custom_cls.name = INDEXED_DATASET
    assert [row["index"] for row in load(config)] == [4, 5]


# ------------------------------ lasting ------------------------------


def contents(dataset: Any) -> dict[str, str]:
    return {row["index"]: row["raw_prompt"][0]["content"] for row in dataset}


def test_the_index_survives_another_folder_another_order_and_fewer_rows(model_dir: Path, tmp_path: Path):
    rows = [make(n, extra_info=...) for n in range(8)]
    config = compose_config(model_dir, [save(rows, tmp_path / "a.parquet")])
    check_data(config)
    expected = contents(load(config))
    assert len(expected) == 8

    moved = [save(rows[5:], tmp_path / "new" / "z.parquet"), save(rows[4::-1], tmp_path / "new" / "b.parquet")]
    config = compose_config(model_dir, moved)
    check_data(config)
    assert contents(load(config)) == expected

    config = compose_config(model_dir, moved, "data.shuffle=true", "data.seed=3")
    check_data(config)
    assert contents(load(config, max_samples=5)).items() < expected.items()


def test_the_index_does_not_depend_on_the_limit_of_a_prompts_length(model_dir: Path, tmp_path: Path):
    rows = [make(n, extra_info=...) for n in (1, 1, 10, 2)]
    limits = ["data.filter_overlong_prompts=true", "data.filter_overlong_prompts_workers=null"]
    file = save(rows, tmp_path / "a.parquet")
    found = []
    for limit in (4, 5):
        config = compose_config(model_dir, [file], *limits, f"data.max_prompt_length={limit}")
        check_data(config)
        found.append(prompt_indices(load(config)))
    short, everything = found
    assert short == [everything[0], everything[1], everything[3]]


def test_a_resumed_data_set_and_the_loaders_workers_see_the_same(model_dir: Path, tmp_path: Path):
    config = compose_config(model_dir, [save([make(0), make(0), make(1)], tmp_path / "a.parquet")])
    check_data(config)
    dataset = load(config)
    expected = prompt_indices(dataset)
    loader = DataLoader(dataset, batch_size=3, num_workers=1, collate_fn=collate_fn)
    assert list(next(iter(loader))["index"]) == expected
    dataset.resume_dataset_state()
    assert [row["index"] for row in dataset] == expected


# ------------------------------ Fast DAPO ------------------------------


def test_the_posterior_remembers_prompts_by_the_index_that_was_made(model_dir: Path, tmp_path: Path, monkeypatch):
    """Also across a restart with the rows in another order: records and live prompts keep their names."""
    StoredRows(monkeypatch)
    sizes = ["data.train_batch_size=2", "data.gen_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=2"]
    rows = [make(n, extra_info=...) for n in range(12)]
    solved: set[str] = set()
    names: dict[str, str] = {}
    curricula = []
    for name, order in (("first", rows), ("again", rows[::-1])):
        file = save(order, tmp_path / name / "train.parquet")
        config = compose_config(model_dir, [file], "+signal=two_phase", "curriculum.predictor=posterior", *sizes)
        resolve_group_size(config)
        check_data(config)
        # Prompts with even numbers are mixed, the others are never solved.
        engine = Engine(lambda index, session: index in solved and session % 2 == 0)
        trainer: Any = QuietTrainer(config, tmp_path / name, engine)
        trainer.train_dataset = load(config)
        names = contents(trainer.train_dataset)
        solved.update(index for index, text in names.items() if int(text.removesuffix("+1=")) % 2 == 0)
        curricula.append(Curriculum(trainer))
        curricula[-1].set_up_data()
    first, again = curricula
    assert len(first.collect(2).keys) == 2 * 16
    first.before_checkpoint()
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    before, after = first.predictor, again.predictor
    for index, position in after._position.items():
        assert after.posterior.posterior(position) == before.posterior.posterior(before._position[index])
    again._trainer.global_steps = 2
    assert len(again.collect(2).keys) == 2 * 16
    for name in ("first", "again"):
        events = [json.loads(line) for line in (tmp_path / name / "prompts.jsonl").read_text().splitlines()]
        assert {event["index"] for event in events} <= set(names)
        assert {event["index"] for event in events if event["event"] == "trained"} <= solved


def test_the_posterior_refuses_a_data_set_whose_indices_repeat(model_dir: Path, tmp_path: Path):
    config = compose_config(model_dir, [], "curriculum.predictor=posterior", val=["none.parquet"])
    resolve_group_size(config)
    trainer: Any = QuietTrainer(config, tmp_path, Engine(lambda index, session: True))
    trainer.train_dataset = [{"index": 0}, {"index": 1}, {"index": 0}]
    with pytest.raises(SignalError, match="3 prompts have only 2 values of `index`"):
        Curriculum(trainer).set_up_data()


# ------------------------------ files elsewhere ------------------------------


def test_a_file_on_hdfs_is_checked_in_the_copy_that_verl_makes(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    save([make(0), make(0)], tmp_path / "remote" / "train.parquet")
    monkeypatch.setattr("verl.utils.hdfs_io._HDFS_BIN_PATH", str(_hdfs(tmp_path)))
    address = f"hdfs://{tmp_path}/remote/train.parquet"
    config = compose_config(model_dir, [address], f"+data.cache_dir={tmp_path}/cache")
    check_data(config)
    assert f"{address}: its copy {tmp_path}/cache/" in capsys.readouterr().out
    assert is_indexed(config)
    assert len(set(prompt_indices(load(config)))) == 2


def _hdfs(folder: Path) -> Path:
    """`hdfs dfs -get hdfs://PATH TARGET` for a local PATH."""
    script = folder / "hdfs"
    script.write_text('#!/bin/sh\ncp "${3#hdfs://}" "$4"\n')
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("address", ["hdfs://nowhere/train.parquet", "s3://bucket/train.parquet"])
def test_what_cannot_be_read_before_the_run_is_said_and_not_refused(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, address: str
):
    monkeypatch.setattr("verl.utils.hdfs_io._HDFS_BIN_PATH", str(_hdfs(tmp_path)))
    val = save([make(0)], tmp_path / "val.parquet")
    config = compose_config(model_dir, [address], f"+data.cache_dir={tmp_path}/cache", val=[val])
    check_data(config)
    printed = capsys.readouterr().out
    assert f"{address} cannot be read before the run starts, so its rows are not checked" in printed
    assert "if extra_info.index is missing or repeated there, each prompt gets an index" in printed
    assert is_indexed(config)
    assert find_files(config.data, config.data.train_files).remote == (address,)


# ------------------------------ classes of the user's own ------------------------------

OWN_CLASSES = """
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl_ext.serving.indexed_dataset import IndexedDataset

class Longer(RLHFDataset):
    def describe(self):
        return "more"

class Indexed(IndexedDataset):
    def describe(self):
        return "more"

class OwnRows(RLHFDataset):
    def __getitem__(self, item):
        return super().__getitem__(item) | {"index": item}
"""


def _with_class(config: DictConfig, folder: Path, name: str) -> DictConfig:
    (folder / "own.py").write_text(OWN_CLASSES)
    config.data.custom_cls = {"path": f"{folder}/own.py", "name": name}
    return config


def test_a_class_of_ones_own_is_kept(model_dir: Path, tmp_path: Path):
    unique = save([make(0), make(1)], tmp_path / "a.parquet")
    repeated = save([make(0), make(0)], tmp_path / "b.parquet")
    check_data(_with_class(compose_config(model_dir, [unique]), tmp_path, "Longer"))
    config = _with_class(compose_config(model_dir, [repeated]), tmp_path, "Indexed")
    check_data(config)
    assert config.data.custom_cls.name == "Indexed"
    assert len(set(prompt_indices(load(config)))) == 2


def test_a_class_that_reads_repeated_indices_is_refused(model_dir: Path, tmp_path: Path):
    repeated = save([make(0), make(0)], tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"(?s)repeated.*custom_cls\.name=Longer leaves it so.*IndexedDataset"):
        check_data(_with_class(compose_config(model_dir, [repeated]), tmp_path, "Longer"))


def test_a_class_that_makes_its_own_rows_is_left_alone(model_dir: Path, tmp_path: Path, capsys):
    config = _with_class(compose_config(model_dir, ["of any kind"]), tmp_path, "OwnRows")
    check_data(config)
    assert "custom_cls.name=OwnRows creates its own rows: the files are not checked" in capsys.readouterr().out


def test_a_class_that_is_not_there_is_said(model_dir: Path, tmp_path: Path):
    config = _with_class(compose_config(model_dir, ["a.parquet"]), tmp_path, "Nothing")
    with pytest.raises(DataError, match=r"own\.py name=Nothing: no class could be loaded"):
        check_data(config)
    config.data.custom_cls.path = os.fspath(tmp_path / "no.py")
    with pytest.raises(DataError, match="no class could be loaded"):
        check_data(config)


def test_a_template_that_cannot_render_a_prompt_is_one_sentence(model_dir: Path, tmp_path: Path):
    template = "{{ raise_exception('only users speak') }}"
    file = save([make(0), make(1)], tmp_path / "a.parquet")
    config = compose_config(model_dir, [file])
    config.actor_rollout_ref.model.custom_chat_template = template
    with pytest.raises(DataError, match=r"a\.parquet: the chat template cannot render a prompt: only users speak"):
        check_data(config)
