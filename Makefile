# `make play` and `make test` are all a newcomer needs; each sets up what it uses, once.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet -c constraints.txt
ARGS ?=
SETUP_FILES := pyproject.toml export/pyproject.toml client/kiosk/pyproject.toml constraints.txt

# What `make test-pythons` looks for; the names on the path first, then pyenv's.
PYTHONS := 3.10 3.11 3.12 3.13 3.14

.PHONY: help setup play test test-pythons check format bench bench-clients size picture dist docs pocket kernels clients clients-dist browser kiosk clean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 10) <= v < (3, 15) else "error: Python 3.10 to 3.14 is \
needed, this is %d.%d: constraints.txt has no packages for it; run: make PYTHON=python3.14 ..." % v)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.play: $(VENV)/.python $(SETUP_FILES)
	@echo "setting up what playing needs (once) ..."
	$(PIP_INSTALL) -e '.[cpu]'
	@touch $@

# It has all that .play has: one run of pip instead of two.
$(VENV)/.dev: $(VENV)/.python $(SETUP_FILES)
	@echo "setting up what tests and export need, PyTorch included (once) ..."
	$(PIP_INSTALL) -e '.[cpu,dev,export]' -e ./export -e ./client/kiosk
	@touch $(VENV)/.play $@

setup: $(VENV)/.dev  ## everything: playing, tests, export

play: $(VENV)/.play  ## play; ARGS='--seed 7 --out games/mine' are passed on
	$(BIN)/animegamer-rt play $(ARGS)

test: $(VENV)/.dev  ## all tests, three files at a time; ARGS='-k imports' are passed on
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(ARGS)

# Each Python has an environment of its own, of 2 to 6 GB, which is kept.
test-pythons:  ## all tests on every Python from 3.10 to 3.14 that is here; ARGS as for `make test`
	@passed= failed= missing=; for version in $(PYTHONS); do \
	  python=; for name in python$$version $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python; do \
	    if $$name -c '' 2>/dev/null; then python=$$name; break; fi; done; \
	  if [ -z "$$python" ]; then missing="$$missing $$version"; continue; fi; \
	  echo "== Python $$version: $$python"; \
	  if $(MAKE) --no-print-directory test PYTHON=$$python VENV=.venv-pythons/$$version; then passed="$$passed $$version"; \
	  else failed="$$failed $$version"; fi; done; \
	echo "tests passed on Python:$${passed:- none}; failed on:$${failed:- none}; not found:$${missing:- none}"; \
	[ -z "$$failed" ] && [ -n "$$passed" ]

check: $(VENV)/.dev  ## ruff, mypy --strict (also as on Windows), the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 runtime benchmarks/bench export/animegamer_export client/python
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## put imports and layout in order
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.play  ## measure suite 1 with every plan, and the server, on this machine; renew the tables
	for plan in exact balanced fast turbo; do \
	  $(BIN)/animegamer-rt bench run --suite 1 --plan $$plan --results benchmarks/results $(ARGS) || exit 1; done
	$(BIN)/animegamer-rt bench serve --results benchmarks/results
	$(BIN)/python benchmarks/tables.py

bench-clients: $(VENV)/.dev  ## measure what each client adds to a turn, and whether it grows
	$(BIN)/python benchmarks/clients.py $(ARGS)

size: $(VENV)/.dev  ## count lines, words, and the files that a turn enters
	$(BIN)/python benchmarks/size.py --turns

picture: $(VENV)/.dev  ## make README's animated picture and the page's pictures
	$(BIN)/python docs/picture.py $(ARGS)
	$(BIN)/python docs/page_pictures.py

dist: $(VENV)/.dev  ## build the three wheels and play them in a clean environment without the checkout (needs the network)
	rm -rf dist
	$(BIN)/python -m build --wheel
	$(BIN)/python -m build --wheel --outdir dist client/python
	$(BIN)/python -m build --wheel --outdir dist client/kiosk
	$(BIN)/python tests/wheel_plays.py dist

$(VENV)/.docs: $(VENV)/.python $(SETUP_FILES)
	@echo "setting up what the pages need (once) ..."
	$(PIP_INSTALL) -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## build the pages of docs/ and the API reference into build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

pocket: $(VENV)/.dev  ## train and export the pocket bundle from nothing
	$(BIN)/python -m animegamer_pocket --work pocket-work --out engines/pocket $(ARGS)

kernels:  ## the CUDA kernels' library into build/kernels (docs/KERNELS.md); without nvcc, their references
	cmake --fresh -S . -B build/kernels $(ARGS)
	cmake --build build/kernels --parallel 2

clients: $(VENV)/.dev  ## build and test every client, into build/; says what is missing for those that it leaves out
	-$(BIN)/python client/tools.py
	ANIMEGAMER_CLIENT_BUILDS=$(CURDIR)/build $(BIN)/python -m pytest -n 2 --dist loadfile tests/client $(ARGS)

clients-dist: $(VENV)/.dev  ## pack Unity's package, Unreal's plugin and the native libraries into dist/, and play each
	client/native/dist.sh dist
	$(BIN)/python client/engine_archives.py dist
	$(BIN)/python tests/archives_play.py dist

browser: $(VENV)/.dev  ## play the page in Chromium, which must be installed; ARGS='--out DIR' are passed on
	PYTHONPATH=. $(BIN)/python tests/browser/play_in_chromium.py $(ARGS)
	PYTHONPATH=. $(BIN)/python tests/browser/faults_in_chromium.py $(ARGS)

kiosk: $(VENV)/.dev  ## play the kiosk kit where only loopback exists; needs Chromium
	$(BIN)/python tests/browser/kiosk_in_loopback.py

clean:  ## remove the environment, builds and caches; the bundle, pocket-work, records and your games stay
	rm -rf $(VENV) .venv-pythons dist build .pytest_cache .mypy_cache .ruff_cache
