# make sweep, make test: each sets up everything that it needs, once, in .venv.

# What to sweep, what to pass to pytest, and whether to install PyTorch and test its baselines too.
SWEEP ?= --seq 512..16k
PYTEST ?= -n auto
TORCH ?= 0

# 13, 12 or none; what the NVIDIA driver supports if empty.
CUDA_MAJOR ?=

# A Python that can make a virtual environment. Tried, not only found: a name on PATH may be an empty shim.
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python; do \
	$$name -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; \
	done)

VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# One stamp for each set of packages, so that installing is done once.
TO_RUN := $(VENV)/.installed-to-run
TO_TEST := $(VENV)/.installed-to-test$(if $(filter 1,$(TORCH)),-with-torch)
COMMA := ,
TEST_EXTRAS := dev$(if $(filter 1,$(TORCH)),$(COMMA)torch)

# Asks the driver's library itself: nvidia-smi may be missing or off PATH.
define CUDA_MAJOR_OF_THE_DRIVER
import ctypes
version = ctypes.c_int()
for name in ("libcuda.so.1", "nvcuda.dll"):
    try:
        ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(version))
    except (AttributeError, OSError):
        continue
major = version.value // 1000
print(13 if major >= 13 else 12 if major == 12 else "none")
endef
export CUDA_MAJOR_OF_THE_DRIVER

.PHONY: help sweep test lint types setup clean

help:
	@echo "make sweep   run the kernels over sequence lengths, into results/ (SWEEP='--config quick' to change)"
	@echo "make test    ruff, mypy and pytest (PYTEST='tests/model -x' to choose, TORCH=1 with PyTorch)"
	@echo "make lint    ruff alone"
	@echo "make types   mypy alone"
	@echo "make setup   install what the tests need, no more"
	@echo "make clean   remove .venv and caches; results stay"

sweep: $(TO_RUN)
	$(BIN)/fa-bench sweep $(SWEEP)

test: lint types
	$(BIN)/python -m pytest $(PYTEST)

lint: $(TO_TEST)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

types: $(TO_TEST)
	$(BIN)/python -m mypy

setup: $(TO_TEST)

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "fa-bench needs Python 3.11 or later with venv. Install it" \
		"(Debian, Ubuntu: apt install python3-venv), or say where it is: make PYTHON=/path/to/python3" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(TO_RUN): $(VENV)/.made pyproject.toml
	@cuda="$(CUDA_MAJOR)"; test -n "$$cuda" || cuda=$$($(BIN)/python -c "$$CUDA_MAJOR_OF_THE_DRIVER"); \
	case "$$cuda" in \
		12|13) echo "Installing fa-bench in $(VENV), with CuPy for CUDA $$cuda (the driver's) ..."; extra="[cuda$$cuda]" ;; \
		none) echo "Installing fa-bench in $(VENV), for the CPU (no NVIDIA driver for CUDA 12 or later) ..."; extra= ;; \
		*) echo "CUDA_MAJOR must be 13, 12 or none, not '$$cuda'." >&2; exit 2 ;; \
	esac; \
	$(PIP) --editable ".$$extra"
	@touch $@

$(TO_TEST): $(VENV)/.made pyproject.toml .ci/constraints.txt
	@echo "Installing fa-bench in $(VENV), with what its tests need ..."
	@$(PIP) --constraint .ci/constraints.txt --editable ".[$(TEST_EXTRAS)]"
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
