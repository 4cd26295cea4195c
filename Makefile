# The commands of the README are `make try`, `make demo` and `make test`. All go
# through tools/bootstrap.py, which needs nothing but Python 3.10 to 3.13 and
# returns at once when the environment is up to date.
PYTHON ?= python3
VENV ?= .venv
TRY_VENV ?= .venv-torch
TORCH ?= torch
RUN := "$(VENV)/bin/python"
ADAPTERS := "$(VENV)-adapters"
UPSTREAM := "$(VENV)-upstream"

# glibc gives large blocks back to the system as soon as they are free, and the
# page faults of the next step then cost more than its sums: trainings and tests
# on a CPU took 2 to 5 times as long. What these keep is bounded by the peak.
try demo test test-fast test-slow coverage test-adapters test-upstream notebooks: export MALLOC_MMAP_THRESHOLD_ ?= 1073741824
try demo test test-fast test-slow coverage test-adapters test-upstream notebooks: export MALLOC_TRIM_THRESHOLD_ ?= 4294967296
try demo test test-fast test-slow coverage test-adapters test-upstream notebooks: export MALLOC_TOP_PAD_ ?= 67108864
# Threads that wait sleep: beside another busy process those that spin slow a
# training down several times, and on an idle machine this costs a few percent.
try demo notebooks: export OMP_WAIT_POLICY ?= PASSIVE
# Sums of tests are small: more threads than one only wait for each other.
test test-fast test-slow coverage test-adapters test-upstream: export OMP_NUM_THREADS ?= 1
# Tests start many interpreters: one that may not keep what it compiled of torch compiles it each
# time, 20 s instead of 2. Images for containers forbid it.
test test-fast test-slow coverage test-adapters test-upstream: export PYTHONDONTWRITEBYTECODE :=

# Upstream mmengine does not tell torch 2.6 and later that it trusts its own checkpoints.
test-upstream: export TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD ?= 1

ALL := tests tools/research/tests
# What one edits a loss against; tests that start processes are left out.
FAST := tests/formulas tests/contract/losses
# The files of tests/formulas/functions that take mmengine.
OF_OPENMMLAB := --ignore-glob '*/test_level_metrics.py' --ignore-glob '*/test_hierarchical.py'

.DEFAULT_GOAL := help
.PHONY: help try env env-adapters env-upstream demo test test-fast coverage test-slow test-adapters \
  test-upstream test-torch test-newcomers test-compiled lint notebooks floors audit docs release clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

try:  ## a first result with torch alone: AP and cross-entropy on rare classes
	@"$(PYTHON)" tools/bootstrap.py --venv "$(TRY_VENV)" --torch-alone
	@"$(TRY_VENV)/bin/python" tools/first_result.py

env:  ## make or refresh the environment in .venv; nothing is compiled
	@"$(PYTHON)" tools/bootstrap.py --venv "$(VENV)"

env-adapters:  ## that of tests/adapters in .venv-adapters: transformers 5, rfdetr, no mmcv
	@"$(PYTHON)" tools/bootstrap.py --venv $(ADAPTERS) --lock requirements/lock_adapters.txt

env-upstream:  ## mmengine, mmcv-lite, mmdet, mmpretrain of the package index in .venv-upstream
	@"$(PYTHON)" tools/bootstrap.py --venv $(UPSTREAM) --lock requirements/lock_upstream.txt

demo: env  ## train a detector on graded AP-Loss and on focal loss, on made-up data
	@$(RUN) tools/demo.py

test: env  ## all tests but the slow ones (5 minutes on 2 cores)
	@$(RUN) -m pytest -n auto --dist worksteal --ignore tests/adapters $(ALL)
	@$(MAKE) test-adapters

test-adapters: env-adapters  ## detectors and trainers of other libraries, as they are today
	@$(ADAPTERS)/bin/python -m pytest -n auto --dist worksteal tests/adapters

test-upstream: env-upstream  ## heads, hooks, tools and operators on upstream OpenMMLab
	@$(UPSTREAM)/bin/python -m pytest -n auto --dist worksteal tests/detection tests/contract \
	  tests/models tests/engine tests/evaluation tests/cli

test-fast: env  ## the maths alone: functional, state, losses (90 seconds)
	@$(RUN) -m pytest -n auto --dist worksteal $(FAST) \
	  -m 'not slow and not processes'

test-torch:  ## the functions with torch alone, in the environment of PYTHON; TORCH='torch==2.0.* numpy<2'
	@"$(PYTHON)" -m pip install -q $(foreach x,$(TORCH),"$(x)") -r requirements/runtime.txt \
	  pytest hypothesis pyyaml scikit-learn
	@"$(PYTHON)" -m pytest tests/formulas/functions $(OF_OPENMMLAB) -m 'not slow and not processes'

coverage: env  ## the share of mmrank's lines that the tests but the slow ones run (5 minutes)
	@$(RUN) -m pytest -n auto --dist worksteal --ignore tests/adapters $(ALL) \
	  --cov mmrank --cov-report term:skip-covered --cov-fail-under 93

test-slow: env env-adapters  ## the tests that take minutes, and more random examples
	@$(RUN) -m pytest -m 'slow or hypothesis' --hypothesis-profile thorough $(ALL)
	@$(ADAPTERS)/bin/python -m pytest -m slow tests/adapters
	@$(RUN) -m pytest tests/adapters  # on the oldest transformers that they support

test-newcomers: env  ## what each page tells a newcomer to type, with mmrank from a wheel
	@$(RUN) -m pytest tests/docs -m slow -k newcomer --durations=0

test-compiled:  ## the operators against those of a compiled mmcv (20 minutes)
	@"$(PYTHON)" tools/bootstrap.py --venv "$(VENV)" --compile-mmcv
	@$(RUN) -m pytest tests/detection/mmcv_ops -m 'slow or not slow'

lint: env  ## ruff: style and format; pyright: types
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@command -v pyright > /dev/null || { echo "lint takes pyright: pip install -r requirements/ci.txt"; exit 1; }
	@pyright --pythonpath "$(VENV)/bin/python"

notebooks: env  ## execute docs/notebooks/*.py for the site (6 minutes)
	@"$(VENV)/bin/jupytext" --to executed//ipynb --execute --run-path . \
	  docs/notebooks/*.py

# Each in a checkout of its own; without a tag that of today alone.
floors: env  ## times of losses and metrics: of the last release, and of today
	@for at in $$(git describe --tags --abbrev=0) HEAD; do \
	  git worktree add -qf --detach "work_dirs/at/$$at" "$$at" && echo "$$at" && \
	  PYTHONPATH="work_dirs/at/$$at" $(RUN) "work_dirs/at/$$at/tools/benchmarks/floors.py"; \
	  git worktree remove -f "work_dirs/at/$$at"; \
	done

audit: env  ## known vulnerabilities of what requirements/lock.txt pins
	@pip-audit --disable-pip --require-hashes -r requirements/lock.txt

docs: env  ## the documentation site, in site/
	@NO_MKDOCS_2_WARNING=1 "$(VENV)/bin/mkdocs" build -q --strict \
	  -f docs/mkdocs.yml && echo "Open site/index.html."

release: env  ## build and try a wheel, write its notes; PROJECT_URL=https://... for its links
	@$(RUN) tools/misc/release.py --url "$(PROJECT_URL)"

clean:  ## remove what builds and test runs left (keeps .venv and work_dirs)
	@rm -rf build dist site docs/notebooks/executed *.egg-info .pytest_cache .ruff_cache .hypothesis
	@find mmrank tools tests configs -name __pycache__ -type d -prune -exec rm -rf {} +
