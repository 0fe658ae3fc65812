# Set-up happens by itself: a target that needs the environment depends on its stamp.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.run
TEST := $(VENV)/.test
export OMP_WAIT_POLICY := PASSIVE
# Set in many images of Python; every process would then compile torch and transformers anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-all wide format lint typecheck fuzz bench clients page browser demo-vision clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

run: $(RUN)  ## serve the embedded demo model on http://127.0.0.1:8000
	@$(BIN)/python -m app serve

# Twice the cores of CI: most tests wait for servers, files or a browser.
WORKERS ?= 4
SPREAD := --forks $(WORKERS)
TESTED := $(BIN)/python tools/stages.py
test: $(TEST)  ## lint, import rules, types and tests; WORKERS=4 processes run the tests
	@$(TESTED) test $(SPREAD)

test-all: $(TEST)  ## the same with the wide tests, which tests/wide.py lists
	@$(TESTED) test-all $(SPREAD) -m 'wide or not wide'

WIDE ?= tests
wide: $(TEST)  ## the wide tests alone; WIDE="tests/loadtest tests/tools/bench" for those of some folders
	@$(TESTED) wide $(SPREAD) -m wide $(WIDE)

HOURS ?= 1
fuzz: $(TEST)  ## random inputs against oracles for HOURS=1; a failure is printed as a test to paste
	@$(BIN)/python -m tests.conformance.fuzz --hours $(HOURS) --workers $(WORKERS)

format: $(TEST)  ## format and fix what ruff can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint: $(TEST)  ## format, lint and import rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports

typecheck: $(TEST)  ## types
	@$(BIN)/mypy

# Another run: make bench BENCH="run --url http://... --workload character"; see docs/performance.md.
BENCH ?= run --workload lmsys tools extraction free --out loadtest/results/latest
bench: $(TEST)  ## measure the server under load; docs/performance.md
	@$(BIN)/python -m loadtest $(BENCH)

# Needs Node and npm for the clients of Node.
clients: $(TEST)  ## real client libraries against servers of the demo models; docs/clients.md
	@$(BIN)/python -m tests.clients.run $(CLIENTS)

page:  ## build the page of the server from its sources (Node and npm); docs/page.md
	npm ci --no-audit --no-fund --loglevel=error --ignore-scripts --prefix page
	npm run --silent --prefix page check
	npm run --silent --prefix page build

# Part of make test where a browser is installed.
BROWSERS := chromium chromium-browser google-chrome
browser: $(TEST)  ## the page in a real browser; installs Chromium where apt-get may
	@which $(BROWSERS) 2>/dev/null | grep -q . || \
		{ [ "$$(id -u)" = 0 ] && which apt-get >/dev/null && apt-get install -qq -y chromium fonts-dejavu; } || \
		{ echo 'No browser is here ($(BROWSERS)): sudo apt-get install chromium fonts-dejavu'; exit 1; }
	@$(BIN)/python -m pytest tests/browser

demo-vision: $(TEST)  ## train the demo that sees: an hour on one core; tools/demo_vision/README.md
	@$(BIN)/python -m tools.demo_vision train $(DEMO_VISION)

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .cache .clients .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/.%: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Leapjson needs Python 3.11 or later: make PYTHON=/path/to/python3.11'; exit 1; }
	@$(PYTHON) tools/stages.py set-up $*
