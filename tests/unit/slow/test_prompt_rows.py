"""Rows of prompts on their way from verl's loader to its agent loops: what is in them arrives as it was."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from stored_rows import StoredRows
from tensordict import NonTensorData, NonTensorStack, TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from recipe.fast_dapo.prompt_rows import PromptRows


def _image(colour: int) -> Image.Image:
    return Image.new("RGB", (4, 4), (colour, 0, 0))


def _row(place: int, content: Any) -> dict[str, Any]:
    """A row as verl's data set makes it: images are in the message, and their column is gone."""
    return {
        "raw_prompt": [{"role": "user", "content": content}],
        "data_source": "figures",
        "reward_model": {"ground_truth": str(place), "style": "rule"},
        "extra_info": {"index": place},
        "dummy_tensor": torch.tensor([0], dtype=torch.uint8),
        "index": place,
        "tools_kwargs": {},
    }


ROWS = [
    _row(0, [{"type": "image", "image": _image(7)}, {"type": "text", "text": "How many?"}]),
    _row(1, [{"type": "image", "image": _image(8)}, {"type": "image", "image": _image(9)}]),
    _row(2, "No figure here."),
    _row(3, [{"type": "video", "video": {"frames": [1, 2], "fps": 2.0}}, {"type": "text", "text": ""}]),
]


def _loaded() -> TensorDict:
    columns = collate_fn([dict(row) for row in ROWS])
    columns["uid"] = np.array([f"uid{row['index']}" for row in ROWS], dtype=object)
    batch = tu.get_tensordict(columns)
    tu.assign_non_tensor_data(batch, "global_steps", 1)
    return batch


def _as_the_worker_reads(batch: TensorDict) -> list[dict[str, Any]]:
    """The rows of a chunk, by the types that verl's `AgentLoopWorkerTQ.generate_sequences` distinguishes."""
    rows: list[dict[str, Any]] = []
    for place in range(len(batch)):
        row: dict[str, Any] = {}
        for name, column in batch.items():
            assert isinstance(column, torch.Tensor | NonTensorStack | NonTensorData), name
            row[name] = column[place].data if isinstance(column, NonTensorStack) else column[place]
        rows.append(row)
    return rows


@pytest.mark.parametrize("uids", [["uid1"], ["uid3", "uid0"], ["uid0", "uid1", "uid2", "uid3"]])
def test_content_parts_and_images_pass_through(uids: list[str]):
    rows = PromptRows("train")
    rows.add(_loaded())
    for got, uid in zip(_as_the_worker_reads(rows.batch(uids)), uids, strict=True):
        expected = ROWS[int(uid.removeprefix("uid"))]
        for name in ("raw_prompt", "reward_model", "extra_info", "tools_kwargs", "index", "data_source"):
            assert got[name] == expected[name], name
        assert torch.equal(got["dummy_tensor"], expected["dummy_tensor"])
        assert "global_steps" not in got


def test_they_are_the_same_after_a_checkpoint(monkeypatch: pytest.MonkeyPatch):
    store = StoredRows(monkeypatch)
    rows, restored = PromptRows("train"), PromptRows("train")
    rows.add(_loaded())
    rows.store({"is_prompt": True})
    assert set(store.tags("train")) == rows.uids
    restored.restore(["uid1", "uid0"])
    before, after = (_as_the_worker_reads(each.batch(["uid0", "uid1"])) for each in (rows, restored))
    assert [row["raw_prompt"] for row in after] == [row["raw_prompt"] for row in before]
