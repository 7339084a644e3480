"""Models, data and reward functions for commands that are checked but not run: some valid, some broken."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import (
    Qwen2Config,
    Qwen2ForCausalLM,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from data_preprocess import arc, arc_made, arc_model
from data_preprocess.demo_models.arithmetic_tokenizer import build_tokenizer
from verl_ext.data.schema import make_row, write_parquet

RIGHT_OR_WRONG = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return "
REWARDS = {
    "own.py": RIGHT_OR_WRONG + "{'score': float(solution_str == ground_truth), 'length': len(solution_str)}\n",
    "graded.py": RIGHT_OR_WRONG + "float(solution_str == ground_truth)\n",
    "signed.py": RIGHT_OR_WRONG + "2 * float(solution_str == ground_truth) - 1\n",
    "text.py": RIGHT_OR_WRONG + "'right'\n",
    "raising.py": RIGHT_OR_WRONG + "ground_truth / 2\n",
    "broken.py": "def compute_score(\n",
    "dying.py": "import os\n" + RIGHT_OR_WRONG + "os._exit(3)\n",
    "waiting.py": "async " + RIGHT_OR_WRONG + "float(solution_str == ground_truth)\n",
}


@dataclass(frozen=True)
class StandIns:
    """Folders of stand-ins for a user's own files."""

    folder: Path

    def model(self, name: str = "whole") -> Path:
        return self.folder / "models" / name

    def data(self, name: str) -> Path:
        return self.folder / "data" / f"{name}.parquet"

    @property
    def tools(self) -> Path:
        return self.folder / "tools.yaml"

    def reward(self, name: str) -> Path:
        return self.folder / "rewards" / name


def make_model(folder: Path, max_positions: int = 16384) -> None:
    """A Qwen2 of a few thousand weights with the arithmetic demo's tokenizer, which has a chat template.

    Args:
        folder: Where it is saved.
        max_positions: Its context length in tokens.
    """
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=max_positions,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


def make_data(file: Path, numbers: Sequence[int], data_source: str = "arithmetic", prompt: str = "{}+1=") -> None:
    """A parquet file with one prompt per number."""
    rows = [
        make_row(data_source, prompt.format(n), str(n + 1), index=n, split=file.stem, ability="math") for n in numbers
    ]
    write_parquet(rows, file)


def make_stand_ins(folder: Path) -> StandIns:
    """Make all stand-ins in an empty folder."""
    made = StandIns(folder)
    make_data(made.data("train"), range(600))
    make_data(made.data("val"), range(600, 664))
    make_data(made.data("few"), range(10))
    make_data(made.data("unknown_source"), range(600), data_source="somebody/else")
    make_data(made.data("math"), range(600), data_source="math500")
    make_data(made.data("verls_gsm8k"), range(600), data_source="openai/gsm8k")
    made.data("not_parquet").write_text("question,answer\n")
    # Data as others write it: JSON lines, another column name, numbers as answers, neither index nor ability.
    row = {"data_source": "arithmetic", "reward_model": {"style": "rule", "ground_truth": 7}}
    lines = [json.dumps(row | {"messages": [{"role": "user", "content": f"{n}+1="}]}) for n in range(100)]
    (folder / "data/numbers.jsonl").write_text("\n".join(lines))

    make_model(made.model())
    make_model(made.model("short_context"), max_positions=24)
    for name, file in (("no_weights", "model.safetensors"), ("no_config", "config.json")):
        shutil.copytree(made.model(), made.model(name))
        (made.model(name) / file).unlink()
    shutil.copytree(made.model(), made.model("cut_weights"))
    weights = made.model("cut_weights") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    shutil.copytree(made.model(), made.model("no_template"))
    (made.model("no_template") / "chat_template.jinja").unlink()
    made.model("empty").mkdir()

    made.reward("own.py").parent.mkdir()
    for name, text in REWARDS.items():
        made.reward(name).write_text(text)
    return made


def make_arc(folder: Path) -> None:
    """`model` and `arc_agi_1_training.parquet` for golden redaction: tasks that fit the model's tokenizer."""
    arc_made.main(["--local_save_dir", str(folder)])
    made = folder / arc_made.FILE
    sizes = ["--num_tasks", "3", "--steps", "1", "--samples", "0"]
    arc_model.main(["--input", str(made), "--local_save_dir", str(folder / "model"), *sizes])
    tasks = json.loads((folder / "model/settings.json").read_text(encoding="utf-8"))["settings"]["tasks"]
    arc.main(["--arc1_training", str(made), "--local_save_dir", str(folder), "--tasks", tasks])


def make_toxicity_classifier(folder: Path) -> None:
    """A classifier with random weights and the labels of the one in the toxicity runs."""
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(folder)
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=514,
        pad_token_id=tokenizer.pad_token_id,
        id2label={0: "neutral", 1: "toxic"},
        label2id={"neutral": 0, "toxic": 1},
    )
    RobertaForSequenceClassification(config).save_pretrained(folder)
