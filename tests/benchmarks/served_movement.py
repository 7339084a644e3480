"""How much of an update arrives where bfloat16 serves: ways to round float32 weights, by the size of the update.

    python tests/benchmarks/served_movement.py            # outputs/models/arithmetic_base; about a minute
    python tests/benchmarks/served_movement.py --cost     # time per gigabyte of float32 instead, on --device

The model is rounded to bfloat16 first, as a published checkpoint is. An update adds a multiple of the gradient of the
log-probs of four tokens in four states, of a norm relative to that of all weights. Intended is the change of these
log-probs under the float32 weights, served the change under the rounded ones; all arithmetic is float32. Eight sets of
states, each with its own thresholds: the mean of served / intended and its standard deviation over the sets.

PREDICTION, written before this ran. After one update, at relative steps of 1e-6, 1e-5, 1.6e-5 and 1e-4: nearest 1, 6,
11 and 48 % (an earlier measurement with one token); error feedback the same, as the first residual is what nearest
loses. Stochastic rounding 100 % on average whatever its thresholds, with a standard deviation of
sqrt(1 / (256 * step * N)), N the number of weights that matter, at most the model's 158,000: 16, 5, 4 and 2 % at least,
twice that likely. After 16 updates error feedback is still below half at 1e-6, and 80 to 120 % at 1e-5, jumping from
update to update. From weights that are anywhere in their cells, for the last update only: kept thresholds as good as at
first, new ones five times noisier or more at 1e-6 because every rounding is drawn again. The served probabilities
differ from those of the weights rounded to nearest, with which verl's actor computes in bfloat16, by about 1e-3.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from verl_ext.serving.rounding import round_to_bfloat16

ROOT = Path(__file__).resolve().parents[2]
STEPS = (1e-6, 1e-5, 1.6e-5, 1e-4)
UPDATES = (1, 4, 16)
SETS, STATES, LENGTH = 8, 4, 12

Weights = dict[str, torch.Tensor]
# Served weights of the next version: (version, float32 weights).
Rounding = Callable[[int, Weights], Weights]


def nearest(_: int, weights: Weights) -> Weights:
    return {name: weight.bfloat16().float() for name, weight in weights.items()}


def with_thresholds(weights: Weights, seed: int) -> Weights:
    return {name: round_to_bfloat16(weight, name, seed).float() for name, weight in weights.items()}


def kept_thresholds(seed: int) -> Rounding:
    return lambda _, weights: with_thresholds(weights, seed)


def new_thresholds(seed: int) -> Rounding:
    return lambda version, weights: with_thresholds(weights, seed + 1000 * (version + 1))


def of_the_difference(seed: int) -> Rounding:
    """Each update is rounded to what is served, by new thresholds; the rest is not compensated."""
    last: list[tuple[Weights, Weights]] = []

    def serve(version: int, weights: Weights) -> Weights:
        if last:
            before, served = last.pop()
            moved = {name: served[name] + (weight - before[name]) for name, weight in weights.items()}
            now = with_thresholds(moved, seed + 1000 * (version + 1))
        else:
            now = nearest(0, weights)
        last.append(({name: weight.clone() for name, weight in weights.items()}, now))
        return now

    return serve


def error_feedback() -> Rounding:
    """To nearest, and what that loses is added before the next rounding."""
    residual: Weights = {}

    def serve(_: int, weights: Weights) -> Weights:
        wanted = {name: weight + residual.get(name, 0.0) for name, weight in weights.items()}
        served = nearest(0, wanted)
        residual.update({name: wanted[name] - served[name] for name in wanted})
        return served

    return serve


def roundings(seed: int) -> dict[str, Rounding]:
    return {
        "nearest": nearest,
        "error feedback": error_feedback(),
        "stochastic, the difference": of_the_difference(seed),
        "stochastic, new thresholds": new_thresholds(seed),
        "stochastic, kept thresholds": kept_thresholds(seed),
    }


class Lab:
    """A model, and log-probs of tokens under weights that are given.

    Args:
        model: In float32.
        is_rounded: To bfloat16, as a published checkpoint.
    """

    def __init__(self, model: torch.nn.Module, is_rounded: bool) -> None:
        self._model = model.eval()
        self.weights = {name: value.detach().clone() for name, value in model.named_parameters()}
        if is_rounded:
            self.weights = nearest(0, self.weights)

    def states(self, seed: int, count: int = STATES) -> tuple[torch.Tensor, torch.Tensor]:
        """(S, T) samples of the model's own, and (S,) the second most probable next token of each."""
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, 256, (count, 1), generator=generator)
        with torch.no_grad():
            for _ in range(LENGTH):
                probs = self.log_probs(self.weights, ids).exp()
                ids = torch.cat([ids, torch.multinomial(probs, 1, generator=generator)], dim=1)
            return ids, self.log_probs(self.weights, ids).topk(2).indices[:, 1]

    def log_probs(self, weights: Mapping[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
        """(S, V) of the next token."""
        logits = torch.func.functional_call(self._model, dict(weights), (ids,)).logits
        return torch.log_softmax(logits[:, -1].float(), dim=-1)

    def of_tokens(self, weights: Mapping[str, torch.Tensor], ids: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """(), the mean log-prob of the tokens in their states, float64."""
        return self.log_probs(weights, ids).gather(1, tokens[:, None]).double().mean()

    def update(self, weights: Weights, ids: torch.Tensor, tokens: torch.Tensor, step: float) -> Weights:
        """The weights after an update of the relative norm `step`."""
        leaves = {name: weight.clone().requires_grad_() for name, weight in weights.items()}
        gradients = torch.autograd.grad(self.of_tokens(leaves, ids, tokens), list(leaves.values()))
        scale = step * norm(weights.values()) / norm(gradients)
        return {name: weights[name] + scale * gradient for name, gradient in zip(leaves, gradients, strict=True)}


def norm(tensors: Iterable[torch.Tensor]) -> float:
    """Of all tensors together."""
    return float(torch.stack([tensor.double().square().sum() for tensor in tensors]).sum().sqrt())


def movement(lab: Lab, step: float, seed: int, from_first: bool = True) -> dict[str, dict[int, float]]:
    """Served over intended movement after each number of `UPDATES`, by rounding.

    Args:
        lab: Of the model.
        step: Relative norm of one update.
        seed: Of states and thresholds.
        from_first: Movement since the first weights; otherwise of only the last update.
    """
    ids, tokens = lab.states(seed)
    ways = roundings(seed)
    weights = lab.weights

    def measure(version: int) -> dict[str, float]:
        with torch.no_grad():
            served = {name: lab.of_tokens(serve(version, weights), ids, tokens) for name, serve in ways.items()}
            return {"intended": float(lab.of_tokens(weights, ids, tokens)), **{n: float(v) for n, v in served.items()}}

    values = [measure(0)]
    for version in range(1, max(UPDATES) + 1):
        weights = lab.update(weights, ids, tokens, step)
        values.append(measure(version))
    found: dict[str, dict[int, float]] = {}
    for name in ways:
        for count in UPDATES:
            before = values[0 if from_first else count - 1]
            now = values[count]
            found.setdefault(name, {})[count] = (now[name] - before[name]) / (now["intended"] - before["intended"])
    return found


def differences(lab: Lab, step: float, updates: int, seed: int) -> dict[str, float]:
    """Mean |p - p of float32| over tokens sampled from float32, and |p - p of nearest|, after this many updates."""
    ids, tokens = lab.states(seed)
    weights = lab.weights
    for _ in range(updates):
        weights = lab.update(weights, ids, tokens, step)
    seen, _ = lab.states(seed + 500, 256)
    with torch.no_grad():
        exact = lab.log_probs(weights, seen).exp()
        chosen = torch.multinomial(exact, 1, generator=torch.Generator().manual_seed(seed))
        ways = {"nearest": nearest(0, weights), "stochastic": with_thresholds(weights, seed)}
        probs = {name: lab.log_probs(each, seen).exp().gather(1, chosen) for name, each in ways.items()}
        truth = exact.gather(1, chosen)
    found = {f"{name}, float32": float((value - truth).abs().mean()) for name, value in probs.items()}
    return {**found, "stochastic, nearest": float((probs["stochastic"] - probs["nearest"]).abs().mean())}


def print_movement(title: str, lab: Lab, from_first: bool) -> None:
    rows: dict[tuple[str, int], list[str]] = {}
    for step in STEPS:
        sets = [movement(lab, step, seed, from_first) for seed in range(SETS)]
        for name in sets[0]:
            for count in UPDATES:
                values = [each[name][count] for each in sets]
                mean, deviation = statistics.mean(values), statistics.stdev(values)
                rows.setdefault((name, count), []).append(f"{100 * mean:.0f} ± {100 * deviation:.0f} %")
    print(f"\n{title}\n\n| rounding | updates | {' | '.join(f'{step:.1e}' for step in STEPS)} |")
    print("|---|---|" + "---|" * len(STEPS))
    for (name, count), cells in rows.items():
        print(f"| {name} | {count} | {' | '.join(cells)} |")


def print_differences(lab: Lab, title: str) -> None:
    print(f"\n{title}\n\n| step | updates | nearest, float32 | stochastic, float32 | stochastic, nearest |")
    print("|---|---|---|---|---|")
    for step in STEPS:
        for updates in (1, 16):
            found = [differences(lab, step, updates, seed) for seed in range(SETS)]
            means = [statistics.mean(each[name] for each in found) for name in found[0]]
            print(f"| {step:.1e} | {updates} | {' | '.join(f'{value:.1e}' for value in means)} |")


def print_cost(device: str, elements: int = 1 << 26) -> None:
    values = torch.randn(elements, device=device)

    def seconds(call: Callable[[], torch.Tensor]) -> float:
        times = []
        for _ in range(4):
            start = time.perf_counter()
            call()
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return statistics.median(times[1:])

    gigabytes = elements * 4 / 1e9
    for name, call in {
        "nearest": values.bfloat16,
        "stochastic": lambda: round_to_bfloat16(values, "weight"),
    }.items():
        print(f"{name}: {1000 * seconds(call) / gigabytes:.1f} ms per gigabyte of float32 on {device}")


def main() -> None:
    """Entry point of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "outputs/models/arithmetic_base"))
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.cost:
        print_cost(args.device)
        return
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    born_in_bf16, anywhere = Lab(model, is_rounded=True), Lab(model, is_rounded=False)
    print_movement("From a bfloat16 checkpoint: movement since the first weights", born_in_bf16, from_first=True)
    print_movement("From weights anywhere in their cells: movement of the last update", anywhere, from_first=False)
    print_differences(born_in_bf16, "From a bfloat16 checkpoint: mean difference of a sampled token's probability")
    print_differences(anywhere, "From weights anywhere in their cells: the same")


if __name__ == "__main__":
    main()
