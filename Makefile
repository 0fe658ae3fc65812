# Set-up happens by itself: every target that needs the environment depends on its stamp.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_WAIT_POLICY := PASSIVE

.PHONY: run test unit format lint typecheck bench clients page browser demo-vision clean

run: $(STAMP)
	$(BIN)/python -m app serve

test: lint typecheck unit

unit: $(STAMP)
	$(BIN)/python -m pytest

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

typecheck: $(STAMP)
	$(BIN)/mypy

# Another run: make bench BENCH="run --url http://... --workload character"; see docs/performance.md.
BENCH ?= run --workload lmsys tools extraction free --out loadtest/results/latest
bench: $(STAMP)
	$(BIN)/python -m loadtest $(BENCH)

# Real clients against servers of the demo models; needs Node and npm for those of Node.
clients: $(STAMP)
	$(BIN)/python -m tests.clients.run $(CLIENTS)

# The page that the server shows at /, from its sources; needs Node and npm. See docs/page.md.
page:
	npm ci --no-audit --no-fund --loglevel=error --ignore-scripts --prefix app/page
	npm run --silent --prefix app/page check
	npm run --silent --prefix app/page build

# The page in a real browser: part of make test where one is installed. See docs/page.md.
BROWSERS := chromium chromium-browser google-chrome
browser: $(STAMP)
	@which $(BROWSERS) 2>/dev/null | grep -q . || \
		{ [ "$$(id -u)" = 0 ] && which apt-get >/dev/null && apt-get install -qq -y chromium fonts-dejavu; } || \
		{ echo 'No browser is here ($(BROWSERS)): sudo apt-get install chromium fonts-dejavu'; exit 1; }
	$(BIN)/python -m pytest tests/browser

# The demo that sees, trained anew: an hour on one core. See tools/demo_vision/README.md.
demo-vision: $(STAMP)
	$(BIN)/python -m tools.demo_vision train $(DEMO_VISION)

fuzz: $(STAMP)
	$(BIN)/python -m tests.conformance.fuzz_api --examples 2000
	$(BIN)/python -m tests.conformance.agreement --objects --count 1500

clean:
	rm -rf $(VENV) .clients .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Leapjson needs Python 3.11 or later: make PYTHON=/path/to/python3.11'; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[test]"
	touch $@
