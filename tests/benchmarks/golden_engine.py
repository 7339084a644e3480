"""A small Qwen2 that answers golden redaction's questions and is trained, in one process and with one set of weights.

It stands where vLLM's servers (`verl_ext.serving.engines.ServingEngines`) and verl's FSDP engine stand in a run: the
product's visitor, text log-probs and worker ask it the same questions. A text, prompt and golden solution, is read once
under the same weights; each of its states is a beginning of it. Rows that continue the same state look at its keys
and values together, one matrix product for all of them: copies of a prompt of 900 tokens, one per row, would take most
of the time.

Every token position that passes through the model is counted, without or with a gradient, padding included.

Suffixes: B rows, T tokens of a response so far, L tokens of a text, H heads, K head size, V vocabulary, D model width.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from lean_qwen2 import ENDED_SHARE, Attend, LeanQwen2
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen2ForCausalLM

from verl_ext.serving.requests import Continuation, Continuations

ROWS_AT_ONCE = 512  # of a decoding step


@dataclass(frozen=True)
class Text:
    """What was computed of a text under the present weights.

    Attributes:
        ids: L token ids.
        hidden_LD: Behind the last norm.
        keys_HLK, values_HLK: Of each layer.
    """

    ids: tuple[int, ...]
    hidden_LD: torch.Tensor
    keys_HLK: list[torch.Tensor]
    values_HLK: list[torch.Tensor]

    def begins_with(self, ids: Sequence[int]) -> bool:
        """Whether `ids` are the first of its tokens."""
        return self.ids[: len(ids)] == tuple(ids)


@dataclass(frozen=True)
class _Rows:
    """Rows from `start` to `stop` continue the first `length` tokens of a text."""

    text: Text
    length: int
    start: int
    stop: int


class GoldenEngine(LeanQwen2):
    """A model with its texts.

    Args:
        model: Trained by others; they call `forget` when they have changed it.
        pad, end: Token ids.
        seed: Of the sampling.

    Attributes:
        positions: Token positions computed so far, "without_gradient" and "with_gradient".
        counts: "rollouts" and "generated" tokens of requests for more than one token.
    """

    def __init__(self, model: Qwen2ForCausalLM, pad: int, end: int, seed: int) -> None:
        super().__init__(model, pad, end)
        self.model = model
        self.generator = torch.Generator().manual_seed(seed)
        self.positions: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self._texts: list[Text] = []
        model.register_forward_pre_hook(self._count_forward, with_kwargs=True)

    def forget(self) -> None:
        """The weights have changed."""
        self._texts.clear()

    # ------------------------------ what is counted ------------------------------

    def _count(self, number: int) -> None:
        self.positions["with_gradient" if torch.is_grad_enabled() else "without_gradient"] += number

    def _count_forward(self, _: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._count((args[0] if args else kwargs["input_ids"]).numel())

    def _hidden(self, ids_BT: torch.Tensor, positions_BT: torch.Tensor, attend: Attend) -> torch.Tensor:
        self._count(ids_BT.numel())
        return super()._hidden(ids_BT, positions_BT, attend)

    # ------------------------------ texts ------------------------------

    @torch.no_grad()
    def text(self, ids: Sequence[int]) -> Text:
        """One that begins with `ids`; it is read if there is none."""
        for known in self._texts:
            if known.begins_with(ids):
                return known
        keys, values = [], []

        def attend(_: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys.append(k[0])
            values.append(v[0])
            return scaled_dot_product_attention(q, k, v, is_causal=True)

        hidden_1LD = self._hidden(torch.tensor([list(ids)]), torch.arange(len(ids))[None], attend)
        self._texts.append(Text(tuple(ids), hidden_1LD[0], keys, values))
        return self._texts[-1]

    @torch.no_grad()
    def prompt_log_probs(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Of every token of each text but the first, in nats."""
        found = []
        for ids in texts:
            log_probs_LV = torch.log_softmax(self.head(self.text(ids).hidden_LD[: len(ids) - 1]), -1)
            found.append(log_probs_LV.gather(1, torch.tensor([list(ids[1:])]).T)[:, 0].tolist())
        return found

    # ------------------------------ continuations ------------------------------

    def generate(self, requests: Sequence[Continuations]) -> list[list[Continuation]]:
        """Samples at temperature 1, by request.

        They end with the end-of-text token, which is one of theirs, whatever texts the requests name to stop at.
        """
        answers: list[list[Continuation]] = [[] for _ in requests]
        # Requests whose prompts differ in the last token only, such as the actions of a state, look at one text.
        order = sorted(range(len(requests)), key=lambda place: tuple(requests[place].prompt_ids[:-1]))
        waiting = [place for place in order for _ in range(requests[place].num)]
        for start in range(0, len(waiting), ROWS_AT_ONCE):
            rows = waiting[start : start + ROWS_AT_ONCE]
            for place, ids in zip(rows, self._continue([requests[place] for place in rows]), strict=True):
                request = requests[place]
                ids = ids[: request.max_tokens]
                answers[place].append((ids, "stop" if ids[-1] == self.end else "length"))
                if request.max_tokens > 1:
                    self.counts["rollouts"] += 1
                    self.counts["generated"] += len(ids)
        return answers

    def generate_as_completed(self, requests: Sequence[Continuations]) -> Iterator[tuple[int, list[Continuation]]]:
        """As `generate`; all are completed at once."""
        yield from enumerate(self.generate(requests))

    def _groups(self, rows: Sequence[Continuations]) -> list[_Rows]:
        starts = [
            row
            for row, request in enumerate(rows)
            if not row or list(request.prompt_ids[:-1]) != list(rows[row - 1].prompt_ids[:-1])
        ]
        prefixes = [rows[start].prompt_ids[:-1] for start in starts]
        stops = [*starts[1:], len(rows)]
        # A prefix of another one, whose text has its keys, is not read again.
        for prefix in sorted(prefixes, key=len, reverse=True):
            self.text(prefix)
        return [
            _Rows(self.text(prefix), len(prefix), start, stop)
            for prefix, start, stop in zip(prefixes, starts, stops, strict=True)
        ]

    @torch.no_grad()
    def _continue(self, rows: Sequence[Continuations]) -> list[list[int]]:
        """Token ids behind each row's prompt, the end-of-text token included."""
        groups, most = self._groups(rows), max(row.max_tokens for row in rows)
        positions_B = torch.tensor([len(row.prompt_ids) - 1 for row in rows])
        token_B1 = torch.tensor([[row.prompt_ids[-1]] for row in rows])
        heads, _, size = groups[0].text.keys_HLK[0].shape
        keys, values = ([torch.empty(len(rows), heads, most, size) for _ in self.body.layers] for _ in range(2))
        made: list[list[int]] = [[] for _ in rows]
        inside, has_ended = list(range(len(rows))), [False] * len(rows)  # rows in the batch; of all rows
        for step in range(most):
            attend = _shared(groups, keys, values, step)
            logits_BV = self.head(self._hidden(token_B1, (positions_B + step)[:, None], attend)[:, 0])
            token_B1 = torch.multinomial(torch.softmax(logits_BV, -1), 1, generator=self.generator)
            for row, token in zip(inside, token_B1[:, 0].tolist(), strict=True):
                if not has_ended[row]:
                    made[row].append(token)
                    has_ended[row] = token == self.end
            kept = [place for place, row in enumerate(inside) if not has_ended[row]]
            if not kept:
                break
            if len(kept) < (1 - ENDED_SHARE) * len(inside):
                inside, groups, kept_B = [inside[place] for place in kept], _kept(groups, kept), torch.tensor(kept)
                token_B1, positions_B = token_B1[kept_B], positions_B[kept_B]
                keys, values = ([part[kept_B] for part in parts] for parts in (keys, values))
        return made


def _kept(groups: Sequence[_Rows], kept: Sequence[int]) -> list[_Rows]:
    """The groups of the rows that are kept, which close ranks."""
    left, start = [], 0
    for group in groups:
        count = sum(group.start <= place < group.stop for place in kept)
        if count:
            left.append(_Rows(group.text, group.length, start, start + count))
        start += count
    return left


def _shared(groups: Sequence[_Rows], keys: list[torch.Tensor], values: list[torch.Tensor], step: int) -> Attend:
    """Attention of one new token per row to its group's text, and to its row's own tokens up to it."""

    def attend(number: int, q_BH1K: torch.Tensor, k_BH1K: torch.Tensor, v_BH1K: torch.Tensor) -> torch.Tensor:
        keys_BHTK, values_BHTK = keys[number], values[number]
        keys_BHTK[:, :, step], values_BHTK[:, :, step] = k_BH1K[:, :, 0], v_BH1K[:, :, 0]
        own_keys, own_values = keys_BHTK[:, :, : step + 1], values_BHTK[:, :, : step + 1]
        q_BH1K = q_BH1K * q_BH1K.shape[-1] ** -0.5
        own_BH1T = q_BH1K @ own_keys.transpose(2, 3)
        found_BH1K = torch.empty_like(q_BH1K)
        for group in groups:
            rows, length = slice(group.start, group.stop), group.length
            text_keys, text_values = group.text.keys_HLK[number][:, :length], group.text.values_HLK[number][:, :length]
            text_HBL = q_BH1K[rows, :, 0].transpose(0, 1) @ text_keys.transpose(1, 2)
            weights_HBS = torch.cat([text_HBL, own_BH1T[rows, :, 0].transpose(0, 1)], dim=2).softmax(-1)
            of_text_HBK = weights_HBS[..., :length] @ text_values
            of_own_BH1K = weights_HBS[..., length:].transpose(0, 1)[:, :, None] @ own_values[rows]
            found_BH1K[rows] = of_text_HBK.transpose(0, 1)[:, :, None] + of_own_BH1K
        return found_BH1K

    return attend


class LocalTraining:
    """What `recipe.golden_redaction.worker.TokenTrainingWorker` asks of verl's engine, for a model in this process.

    Args:
        engine: Has the model, and counts.
        optimizer: Its gradients are clipped to norm 1.
    """

    _autocast_dtype = torch.float32

    def __init__(self, engine: GoldenEngine, optimizer: torch.optim.Optimizer) -> None:
        self.module, self._engine, self.optimizer = engine.model, engine, optimizer

    def train_mode(self) -> Any:
        return nullcontext()

    def eval_mode(self) -> Any:
        return nullcontext()

    def optimizer_zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def optimizer_step(self) -> float:
        return take_step(self._engine, self.optimizer)

    def lr_scheduler_step(self) -> None:
        """The rate is constant."""

    def get_data_parallel_rank(self) -> int:
        return 0

    def get_data_parallel_size(self) -> int:
        return 1


def take_step(engine: GoldenEngine, optimizer: torch.optim.Optimizer) -> float:
    """One step with gradients clipped to norm 1; what was read before is forgotten. Returns the norm before."""
    norm = torch.nn.utils.clip_grad_norm_(engine.model.parameters(), 1.0)
    optimizer.step()
    engine.forget()
    engine.counts["updates"] += 1
    return float(norm)


def make_worker(engine: GoldenEngine, optimizer: torch.optim.Optimizer, max_tokens: int = 16_384) -> Any:
    """The product's worker of golden redaction on `LocalTraining`: no process group, no shards."""
    from recipe.golden_redaction.worker import TokenTrainingWorker

    worker = object.__new__(TokenTrainingWorker)  # its own start needs Ray's environment
    worker.engine = LocalTraining(engine, optimizer)
    worker.engine_config = SimpleNamespace(max_token_len_per_gpu=max_tokens, infer_max_token_len_per_gpu=max_tokens)
    return worker
