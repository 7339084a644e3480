"""verl's TransferQueue agent loop with additions for recipes.

- A prompt's sessions may start at a number other than 0, so that additional rollouts of a prompt get their own keys
  (`{uid}_{session}_{index}`), distinct from an earlier call's.
- The workers report the data for the control plane's decisions (reward, length, weight version), prompt by prompt as
  they finish or when a whole call is done. The trainer waits for that instead of polling TransferQueue, and a failed
  rollout is reported with its cause.
- Rollouts of validation prompts, kept apart from the training data in the partition "val", may be sampled like training
  rollouts.
"""

import asyncio
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import ray
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.experimental.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.workers.rollout.llm_server import LLMServerClient

from verl_ext.cluster.worker_death import explain_death, find_death
from verl_ext.core import garbage
from verl_ext.core.compat import undecorated
from verl_ext.core.errors import WorkerDiedError
from verl_ext.serving.rollout_key import output_keys, rollout_key, session_of

# Field of a generation batch: number of the first session of each prompt. Read here as verl reads `__rollout_n__`.
FIRST_SESSION = "__first_session__"

# Field of a batch of validation prompts: true samples with the settings of training instead of `rollout.val_kwargs`.
AS_IN_TRAINING = "__as_in_training__"

# Seconds.
_NEXT_LOOK_S = 0.2

# Calls that have not been confirmed; confirming them after each report would double its cost.
_MAX_STARTS = 256


@dataclass(frozen=True)
class RolloutReport:
    """The report of one rollout for the control plane; its tensors stay in TransferQueue under `keys`.

    An agent loop may give several outputs per session (a context that is truncated and restarted, several agents): verl
    trains on all of them with the advantage of the last, whose reward is the session's.
    """

    key: str  # of its last output
    reward: float
    reward_extra_info: dict[str, Any]
    num_tokens: int  # written by the model, in all outputs, without tool answers
    version: int  # oldest weight version that generated a part of it
    longest: int = 0  # response tokens of its longest output, including those of tools
    is_unanswered: bool = False  # it ends at a tool call: no turn was left, or no room for the answer

    @property
    def keys(self) -> list[str]:
        """Keys of all its outputs, in order."""
        return output_keys(self.key)


@dataclass
class PromptReport:
    """The rollouts of one prompt in one generation call, in order of session, and the errors of those that failed.

    A failed rollout may be tried again, unless a process that it needs is dead: `death` then describes which one.
    """

    rollouts: list[RolloutReport] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    death: WorkerDiedError | None = None


class SignalAgentLoopWorker(undecorated(AgentLoopWorkerTQ)):
    """verl's worker; see the module's docstring.

    Attributes:
        reads_per_stream: Ray keeps a few bytes for each of them until the stream ends.
    """

    reads_per_stream = 10_000

    def __init__(self, config: DictConfig, llm_client: LLMServerClient | None, *args: Any) -> None:
        if llm_client is not None:  # otherwise `connect` sets it
            super().__init__(config, llm_client, *args)
            garbage.exempt_start_up()
        self._reports: dict[str, PromptReport] = defaultdict(PromptReport)
        self._finished: dict[str, asyncio.Queue[str]] = {}  # by uid: where to report that the prompt is done
        self._outbox = asyncio.Queue[str]()  # of prompts that `begin` started

    async def connect(self, config: DictConfig, llm_client: LLMServerClient, *args: Any) -> None:
        """Connect a worker that started before the engines to them; the arguments are those of verl's worker."""
        # Not in the event loop, where verl's constructor must not wait.
        await asyncio.to_thread(super().__init__, config, llm_client, *args)
        garbage.exempt_start_up()

    async def begin(self, batch: TensorDict) -> None:
        """Start all rollouts of a batch; `stream_reports` yields the reports of its prompts."""
        self._finished |= dict.fromkeys(batch["uid"], self._outbox)
        await self.generate_sequences(batch)

    async def stream_reports(self) -> AsyncIterator[dict[str, PromptReport]]:
        """Yield the reports of prompts that `begin` started, by uid, as they finish; ends after `reads_per_stream`."""
        for _ in range(self.reads_per_stream):
            yield await self._next_reports(self._outbox)

    async def generate_and_report(self, batch: TensorDict) -> dict[str, PromptReport]:
        """Generate all rollouts of a batch and wait for them.

        Returns:
            By uid, one report per prompt.
        """
        finished = asyncio.Queue[str]()
        self._finished |= dict.fromkeys(batch["uid"], finished)
        missing = len(batch)
        await self.generate_sequences(batch)
        reports: dict[str, PromptReport] = {}
        while len(reports) < missing:
            reports |= await self._next_reports(finished)
        return reports

    async def _next_reports(self, finished: asyncio.Queue[str]) -> dict[str, PromptReport]:
        """Wait for at least one prompt."""
        uids = [await finished.get()]
        uids += [finished.get_nowait() for _ in range(finished.qsize())]
        return {uid: self._take_report(uid) for uid in uids}

    def _take_report(self, uid: str) -> PromptReport:
        report = self._reports.pop(uid, PromptReport())
        report.rollouts.sort(key=lambda rollout: session_of(rollout.key))
        return report

    async def _run_prompt(
        self, prompt: dict[str, Any], sampling_params: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        uid = prompt["uid"]
        if prompt.pop(AS_IN_TRAINING, False):
            rollout = self.config.actor_rollout_ref.rollout
            names = ("temperature", "top_p", "top_k")
            sampling_params = sampling_params | {name: rollout[name] for name in names}
        try:
            await super()._run_prompt(prompt, sampling_params, *args, **kwargs)
        finally:
            if uid in self._finished:
                self._finished.pop(uid).put_nowait(uid)

    async def _run_agent_loop(self, *args: Any, session_id: int, **kwargs: Any) -> None:
        first_session = int(kwargs.pop(FIRST_SESSION, 0))
        try:
            await super()._run_agent_loop(*args, session_id=first_session + session_id, **kwargs)
        except Exception as error:
            if kwargs["uid"] in self._finished:
                report = self._reports[kwargs["uid"]]
                report.errors.append(f"{type(error).__name__}: {error}")
                if (death := find_death(error)) is not None:
                    report.death = explain_death(death)
            raise

    async def _agent_loop_postprocess(
        self, output: AgentLoopOutput | list[AgentLoopOutput], validate: bool, **kwargs: Any
    ) -> None:
        await super()._agent_loop_postprocess(output, validate, **kwargs)
        outputs = output if isinstance(output, list) else [output]
        uid = kwargs["uid"]
        if uid not in self._finished or not outputs:  # nothing waits for a report, as in verl's own validation
            return
        final = outputs[-1]
        versions = [version for o in outputs if (version := o.extra_fields.get("min_global_steps")) is not None]
        self._reports[uid].rollouts.append(
            RolloutReport(
                key=rollout_key(uid, kwargs["session_id"], len(outputs) - 1),
                reward=float(final.reward_score) if final.reward_score is not None else float("nan"),
                reward_extra_info=dict(final.extra_fields.get("reward_extra_info") or {}),
                num_tokens=sum(sum(o.response_mask) for o in outputs),
                version=min(versions) if versions else int(kwargs["global_steps"]) - 1,
                longest=max(len(o.response_ids) for o in outputs),
                is_unanswered=await self._ends_at_a_call(final),
            )
        )

    async def _ends_at_a_call(self, output: AgentLoopOutput) -> bool:
        """Whether the model's last turn calls a tool; verl's loop then ends silently."""
        if not self.tools:
            return False
        parser = ToolParser.get_tool_parser(self.config.actor_rollout_ref.rollout.multi_turn.format, self.tokenizer)
        tokens = zip(output.response_ids[::-1], output.response_mask[::-1], strict=True)
        last_turn = [token for token, _ in itertools.takewhile(lambda pair: pair[1], tokens)][::-1]
        _, calls = await parser.extract_tool_calls(last_turn, [tool.tool_schema for tool in self.tools])
        return bool(calls)


class SignalAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager over `SignalAgentLoopWorker`. Chosen by `rollout.agent.agent_loop_manager_class`."""

    _early_workers: ClassVar[list[Any]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(SignalAgentLoopWorker)
        # One stream of reports per worker, however many calls there are: each look asks about all streams.
        self._streams: dict[int, ray.ObjectRefGenerator] = {}
        self._starts: dict[ray.ObjectRef, int] = {}  # batches whose rollouts are being started, and their prompts
        self._num_dispatched = self._num_in_flight = 0  # batches, and prompts
        self._changed = threading.Lock()  # one thread may dispatch while another waits for reports

    @classmethod
    def start_workers(cls, config: DictConfig) -> None:
        """Start the workers' processes before the engines, because their imports take ten seconds and more.

        The manager that `create` creates later takes them over.
        """
        manager = cls(config, None)
        asyncio.run(manager._init_agent_loop_workers())
        SignalAgentLoopManager._early_workers = manager.agent_loop_workers

    async def _init_agent_loop_workers(self) -> None:
        if self.llm_client is None or not self._early_workers:
            await super()._init_agent_loop_workers()
            return
        self.agent_loop_workers, SignalAgentLoopManager._early_workers = self._early_workers, []
        whom = (self.config, self.llm_client, self.teacher_client, self.reward_loop_worker_handles)
        await asyncio.gather(*(worker.connect.remote(*whom) for worker in self.agent_loop_workers))

    def generate_and_report(self, prompts: TensorDict) -> dict[str, PromptReport]:
        """Dispatch a batch to the workers and wait until every rollout has ended.

        Args:
            prompts: rows with `uid` and, optionally, `__rollout_n__` and `__first_session__`.

        Returns:
            By uid, one report per prompt.

        Raises:
            WorkerDiedError: a process that rollouts need is dead; other rollouts would also fail, and their prompts be
                lost.
        """
        chunks = prompts.chunk(len(self.agent_loop_workers))
        calls = [
            worker.generate_and_report.remote(chunk)
            for worker, chunk in zip(self.agent_loop_workers, chunks, strict=False)
        ]
        reports: dict[str, PromptReport] = {}
        for part in ray.get(calls):
            reports.update(part)
        _refuse_deaths(reports)
        return reports

    def dispatch(self, prompts: TensorDict) -> None:
        """Send a batch to the workers without waiting; `finished_reports` returns the results."""
        for chunk in prompts.chunk(len(self.agent_loop_workers)):
            # Round-robin: otherwise batches smaller than the number of workers would all go to the first.
            number = self._num_dispatched % len(self.agent_loop_workers)
            worker = self.agent_loop_workers[number]
            self._num_dispatched += 1
            with self._changed:
                self._num_in_flight += len(chunk)
                self._starts[worker.begin.remote(chunk)] = len(chunk)
                if number not in self._streams:
                    self._streams[number] = worker.stream_reports.remote()

    def finished_reports(self, timeout_s: float = float("inf")) -> dict[str, PromptReport]:
        """Reports, by uid, of dispatched prompts that have finished; waits for at least one, up to the time limit.

        Raises:
            RuntimeError: if nothing is in flight.
            WorkerDiedError: see `generate_and_report`.
        """
        reports: dict[str, PromptReport] = {}
        deadline = time.monotonic() + timeout_s
        while not reports and time.monotonic() < deadline:
            with self._changed:
                if not self._num_in_flight:
                    raise RuntimeError("no dispatched prompt is in flight: dispatch a batch first")
                streams = dict(self._streams)  # a thread that dispatches meanwhile is noticed at the next look
            waiting = list(streams.values())
            ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
            if not ready:
                ready, _ = ray.wait(waiting, num_returns=1, timeout=_NEXT_LOOK_S)
            if not ready or len(self._starts) > _MAX_STARTS:
                self._confirm_starts()
            for number, stream in streams.items():
                if stream in ready:
                    reports |= self._read(number, stream)
        with self._changed:
            self._num_in_flight -= len(reports)
        _refuse_deaths(reports)
        return reports

    def _confirm_starts(self) -> None:
        """Raise what kept a batch's rollouts from starting; nothing will be reported of these."""
        with self._changed:
            starts = list(self._starts)
        started, _ = ray.wait(starts, num_returns=len(starts), timeout=0) if starts else ([], [])
        for start in started:
            with self._changed:
                prompts = self._starts.pop(start)
            try:
                ray.get(start)
            except Exception:
                with self._changed:
                    self._num_in_flight -= prompts
                raise

    def _read(self, number: int, stream: ray.ObjectRefGenerator) -> dict[str, PromptReport]:
        """What a worker's stream has ready; begins the next stream after its end."""
        try:
            return ray.get(next(stream))
        except StopIteration:
            with self._changed:
                self._streams[number] = self.agent_loop_workers[number].stream_reports.remote()
            return {}


def _refuse_deaths(reports: dict[str, PromptReport]) -> None:
    for report in reports.values():
        if report.death is not None:
            raise report.death
