# Two commands set everything up on a fresh machine: `make demo` and `make test`.
VENV := .venv
PYTHON := $(VENV)/bin/python
BOOTSTRAP_PYTHON ?= python3
BENCH_VENV := .bench-venv

.PHONY: demo test long lint bench clean

demo: $(VENV)/.installed
	$(VENV)/bin/hyper-rl demo

# Most of the tests' time is XLA's compiler. What does not depend on how it compiles is compiled quickly: a third less.
QUICKLY_COMPILED := XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"

test: $(VENV)/.installed-test lint
	$(PYTHON) -m pytest -n 2 --dist loadgroup -m "exact and not long"
	$(QUICKLY_COMPILED) $(PYTHON) -m pytest -n 2 --dist loadgroup -m "not exact and not long"

long: $(VENV)/.installed-test
	$(PYTHON) -m pytest -m long

lint: $(VENV)/.installed-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

bench: $(VENV)/.installed $(BENCH_VENV)/.installed
	$(PYTHON) benchmarks/side_by_side.py

# The stamp files make an install happen once, and again only when what it depends on has changed.
$(VENV)/bin/python:
	$(BOOTSTRAP_PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[plots]"
	touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	touch $@ $(VENV)/.installed

$(BENCH_VENV)/.installed: benchmarks/peers_requirements.txt
	$(BOOTSTRAP_PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers_requirements.txt
	touch $@

clean:
	rm -rf $(VENV) $(BENCH_VENV) .mypy_cache .ruff_cache .pytest_cache
