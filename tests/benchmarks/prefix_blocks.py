"""Rollouts per second of vLLM's CPU engine by the size of the blocks in which it caches prefixes, taking turns.

    python tests/benchmarks/prefix_blocks.py          # after `make demo-real-data`; four minutes on two idle cores

SmolLM2-135M in float32 and the first 48 prompts of SVAMP with their worked examples, 4 rollouts of each, 64 at a time,
as `configs/experiment/smollm2_svamp_cpu.yaml` has them. The cache is emptied before each round.

PREDICTION, written before the first run: a prompt's last 94 tokens are in no block of 128, and its last 16 in none of
32, and an answer has 18 to 26, so 2.5 times as many rollouts per second. (A first try by hand had 1.5.)
"""

import argparse
import os
import time
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
MODEL, DATA = ROOT / "outputs/models/smollm2_135m", ROOT / "outputs/data/svamp/svamp.parquet"
PROMPTS, ROLLOUTS = 48, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, nargs="+", default=[128, 32], help="tokens; ratios are to the first")
    parser.add_argument("--rounds", type=int, default=2, help="after one that is not counted")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "2"
    from verl_ext.evaluation.sampling import prepare_vllm

    prepare_vllm()
    from transformers import AutoTokenizer
    from vllm import LLM, SamplingParams

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    rows = pq.read_table(DATA).slice(0, PROMPTS).to_pylist()
    prompts = [
        {
            "prompt_token_ids": tokenizer.apply_chat_template(
                row["prompt"], add_generation_prompt=True, return_dict=False
            )
        }
        for row in rows
        for _ in range(ROLLOUTS)
    ]
    sampling = SamplingParams(temperature=0.7, max_tokens=40)
    engines = {
        block: LLM(
            model=str(MODEL),
            dtype="float32",
            enforce_eager=True,
            max_model_len=520,
            max_num_seqs=64,
            max_num_batched_tokens=1024,
            kv_cache_memory_bytes=2**30,
            block_size=block,
        )
        for block in given.blocks
    }
    rates: dict[int, list[float]] = {block: [] for block in given.blocks}
    for number in range(given.rounds + 1):
        for block, engine in engines.items():
            engine.reset_prefix_cache()
            start = time.perf_counter()
            engine.generate(prompts if number else prompts[:64], sampling, use_tqdm=False)
            if number:
                rates[block].append(len(prompts) / (time.perf_counter() - start))
    first = rates[given.blocks[0]]
    for block in given.blocks:
        ratios = [rate / other for rate, other in zip(rates[block], first, strict=True)]
        print(
            f"blocks of {block}: {median(rates[block]):.2f} rollouts per second, "
            f"{median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
