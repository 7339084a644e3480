"""The pure modules stay pure, and `recipe` stays a namespace that others can share."""

import dis
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PURE = [
    "data_preprocess/arc.py",
    "data_preprocess/arc_tasks.py",
    "data_preprocess/math_command.py",
    "data_preprocess/math_data.py",
    "data_preprocess/math_overlap.py",
    "data_preprocess/math_source.py",
    "data_preprocess/math_text.py",
    "data_preprocess/real_toxicity_prompts.py",
    "data_preprocess/row_choice.py",
    "data_preprocess/row_report.py",
    "data_preprocess/row_source.py",
    "data_preprocess/schema.py",
    "data_preprocess/schema_rules.py",
    "recipe/fast_dapo/aged_queue.py",
    "recipe/fast_dapo/admission.py",
    "recipe/fast_dapo/correction.py",
    "recipe/fast_dapo/estimates.py",
    "recipe/fast_dapo/evaluation_samples.py",
    "recipe/fast_dapo/majority_vote.py",
    "recipe/fast_dapo/predictor.py",
    "recipe/fast_dapo/screening.py",
    "recipe/fast_dapo/curriculum_metrics.py",
    "recipe/fast_dapo/curriculum_records.py",
    "recipe/fast_dapo/data_controller.py",
    "recipe/fast_dapo/pass_rates.py",
    "recipe/fast_dapo/settings.py",
    "verl_ext/summary.py",
    "verl_ext/influence/denominators.py",
    "recipe/golden_redaction/credit.py",
    "recipe/golden_redaction/evaluation.py",
    "recipe/golden_redaction/evaluation_programs.py",
    "recipe/golden_redaction/evaluation_tables.py",
    "recipe/golden_redaction/movement.py",
    "recipe/golden_redaction/problems.py",
    "recipe/golden_redaction/prompts.py",
    "recipe/golden_redaction/record_schema.py",
    "recipe/golden_redaction/records.py",
    "recipe/golden_redaction/redaction.py",
    "recipe/golden_redaction/settings.py",
    "recipe/golden_redaction/targets.py",
    "recipe/golden_redaction/visits.py",
    "recipe/tracin/disjoint.py",
    "recipe/tracin/rollout_choice.py",
    "recipe/tracin/selection.py",
    "recipe/tracin/settings.py",
    "recipe/tracin/validation.py",
    "verl_ext/checkpoints.py",
    "verl_ext/json_lines.py",
    "verl_ext/metrics_stream.py",
    "verl_ext/run_folder.py",
    "verl_ext/run_totals.py",
    "verl_ext/sandbox/arc_tasks.py",
    "verl_ext/sandbox/child.py",
    "verl_ext/sandbox/executor.py",
    "verl_ext/sandbox/fork_server.py",
    "verl_ext/sandbox/kernel.py",
    "verl_ext/sandbox/landlock.py",
    "verl_ext/sandbox/layers.py",
    "verl_ext/sandbox/namespaces.py",
    "verl_ext/sandbox/policy.py",
    "verl_ext/sandbox/pool.py",
    "verl_ext/sandbox/protocol.py",
    "verl_ext/sandbox/results.py",
    "verl_ext/sandbox/seccomp.py",
    "verl_ext/sandbox/server.py",
    "verl_ext/sandbox/syscall_tables.py",
    "verl_ext/settings_node.py",
    "verl_ext/trainer_metrics.py",
]
# Pure but for torch, which takes seconds to load.
PURE_TORCH = [
    "recipe/golden_redaction/forward.py",
    "recipe/golden_redaction/loss.py",
    "recipe/golden_redaction/tensor_statistics.py",
]
FORBIDDEN = ("ray", "verl", "vllm", "transfer_queue", "torch.distributed", "tensordict")


def _imported_modules(path: Path) -> set[str]:
    """Every module that the file's code imports, at its top or inside functions."""
    names, codes = set(), [compile(path.read_text(encoding="utf-8"), str(path), "exec")]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        module = ""
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME":
                module = instruction.argval
                names.add(module)
            elif instruction.opname == "IMPORT_FROM":
                names.add(f"{module}.{instruction.argval}")
    return names


@pytest.mark.parametrize("file", PURE + PURE_TORCH)
def test_pure_module_imports_nothing_distributed(file: str):
    bad = {
        name
        for name in _imported_modules(ROOT / file)
        if any(name == forbidden or name.startswith(f"{forbidden}.") for forbidden in FORBIDDEN)
    }
    assert not bad, f"{file} is pure but imports {sorted(bad)}"


def test_pure_modules_do_not_load_the_heavy_libraries_indirectly():
    modules = [file.removesuffix(".py").replace("/", ".") for file in PURE]
    code = f"import sys, {', '.join(modules)}; print(sorted({{'ray', 'verl', 'vllm', 'torch'}} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_recipe_is_a_namespace_package():
    # TransferQueue's wheel installs a top-level `recipe/`, too: an __init__.py on either side would hide the other.
    assert not (ROOT / "recipe" / "__init__.py").exists()
    assert not (ROOT / "recipe" / "fast_dapo" / "__init__.py").exists()
    assert not (ROOT / "recipe" / "tracin" / "__init__.py").exists()
