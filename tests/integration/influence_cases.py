"""The set-ups that `test_influence_worker.py` tests: verl's engine, losses, micro-batches, world sizes."""

from dataclasses import dataclass, field, fields, replace

from influence_oracle import FULL, LORA, MODES


class Labelled:
    """A dataclass whose label lists the fields that differ from their defaults."""

    @property
    def label(self) -> str:
        parts = []
        for entry in fields(self):  # type: ignore[arg-type]
            value = getattr(self, entry.name)
            if isinstance(value, Labelled):
                parts.append(value.label)
            elif entry.name != "worlds" and value != entry.default:
                parts.append(f"{entry.name}={'full' if value == FULL else value}")
        return " ".join(filter(None, parts))


@dataclass(frozen=True)
class Engine(Labelled):
    """A set-up of verl's engine. bf16: weights are stored in float32, the computation is in bf16."""

    parameters: str = LORA
    precision: str = "fp64"
    packed: bool = False
    bucket: int = 0  # packed sequences are padded to a multiple of it
    checkpointing: bool = False
    fsdp_size: int = -1
    optimizer: str = "SGD"
    offload: bool = False  # of weights and optimizer between calls; on a CPU they are only asked for


@dataclass(frozen=True)
class Case(Labelled):
    """A way to score a batch; `micro_batch`: rows per rank, None: dynamic; `terms`: with all terms of the loss."""

    mode: str = "token-mean"
    terms: bool = True
    micro_batch: int | None = 4
    mini_batch: int = 16
    shuffle: bool = False
    in_batch: bool = False
    engine: Engine = field(default_factory=Engine)
    worlds: tuple[int, ...] = (1, 2, 4)


@dataclass(frozen=True)
class OnePass(Labelled):
    """A one-pass update."""

    mode: str = "token-mean"
    terms: bool = False
    denominator: str = "kept"
    rule: str = "positive"
    engine: Engine = field(default_factory=Engine)
    only_first_rank: bool = False
    worlds: tuple[int, ...] = (1, 2)


_PACKED = Engine(packed=True)
_ROWS_OF = {1: (1, 2, 4), 2: (1, 2), 8: (1, 2), 16: (1,)}
SCORED = [
    *(Case(mode=mode) for mode in MODES),
    *(Case(mode=mode, terms=False, worlds=(2,)) for mode in MODES),
    *(Case(micro_batch=rows, worlds=worlds) for rows, worlds in _ROWS_OF.items()),
    Case(micro_batch=None),
    Case(mode="seq-mean-token-mean", mini_batch=8, micro_batch=2),
    Case(mini_batch=8, micro_batch=None),
    Case(mini_batch=8, micro_batch=2, shuffle=True),
    *(Case(mode=mode, in_batch=True, worlds=(1, 2)) for mode in MODES[:2]),
    Case(in_batch=True, mini_batch=8, micro_batch=None),
    Case(engine=_PACKED, worlds=(1, 2)),
    Case(engine=_PACKED, micro_batch=None),
    Case(engine=replace(_PACKED, bucket=32), micro_batch=None, worlds=(1, 2)),
    Case(engine=replace(_PACKED, bucket=32), in_batch=True, worlds=(1, 2)),
    Case(engine=Engine(checkpointing=True), worlds=(1, 2)),
    Case(engine=replace(_PACKED, checkpointing=True), micro_batch=None, worlds=(1, 2)),
    Case(engine=Engine(parameters=FULL), worlds=(1, 2)),
    Case(engine=Engine(parameters=FULL, packed=True, checkpointing=True), micro_batch=None),
    # Sharded in pairs, replicated over the two pairs.
    Case(engine=Engine(fsdp_size=2), worlds=(4,)),
    Case(engine=Engine(parameters=FULL, fsdp_size=2), worlds=(4,)),
    Case(engine=Engine(precision="fp32")),
    Case(engine=Engine(precision="fp32", packed=True, checkpointing=True), micro_batch=None, worlds=(1, 2)),
    Case(engine=Engine(precision="fp32", parameters=FULL), worlds=(1, 2)),
]
# One micro-batch, because bf16 rounds the same row differently next to other rows.
IN_BF16 = Case(engine=Engine(precision="bf16"), terms=False, micro_batch=16, worlds=(1, 2))
_ADAMW = Engine(optimizer="AdamW")
ONE_PASS = [
    *(OnePass(mode=mode, denominator=denominator, worlds=(2,)) for mode in MODES for denominator in ("kept", "all")),
    OnePass(worlds=(1,)),
    OnePass(mode="seq-mean-token-sum", denominator="all", worlds=(1,)),
    # With entropy and KL terms, where the denominator does not affect them.
    OnePass(terms=True),
    OnePass(mode="seq-mean-token-mean", terms=True, denominator="all", worlds=(2,)),
    OnePass(only_first_rank=True, worlds=(2, 4)),
    OnePass(only_first_rank=True, mode="seq-mean-token-sum", worlds=(2,)),
    OnePass(rule="none", terms=True),
    OnePass(rule="none", terms=True, mode="seq-mean-token-mean", denominator="all"),
    OnePass(engine=_ADAMW),
    OnePass(engine=replace(_ADAMW, packed=True, checkpointing=True), denominator="all", worlds=(2,)),
    OnePass(engine=Engine(precision="fp32"), denominator="all"),
    OnePass(engine=Engine(fsdp_size=2), mode="seq-mean-token-sum", worlds=(4,)),
]
# Two mini-batches per step.
MINI_BATCHES = [
    OnePass(engine=_ADAMW),
    OnePass(mode="seq-mean-token-sum", denominator="all", engine=replace(_ADAMW, packed=True)),
]
# Scored after two AdamW updates, against AdamW's direction.
PRECONDITIONED = [
    Case(engine=_ADAMW),
    Case(engine=replace(_ADAMW, packed=True, checkpointing=True), micro_batch=None, worlds=(2,)),
    Case(engine=replace(_ADAMW, parameters=FULL), worlds=(1, 2)),
    Case(engine=_ADAMW, in_batch=True, worlds=(1, 2)),
    Case(engine=replace(_ADAMW, offload=True), worlds=(1, 2)),
    Case(engine=replace(_ADAMW, fsdp_size=2), worlds=(4,)),
    Case(engine=replace(_ADAMW, precision="fp32"), worlds=(1, 2)),
    Case(engine=replace(_ADAMW, precision="fp32", parameters=FULL), worlds=(1, 2)),
]
NOTHING_POSITIVE = OnePass(engine=_ADAMW)
# Engines in which scoring must leave no trace.
UNTOUCHED = [(replace(_ADAMW, packed=True), (2,)), (Engine(precision="fp32", checkpointing=True), (1, 2))]
