# `make play` and `make test` are all a newcomer needs; each sets up what it uses, once.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet -c constraints.txt
ARGS ?=
SETUP_FILES := pyproject.toml constraints.txt

.PHONY: help setup play test check format bench plot picture dist docs pocket kernels clients browser demo clean

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v < (3, 15) else "error: Python 3.10 to 3.14 is \
needed, this is %d.%d: constraints.txt has no packages for it; run: make PYTHON=python3.14 ..." % v)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.play: $(VENV)/.python $(SETUP_FILES)
	@echo "setting up what playing needs (once) ..."
	$(PIP_INSTALL) -e '.[cpu]'
	@touch $@

$(VENV)/.dev: $(VENV)/.play $(SETUP_FILES)
	@echo "setting up what tests and export need, PyTorch included (once) ..."
	$(PIP_INSTALL) -e '.[cpu,dev,export]'
	@touch $@

setup: $(VENV)/.dev  ## everything: playing, tests, export

play: $(VENV)/.play  ## play; ARGS='--seed 7 --out games/mine' are passed on
	$(BIN)/animegamer-rt play $(ARGS)

test: $(VENV)/.dev  ## all tests, two files at a time; ARGS='-k imports' are passed on
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --max-worker-restart 0 $(ARGS)

check: $(VENV)/.dev  ## ruff, mypy --strict, the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## put imports and layout in order
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

$(VENV)/.plot: $(VENV)/.play $(SETUP_FILES)
	$(PIP_INSTALL) matplotlib
	@touch $@

bench: $(VENV)/.plot  ## measure suite 1 with every plan, and the server, on this machine; renew the tables and plots
	for plan in exact balanced fast; do \
	  $(BIN)/animegamer-rt bench run --suite 1 --plan $$plan --results benchmarks/results $(ARGS) || exit 1; done
	$(BIN)/animegamer-rt bench serve --results benchmarks/results
	$(BIN)/python benchmarks/tables.py
	$(BIN)/python benchmarks/plots.py

plot: $(VENV)/.plot  ## draw the plots from benchmarks/results; ARGS='--results bench-results' draws yours
	$(BIN)/python benchmarks/plots.py $(ARGS)

picture: $(VENV)/.dev  ## play the game shown in README and make its animated picture
	$(BIN)/python docs/picture.py $(ARGS)

dist: $(VENV)/.dev  ## build both wheels and play them in a clean environment without the checkout (needs the network)
	rm -rf dist
	$(BIN)/python -m build --wheel
	$(BIN)/python -m build --wheel --outdir dist client/python
	$(BIN)/python tests/wheel_plays.py dist

$(VENV)/.docs: $(VENV)/.python $(SETUP_FILES)
	@echo "setting up what the pages need (once) ..."
	$(PIP_INSTALL) -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## build the pages of docs/ and the API reference into build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

pocket: $(VENV)/.dev  ## train and export the pocket bundle from nothing
	$(BIN)/python -m animegamer_export.pocket --work pocket-work --out engines/pocket $(ARGS)

kernels:  ## the CUDA kernels' library into build/kernels (docs/KERNELS.md); without nvcc, their references
	cmake -S . -B build/kernels $(ARGS)
	cmake --build build/kernels --parallel 2

clients: $(VENV)/.play  ## build the native client into build/native and test it against a server
	@for tool in cmake c++ pkg-config; do command -v $$tool >/dev/null || { echo "error: $$tool is missing; install the Debian \
packages cmake, g++ and pkg-config"; exit 1; }; done
	cmake -S client/native -B build/native -DANIMEGAMER_SERVE="$(abspath $(BIN))/animegamer-rt serve" $(ARGS)
	cmake --build build/native --parallel 2
	ctest --test-dir build/native --output-on-failure

browser: $(VENV)/.dev  ## play the page in Chromium, which must be installed; ARGS='--out DIR' are passed on
	$(BIN)/python tests/browser/play_in_chromium.py $(ARGS)

demo: $(VENV)/.dev  ## record games and write the page that plays them without a server into build/demo
	$(BIN)/python client/demo/record.py $(ARGS)

clean:  ## remove the environment, builds and caches; the bundle, pocket-work, records and your games stay
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache
