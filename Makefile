# The two commands of the README are `make demo` and `make test`. Both go
# through tools/bootstrap.py, which needs nothing but Python 3.10 to 3.12 and
# returns at once when the environment is up to date.
PYTHON ?= python3
VENV ?= .venv
RUN := "$(VENV)/bin/python"

# glibc gives large blocks back to the system as soon as they are free, and the
# page faults of the next step then cost more than its sums: trainings and tests
# on a CPU took 2 to 5 times as long. What these keep is bounded by the peak.
demo test test-slow: export MALLOC_MMAP_THRESHOLD_ ?= 1073741824
demo test test-slow: export MALLOC_TRIM_THRESHOLD_ ?= 4294967296
demo test test-slow: export MALLOC_TOP_PAD_ ?= 67108864
# Sums of tests are small: more threads than one only wait for each other.
test test-slow: export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help env demo test test-slow lint clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

env:  ## make or refresh the environment in .venv
	@"$(PYTHON)" tools/bootstrap.py --venv "$(VENV)"

demo: env  ## train stable AP and its focal twin on made-up data (5 minutes)
	@$(RUN) tools/demo.py

test: env  ## all tests but the slow ones
	@$(RUN) -m pytest -n auto --dist loadfile

test-slow: env  ## the tests that take minutes
	@$(RUN) -m pytest -m slow

lint: env  ## ruff: style and format
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .

clean:  ## remove what builds and test runs left (keeps .venv and work_dirs)
	@rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	@find mmrank tools tests configs -name __pycache__ -type d -prune -exec rm -rf {} +
