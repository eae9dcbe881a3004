# One environment, .venv, for everything. Recipes are POSIX sh; they need Python 3.11 or newer, make and no compiler.
#
#   make install     .venv with .venv/bin/zeromt; CUDA=1 takes torch for GPUs on a machine that shows none, CUDA=12 for older drivers and
#                    V100, CUDA=0 for CPUs; TORCH=site the one that PYTHON= has; WHEELS=folder asks no registry; EXTRAS=[export] brings
#                    what `zeromt export` needs
#   make dev         what the checks, tests and pages need, too; they call it
#   make wheels TORCH=site PYTHON_VERSION=3.12    fill WHEELS=wheels for a machine without a network: docs/install.md
#   make demo        prepare, train, evaluate and translate the bundled corpus
#   make test        all tests but those marked slow, gpu or slurm (make test-slow, test-gpu, test-slurm)
#   make test-changed    the tests of what has changed since main, or SINCE=COMMIT, and of what imports it
#   make test-torch TORCH=2.11.0    the tests of tests/any_torch.txt with another torch, in an environment of its own (5 GB)
#   make test-deepspeed VERSION=0.20.0    those of tests/any_deepspeed.txt with another DeepSpeed, likewise; says which change to it fails
#   make gpu-report  on a machine with GPUs: all that a card can tell, into OUT=runs/gpu-report, seven and a half minutes at a time;
#                    killed at any moment, the same command resumes. Without make: python -m benchmarks.device.report_card
#   make check       lint, format, types, import contracts, sizes, GitHub's workflows
#   make bench       every benchmark of benchmarks/README.md, an hour; make bench-NAME does one. The results take the place of the last ones
#                    in benchmarks/results (docs/gpus.md shows them); TRY=1 tries all in minutes, into runs/bench;
#                    BENCH=folder/with/train.en.gz..., RUN=a run to decode, EOLE=the Python of its environment
#   make reference   docs/reference.md, the schema for editors and the map of folders, from the code
#   make messages    tests/messages.txt, what commands say of wrong input, from the code
#   make docs        the site, in site/; a warning ends it
#   make format      fix what lint and format can fix
#   make clean       remove .venv and caches; runs and prepared data stay

SHELL := /bin/sh
.DEFAULT_GOAL := help

CUDA ?=
TORCH :=
TORCH_INDEX :=
VERSION :=
WHEELS :=
PYTHON_VERSION :=
EXTRAS :=
PYTHON ?= $(shell $(if $(filter site,$(TORCH)),,command -v python3.11 ||) command -v python3 || command -v python)
BIN := .venv/bin
STAMP := .venv/.install-stamp
DEV := .venv/.dev-stamp
CORPUS := data/tatoeba-en-fr
DEMO := runs/tatoeba_demo
BENCH := $(CORPUS)
SOURCE := en
TARGET := fr
RUN := $(DEMO)
BENCHES := training data decoding
TRY :=
RESULTS := $(if $(TRY),runs/bench,benchmarks/results)

.PHONY: help install dev wheels demo bench $(BENCHES:%=bench-%) test test-changed test-slow test-gpu test-slurm test-torch test-deepspeed gpu-report check format reference messages docs clean

help:
	@sed -n 's/^#   make/make/p' Makefile

# Whoever names a torch or extras wants them now, whatever is installed.
ifneq ($(and $(filter install,$(MAKECMDGOALS)),$(CUDA)$(TORCH)$(WHEELS)$(EXTRAS)),)
.PHONY: $(STAMP)
endif
install: $(STAMP)

# Versions hold for what packages are built with, too, which newer versions of pip take from the second variable.
pinned = PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=$(1) PIP_BUILD_CONSTRAINT=$(1)
quiet = $$(test -t 1 || echo -qq)
from = $(if $(WHEELS),--no-index --find-links "$(WHEELS)")

# The environment $(1) with torch and zeromt$(2). Of torch's own index torch alone is taken: it has copies of other packages.
define install_into
test -x $(1)/bin/python || $(PYTHON) -m venv $(1) || { rm -rf $(1); exit 1; }; \
torch=$$($(PYTHON) -m installation --cuda "$(CUDA)" --torch "$(TORCH)" --index "$(TORCH_INDEX)" --environment $(1)); \
echo "install: $$torch"; \
export $(call pinned,$(1)/constraints.txt); \
$(1)/bin/python -m pip install $(quiet) $(from) --upgrade --no-deps $$torch; \
echo "install: zeromt and all that it needs"; \
$(1)/bin/python -m pip install $(quiet) $(from) -e '.$(2)'; \
$(1)/bin/python -c "$$name_torch"
endef
define name_torch
import torch
print("install: done, with torch", torch.__version__, "for", f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPUs")
endef
export name_torch

$(STAMP): pyproject.toml constraints.txt
	@$(check_python)
	@set -e; $(call install_into,.venv,$(EXTRAS))
	@touch $@

# torch stays the one that is installed, by the constraints that it was installed with.
dev: $(DEV)
$(DEV): $(STAMP)
	@echo "dev: what checks, tests and pages need"
	@$(call pinned,.venv/constraints.txt) $(BIN)/python -m pip install $(quiet) $(from) -e '.[dev]'
	@touch $@

# For the site's Python, on x86_64 with a glibc of 2.28 or newer, as torch's own wheels need it. DeepSpeed has no wheel in
# registries. In place of a site's torch stands an empty wheel while pip resolves: torch brings gigabytes.
platforms = $(patsubst %,--platform manylinux_2_%_x86_64,$(shell seq 28 -1 5)) --platform manylinux2014_x86_64
site_python = $(if $(PYTHON_VERSION),--python-version $(PYTHON_VERSION)) --implementation cp $(platforms) --only-binary=:all:
wheels: WHEELS := $(or $(WHEELS),wheels)
wheels:
	@$(check_python)
	@set -e; export $(call pinned,constraints.txt); trap 'rm -rf "$(WHEELS)"/site "$(WHEELS)"/torch-*+site-*' EXIT; \
	echo "wheels: deepspeed, built here"; \
	$(PYTHON) -m pip wheel $(quiet) --no-deps -w "$(WHEELS)" deepspeed; \
	if test "$(TORCH)" = site; then \
		torch=$$(sed -n 's/^torch==.*/&+site/p' constraints.txt); mkdir -p "$(WHEELS)/site"; \
		printf '[build-system]\nrequires = ["setuptools"]\n[project]\nname = "torch"\nversion = "%s"\n' "$${torch#*==}" \
			> "$(WHEELS)/site/pyproject.toml"; \
		$(PYTHON) -m pip wheel $(quiet) -w "$(WHEELS)" "$(WHEELS)/site"; \
	else \
		torch=$$($(PYTHON) -m installation --cuda "$(or $(CUDA),1)" --index "$(TORCH_INDEX)"); echo "wheels: $$torch"; \
		$(PYTHON) -m pip download $(quiet) --no-deps -d "$(WHEELS)" $(site_python) $$torch; \
	fi; \
	echo "wheels: what zeromt needs besides"; \
	$(PYTHON) -m pip download $(quiet) -d "$(WHEELS)" --find-links "$(WHEELS)" $(site_python) \
		"$${torch%% *}" 'setuptools>=77' '.$(EXTRAS)'
	@echo "wheels: $$(ls "$(WHEELS)" | wc -l) in $(WHEELS), $$(du -sh "$(WHEELS)" | cut -f 1)"

define check_python
test -n "$(PYTHON)" || { echo "make: no python3.11 or python3 on PATH" >&2; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "make: $(PYTHON) is older than Python 3.11; name another: PYTHON=..." >&2; exit 1; }
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

# Packages to compare with that are in .venv are used (pip install 'transformers[torch]' ctranslate2); Eole has pins of its
# own: EOLE=PYTHON names the Python of its environment. A benchmark whose target is not met does not keep the others from running.
# With TRY=1 everything is small, and figures mean nothing.
eole = $(if $(EOLE),--eole-python $(EOLE))
corpus = --source $(BENCH)/train.$(SOURCE).gz --target $(BENCH)/train.$(TARGET).gz
test_source = $(firstword $(wildcard $(BENCH)/test*.$(SOURCE).gz))
test_target = $(firstword $(wildcard $(BENCH)/test*.$(TARGET).gz))
tiny = --vocab 1000 --budget 1024 --threads 1
small = $(tiny) --rounds 1
benchmark = $(BIN)/python -m benchmarks.$(1) $(if $(TRY),$(2),$(3)) --results $(RESULTS)

bench: $(STAMP)
	@missed=; for name in $(BENCHES); do echo "bench: $$name"; $(MAKE) --no-print-directory bench-$$name || missed="$$missed $$name"; done; \
	test -z "$$missed" || { echo "bench: failed, or a target was missed:$$missed" >&2; exit 1; }

bench-training: $(STAMP)
	$(call benchmark,training.train,$(small) --updates 6 --warm-up 2 --only "zeromt fp32" "plain loop",$(eole)) $(corpus)

bench-data: $(STAMP)
	$(call benchmark,data.pipeline,--pairs 5000 --rounds 1)

bench-decoding: $(STAMP)
	@if test -d $(RUN)/checkpoints; then set -x; \
		$(call benchmark,decoding.decode,--sentences 20 --rounds 1 --warm-up 5 --threads 1,--sentences 1000) \
			$(RUN) --source $(test_source) --reference $(test_target); \
	else echo "bench: no run in $(RUN) (make demo trains one; RUN=FOLDER names another): decoding is left out"; fi

# Two at a time on two cores: most tests are one process.
usual = not slow and not gpu and not slurm
pytest = $(BIN)/python -m pytest -q -n logical --maxprocesses 4 --dist loadfile -m "$(usual)"
TESTS :=
test: $(DEV)
	$(pytest) $(TESTS)
	@echo "left out: tests marked slow, gpu or slurm; run them with make test-slow, make test-gpu, make test-slurm"

SINCE := main
test-changed: $(DEV)
	$(pytest) $$($(BIN)/python -m tests.changed $(SINCE))

# pytest ends with 5 where no test carries the mark. What is slow on SLURM too runs with the slow ones: two files
# at a time, in their order, by which a file of one long test is not the last.
test-slow: MARK := slow
test-slow: WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
test-gpu: MARK := gpu
test-slurm: MARK := slurm and not slow
test-slow test-gpu test-slurm: $(DEV)
	@status=0; $(BIN)/python -m pytest -q $(WORKERS) -m "$(MARK)" || status=$$?; \
	if test $$status -eq 5; then echo "no test is marked $(@:test-%=%)"; exit 0; fi; exit $$status

OUT := runs/gpu-report
gpu-report: $(STAMP)
	$(BIN)/python -m benchmarks.device.report_card --out $(OUT)

# torch's registry build, which brings CUDA and runs on CPUs too. Of the pins, torch decides its own, Triton's and setuptools'.
OTHER := .venv-torch-$(TORCH)
test-torch: CUDA := $(or $(CUDA),1)
test-torch:
	@test -n "$(TORCH)" || { echo "make test-torch: name a version: make test-torch TORCH=2.11.0" >&2; exit 2; }
	@$(check_python)
	@set -e; $(call install_into,$(OTHER),[dev])
	$(OTHER)/bin/python -m pytest -q -n logical --maxprocesses 4 --dist loadfile -m "$(usual)" -rs $$(grep -v '^#' tests/any_torch.txt)

OTHER_DEEPSPEED := .venv-deepspeed-$(VERSION)
test-deepspeed:
	@test -n "$(VERSION)" || { echo "make test-deepspeed: name a version: make test-deepspeed VERSION=0.20.0" >&2; exit 2; }
	@$(check_python)
	@set -e; $(call install_into,$(OTHER_DEEPSPEED),[dev])
	$(OTHER_DEEPSPEED)/bin/python -m pip install -q --no-deps deepspeed==$(VERSION)
	$(OTHER_DEEPSPEED)/bin/python -m pytest -q -n logical --maxprocesses 4 --dist loadfile -m "$(usual)" -rs $$(grep -v '^#' tests/any_deepspeed.txt)

# The variable leaves out what Material for MkDocs says about its successor; it is no warning about these pages.
docs: $(DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

reference: $(DEV)
	$(BIN)/python -m zeromt.cli.reference
	$(BIN)/python -m tests.folders

messages: $(DEV)
	CUDA_VISIBLE_DEVICES= $(BIN)/python -m tests.messages

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/house.py
	$(BIN)/zizmor --offline --quiet .github/workflows

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf site .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
