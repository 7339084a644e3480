"""The cost of influence scores in time and memory, in addition to the forward and backward of training.

    python tests/benchmarks/tracin_overhead.py --device cuda --model_size 1.5B --seq_len 2048
    python tests/benchmarks/tracin_overhead.py --device cpu --model_size 33M --seq_len 256
    python tests/benchmarks/tracin_overhead.py --quick        # a toy: does the script work?

Random Qwen2 models of the named shape, LoRA r=16 on every Linear of a layer, micro-batches of 8 full rows, a forward
and a backward each and no optimizer. The methods take turns in every repeat, so that a slow minute slows all alike;
times are medians. `autograd` is one backward per sample, `buffered` the original (tests/unit/influence_reference.py).

Memory is the peak above what was allocated before the pass: weights and G were, activations and `.grad` are in it, and
the plain pass is the yardstick. On CUDA: max_memory_allocated. On a CPU: the running sum of the allocator's events from
torch.profiler, which sees every tensor and no allocator cache; in a run apart, as the profiler costs time.

PREDICTION, written before this script ran at size (from the prototype's figures on one CPU core, 33M, 8 x 256 tokens):
- Time against plain, without / with checkpointing: scoring 1.00 / 1.01, validation 1.01 / 1.04, one-pass 0.97-1.03 /
  1.00-1.03, buffered 1.03 / 1.05, autograd 1.0-1.3 on a CPU that one row keeps busy, 2-6 on a GPU that it does not.
- Peak against plain: scoring 0.8 without, 0.96 with checkpointing, the same at 8, 64 and 256 samples; one-pass
  1.00-1.08, the same at all; buffered 1.0 / 3.7 at 8 samples, with checkpointing about 13 at 32 and growing
  linearly: at 256 above 50 with checkpointing, or out of memory.
- A GPU in bfloat16 may do worse in time than a CPU when sequences are short: the score adds about four small kernels
  per layer, one-pass about 16, which only long sequences hide: at 2048 tokens scoring 1.02-1.05, one-pass 1.03-1.10.
"""

import argparse
import contextlib
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from verl_ext.influence.method.ghost import GhostInfluence

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "unit"))
from influence_reference import BufferedInfluence, scores_of  # noqa: E402

SHAPES = {
    "toy": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    "33M": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8},
    "1.5B": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
}
VOCABULARY = {"toy": 128, "33M": 8192, "1.5B": 151_936}
ROWS = 8


def peak_on_cpu(call: Callable[[], object]) -> int:
    """Bytes of the peak above what was allocated before the call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    held = peak = 0
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


class Bench:
    """One model with its methods; each runs over the given number of samples, in micro-batches of 8 rows."""

    def __init__(self, size: str, seq_len: int, device: str, checkpointing: bool):
        torch.manual_seed(0)
        config = Qwen2Config(
            vocab_size=VOCABULARY[size],
            num_key_value_heads=2,
            tie_word_embeddings=True,
            use_cache=False,
            max_position_embeddings=seq_len,
            **SHAPES[size],
        )
        # As in verl on a GPU: bfloat16 weights of the base, float32 adapters, autocast.
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        with torch.device(device):
            model = Qwen2ForCausalLM(config).to(dtype)
            lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear")
            self.model = get_peft_model(model, lora).train()
        for name, parameter in self.model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(parameter, std=0.02)
        if checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.device, self.seq_len, self.vocabulary = device, seq_len, VOCABULARY[size]
        self.ghost = GhostInfluence(self.model)
        self.trainable = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.ids = torch.randint(0, self.vocabulary, (ROWS, seq_len), device=device)
        self.validation()
        self.methods: dict[str, Callable[[int], object]] = {
            "plain": self.plain,
            "scoring": self.scoring,
            "validation": self.validation,
            "one_pass": self.one_pass,
            "buffered": self.buffered,
            "autograd": self.autograd,
        }

    def losses(self, rows: slice = slice(None)) -> torch.Tensor:
        """Per-row losses. The same rows stand for every micro-batch: their content costs nothing."""
        ids = self.ids[rows]
        on_gpu = self.device == "cuda"
        with torch.autocast("cuda", torch.bfloat16) if on_gpu else contextlib.nullcontext():
            logits = self.model(input_ids=ids).logits[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none")
        return loss.view(len(ids), -1).sum(1) / self.seq_len

    def index(self, start: int) -> torch.Tensor:
        return torch.arange(start, start + ROWS, device=self.device)[:, None].expand(ROWS, self.seq_len)

    def plain(self, samples: int = ROWS) -> None:
        for _ in range(0, samples, ROWS):
            self.losses().sum().backward()

    def scoring(self, samples: int = ROWS) -> torch.Tensor:
        for start in range(0, samples, ROWS):
            with self.ghost.scoring(self.index(start)):
                self.losses().sum().backward()
        return self.ghost.scores(samples)

    def validation(self, samples: int = ROWS) -> None:
        for _ in range(0, samples, ROWS):
            with self.ghost.validation():
                self.losses().sum().backward()

    def one_pass(self, samples: int = ROWS) -> torch.Tensor:
        for start in range(0, samples, ROWS):
            with self.ghost.scoring(self.index(start), keep_gradients=True):
                self.losses().sum().backward()
            self.ghost.accumulate_selected((self.ghost.scores(samples) > 0).float())
        return self.ghost.scores(samples)

    def buffered(self, samples: int = ROWS) -> torch.Tensor:
        recorder = BufferedInfluence(self.model)
        try:
            self.plain(samples)
            return recorder.take_scores(self.ghost.validation_gradients())
        finally:
            recorder.close()

    def autograd(self, samples: int = ROWS) -> torch.Tensor:
        validation, scores = self.ghost.validation_gradients(), []
        for sample in range(samples):
            row = sample % ROWS
            gradients = torch.autograd.grad(self.losses(slice(row, row + 1)).sum(), list(self.trainable.values()))
            scores.append(scores_of([dict(zip(self.trainable, gradients, strict=True))], validation))
        return torch.cat(scores)

    def reset(self) -> None:
        """Every method starts with G, and without scores and `.grad`."""
        self.ghost.reset_scores()
        self.model.zero_grad()
        gc.collect()

    def synchronise(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def seconds(self, method: str, samples: int) -> float:
        self.reset()
        self.synchronise()
        start = time.perf_counter()
        self.methods[method](samples)
        self.synchronise()
        return time.perf_counter() - start

    def peak_bytes(self, method: str, samples: int) -> int | None:
        """Peak above what was allocated before; None if it does not fit."""
        self.reset()
        try:
            if self.device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                self.methods[method](samples)
                return torch.cuda.max_memory_allocated() - before
            return peak_on_cpu(lambda: self.methods[method](samples))
        except torch.cuda.OutOfMemoryError:
            return None
        finally:
            self.reset()

    def agreement(self) -> dict[str, float]:
        """Largest difference from per-sample autograd, over the largest score: a fast wrong answer is worth nothing."""
        errors, scores = {}, {}
        for method in ("autograd", "scoring", "one_pass", "buffered"):
            self.reset()
            scores[method] = self.methods[method](ROWS).cpu().double()
            errors[method] = float((scores[method] - scores["autograd"]).abs().max() / scores["autograd"].abs().max())
        return errors


def measure(bench: Bench, repeats: int, sample_counts: list[int], max_bytes: float) -> dict:
    """Times of 8 samples, interleaved, and peaks by number of samples; None where it would not, or did not, fit."""
    result: dict = {"error": bench.agreement(), "seconds": {name: [] for name in bench.methods}, "peak_bytes": {}}
    for repeat in range(repeats + 1):
        for name in bench.methods:
            seconds = bench.seconds(name, ROWS)
            if repeat:  # the first round warms up
                result["seconds"][name].append(seconds)
    for name in bench.methods:
        # One backward at a time: its peak cannot depend on how many follow, and 256 of them take long.
        counts = sample_counts if name != "autograd" else sample_counts[:1]
        peaks = result["peak_bytes"][name] = {}
        for count in counts:
            # A CPU that swaps takes the machine along: a method that grows with the samples is stopped before.
            expected = max((peak / done * count for done, peak in peaks.items() if peak), default=0)
            fits = bench.device == "cuda" or name != "buffered" or expected < max_bytes
            peaks[count] = bench.peak_bytes(name, count) if fits else None
    return result


def table(result: dict, sample_counts: list[int]) -> str:
    """Everything relative to the plain pass of 8 samples."""
    plain = statistics.median(result["seconds"]["plain"])
    plain_peak = result["peak_bytes"]["plain"][sample_counts[0]]
    lines = [f"{'':12}{'time':>8}{'spread':>9}{'error':>10}" + "".join(f"{f'peak {n}':>10}" for n in sample_counts)]
    for name, seconds in result["seconds"].items():
        ratio = statistics.median(seconds) / plain
        spread = (max(seconds) - min(seconds)) / statistics.median(seconds)
        error = result["error"].get(name)
        peaks = [result["peak_bytes"][name].get(n, "") for n in sample_counts]
        cells = ["out" if p is None else "" if p == "" else f"{p / plain_peak:.2f}" for p in peaks]
        lines.append(
            f"{name:12}{ratio:8.3f}{spread:9.1%}{'' if error is None else f'{error:.1e}':>10}"
            + "".join(f"{cell:>10}" for cell in cells)
        )
    lines.append(f"plain: {plain:.4f} s, peak {plain_peak / 2**20:.1f} MiB for {ROWS} samples")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--model_size", choices=["33M", "1.5B"], default="33M")
    parser.add_argument("--seq_len", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--samples", type=int, nargs="+", default=[8, 64, 256], help="for peak memory; multiples of 8")
    parser.add_argument("--max_gib", type=float, default=8, help="on a CPU, skip what is expected to need more")
    parser.add_argument("--quick", action="store_true", help="a toy model and 2 repeats: checks that the script works")
    parser.add_argument("--out", type=Path, default=ROOT / "outputs" / "benchmarks")
    options = parser.parse_args()
    size = "toy" if options.quick else options.model_size
    seq_len, repeats = (16, 2) if options.quick else (options.seq_len, options.repeats)
    samples = [8, 32] if options.quick else options.samples
    report: dict = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "model_size": size,
        "seq_len": seq_len,
        "rows": ROWS,
    }
    for checkpointing in (False, True):
        bench = Bench(size, seq_len, options.device, checkpointing)
        name = "checkpointing" if checkpointing else "no_checkpointing"
        report[name] = measure(bench, repeats, samples, options.max_gib * 2**30)
        print(f"\n{size}, {ROWS} x {seq_len} tokens, {name}; time and peak relative to plain")
        print(table(report[name], samples), flush=True)
        del bench
        gc.collect()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"tracin_overhead_{size}_{options.device}_{seq_len}.json"
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()
