# Everything a developer runs, by name.  `make` alone lists the targets.
BIN := .venv/bin
STAMP := .venv/.made-by-make-setup
# Tests and demo start many processes, which would each compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo tpch test check docs bench servers-up servers-down clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "  make %-14s %s\n", $$1, $$2 }'

setup: $(STAMP) ## make .venv with the project, its extras and the development tools (PYTHON=… names the Python)
$(STAMP): pyproject.toml constraints.txt dev/make-venv dev/ensure-java
	@dev/make-venv
	@touch $@

demo: setup ## run the demonstration
	@dev/demo

tpch: setup ## run the 22 queries of TPC-H and compare them with DuckDB (SCALE=1, REAL=1 for real servers)
	@case "$${REAL:-0}" in \
	    0 | "") exec $(BIN)/python examples/tpch/tpch.py ;; \
	    *) exec dev/with-servers $(BIN)/python examples/tpch/tpch.py ;; \
	esac

# More workers than cores: many tests wait, for a lease or a process, and leave the cores to the others.
WORKERS ?= 5
# In a new clone every worker would compile all tests, at once: do it before them, while the servers start.
COMPILE_TESTS = { [ -d tests/__pycache__ ] || $(BIN)/pytest --collect-only -qq >/dev/null 2>&1; }
test: setup ## start the real servers, run every test, stop the servers (ARGS="…" goes to pytest)
	@dev/ensure-chromium || echo "make test: without it, the tests of the page in a browser are skipped" >&2
	@$(COMPILE_TESTS) & PERAGO_DEV_IN_MEMORY=1 dev/with-servers $(BIN)/pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder --durations=10 $(ARGS)

check: setup ## format, lint, types and the fast tests; no servers; about a minute
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@# Nothing in tests/spark is fast. Three at once, also on two cores: some tests wait.
	@$(BIN)/pytest -n 3 --dist worksteal -m "not slow and not servers" --ignore=tests/spark $(ARGS)

docs: setup ## build the documentation as a site in build/site; a broken link is an error
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -c docs -d build/doctrees . build/site
	@echo build/site/index.html

bench: setup ## run the benchmarks against the real servers (ARGS="…" goes to the bench)
	@dev/ensure-chromium
	@dev/with-servers $(BIN)/python -m bench $(ARGS)

servers-up: setup ## start real lakeFS and Conductor (`dev/servers env` prints their environment)
	@dev/servers up

servers-down: ## stop them and remove their state
	@dev/servers down

clean: servers-down ## remove everything that make and the tools left in the checkout
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
