"""Every metric that verl's v1 trainer logs has an entry that says what it means."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from each import check_each
from verl.trainer.ppo.metric_utils import process_validation_metrics

from verl_ext.core.metric_glossary import METRICS, VERLS_METRICS, find_entry
from verl_ext.report.curves import explained

_SPEC = importlib.util.find_spec("verl")
assert _SPEC is not None
assert _SPEC.origin is not None
VERL = Path(_SPEC.origin).parent

# Files of verl that name metrics -> what is put before a name, and what `{prefix}` in a name stands for.
NAMING = {
    "trainer/ppo/metric_utils.py": ("", "rollout/moe"),
    "trainer/ppo/v1/replay_buffer.py": ("", "training"),
    "trainer/ppo/v1/trainer_base.py": ("", ""),
    "trainer/ppo/v1/trainer_colocate_async.py": ("", ""),
    "trainer/ppo/v1/trainer_separate_async.py": ("", ""),
    "trainer/ppo/v1/trainer_sync.py": ("", ""),
    "trainer/ppo/v1/utils.py": ("", ""),
    "trainer/ppo/ray_trainer.py": ("", ""),
    "trainer/ppo/core_algos.py": ("", ""),
    "trainer/ppo/rollout_corr_helper.py": ("rollout_corr/", "rollout_rs_token_k1"),
    "trainer/distillation/losses.py": ("actor/", ""),
    "utils/debug/metrics.py": ("", ""),
    "utils/seqlen_balancing.py": ("", "global_seqlen"),
    "workers/engine_workers.py": ("actor/", ""),
    "workers/utils/losses.py": ("actor/", ""),
}
EXCEPTIONS = {
    **{f"{kind}@x/{part}": "the end of a validation set's metric: see the test of these"
       for kind in ("best", "worst", "maj") for part in ("mean", "std")},
    **{f"gdpo/x/{kind}": "only verl's v0 trainer" for kind in ("mean", "std", "max", "min")},
    "actor/mfu": "renamed to perf/mfu/actor",
    "rollout_corr/x": "puts the prefix before the other names",
    "timing_s/": "a timer whose name is computed: timing_s/{phase} has any name",
}  # fmt: skip
# The critic's loss is next to the actor's; a timer's name is complete.
COMPLETE = ("critic/", "timing_s/")


def _text(node: ast.AST | None, prefix: str) -> str:
    """The text of a literal or an f-string, with an x for inserted values except `{prefix}`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, prefix) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return prefix if isinstance(node.value, ast.Name) and node.value.id == "prefix" else "x"
    return ""


def _keys(tree: ast.AST, prefix: str) -> Iterator[str]:
    """Keys with a slash of any dict, all keys of a dict called metrics, and the names of timers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield from (key for key in (_text(one, prefix) for one in node.keys) if "/" in key)
        elif isinstance(node, ast.DictComp) and "/" in (key := _text(node.key, prefix)):
            yield key
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            key = _text(node.slice, prefix)
            if key and ("/" in key or re.fullmatch(r"(final_)?metrics", node.value.id)):
                yield key
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "marked_timer":
            yield f"timing_s/{_text(node.args[0], prefix)}"


def _names() -> set[str]:
    found = set()
    for file, (before, prefix) in NAMING.items():
        tree = ast.parse((VERL / file).read_text(encoding="utf-8"))
        names = {key if key.startswith((before, *COMPLETE)) else before + key for key in _keys(tree, prefix)}
        assert names or file.startswith("trainer/ppo/v1/"), f"{file} names no metric any more"
        found |= names
    return found


def test_every_metric_in_verls_code_has_an_entry():
    names = _names()
    assert len(names) > 150
    assert set(EXCEPTIONS) <= names
    check_each(sorted(names - set(EXCEPTIONS)), _assert_explained)


def _assert_explained(name: str) -> None:
    assert find_entry(name, VERLS_METRICS) or find_entry(name, METRICS)


# These names come from the data, so they are not in the code.
@pytest.mark.parametrize("data_source", ["aime24", "openai/gsm8k"])
def test_every_metric_of_a_validation_set_has_an_entry_of_its_own_kind(data_source: str):
    rewards = {"acc": [0.0, 1.0, 1.0, 1.0], "pred": list("abab")}
    metrics = process_validation_metrics([data_source] * 4, ["prompt"] * 4, rewards)[data_source]["acc"]
    assert len(metrics) == 14
    for section in ("val-core", "val-aux"):
        for kind in metrics:
            if section == "val-core" and kind.startswith(("std", "worst")):
                continue  # verl has these only in val-aux
            entry = find_entry(f"{section}/{data_source}/acc/{kind}", VERLS_METRICS)
            assert entry is not None, (section, kind)
            assert entry.startswith(section)
            assert entry.endswith(("{choice}@{n}/std", re.sub(r"\d", "{n}", kind)))


def test_only_the_name_of_a_data_source_may_have_slashes():
    glossary = {"val/{set}/mean@{n}": ("", ""), "golden/{status}": ("", "")}
    assert find_entry("val/openai/gsm8k/mean@4", glossary) == "val/{set}/mean@{n}"
    assert find_entry("val/set/mean@4/std", glossary) is None
    assert find_entry("golden/a/b", glossary) is None


def test_a_page_explains_metrics_of_verl():
    names = ["rollout_corr/kl", "global_seqlen/minmax_diff", "critic/vf_loss", "val-core/openai/gsm8k/acc/mean@8"]
    texts = explained([*names, "unknown/metric"])
    assert list(texts) == names
    assert texts["val-core/openai/gsm8k/acc/mean@8"].startswith("mean over a validation set's prompts")
