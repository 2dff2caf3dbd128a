# Two commands do all the set-up: `make demo` and `make test`. They need Python >= 3.11 with venv,
# and make. Where no C compiler is found, one that comes in a wheel (ziglang) is installed.

VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
CROSS := $(shell for c in "$${CC:-cc}" gcc clang; do \
	command -v $$c >/dev/null 2>&1 && exit; done; echo ,cross)
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

.DEFAULT_GOAL := help
.PHONY: help demo test setup lint clean

help:
	@echo "make demo    train, quantize, compile and verify a network; writes midge-demo/"
	@echo "make test    run every test that this machine can run (JOBS=$(JOBS))"
	@echo "make setup   create $(VENV) with everything that development needs"
	@echo "make lint    style and types"
	@echo "make clean   remove $(VENV) and what was built"

demo: $(VENV)/.ready-demo
	$(BIN)/midge demo --output midge-demo

test: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -n $(JOBS)

setup: $(VENV)/.ready-dev

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Error: no Python >= 3.11 found; set PYTHON=/path/to/python." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of extras; a change of pyproject.toml installs again.
$(VENV)/.ready-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[$*$(CROSS)]"
	@touch $@

clean:
	rm -rf $(VENV) build dist midge.egg-info midge-demo
