# Everything runs from a virtual environment that the first target sets up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH ?=
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench lock plugin wheel clean

help: ## Say what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "onecopy needs Python 3.11 or newer: set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@command -v javac >/dev/null \
	  || { echo "onecopy needs a full JDK 17 or newer on PATH (javac is missing)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(INSTALLED) ## Make the virtual environment

demo: $(INSTALLED) ## Tier three real topics on a real broker and read them back in three ways
	$(BIN)/onecopy demo --report build/demo-report.json

lint: $(INSTALLED) ## Lint, formatting, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## Lint and the whole test suite
	$(BIN)/python -m pytest $(PYTEST_ARGS)

bench: $(INSTALLED) ## Run the benchmarks (BENCH=name for one); results in bench/results/latest.json
	$(BIN)/python -m bench $(BENCH)

plugin: $(INSTALLED) ## Build the broker plug-in's jar
	$(BIN)/python -m tiering.broker_plugin.build

wheel: plugin ## Build the wheel, with the jar in it
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

lock: $(INSTALLED) ## Resolve the dependencies again
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet pyproject.toml --extra dev --universal --generate-hashes --python-version 3.11 \
	  --no-emit-index-url --no-emit-find-links --no-header --output-file requirements.lock

clean: ## Remove what was built
	rm -rf $(VENV) build dist
