# Everything a person needs: `make run` sets up and opens kvtui, `make test` sets up and tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
TESTS ?= tests
VERSION ?= 0.5.23
ENGINE_CACHE ?= $(HOME)/.cache/kvtui-engine

.PHONY: run setup test slow lint quick bench gpu-check engine-facts engine-test docs shots clean

run: $(STAMP)
	@$(BIN)/kvtui $(ARGS)

setup: $(STAMP)

$(STAMP): pyproject.toml constraints-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints-dev.txt --editable . --group dev
	@touch $@

test: lint
	$(BIN)/python -m pytest -q -n auto --dist loadgroup -m "not slow" $(TESTS)

lint: $(STAMP)
	$(BIN)/ruff check src tests scripts
	$(BIN)/ruff format --check src tests scripts
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: $(STAMP)
	$(BIN)/python -m pytest -q -n auto -m slow $(TESTS)

quick: $(STAMP)
	$(BIN)/python -m pytest -q -x $(TESTS)

bench: $(STAMP)
	$(BIN)/python scripts/bench.py

gpu-check: $(STAMP)
	$(BIN)/python scripts/gpu_check.py

engine-facts: $(STAMP)
	$(BIN)/python scripts/engine_facts.py --version $(VERSION) --cache "$(ENGINE_CACHE)"

engine-test: $(STAMP)
	sh scripts/install_engine.sh $(VERSION) "$(ENGINE_CACHE)"
	KVTUI_ENGINE="$(ENGINE_CACHE)/sglang-$(VERSION)/bin/python" $(BIN)/python -m pytest -q -m engine tests

docs: $(STAMP)
	$(BIN)/kvtui rules --markdown > docs/rules.md
	$(BIN)/kvtui options --markdown > docs/options.md

shots: $(STAMP)
	$(BIN)/python scripts/shots.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
