PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-gpu hopper lint bench kills fuzz clean

# torch first and alone: with 2.13.0 in place nothing later can ask for another build of it
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	$(INSTALL) --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/geoskip demo

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Shapes in signatures are checked as the tests run, except where torch or Triton reads the code itself.
# Files of tests go to JOBS processes with a thread each.
test: export OMP_NUM_THREADS = 1
test: lint
	$(PYTEST) -m "not compiled and not gpu" --jaxtyping-packages=geoskip,tests.check
	$(PYTEST) -m "compiled and not gpu"

# On a machine with an NVIDIA GPU; PYTHON is an interpreter that has torch with CUDA. Writes results/gpu-tests.json.
test-gpu:
	PYTHONPATH=src $(PYTHON) -m tests.gpu

# Compile the kernels for an NVIDIA Hopper GPU, on a machine without one.
hopper: $(VENV)/.installed
	$(BIN)/python -m tests.hopper --threads $(JOBS)

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks

# Kill geoskip in the middle of its work, KILLS times, and record whether anything was lost or left behind.
KILLS ?= 300
kills: export OMP_NUM_THREADS = 1
kills: $(VENV)/.installed
	$(BIN)/python -c "from tests.kills import main; main()" --kills $(KILLS) --record results/kills.json

# Damaged files for every reader. The record in docs/reliability.md: make fuzz SECONDS=300 RECORD=results/fuzz.json
fuzz: SECONDS = 60
fuzz: export OMP_NUM_THREADS = 1
fuzz: $(VENV)/.installed
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --jobs $(JOBS) $(if $(RECORD),--json $(RECORD))

clean:
	rm -rf $(VENV) build dist src/*.egg-info
