# One environment, .venv, for everything. Recipes are POSIX sh; they need Python 3.11 or newer, make and no compiler.
#
#   make install     .venv with .venv/bin/zeromt; CUDA=1 takes the build for GPUs on a machine that shows none, CUDA=0 the one for CPUs;
#                    EXTRAS= leaves out what only the checks need
#   make demo        prepare, train, evaluate and translate the bundled corpus
#   make test        all tests but those marked slow, gpu or slurm (make test-slow, test-gpu, test-slurm)
#   make check       lint, format, types, import contracts, sizes
#   make bench       every benchmark, then docs/benchmarks.md: two hours. make bench-NAME does one; TRY=1 tries all in minutes, into runs/bench;
#                    BENCH=folder/with/train.en.gz..., RUN=a run to decode, EOLE=, JOEYNMT=the Pythons of their environments
#   make reference   docs/reference.md and the schema for editors, from the code
#   make docs        the site, in site/; a warning ends it
#   make format      mend what lint and format can mend
#   make clean       remove .venv and caches; runs and prepared data stay

SHELL := /bin/sh
.DEFAULT_GOAL := help

CUDA ?=
EXTRAS ?= [dev]
PYTHON ?= $(shell command -v python3.11 || command -v python3 || command -v python)
BIN := .venv/bin
STAMP := .venv/.install-stamp
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
CORPUS := data/tatoeba-en-fr
DEMO := runs/tatoeba_demo
BENCH := $(CORPUS)
SOURCE := en
TARGET := fr
RUN := $(DEMO)
BENCHES := training ranks growth startup loss_memory data checkpoints decoding time_to_bleu
TRY :=
RESULTS := $(if $(TRY),runs/bench,benchmarks/results)
PAGE := $(if $(TRY),runs/bench/page.md,docs/benchmarks.md)

.PHONY: help install demo bench $(BENCHES:%=bench-%) test test-slow test-gpu test-slurm check format reference docs clean

help:
	@sed -n 's/^#   make/make/p' Makefile

install: $(STAMP)

# deepspeed is a source package whose setup imports torch and runs bash: torch goes first, pip must not isolate the build, and
# where there is no bash its one-line commands get sh. DS_BUILD_OPS=0 compiles nothing; DS_ACCELERATOR=cpu, for this line
# alone, keeps the setup from asking for a CUDA toolkit, which machines with GPUs need not have.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make install: no python3.11 or python3 on PATH" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make install: $(PYTHON) is older than Python 3.11; name another: make install PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || \
		{ rm -rf .venv; echo "make install: $(PYTHON) -m venv failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "install: torch"
	@$(install_torch)
	@$(BIN)/python -c 'import torch; print("install: torch", torch.__version__, "for", f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPUs")'
	@echo "install: deepspeed"
	@$(PIP) numpy setuptools wheel
	@shim="$$PWD/.venv/shim"; mkdir -p "$$shim"; \
		command -v bash >/dev/null || ln -sf "$$(command -v sh)" "$$shim/bash"; \
		PATH="$$PATH:$$shim" DS_BUILD_OPS=0 DS_ACCELERATOR=cpu $(PIP) --no-build-isolation deepspeed; \
		status=$$?; rm -rf "$$shim"; exit $$status
	@echo "install: zeromt"
	@$(PIP) --no-build-isolation -e '.$(EXTRAS)'
	@touch $@
	@echo "install: done; the command is $(BIN)/zeromt"

# The registry's torch brings gigabytes of CUDA, and with a GPU it is the one to have: === passes over 2.13.0+cpu. Without
# one, take the CPU build: from the indexes that pip knows, else from torch's own, else the registry's after all. CUDA=1 or 0
# decides where the machine that installs is not the one that trains: a login node of a cluster.
define install_torch
if test "$(CUDA)" = 1 || { test -z "$(CUDA)" && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }; then \
	$(PIP) torch===2.13.0; \
else \
	$(PIP) torch==2.13.0+cpu 2>/dev/null || \
	$(PIP) --retries 1 --timeout 20 --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu 2>/dev/null || \
	$(PIP) torch==2.13.0; \
fi
endef

demo: $(STAMP)
	@start=$$(date +%s); set -e; \
	$(BIN)/zeromt prepare configs/runs/tatoeba_demo.yaml; \
	if test -d $(DEMO)/checkpoints; then \
		echo "demo: $(DEMO) is there already: training goes on from its last checkpoint (rm -r $(DEMO) to start over)"; \
	fi; \
	$(BIN)/zeromt launch local configs/runs/tatoeba_demo.yaml --nproc auto; \
	echo "demo: BLEU of the test set, beam 5"; \
	$(BIN)/zeromt evaluate $(DEMO) --source $(CORPUS)/test.en.gz --reference $(CORPUS)/test.fr.gz --beam 5; \
	echo "demo: five test sentences"; \
	gzip -dc $(CORPUS)/test.en.gz | head -n 5 > $(DEMO)/five.en; \
	$(BIN)/zeromt translate $(DEMO) --beam 5 -i $(DEMO)/five.en -o $(DEMO)/five.fr; \
	while IFS= read -r source && IFS= read -r translation <&3; do \
		printf '  %s\n    -> %s\n' "$$source" "$$translation"; \
	done < $(DEMO)/five.en 3< $(DEMO)/five.fr; \
	echo "demo: curves, translations and settings: $(BIN)/tensorboard --logdir runs"; \
	echo "demo: done in $$(( $$(date +%s) - start )) seconds"

# Packages to compare with that are in .venv are used (pip install 'transformers[torch]' ctranslate2); Eole and JoeyNMT have pins
# of their own: EOLE=PYTHON and JOEYNMT=PYTHON name the Pythons of their environments. A benchmark whose target is not met does
# not keep the others from running. With TRY=1 everything is small, and figures mean nothing.
eole = $(if $(EOLE),--eole-python $(EOLE))
others = $(eole) $(if $(JOEYNMT),--joeynmt-python $(JOEYNMT))
corpus = --source $(BENCH)/train.$(SOURCE).gz --target $(BENCH)/train.$(TARGET).gz
test_source = $(firstword $(wildcard $(BENCH)/test*.$(SOURCE).gz))
test_target = $(firstword $(wildcard $(BENCH)/test*.$(TARGET).gz))
small = --vocab 1000 --budget 1024 --rounds 1
benchmark = $(BIN)/python -m benchmarks.$(1) $(if $(TRY),$(2),$(3)) --results $(RESULTS)

bench: $(STAMP)
	@missed=; for name in $(BENCHES); do echo "bench: $$name"; $(MAKE) --no-print-directory bench-$$name || missed="$$missed $$name"; done; \
	$(BIN)/python -m benchmarks.page --results $(RESULTS) --page $(PAGE) || exit 1; \
	test -z "$$missed" || { echo "bench: failed, or a target was missed:$$missed" >&2; exit 1; }

bench-training: $(STAMP)
	$(call benchmark,training.train,$(small) --threads 1 --updates 6 --warm-up 2 --only "zeromt fp32" "plain loop",$(others)) $(corpus)

bench-ranks: $(STAMP)
	$(call benchmark,training.ranks,$(small) --updates 4 --turns 1 --warm-up 1 --stages 0 2) $(corpus)

bench-growth: $(STAMP)
	$(call benchmark,training.growth,--threads 1 --parts width --pairs 500 --updates 3 --warm-up 1 --rounds 1)

bench-startup: $(STAMP)
	$(call benchmark,startup.first_update,$(small) --threads 1,$(eole)) $(corpus)

bench-loss_memory: $(STAMP)
	$(call benchmark,training.loss_memory,--threads 1 --vocab 32000 --tokens 8192 --width 64)

bench-data: $(STAMP)
	$(call benchmark,data.pipeline,--pairs 5000 --rounds 1 --parts preparation disk padding memory --memory-pairs 1000 --webdataset-pairs 200)

bench-checkpoints: $(STAMP)
	$(call benchmark,training.saving,--rounds 1,--rounds 3)

bench-decoding: $(STAMP)
	@if test -d $(RUN)/checkpoints; then set -x; \
		$(call benchmark,decoding.decode,--sentences 20 --rounds 1 --warm-up 5 --threads 1,--sentences 1000 $(others)) \
			$(RUN) --source $(test_source) --reference $(test_target); \
	else echo "bench: no run in $(RUN) (make demo trains one; RUN=FOLDER names another): decoding is left out"; fi

bench-time_to_bleu: $(STAMP)
	$(call benchmark,training.time_to_bleu,$(small) --threads 1 --updates 4 --every 2 --warmup 1 --sentences 20 --goal 0.001,--at-once --rounds 3) $(corpus) \
		--test-source $(test_source) --test-target $(test_target)

# Two at a time on two cores: most tests are one process. Those that measure time run afterwards, one by one.
usual = not slow and not gpu and not slurm
test: $(STAMP)
	$(BIN)/python -m pytest -q -n logical --maxprocesses 4 --dist loadfile -m "$(usual) and not alone"
	$(BIN)/python -m pytest -q -m "$(usual) and alone"
	@echo "left out: tests marked slow, gpu or slurm; run them with make test-slow, make test-gpu, make test-slurm"

# pytest ends with 5 where no test carries the mark. What is slow on SLURM too runs with the slow ones.
test-slow: MARK := slow
test-gpu: MARK := gpu
test-slurm: MARK := slurm and not slow
test-slow test-gpu test-slurm: $(STAMP)
	@status=0; $(BIN)/python -m pytest -q -m "$(MARK)" || status=$$?; \
	if test $$status -eq 5; then echo "no test is marked $(@:test-%=%)"; exit 0; fi; exit $$status

# The variable leaves out what Material for MkDocs says about its successor; it is no warning about these pages.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -q

reference: $(STAMP)
	$(BIN)/python -m launcher.reference

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/house.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf site .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
