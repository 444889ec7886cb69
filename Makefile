# Everything a developer or a machine runs. `make demo` and `make test` work on a fresh clone.

VENV     := .venv
PY       := $(VENV)/bin/python
STAMP    := $(VENV)/.installed
# The newest supported Python that can make a virtualenv; PYTHON=/path/to/python overrides.
PYTHON   ?= $(shell for p in python3.13 python3.12 python3.11 python3.10 python3; do \
	$$p -c 'import ensurepip, sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)
FUZZ_CASES ?= 10000
SOAK_MINUTES ?= 60

.PHONY: venv java postgres demo test lint types pytest fuzz connect soak bench bench-large format clean

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Deltaic needs Python 3.10 to 3.13 with venv (https://www.python.org/downloads/)"; exit 1; }
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	touch $@

java:
	@scripts/ensure_java.sh

postgres:
	@scripts/ensure_postgres.sh

demo: venv java
	$(VENV)/bin/deltaic demo

test: lint types pytest

lint: venv
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: venv
	$(VENV)/bin/mypy

# Two processes, each with a Spark of its own: one alone leaves a core idle while Spark plans.
JOBS ?= 2
PYTEST := $(PY) -m pytest -n $(JOBS) --dist worksteal
pytest: venv java postgres
	$(PYTEST)

fuzz: venv java postgres
	FUZZ_CASES=$(FUZZ_CASES) $(PYTEST) --fuzz
	$(MAKE) connect

# The end-to-end tests on a Spark Connect session, in its catalog instead of a local warehouse.
connect: venv java
	$(PYTEST) --connect tests/e2e

# Random work on one warehouse by processes that are killed, and a judge; SOAK_ARGS="--seed 7" does it again.
soak: venv java
	$(PY) -m tests.soak $(SOAK_MINUTES) $(SOAK_ARGS)

bench: venv java
	$(PY) -c "import matplotlib, importlib.metadata as m; m.version('tpchgen-cli')" 2>/dev/null || $(PY) -m pip install -q -c constraints.txt -e ".[bench]"
	$(PY) -m benchmarks $(ARGS)

bench-large:
	BENCH_SCALE=10 BENCH_SCALES=1,3,10 $(MAKE) bench

format: venv
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
