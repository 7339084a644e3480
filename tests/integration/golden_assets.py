"""What a tiny run of golden redaction needs, made here in about a minute: tasks, a model that makes mistakes, data."""

import json
from dataclasses import dataclass
from pathlib import Path

from data_preprocess import arc, arc_made, arc_model

# By name, so that new golden solutions do not change what the model learns.
TASKS = "2dee498d,f8ff0b80,e3497940"
STEPS = 90
# As in `golden_redaction_cpu`.
SPACED = ("--grid_format", "spaced")


@dataclass(frozen=True)
class GoldenAssets:
    """Files of a run.

    Attributes:
        model: Folder of the base model.
        data: Parquet file of the tasks that it has learned.
        tasks: Their ids.
    """

    model: Path
    data: Path
    tasks: tuple[str, ...]

    def overrides(self) -> list[str]:
        """Overrides of the configuration `golden_redaction_cpu`."""
        return [
            f"data.train_files={self.data}",
            f"actor_rollout_ref.model.path={self.model}",
            "golden.entries_per_update=2",
            "golden.credit.rollouts_per_action=16",
            "golden.probe.rollouts=8",
            "golden.num_prompts=2",
            "golden.visit_ahead=false",
        ]


def make_golden_assets(folder: Path) -> GoldenAssets:
    """Make the assets with the demo's scripts."""
    arc_made.main(["--local_save_dir", str(folder)])
    made, model = folder / arc_made.FILE, folder / "model"
    sizes = ["--tasks", TASKS, "--steps", str(STEPS), "--samples", "0", *SPACED]
    arc_model.main(["--input", str(made), "--local_save_dir", str(model), *sizes])
    tasks = json.loads((model / "settings.json").read_text(encoding="utf-8"))["settings"]["tasks"]
    arc.main(["--arc1_training", str(made), "--local_save_dir", str(folder), "--tasks", tasks, *SPACED])
    return GoldenAssets(model, folder / "arc_agi_1_training.parquet", tuple(tasks.split(",")))
