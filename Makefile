# Two commands: `make run` shows a real query, `make test` runs the tests. Both set everything up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: run test test-all test-state test-spark lint crash simulate bench clean setup

$(STAMP): constraints.txt pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint]'
	touch $@

setup: $(STAMP)

run: $(STAMP)
	$(BIN)/headrace run

lint: $(STAMP)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy

test: $(STAMP) lint
	$(MAKE) --no-print-directory -j2 test-state test-spark

# The same with the tests that `make test` leaves out for their length.
test-all: MORE := --all --seeds 20
test-all: $(STAMP) lint
	$(MAKE) --no-print-directory -j2 test-state test-spark MORE='$(MORE)'

test-state:
	$(BIN)/pytest --durations=12 $(MORE) tests/unit tests/contract tests/stateful tests/simulation tests/crash tests/equivalence

test-spark:
	$(BIN)/pytest --durations=12 $(filter-out --seeds 20,$(MORE)) tests/spark

crash: $(STAMP)
	$(BIN)/headrace crash --rounds 270
	$(BIN)/headrace crash --matrix

SEEDS ?= 1000
simulate: $(STAMP)
	$(BIN)/headrace simulate --seeds $(SEEDS)

bench: $(STAMP)
	$(BIN)/headrace bench rmw
	$(BIN)/headrace bench flowkv
	$(BIN)/headrace bench readwrite
	$(BIN)/headrace bench migration
	$(BIN)/headrace bench stores
	$(BIN)/headrace bench commit

clean:
	rm -rf $(VENV) build dist src/*.egg-info
