# Works with Python 3.11 or newer and nothing else; set PYTHON to choose another interpreter.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check bench install clean

$(VENV)/.installed: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "eventctx needs Python 3.11 or newer: set PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

install: $(VENV)/.installed

demo: install
	$(BIN)/eventctx demo

test: install
	$(BIN)/python -m pytest

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py tests/test_public_api.py

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,bench]"
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m tests.benchmarks

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
