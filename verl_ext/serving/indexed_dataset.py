"""verl's data set for files whose `extra_info.index` does not identify prompts; see `verl_ext.data.prompt_index`.

A run sets it as `data.custom_cls` if its files need it. Your own data set may extend it like `RLHFDataset`.
"""

from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
from datasets import Dataset
from verl.utils.dataset.rl_dataset import RLHFDataset

from verl_ext.data.prompt_index import MADE_INDEX, index_gap, make_indices, own_index

_BATCH = 4096


class IndexedDataset(RLHFDataset):
    """verl's rows, with a unique `index` each.

    `extra_info` stays as in the files, so this class does not change the reward function's input.
    """

    def maybe_filter_out_long_prompts(self, dataframe: Dataset | None = None) -> Dataset:
        # Before rows are filtered, so that a prompt's index does not depend on data.max_prompt_length.
        assert dataframe is not None
        if _needs_index(dataframe):
            batches = cast(Iterator[pa.Table], dataframe.with_format("arrow").iter(_BATCH))
            media = [self.image_key, self.video_key, self.audio_key]
            dataframe = dataframe.add_column(MADE_INDEX, make_indices(batches, self.prompt_key, media))
        return super().maybe_filter_out_long_prompts(dataframe)

    def __getitem__(self, item: int) -> dict[str, Any]:
        row = super().__getitem__(item)
        if MADE_INDEX in row:
            row["index"] = row.pop(MADE_INDEX)
        return row


def _needs_index(dataframe: Dataset) -> bool:
    if "extra_info" not in dataframe.column_names:
        return True
    batches = cast(Iterator[pa.Table], dataframe.select_columns(["extra_info"]).with_format("arrow").iter(_BATCH))
    indices = [own_index(chunk) for batch in batches for chunk in batch.column("extra_info").chunks]
    known = [index for index in indices if index is not None]
    column = pa.chunked_array(known, pa.large_string()) if len(known) == len(indices) else None
    return index_gap([("", column)]) is not None
