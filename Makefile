# Everything runs in .venv, which the targets make and keep up to date themselves. `make` alone lists them.
# Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint docs bench campaign lowest audit clean

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1	/p' $(firstword $(MAKEFILE_LIST)) | while IFS='	' read -r name line; do \
		printf '  make %-8s  %s\n' "$$name" "$$line"; done

demo: $(VENV)/.installed-report ## train with and without attention on generated data; report in demo/ (under 3 minutes)
	$(BIN)/acenode demo --out demo

test: $(VENV)/.installed-dev ## run the tests but for the slow ones
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not slow'

test-all: test ## run the slow tests too, and some in single precision, as users have it
	ACENODE_TESTS_PRECISION=single $(BIN)/python -m pytest tests/single
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

lint: $(VENV)/.installed-dev ## check style (ruff) and types (pyright)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(VENV)/.installed-docs ## build the documentation into docs/_build/html, and check its links
	$(BIN)/python -m sphinx -W --keep-going -q -j 2 -d docs/_build/doctrees docs docs/_build/html
	$(BIN)/python docs/tools/check_site.py docs/_build/html

bench: $(VENV)/.installed-bench ## measure speed and memory, side by side with torchdiffeq and diffrax
	$(BIN)/python benchmarks/run.py

campaign: $(VENV)/.installed-dev ## try to break it: kills, fuzzed files, faults, a million calls (about an hour)
	$(BIN)/python -m benchmarks.campaign

lowest: ## run the quick tests with the lowest versions that pyproject.toml allows, in .venv-lowest
	$(PYTHON) benchmarks/lowest.py $(VENV)-lowest

audit: $(VENV)/.installed-dev ## look for known vulnerabilities of the installed packages (needs a network)
	$(PIP) install --quiet pip-audit
	$(BIN)/python -m pip freeze --exclude-editable > $(VENV)/audited.txt
	$(BIN)/python -m pip_audit --strict --no-deps --disable-pip --requirement $(VENV)/audited.txt

clean: ## remove .venv, caches, builds and the demo's report
	rm -rf $(VENV) $(VENV)-lowest .pytest_cache .ruff_cache .hypothesis build dist demo docs/_build docs/_parts docs/api docs/results
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of dependencies, so that pip runs only when they changed.
$(VENV)/.installed-report: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --quiet --editable '.[report]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/.installed-docs: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --quiet --editable '.[docs]'
	@touch $@

$(VENV)/.installed-bench: pyproject.toml benchmarks/requirements.txt | $(VENV)/bin/python
	$(PIP) install --quiet --editable '.[bench]' --requirement benchmarks/requirements.txt
	@touch $@

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "acenode needs Python 3.11 or newer; '$(PYTHON)' was not found." \
		"Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "acenode needs Python 3.11 or newer;" \
		"'$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name a newer one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version 2>&1); the first install takes a few minutes."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "'$(PYTHON) -m venv' failed, see above. Some systems ship venv" \
		"as a package of its own (python3-venv)." >&2; exit 1; }
