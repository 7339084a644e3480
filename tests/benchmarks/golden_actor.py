"""Actor time per state of golden redaction, by the number of candidate tokens: one forward for all, or a row per token.

    python tests/benchmarks/golden_actor.py --device cuda --model_size 1.5B --state_tokens 2048
    python tests/benchmarks/golden_actor.py --device cpu --model_size 33M --state_tokens 512
    python tests/benchmarks/golden_actor.py --quick        # a toy: does the script work?

Forward, loss and backward of one state, without an optimizer: `shared` reads all tokens from the one row of logits
(recipe/golden_redaction/loss/forward.py and loss.py, as in the actor), `rows` is state + token, one row per token,
the log-prob of each row's last token, as a PPO-style actor would have it. Random Qwen2 models; all parameters are
trained. Methods and counts take turns in every repeat; times are medians, given as ratios to `shared` at one token.

PREDICTION, written before this ran: shared is flat, within 3 % from 1 to 16 tokens, as 16 numbers of V logits are
gathered instead of one. Rows cost K times as much on a CPU, a little less on a GPU that one row does not fill (at 16
tokens 10 to 16 times); peak memory likewise.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from recipe.golden_redaction.loss.forward import next_token_logits
from recipe.golden_redaction.loss.loss import target_loss, token_log_probs

ROOT = Path(__file__).resolve().parents[2]
SHAPES = {
    "toy": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    "33M": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8},
    "1.5B": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
    # The widths and layers of Qwen3-4B, with this architecture's attention.
    "4B": {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 20},
}
VOCABULARY = {"toy": 128, "33M": 8192, "1.5B": 151_936, "4B": 151_936}
COUNTS = (1, 2, 4, 8, 16)


class Bench:
    """One model and one state."""

    def __init__(self, size: str, state_tokens: int, device: str, checkpointing: bool = False):
        torch.manual_seed(0)
        config = Qwen2Config(
            vocab_size=VOCABULARY[size],
            num_key_value_heads=2,
            tie_word_embeddings=True,
            max_position_embeddings=state_tokens + 1,
            **SHAPES[size],
        )
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        with torch.device(device):
            self.model = Qwen2ForCausalLM(config).to(dtype).train()
        if checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.device = device
        self.state = torch.randint(0, VOCABULARY[size], (state_tokens,)).tolist()
        self.tokens = torch.randperm(VOCABULARY[size])[: max(COUNTS)].tolist()

    def loss(self, log_probs_M: torch.Tensor) -> torch.Tensor:
        """Every second token is preferred; all are far from their targets."""
        advantages_M = torch.tensor([1 - 2 * (i % 2) for i in range(len(log_probs_M))], device=self.device)
        targets_M = log_probs_M.detach() + advantages_M
        return target_loss(log_probs_M, targets_M, advantages_M, torch.full_like(targets_M, 1 / len(targets_M)))

    def shared(self, count: int) -> torch.Tensor:
        logits_SV, _ = next_token_logits(self.model, [self.state], self.device)
        tokens_M = torch.tensor(self.tokens[:count], device=self.device)
        return token_log_probs(logits_SV, torch.zeros_like(tokens_M), tokens_M)

    def rows(self, count: int) -> torch.Tensor:
        ids = torch.tensor([[*self.state, token] for token in self.tokens[:count]], device=self.device)
        # Two positions of the head: the last token's log-prob stands at the one before it.
        logits_KV = self.model(input_ids=ids, logits_to_keep=2, use_cache=False).logits[:, 0].float()
        return nn.functional.log_softmax(logits_KV, dim=-1).gather(-1, ids[:, -1:])[:, 0]

    def seconds(self, method: str, count: int) -> float:
        self.model.zero_grad(set_to_none=True)
        self._synchronise()
        start = time.perf_counter()
        self.loss(getattr(self, method)(count)).backward()
        self._synchronise()
        return time.perf_counter() - start

    def disagreement(self) -> float:
        """Largest difference of a log-prob between the methods: a fast wrong answer is worth nothing."""
        with torch.no_grad():
            return float((self.shared(max(COUNTS)) - self.rows(max(COUNTS))).abs().max())

    def _synchronise(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model_size", choices=tuple(SHAPES), default="33M")
    parser.add_argument("--state_tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=ROOT / "outputs/benchmarks/golden_actor.json")
    args = parser.parse_args()
    if args.quick:
        args.model_size, args.state_tokens, args.repeats = "toy", 64, 3
    bench = Bench(args.model_size, args.state_tokens, args.device)
    times: dict[tuple[str, int], list[float]] = {
        (method, count): [] for count in COUNTS for method in ("shared", "rows")
    }
    for repeat in range(args.repeats + 1):
        for key, values in times.items():
            seconds = bench.seconds(*key)
            if repeat:  # the first is a warm-up
                values.append(seconds)
    medians = {key: statistics.median(values) for key, values in times.items()}
    one = medians["shared", 1]
    print(
        f"{args.model_size}, state of {args.state_tokens} tokens, {args.device}; shared at 1 token: {1e3 * one:.1f} ms"
    )
    print(f"largest difference of a log-prob: {bench.disagreement():.1e} nats")
    print(f"{'tokens':>7}{'one forward':>13}{'a row per token':>15}")
    for count in COUNTS:
        print(f"{count:>7}{medians['shared', count] / one:>13.2f}{medians['rows', count] / one:>15.2f}")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    result = {f"{method}/{count}": values for (method, count), values in times.items()}
    settings = {name: value for name, value in vars(args).items() if name != "output"}
    args.output.write_text(json.dumps({"settings": settings, "seconds": result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
