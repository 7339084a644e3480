# Two commands do everything on a bare machine: `make demo` and `make test`.
# Every target is safe to repeat and quick when nothing changed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
UV_VERSION := 0.13.8
BASE_PYTHON ?= $(shell command -v python3.11 || command -v python3)

REQUIREMENTS := configs/requirements
LOCK := $(REQUIREMENTS)/cpu.txt
OVERRIDES := $(REQUIREMENTS)/cpu-overrides.txt

# A run has about ten processes, and each imports these: compiled here once, or else by each where Python cannot write
# caches (PYTHONDONTWRITEBYTECODE, a read-only environment). All packages would take three times as long.
COMPILED := torch vllm ray verl transformers tensordict transfer_queue sympy scipy pandas numpy networkx peft datasets \
	huggingface_hub openai pydantic accelerate mpmath
NOT_COMPILED := /(tests?|testing|models|rllib|serve|tune|train|autoscaler|llm)/

DEMO_DATA := outputs/data/arithmetic
DEMO_MODEL := outputs/models/arithmetic_base

# Tasks of the golden-redaction demo: ARC=FILE (ARC-AGI-1's training tasks), or else made here from the golden solutions.
ARC_DATA := outputs/data/arc
ARC_MODEL := outputs/models/arc_base
ARC ?= $(ARC_DATA)/made_tasks.json
# The tasks of the published figures: small ones, of all levels but the hardest.
ARC_TASKS := 2dee498d,f8ff0b80,e3497940,a79310a0,7b7f7511,d631b094,88a62173,ce22a75a

# A third-party model and task: SVAMP=FILE, the file next to the checkout, or else the data set on the hub.
REAL_MODEL := outputs/models/smollm2_135m
REAL_DATA := outputs/data/svamp
SVAMP ?= $(firstword $(wildcard ../shared/data/math/svamp.json) ChilleD/SVAMP)

# uv reads none of pip's settings. A machine whose pip is configured with a wheel folder, extra indices or a
# certificate gets the same for uv; anywhere else PyTorch's own CPU builds are chosen by --torch-backend.
PIP_SETTING = $(shell test -z "$(BASE_PYTHON)" || $(BASE_PYTHON) -m pip config get global.$(1) 2>/dev/null)
FIND_LINKS := $(or $(PIP_FIND_LINKS),$(call PIP_SETTING,find-links))
CERT := $(or $(PIP_CERT),$(call PIP_SETTING,cert))
export UV_FIND_LINKS := $(FIND_LINKS)
ifneq ($(CERT),)
export SSL_CERT_FILE := $(CERT)
endif
TORCH_SOURCE := $(if $(wildcard $(addsuffix /torch-*,$(FIND_LINKS))),,--torch-backend=cpu)

.PHONY: help setup lock demo demo-data demo-arc demo-arc-data demo-real demo-real-data browser test test-fast test-unit test-gpu test-release lint contract releases docs docs-serve benchmark leaderboard clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(VENV)/.installed  ## Create .venv/ with the pinned dependencies and the package

$(UV):
	@test -n "$(BASE_PYTHON)" || { echo "Python 3.11 is missing: on Debian, apt-get install python3.11 python3.11-venv"; exit 1; }
	@$(BASE_PYTHON) $(REQUIREMENTS)/check_machine.py
	@$(BASE_PYTHON) -m venv $(VENV)
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(VENV)/.installed: $(UV) $(LOCK) $(OVERRIDES) setup.py
	@echo "Installing the pinned dependencies into $(VENV)/ ..."
	@$(UV) pip install --quiet --python $(PY) $(TORCH_SOURCE) --overrides $(OVERRIDES) -r $(LOCK)
	@$(UV) pip install --quiet --python $(PY) --no-deps --editable .
	@packages="$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" && \
		$(PY) -m compileall -q -j 0 -x '$(NOT_COMPILED)' $(patsubst %,"$$packages/%",$(COMPILED))
	@touch $@

# For the oldest Python that setup.py allows: Debian's own is 3.11.2.
lock: $(UV)  ## Resolve configs/requirements/cpu.in into a new lock
	@$(UV) pip compile --quiet --python $(PY) --python-version 3.11 $(TORCH_SOURCE) --overrides $(OVERRIDES) --no-annotate --no-header \
		--no-emit-index-url --no-emit-find-links $(REQUIREMENTS)/cpu.in | grep -vE '^\.' | sed 's/+cpu//' > $(LOCK).new
	@mv $(LOCK).new $(LOCK)

demo-data: setup  ## Make the demo's data and base model (both cached)
	@test -f $(DEMO_DATA)/train.parquet || $(PY) -m data_preprocess.arithmetic --local_save_dir $(DEMO_DATA) \
		--pool E --train_size 1024 --val_size 512 --seed 0
	@$(PY) -m data_preprocess.arithmetic_model --local_save_dir $(DEMO_MODEL)

demo: demo-data  ## Train: a complete Fast DAPO run on the CPU
	@$(PY) -m recipe.fast_dapo.main +backend=cpu +experiment=arithmetic_demo

# Only root can install; for other users the tests are skipped, with a message. CI sets REQUIRE_BROWSER and fails.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "Installing chromium for tests/browser ..." && \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y chromium >/dev/null; \
	} || echo "No chromium on this machine, so tests/browser is skipped (Debian: apt-get install chromium)"

demo-arc-data: setup
	@test -f $(ARC) || $(PY) -m data_preprocess.arc_made --local_save_dir $(ARC_DATA)
	@$(PY) -m data_preprocess.arc_model --input $(ARC) --local_save_dir $(ARC_MODEL) --grid_format spaced --tasks $(ARC_TASKS)
	@$(PY) -m data_preprocess.arc --arc1_training $(ARC) --local_save_dir $(ARC_DATA) --grid_format spaced --tasks \
		"$$($(PY) -c 'import json; print(json.load(open("$(ARC_MODEL)/settings.json"))["settings"]["tasks"])')"

demo-arc: demo-arc-data  ## A complete golden redaction run on the CPU. ARC=FILE: on ARC's own tasks
	@$(PY) -m recipe.golden_redaction.main --config-name golden_redaction_cpu
	@$(PY) -m verl_ext.report trace outputs/golden_redaction_demo --tasks $(ARC)

demo-real-data: setup
	@$(PY) -m data_preprocess.pretrained_model --name smollm2-135m --local_save_dir $(REAL_MODEL)
	@test -f $(REAL_DATA)/svamp.parquet || $(PY) -m data_preprocess.svamp --input $(SVAMP) --local_save_dir $(REAL_DATA)

# For processors without native bfloat16, where it is much slower.
IN_FLOAT32 = $(if $(shell grep -Eowm1 'avx512_bf16|amx_bf16|bf16' /proc/cpuinfo),,actor_rollout_ref.rollout.dtype=float32 \
	actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32)

demo-real: demo-real-data  ## A complete Fast DAPO run on SmolLM2-135M and SVAMP's word problems: about an hour. SVAMP=FILE
	@$(PY) -m recipe.fast_dapo.main +backend=cpu +experiment=smollm2_svamp_cpu $(IN_FLOAT32)

# Processes that share the test files; each file stays in one process, with its fixtures.
PARALLEL := -n $(or $(JOBS),2) --dist loadfile

test-fast: setup  ## While you edit: the unit tests that load neither torch nor verl, with fewer examples
	@$(PY) -m pytest -x -q --fast $(PARALLEL) tests/unit

test: demo-data browser  ## What every change must pass: unit, compat, pages in a browser, then real Ray, FSDP2 and vLLM
	@echo "== 1 of 3: unit and compat, two at a time =="
	@$(PY) -m pytest -x -q -m "not release" $(PARALLEL) --cov --cov-report= --durations=15 tests/unit tests/compat
	@$(PY) -m coverage report --fail-under=95 --include="$$($(PY) tests/compat/pure_folders.py)"
	@echo "== 2 of 3: the pages in a browser, two at a time =="
	@$(PY) -m pytest -x -q -m "not release" $(PARALLEL) tests/browser
	@echo "== 3 of 3: real Ray, FSDP2 and vLLM, one after the other =="
	@$(PY) -m pytest -x -v -m "not release" --durations=15 tests/integration

test-release: demo-data  ## The exhaustive rest, before a release: many ranks, all attacks, evaluators, more runs, two Ray nodes, Ctrl-C, demos on a bare machine
	@$(if $(TORCH_SOURCE),UV_TORCH_BACKEND=cpu) $(PY) -m pytest -x -v -m release --durations=15 tests/unit
	@$(PY) -m pytest -x -v -m release --durations=15 tests/integration

test-unit: setup  ## Unit and compat, without Ray and engines
	@$(PY) -m pytest -x -q -m "not release" $(PARALLEL) tests/unit tests/compat

test-gpu: setup  ## The tests that need one CUDA device; skipped elsewhere
	@$(PY) -m pytest -x tests/gpu

lint: setup  ## ruff, import-linter, pyright, shellcheck, and oxlint for the pages' scripts
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/lint-imports --no-cache --no-logo
	@$(VENV)/bin/pyright
	@$(VENV)/bin/shellcheck $$(grep -rlIE --exclude='*.j2' '^#!.*sh$$' .ci configs tests)
	@$(VENV)/bin/oxlint --quiet --deny-warnings -D correctness -D suspicious \
		-A consistent-function-scoping verl_ext/report/static $(wildcard recipe/*/pages/static)

contract: setup  ## Record again what our code uses of verl, vLLM, TransferQueue, Ray and tensordict
	@$(PY) tests/compat/contract.py

# uv gets its package sources as in `make setup`.
releases: setup  ## The contract tests on several releases of verl, each in its own environment. VERL="0.9.0 DIR"
	@$(if $(TORCH_SOURCE),UV_TORCH_BACKEND=cpu) $(PY) tests/compat/releases.py $(if $(VERL),--verl $(VERL))

# Pictures for the site, made by the pages' own tests; without Chromium these are skipped, and the site says so.
SCREENSHOTS := outputs/screenshots/.made
$(SCREENSHOTS): $(wildcard verl_ext/report/*.py verl_ext/report/*/* recipe/*/pages/*.py recipe/*/pages/*/* tests/browser/*.py)
	@mkdir -p $(@D)
	@$(PY) -m pytest -q -x $(addprefix tests/browser/test_,golden_viewer.py trace_viewer.py run_report.py seeds.py three_clicks.py)
	@! ls $(@D)/*.png >/dev/null 2>&1 || touch $@

docs: export NO_MKDOCS_2_WARNING := 1
docs: setup browser  ## Build the site: outputs/site/index.html opens with a double click
	@$(MAKE) --no-print-directory $(SCREENSHOTS)
	@$(VENV)/bin/mkdocs build --quiet --config-file docs/site/mkdocs.yml
	@echo "The site is outputs/site/index.html"

docs-serve: setup  ## Serve the site on this machine, and rebuild it on changes
	@$(VENV)/bin/mkdocs serve --config-file docs/site/mkdocs.yml --watch .

benchmark: demo-data  ## Run the benchmarks; docs/benchmarks/ has the results. QUICK=1: one seed, under 15 minutes
	@$(PY) tests/benchmarks/fast_dapo_efficiency.py $(if $(QUICK),--quick)
	@$(PY) tests/benchmarks/bench_data_controller.py $(if $(QUICK),--prompts 20000)
	@test ! -f outputs/fast_dapo_demo/metrics.jsonl || $(PY) tests/benchmarks/step_overhead.py outputs/fast_dapo_demo

leaderboard: demo-data  ## Every tuned method of choosing rollouts: hours, can be killed and resumed. QUICK=1: 15 minutes. BALANCED=1: by cost
	@$(if $(QUICK),,$(PY) tests/benchmarks/leaderboard_tasks.py)
	@$(PY) tests/benchmarks/fast_dapo_leaderboard.py $(if $(QUICK),--quick) $(if $(BALANCED),--balanced)

clean:  ## Remove the environment, caches and everything that runs wrote
	rm -rf $(VENV) outputs .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
