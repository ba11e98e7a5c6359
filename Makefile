# invar_nb from a bare machine: Python 3.11 or newer, pip, make, git. Everything else is installed into .venv.
#   make demo           two real checkpoints, real English, a verdict and a report, offline
#   make test           every page, the library, the house rules, the site
#   make docs           the site, in _docs/
#   make room R=04_bootstrap  while writing: export one page, run it, run it again on the installed module
#   make fresh          run every page again and store its outputs, then rebuild README.md (ARGS=--slow: slow cells too)
#   make slow           the long checks (coverage by simulation, slow cells, the checks of the pages on the installed modules)
#   make tables         the tables of simulations that tests hold the package against, made anew (hours)
#   make real           real models and llama.cpp: fetch, build, quantise, and hold the package against the engine, in .real/ (ARGS=--gemma: Gemma 3 too)
#   make versions       the tests under the lowest and the newest versions that settings.ini admits, each in a venv of its own
#   make processors     pages and tests under the kernels of other processors (ARGS=lowest: those marked for it, the lowest kernels)
#   make sbom           what is installed as CycloneDX (sbom.cdx.json); its files, versions and licences are checked without a network
#   make bench          every benchmark, with peers and the machine's limits (ARGS=startup: one of them)
# WORKERS=3 run side by side, one more than two cores: some wait. PYTHON=python3.12 chooses the interpreter. TORCH=yes|no says whether PyTorch is installed: yes on Python 3.11, no elsewhere.
PYTHON  ?= python3
VENV    ?= .venv
WORKERS ?= 3
R       ?=
ARGS    ?=
CONSTRAINTS ?= constraints.txt
LOWEST  ?= python3.11
NEWEST  ?= python3.13

py  := $(VENV)/bin/python
pip := $(py) -m pip --disable-pip-version-check -qq

# The interpreter that counts is the one in .venv once there is one.
interpreter := $(if $(wildcard $(py)),$(py),$(PYTHON))
version     := $(shell $(interpreter) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
TORCH       ?= $(if $(filter 3.11,$(version)),yes,no)
TORCH_SPEC  ?= torch==2.13.0

one_core := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
offline  := HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
run      := env -u PYTHONDONTWRITEBYTECODE $(one_core) $(offline) INVAR_NB_TORCH=$(TORCH) $(py)

stamps  := $(VENV)/stamps
sources := settings.ini $(CONSTRAINTS) setup.py pyproject.toml
comma := ,
# What each target needs; the torch choice is part of the stamp's name, so changing it installs again.
demo_ready := $(stamps)/demo-torch-$(TORCH)
test_ready := $(stamps)/test-torch-$(TORCH)
demo_extras := hf,gguf
test_extras := $(if $(filter yes,$(TORCH)),hf$(comma)gguf$(comma)referees$(comma))inspect,servers,cloud,bleu,plots,card,dev,docs

.PHONY: help demo test docs room fresh format slow tables real versions processors bench sbom clean check-python check-torch
help:
	@sed -n 's/^#   //p' Makefile

# PYTHON is looked at before anything is made; an existing .venv is never silently used in the place of the PYTHON asked for.
check-python:
	@if [ -x $(py) ]; then case "$(origin PYTHON)" in command*|environment) \
	  want=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo missing); \
	  [ "$$want" = "$(version)" ] || { echo "make: $(VENV) holds Python $(version), but PYTHON=$(PYTHON) is $$want. Remove $(VENV), or name another with VENV=..." >&2; exit 1; };; esac; fi
	@$(interpreter) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "make: invar_nb needs Python 3.11 or newer; '$(interpreter)' is $$($(interpreter) -V 2>/dev/null || echo missing). Say which: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }

$(py): | check-python
	@$(PYTHON) -m venv $(VENV)

# Not compiled: what is never imported need not be, and Python compiles the rest as it imports it.
define install
	@case "$(TORCH)" in yes|no) ;; *) echo "make: TORCH must be yes or no; got '$(TORCH)'." >&2; exit 1;; esac
	@echo "make: installing into $(VENV) (Python $(version), torch: $(TORCH), extras: $(1)); some minutes the first time ..."
	@if [ "$(TORCH)" = yes ]; then $(pip) install --no-compile -c $(CONSTRAINTS) '$(TORCH_SPEC)' || { \
	  echo "make: $(TORCH_SPEC) cannot be had here. Install PyTorch's CPU build into $(VENV) yourself, or go without: make TORCH=no test" >&2; exit 1; }; fi
	@$(pip) install --no-compile -c $(CONSTRAINTS) -e '.[$(1)]'
	@mkdir -p $(stamps) && rm -f $(stamps)/*-torch-$(if $(filter yes,$(TORCH)),no,yes) && touch $@
endef

$(demo_ready): $(py) $(sources)
	$(call install,$(demo_extras))

$(test_ready): $(py) $(sources)
	$(call install,$(test_extras))
	@touch $(demo_ready)

check-torch: check-python
	@if [ "$(TORCH)" != yes ]; then \
	  echo "make: the demo scores real models and needs PyTorch; TORCH=$(TORCH) on Python $(version)." >&2; \
	  echo "make: use Python 3.11 (make PYTHON=python3.11 demo, in a clone without .venv), or TORCH=yes to let pip choose a build." >&2; exit 1; fi

demo: check-torch $(demo_ready)
	@$(one_core) $(offline) $(VENV)/bin/invar-nb demo $(ARGS)
	@echo "make: invar-nb is $(VENV)/bin/invar-nb; . $(VENV)/bin/activate finds it by its name" >&2

test: check-python $(test_ready)
	@$(run) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

slow: check-python $(test_ready)
	@$(run) -m pytest -n $(WORKERS) --dist worksteal -m slow $(ARGS)

tables: check-python $(test_ready)
	@$(run) -m pytest -n $(WORKERS) --dist worksteal -m tables $(ARGS)

real: check-torch $(test_ready)
	@$(run) tools/real.py $(ARGS)

versions:
	@$(MAKE) test TORCH=no PYTHON=$(LOWEST) VENV=.venv-lowest CONSTRAINTS=constraints-lowest.txt
	@$(MAKE) test TORCH=no PYTHON=$(NEWEST) VENV=.venv-newest CONSTRAINTS=constraints-newest.txt

processors: check-python $(test_ready)
	@$(run) tools/processors.py --workers $(WORKERS) $(ARGS)

bench: check-python $(test_ready)
	@$(run) benchmarks/run_all.py $(ARGS)

sbom_tool := $(VENV)-sbom/bin/cyclonedx-py
$(sbom_tool): | check-python
	@$(PYTHON) -m venv $(VENV)-sbom && $(VENV)-sbom/bin/python -m pip install -qq cyclonedx-bom==7.5.0

sbom: check-python $(test_ready) $(sbom_tool)
	@$(sbom_tool) environment --sv 1.5 --output-reproducible -o sbom.cdx.json $(py)
	@$(run) tools/audit.py

docs: check-python $(test_ready)
	@$(run) tools/build_site.py $(ARGS)

room: check-python $(test_ready)
	@$(run) tools/pages.py room $(R)

fresh: check-python $(test_ready)
	@$(run) tools/pages.py fresh --workers $(WORKERS) $(ARGS) $(R)
	@$(run) tools/build_readme.py

format: check-python $(test_ready)
	@$(VENV)/bin/ruff format -q . && $(VENV)/bin/ruff check -q --select I --fix . && $(VENV)/bin/nbdev_export && $(run) tools/ratchets.py

clean:
	rm -rf _docs _proc _exec _site_src build dist .pytest_cache
