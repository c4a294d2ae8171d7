# make demo: sets everything up and runs the flagship federation.   make test: sets everything up and runs the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TESTS ?= tests src docs README.md
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder # as tests/conftest.py has them

test test-long: export PYTHONDONTWRITEBYTECODE = # tests start many processes: byte code that is kept starts them sooner

.PHONY: demo test test-long test-trackers lint types imports docs dist bench clean

demo: $(VENV)/.core
	$(BIN)/archipel compare examples/flagship/*.toml --out results/demo

test: $(VENV)/.dev
	$(PYTEST) -m "not long" $(TESTS)

test-long: $(VENV)/.dev
	$(PYTEST) -m long $(TESTS)

test-trackers: $(VENV)-trackers/.done
	$(VENV)-trackers/bin/python -m pytest tests/test_trackers.py

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

docs: $(VENV)/.docs
	$(BIN)/python docs/make.py build/docs
	$(BIN)/mkdocs build --strict --quiet --site-dir build/site
	@echo "build/site/index.html"

dist: $(VENV)/.dev
	rm -rf dist build/tried
	$(BIN)/python -m build --outdir dist
	for made in dist/*.whl dist/*.tar.gz; do rm -rf build/tried && $(PYTHON) -m venv build/tried && \
	  build/tried/bin/python -m pip install --quiet --disable-pip-version-check $$made && (cd build/tried && \
	  bin/archipel --version && bin/archipel new here && bin/archipel run here/federation.toml --rounds 5 --out out) || exit 1; done
	du -sm build/tried

bench: $(VENV)/.core
	$(BIN)/python benchmarks/performance.py docs/performance.md

$(VENV)/.core: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[privacy,figures]"
	touch $@

$(VENV)/.dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c packaging/constraints.txt -e ".[all,dev]"
	touch $@ $(VENV)/.core

$(VENV)-trackers/.done: pyproject.toml # MLflow, Trackio and W&B, each with a hundred packages of its own
	test -x $(VENV)-trackers/bin/python || $(PYTHON) -m venv $(VENV)-trackers
	$(VENV)-trackers/bin/python -m pip install --quiet --disable-pip-version-check -e ".[track]" tensorboard pytest hypothesis
	touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-trackers results build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
