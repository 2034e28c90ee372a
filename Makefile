# Every target sets itself up: .venv is made once, and again when a lock file changes.
# ARGS goes to the tool behind a target: make test ARGS="-k lookup"

BIN := .venv/bin
READY := .venv/.ready
PYTEST := $(BIN)/python -m pytest
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: screenshots help setup demo test test-postgres check bench prove test-foreign docs docs-site lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with the locked packages (done once)

$(READY): requirements/lock.txt requirements/lock-test.txt requirements/lock-dev.txt requirements/setup.sh pyproject.toml
	@PYTHON="$(PYTHON)" bash requirements/setup.sh
	@touch $@

demo: $(READY) ## the whole story on this machine: no key, no network
	@$(BIN)/surefoot demo --yes $(ARGS)

# STORE=postgres runs all of them there, STORE=both on either. ON_POSTGRES is about what a store does: what is left out
# (page, command line, connectors, documents, benchmarks) goes through the same store and takes as long again.
STORE ?= sqlite
ON_POSTGRES := $(addprefix tests/,store sim day crash cases waiting processes throttles runtime agent server identity)
# One worker more than there are processors, since tests with real processes wait much of their time; not more than 4,
# since a container may have less of them than it sees.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN) && echo $$((n < 3 ? n + 1 : 4)))
TEST := $(PYTEST) -n $(WORKERS) --dist worksteal -m "not prove and not foreign"

test: $(READY) ## all tests but the long proofs (STORE=sqlite, postgres or both)
	$(TEST) --store $(STORE) $(ARGS)

test-postgres: $(READY) ## on PostgreSQL, the tests that are about what a store does
	$(TEST) --store postgres $(ON_POSTGRES) $(ARGS)

check: $(READY) ## style, types, layers, house rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict
	$(BIN)/lint-imports --no-logo
	$(PYTEST) -q tests/house

bench: $(READY) ## benchmarks: ratios to the floor of this machine
	$(BIN)/python -m benchmarks $(ARGS)

prove: $(READY) ## the long proofs: kills over the windows, many seeds
	$(PYTEST) -s -m prove --store sqlite $(ARGS)
	$(PYTEST) -s -m prove --store postgres tests/prove $(ARGS) || [ $$? -eq 5 ]

# pytest exits with 5 where it finds no test; that no such test exists yet is no failure.
test-foreign: $(READY) ## tests against programs that are not ours
	@found=0; out=$$($(PYTEST) --collect-only -q -m foreign 2>&1) || found=$$?; \
	if [ $$found -eq 5 ]; then echo "test-foreign: no such test exists yet"; \
	elif [ $$found -ne 0 ]; then echo "$$out"; exit $$found; \
	else $(PYTEST) -m foreign --store both $(ARGS); fi

screenshots: $(READY) ## pictures of the web page in build/screenshots
	@$(BIN)/python -m tests.page.screenshots $(ARGS)

docs: $(READY) ## make docs/lifecycle.md and docs/api.md anew
	@$(BIN)/python -m surefoot.core.lifecycle > docs/lifecycle.md.new || { rm -f docs/lifecycle.md.new; exit 1; }
	@mv docs/lifecycle.md.new docs/lifecycle.md
	@$(BIN)/python -m tests.server.exchanges > docs/api-examples.json.new || { rm -f docs/api-examples.json.new; exit 1; }
	@mv docs/api-examples.json.new docs/api-examples.json
	@$(BIN)/python -m surefoot.server.document docs/api-examples.json > docs/api.md.new || { rm -f docs/api.md.new; exit 1; }
	@mv docs/api.md.new docs/api.md

SITE := build/site-venv

docs-site: $(READY) $(SITE)/.ready ## the documents as a site in site/: a broken link is an error
	$(SITE)/bin/zensical build --strict --clean
	@$(BIN)/python docs/check_site.py site

$(SITE)/.ready: requirements/lock-docs.txt
	@$(BIN)/python -m venv --clear $(SITE)
	@$(SITE)/bin/python -m pip --disable-pip-version-check install -qq -r requirements/lock-docs.txt
	@touch $@

lock: ## make the lock files anew (PYTHONS="python3.11 python3.13" compares them)
	bash requirements/lock.sh $(PYTHONS)

clean: ## remove what the tools left, .venv aside
	rm -rf build dist site .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
