# `make demo` and `make test` need Python >= 3.11 and make; each sets up what it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The authorisation server that some tests ask comes from npm; where there is no Node, those tests are left out.
WITHOUT_NODE := $(if $(shell command -v node 2>/dev/null),,-m "not node")

.PHONY: demo test test-without-httpx2 coverage check format clean

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[postgres,testing,rich,sse,langgraph]" --group backend --group check --group test
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m examples.demo

# Pages are read from top to bottom, and servers are shared by a file's tests: each file stays with one worker.
test: $(STAMP)
	$(if $(WITHOUT_NODE),@echo "no Node on this machine: the tests marked 'node' are left out")
	$(BIN)/python -m pytest -n 2 --dist loadfile $(WITHOUT_NODE) $(ARGS)

# The whole suite where httpx2 cannot be imported, in no process: as where only httpx is installed.
test-without-httpx2: $(STAMP)
	PYTHONPATH=$(CURDIR)/tests/without_httpx2 $(BIN)/python -m pytest -n 2 --dist loadfile \
		-m "not httpx2$(if $(WITHOUT_NODE), and not node)" $(ARGS)

# Every branch of the pure core, by its own tests. Minutes, so not part of `make test`.
coverage: $(STAMP)
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run --source=agent_runtime._core -m pytest tests/core -q
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --show-missing --fail-under=100

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
