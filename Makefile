PYTHON ?= python3

.PHONY: help install check test test-slow test-browser test-clients test-gpu test-vllm house gallery docs site

help:  ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

install:  ## Install the package with what development needs
	$(PYTHON) -m pip install -e ".[dev]"

check:  ## Lint, types, import contracts, budgets of lines
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(PYTHON) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"
	$(PYTHON) -m tests.house

test:  ## The default tests: no network, no key, no GPU
	$(PYTHON) -m pytest

test-slow:  ## The tests that take longer
	$(PYTHON) -m pytest -m slow

test-browser:  ## The viewer's tests in the Chromium that CHROMIUM names, or the one on the path
	$(PYTHON) -c "import playwright" 2>/dev/null || $(PYTHON) -m pip install -q -e ".[browser]"
	$(PYTHON) -m pytest -m browser

test-clients:  ## The tests with programs of others, which the first time are installed into ~/.cache/editloupe/clients
	$(PYTHON) -m pytest -n 0 -m clients -rs

test-gpu:  ## The tests on a CUDA GPU; needs the extra local
	$(PYTHON) -m pytest -n 0 -m gpu -rs

test-vllm:  ## The tests against a real vLLM on the CPU; the first time makes its environment (3.5 GB, minutes)
	EDITLOUPE_VLLM="$$($(PYTHON) -m tests.backends.vllm_peer)" $(PYTHON) -m pytest -n 0 -m vllm -s

house:  ## Record the lower figures of tests/house.json, after something was removed
	$(PYTHON) -m tests.house --write

gallery:  ## Make the recorded traces of editloupe/traces/gallery again
	$(PYTHON) docs/site/make_gallery.py

docs:  ## Draw the example folder and the measured tables of the docs again
	PYTHONPATH=. $(PYTHON) docs/site/draw_edits.py
	$(PYTHON) docs/site/draw_look.py

site:  ## Build the documentation as a site into build/site
	$(PYTHON) -c "import mkdocs, material, mkdocstrings" 2>/dev/null || $(PYTHON) -m pip install -q -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict
