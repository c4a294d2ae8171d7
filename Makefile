# make demo: sets everything up and runs the flagship federation.   make test: sets everything up and runs the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TESTS ?= tests src docs README.md
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: demo test test-long lint types imports docs bench clean

demo: $(VENV)/.core
	$(BIN)/archipel compare examples/flagship/*.toml --out results/demo

test: $(VENV)/.dev
	$(PYTEST) -m "not long" $(TESTS)

test-long: $(VENV)/.dev
	$(PYTEST) -m long $(TESTS)

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

docs: $(VENV)/.core
	$(BIN)/archipel explain --markdown > docs/reference.md

bench: $(VENV)/.core
	$(BIN)/python benchmarks/performance.py docs/performance.md

$(VENV)/.core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[all,dev]"
	touch $@ $(VENV)/.core

clean:
	rm -rf $(VENV) results build .pytest_cache .mypy_cache .ruff_cache .hypothesis
