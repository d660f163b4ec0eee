# Two commands: `make run` shows a real query, `make test` runs the tests. Both set everything up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

SPARK_PARTS := test-spark-1 test-spark-2 test-spark-3

# `docs` is a folder too.
.PHONY: docs run wheel test test-all test-state $(SPARK_PARTS) lint crash simulate bench clean setup

$(STAMP): constraints.txt pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[view,test,lint,docs]'
	touch $@

JAR := $(VENV)/.jar
$(JAR): $(STAMP) src/headrace/jvm/build.py $(wildcard src/headrace/jvm/scala/*.scala)
	$(BIN)/python -m headrace.jvm.build
	touch $@

setup: $(JAR)

wheel: $(JAR)
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

run: $(JAR)
	$(BIN)/headrace run

lint: $(STAMP)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy

test: $(JAR) lint
	$(MAKE) --no-print-directory -k -j2 $(SPARK_PARTS) test-state

# The same with the tests that `make test` leaves out for their length.
test-all: MORE := --all --seeds 20
test-all: $(JAR) lint
	$(MAKE) --no-print-directory -k -j2 $(SPARK_PARTS) test-state MORE='$(MORE)'

test-state:
	$(BIN)/pytest --durations=12 $(MORE) tests/unit tests/contract tests/stateful tests/simulation tests/crash tests/equivalence

# Parts of tests/spark, so that two of them can run side by side.
$(SPARK_PARTS): test-spark-%:
	$(BIN)/pytest --durations=12 --part $*/3 $(filter-out --seeds 20,$(MORE)) tests/spark

crash: $(JAR)
	$(BIN)/headrace crash --rounds 288
	$(BIN)/headrace crash --matrix

SEEDS ?= 1000
simulate: $(STAMP)
	$(BIN)/headrace simulate --seeds $(SEEDS)

bench: $(JAR)
	$(BIN)/headrace bench rmw
	$(BIN)/headrace bench flowkv
	$(BIN)/headrace bench readwrite
	$(BIN)/headrace bench migration
	$(BIN)/headrace bench stores
	$(BIN)/headrace bench commit

# The documentation site, warnings as errors.
docs: $(STAMP)
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo docs/_build/html/index.html

clean:
	rm -rf $(VENV) build dist src/*.egg-info
