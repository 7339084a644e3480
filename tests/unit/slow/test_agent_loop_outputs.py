"""An agent loop with several outputs per session, on verl's worker and ours: what is stored, reported and numbered."""

import asyncio
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register
from verl.tools.function_tool import FunctionTool
from verl.tools.schemas import OpenAIFunctionToolSchema
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import RLHFDataset

from recipe.fast_dapo.settings import resolve_group_size
from verl_ext.launch.recipe import PROJECT_ROOT
from verl_ext.serving.agent_loop import FIRST_SESSION, PromptReport, SignalAgentLoopWorker

SCHEMA = OpenAIFunctionToolSchema.model_validate(
    {"type": "function", "function": {"name": "add", "description": "The sum."}}
)


@register("counting_agent")
class CountingAgent(AgentLoopBase):
    """A session has `outputs` outputs of 1, 2, … tokens, and the last has the reward; with None, the loop fails."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        if kwargs["outputs"] is None:
            raise ValueError("no tool answered")
        made = [
            AgentLoopOutput(
                prompt_ids=[1, 2],
                response_ids=list(range(number + 1)),
                response_mask=[1] * (number + 1),
                num_turns=2,
                metrics=AgentLoopMetrics(),
                extra_fields={"min_global_steps": 7 - number, "max_global_steps": 7},
            )
            for number in range(kwargs["outputs"])
        ]
        if made:
            made[-1].reward_score = 0.5
            made[-1].extra_fields["reward_extra_info"] = {"acc": 1.0}
        return made


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """What the worker writes: (partition, key) -> tag, with the row's fields."""
    rows: dict[str, dict[str, Any]] = defaultdict(dict)

    async def put(key: str, partition_id: str, tag: dict[str, Any]) -> None:
        rows[partition_id][key] = tag

    async def put_batch(keys: list[str], fields: TensorDict, tags: list[dict[str, Any]], partition_id: str) -> None:
        for place, key in enumerate(keys):
            rows[partition_id][key] = tags[place] | {"reward": float(fields["rm_scores"][place].sum())}

    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_put", put)
    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_batch_put", put_batch)
    return rows


def _config() -> DictConfig:
    with initialize_config_dir(str(PROJECT_ROOT / "configs"), version_base=None):
        config = compose("fast_dapo")
    resolve_group_size(config)
    return config


def _worker() -> Any:
    """Our worker without what its constructor fetches: a model's tokenizer and the data plane's client."""
    worker: Any = object.__new__(SignalAgentLoopWorker)
    worker.config, worker.llm_client, worker.tools = _config(), None, []
    worker.tokenizer, worker.processor, worker.hf_model_type = SimpleNamespace(chat_template=None), None, None
    worker.dataset_cls, worker.mm_processor_kwargs = RLHFDataset, {}
    worker.reward_loop_worker_handles, worker.distillation_enabled = None, False
    worker.background_tasks, worker._reports, worker._finished = set(), defaultdict(PromptReport), {}
    return worker


def _generate(outputs: list[int | None], sessions: int, first_session: int = 0) -> dict[str, PromptReport]:
    uids = [f"prompt{place}" for place in range(len(outputs))]
    columns = {"uid": uids, "index": list(range(len(outputs))), "outputs": outputs}
    batch = tu.get_tensordict({name: np.array(values, dtype=object) for name, values in columns.items()})
    tu.assign_non_tensor_stack(batch, "agent_name", ["counting_agent"] * len(uids))
    tu.assign_non_tensor_stack(batch, "__rollout_n__", [sessions] * len(uids))
    tu.assign_non_tensor_stack(batch, FIRST_SESSION, [first_session] * len(uids))
    tu.assign_non_tensor_data(batch, "global_steps", 8)
    return asyncio.run(_worker().generate_and_report(batch))


def test_a_session_is_one_rollout_whose_outputs_are_all_stored(stored: dict[str, dict[str, Any]]):
    reports = _generate([1, 3], sessions=2, first_session=4)
    keys = {uid: [rollout.keys for rollout in report.rollouts] for uid, report in reports.items()}
    assert keys == {
        "prompt0": [["prompt0_4_0"], ["prompt0_5_0"]],
        "prompt1": [[f"prompt1_{session}_{number}" for number in range(3)] for session in (4, 5)],
    }
    rollouts = stored["train"].keys() - {"prompt0", "prompt1"}
    assert rollouts == {key for sessions in keys.values() for session in sessions for key in session}
    assert {stored["train"][key]["reward"] for key in rollouts} == {0.5}
    last = reports["prompt1"].rollouts[-1]
    assert (last.reward, last.reward_extra_info, last.num_tokens, last.version) == (0.5, {"acc": 1.0}, 1 + 2 + 3, 5)
    # The length is that of the longest output, not of all outputs together.
    assert last.longest == 3


def test_a_session_without_outputs_or_with_an_error_is_missing(stored: dict[str, dict[str, Any]]):
    reports = _generate([0, None, 2], sessions=2)
    assert [len(reports[f"prompt{place}"].rollouts) for place in range(3)] == [0, 0, 2]
    assert reports["prompt1"].errors == ["ValueError: no tool answered"] * 2
    assert {key for key in stored["train"] if key.count("_")} == {f"prompt2_{s}_{n}" for s in (0, 1) for n in (0, 1)}


@register("calling_agent")
class CallingAgent(AgentLoopBase):
    """Alternating turns of the model and answers of a tool, as given in the row."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        turns = [(list(text.encode()), number % 2 == 0) for number, text in enumerate(kwargs["turns"])]
        return AgentLoopOutput(
            prompt_ids=[1, 2],
            response_ids=[token for tokens, _ in turns for token in tokens],
            response_mask=[int(own) for tokens, own in turns for _ in tokens],
            reward_score=0.0,
            num_turns=len(turns) + 1,
            metrics=AgentLoopMetrics(),
            extra_fields={"min_global_steps": 7, "max_global_steps": 7},
        )


class _Bytes:
    """A tokenizer whose tokens are bytes."""

    chat_template = None

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode()


CALL = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("turns", "own", "is_unanswered"),
    [
        (["7"], 1, False),
        ([CALL, "answer", "7"], len(CALL) + 1, False),
        ([CALL], len(CALL), True),
        ([CALL, "answer", CALL], 2 * len(CALL), True),
        (["<tool_call>{"], 12, False),
    ],
)
def test_a_report_counts_what_the_model_wrote_and_tells_a_call_without_an_answer(
    stored: dict[str, dict[str, Any]], turns: list[str], own: int, is_unanswered: bool
):
    worker = _worker()
    worker.tokenizer, worker.tools = _Bytes(), [FunctionTool("add", print, SCHEMA)]
    batch = tu.get_tensordict({"uid": np.array(["prompt"], dtype=object), "index": np.array([0], dtype=object)})
    for name, value in (("turns", turns), ("agent_name", "calling_agent"), ("__rollout_n__", 1)):
        tu.assign_non_tensor_stack(batch, name, [value])
    tu.assign_non_tensor_data(batch, "global_steps", 8)
    (rollout,) = asyncio.run(worker.generate_and_report(batch))["prompt"].rollouts
    assert (rollout.num_tokens, rollout.is_unanswered) == (own, is_unanswered)
    assert rollout.longest == sum(map(len, turns))
