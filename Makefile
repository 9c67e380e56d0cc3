# Two commands for a newcomer: `make demo` and `make test`. Everything else is for developers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test soak browser docs lint types contracts check clean help
.DEFAULT_GOAL := help

help: ## show what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

$(READY): pyproject.toml constraints.txt src/hotswap/_version.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing hotswap and what it needs into $(VENV) (a few minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

demo: $(READY) ## race the default lanes on MNIST, beside AdamW, Prodigy and HotSwapSGD; two to four minutes
	@$(BIN)/hotswap demo

browser: ## Debian's Chromium, in which the page is tested, where it may be installed
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& echo "Installing Chromium for the tests of the page ..." && apt-get update -qq >/dev/null 2>&1; \
		apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; } \
		|| echo "There is no Chromium and it cannot be installed: tests of the page in a browser are skipped."

test: $(READY) browser ## run every test
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder  # the tests of a file share what they set up

soak: $(READY) ## what takes many minutes: damaged files, Ctrl-C at every line, kills, a cluster whose nodes are killed
	@$(BIN)/python -m pytest -m soak

docs: $(READY) ## build the documentation into site/, with the numbers of results/ in it
	@$(BIN)/python docs/numbers.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(READY) ## style
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY) ## strict types
	@$(BIN)/mypy

contracts: $(READY) ## who may import whom
	@$(BIN)/lint-imports --no-cache

check: lint types contracts test ## everything that a change must pass

clean: ## forget the environment and every cache
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
