# Everything starts from nothing: each target makes the environment it needs. `make demo` and `make test` are the two to know.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Installs Torch-TensorRT in a folder of its own, and says why.
TORCH_TENSORRT := course_lib/engines/backends/torch_tensorrt/installation.py

# Compiled Python is kept although the shell may say otherwise: each of hundreds of workers would compile the library again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo quick test durations gpu-test slow-test slurm-test image-test no-vnni-test attack-test browser-test coverage lint book sandbox train clean help

help:
	@echo "make demo       the whole course loop on this machine, to a graded report"
	@echo "make quick      the tests of a working day: every package in a minute and a half"
	@echo "make test       all tests that need no GPU"
	@echo "make slow-test  tests that take minutes (verdict stability, fresh-environment checks)"
	@echo "make slurm-test  a batch on a node of Slurm that the test starts (root; three minutes)"
	@echo "make image-test  the image of Containerfile, built, and a batch graded in it (root; ten minutes)"
	@echo "make no-vnni-test  INT8 tests on an emulated CPU without VNNI (QEMU; a few minutes)"
	@echo "make attack-test  every way to cheat the grader that we know, each as a submission (half an hour)"
	@echo "make browser-test  JupyterLab, widgets and formgrader in a real browser; screenshots in test-artifacts/"
	@echo "make gpu-test   tests that need an NVIDIA GPU and a TensorRT in COURSE_ENVIRONMENTS or in this environment"
	@echo "make coverage   make test with a table of the lines that no test runs (twice as long)"
	@echo "make lint       style, format, words and types"
	@echo "make book       the course as a static site: build/book/html/index.html"
	@echo "make train      train the course's networks again (about 3 minutes)"

demo: $(VENV)/.installed sandbox
	$(BIN)/course demo

# Two processes: each has its own core, so that tests which measure still can, and one thread, because more would wait for each
# other. `tests/conftest.py` says what goes where.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder --durations=15

test: $(VENV)/.installed-test sandbox
	$(PYTEST)

quick: $(VENV)/.installed-test sandbox
	$(BIN)/ruff check --quiet .
	$(PYTEST) --quick

# Which tests are left out of `make quick`; ONLY=--quick adds those of its tests that became long.
durations: $(VENV)/.installed-test sandbox
	$(PYTEST) --record-long $(ONLY)

slow-test: $(VENV)/.installed-test sandbox
	$(BIN)/python -m pytest -m slow

# Both install what they need from Debian, as root; anybody else is told what is missing.
slurm-test: $(VENV)/.installed-test sandbox
	@command -v slurmctld >/dev/null || { apt-get update -qq && apt-get install -y -qq slurm-wlm munge >/dev/null; }
	$(BIN)/pip install --quiet -c constraints.txt -e '.[slurm]'
	$(BIN)/python -m pytest -m slow -rs tests/grading/batch/test_cluster.py -k slurm

image-test: $(VENV)/.installed-test
	@command -v buildah >/dev/null && command -v debootstrap >/dev/null || { apt-get update -qq && apt-get install -y -qq buildah debootstrap >/dev/null; }
	$(BIN)/python -m pytest -m slow -rs tests/grading/batch/test_image.py

# The quick part of it is in `make test`. As root it is also run as an ordinary user.
attack-test: $(VENV)/.installed-test sandbox
	$(BIN)/python -m pytest -m 'slow or not slow' tests/attacks

# Chromium comes from Debian. Root installs it; anybody else is told how.
browser-test: $(VENV)/.installed-test sandbox
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
	  echo "no chromium: sudo apt-get install chromium"
	$(BIN)/pip install --quiet -c constraints.txt -e '.[browser]'
	$(BIN)/python -m pytest -m browser

# INT8 on a CPU without 8-bit dot products: QEMU emulates one with AVX2, and a copy of /proc/cpuinfo hides the rest.
no-vnni-test: $(VENV)/.installed-test
	@command -v qemu-x86_64 >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq qemu-user >/dev/null; } || \
	  { echo "no qemu-x86_64: sudo apt-get install qemu-user"; exit 1; }
	@mkdir -p build/no-vnni/proc && sed -E 's/ (avx512|avx_vnni|amx)[a-z0-9_]*//g' /proc/cpuinfo > build/no-vnni/proc/cpuinfo
	OMP_NUM_THREADS=1 qemu-x86_64 -L $(CURDIR)/build/no-vnni -cpu Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid \
	  $(BIN)/python -m pytest -m instructions --timeout=1800 --durations=5

coverage: $(VENV)/.installed-test sandbox
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest; $(BIN)/coverage combine --quiet && $(BIN)/coverage report

gpu-test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m gpu

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy

book: $(VENV)/.installed-test
	$(BIN)/python docs/make_book.py

train: $(VENV)/.installed
	for name in small wide encoder; do $(BIN)/python docs/make_checkpoints.py $$name || exit 1; done

$(VENV)/bin/python:
	$(PYTHON) -c "import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13) and 'Python 3.10 to 3.13 is needed, found ' + sys.version.split()[0] + ': make PYTHON=python3.12 ...')"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt $(TORCH_TENSORRT) | $(VENV)/bin/python
	@echo "installing the course and its packages into $(VENV): PyTorch, ONNX Runtime, TensorRT-RTX, JupyterLab (2.3 GB on the disk, several minutes)"
	$(BIN)/pip install -c constraints.txt -e .
	$(BIN)/python $(TORCH_TENSORRT)
	touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt $(TORCH_TENSORRT) | $(VENV)/bin/python
	@echo "installing the course, its packages and the tests' into $(VENV): PyTorch, ONNX Runtime, TensorRT-RTX, JupyterLab (2.3 GB on the disk, several minutes)"
	$(BIN)/pip install -c constraints.txt -e '.[test]'
	$(BIN)/python $(TORCH_TENSORRT)
	touch $(VENV)/.installed $@

# Submissions run in bubblewrap. Root installs it; anybody else is told how, and the demo grades its own two files without it.
sandbox:
	@command -v bwrap >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { echo "installing the sandbox (bubblewrap)"; apt-get update -qq && apt-get install -y -qq bubblewrap >/dev/null; }; } || \
	  echo "no sandbox for submissions yet: sudo apt-get install bubblewrap"

clean:
	rm -rf $(VENV) demo build *.egg-info
