# Thin: each target is one line of the recordings package or of Sphinx.
#
#   make html                        the whole site, on any machine
#   make test                        the tests and the strict build
#   make record RECIPE=caller/name   run recipes and write gallery/recordings
#
#   make check                       the strict build alone
#   make browser, lint, spelling     one part of the tests each
#   make accept                      accept what pages look like now
#   make doctor                      what this machine can run
#   make verify, list, bench, shapes, serve, linkcheck, clean: see below
#
# PYTHON is the interpreter that all of this runs in. By default it is one in .venv, which is
# set up on first use; where PYTHON is given, nothing is installed:
#   make record PYTHON=python3

ifeq ($(filter-out 3.%,$(MAKE_VERSION)),)
$(error GNU Make $(MAKE_VERSION) is too old: this needs GNU Make 4.0 or newer (on macOS: brew install make, then gmake))
endif

.DEFAULT_GOAL := html
.DELETE_ON_ERROR:
.PHONY: html check record verify test list doctor bench shapes linkcheck serve clean pytest \
  browser accept lint spelling

VENV := .venv
BASE_PYTHON ?= python3
PORT ?= 8000
OPTIONS = -q -j auto -c . docs
SPHINX = $(PYTHON) -m sphinx $(OPTIONS)
RECORDINGS = $(PYTHON) -m recordings
export PYTHONPATH := $(CURDIR)/docs/_ext$(if $(PYTHONPATH),:$(PYTHONPATH))

ifeq ($(origin PYTHON),undefined)
PYTHON := $(VENV)/bin/python
# CMake, Ninja and clang-format come with the environment.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
DOCS := $(VENV)/docs.done
TEST := $(VENV)/test.done
endif

html: $(DOCS)  ## the whole site; never fails on recordings, but says what is not current
	@$(PYTHON) -m recordings.build -D recordings_run=1 $(OPTIONS) build/html
	@echo "The site is in build/html/index.html"

check: $(DOCS)  ## the strict build: committed recordings only, a warning is an error
	@$(SPHINX) -b html -E -W --keep-going -n -D recordings_local= build/check

record: $(DOCS)  ## run all recipes that this machine can, or RECIPE, and write their recordings
	$(RECORDINGS) run $(RECIPE)

verify: $(DOCS)  ## run them again, write nothing, report differences
	$(RECORDINGS) verify $(RECIPE)

list: $(DOCS)  ## every recipe and its state
	@$(RECORDINGS) list

doctor: $(DOCS)  ## what this machine can run, and what is missing for the rest
	@$(RECORDINGS) doctor

test: $(DOCS) pytest check  ## the README's test command

pytest: $(TEST)
	@$(PYTHON) -m pytest -q -n auto --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

browser: $(TEST)  ## every page of a fresh strict build in a real browser
	@$(PYTHON) -m pytest -q tests/browser $(PYTEST_ARGS)

accept: $(TEST)  ## make the pictures of key pages the accepted ones: look at them, then commit
	@ACCEPT=1 $(PYTHON) -m pytest -q tests/browser/test_pictures.py

lint: $(TEST)  ## formatting, lint and types of all code and prose
	@$(PYTHON) -m pytest -q tests/test_site.py -k the_code_passes

spelling: $(TEST)  ## words and terms of all prose; tests/words.txt has those of this site
	@$(PYTHON) -m pytest -q tests/test_prose.py

bench: $(DOCS)  ## build times, page weights, run times: a table
	@$(PYTHON) tests/bench.py

shapes: $(DOCS)  ## draw docs/_static/shapes from the recording of anywhere/inspect_pte
	@$(PYTHON) -m recordings.boundary

serve: html  ## look at the site
	$(PYTHON) -m http.server --bind 127.0.0.1 --directory build/html $(PORT)

linkcheck: $(DOCS)  ## follow every external link; needs the network
	$(SPHINX) -b linkcheck build/linkcheck

clean:  ## everything that was made, except .venv
	rm -rf build docs/recipes

# -- The environment -------------------------------------------------------------------

define VERSION_CHECK
import sys
if sys.version_info < (3, 11):
    sys.exit("Python %d.%d is too old: this needs Python 3.11 or newer; name one with make BASE_PYTHON=python3.12" % sys.version_info[:2])
endef
export VERSION_CHECK

$(VENV)/created:
	@command -v $(BASE_PYTHON) >/dev/null || { echo "There is no $(BASE_PYTHON): install Python 3.11 or newer, or name one with make BASE_PYTHON=..." >&2; exit 1; }
	@$(BASE_PYTHON) -c "$$VERSION_CHECK"
	@$(BASE_PYTHON) -m venv --clear $(VENV) || { echo "$(BASE_PYTHON) cannot create $(VENV): install its venv module (on Debian: apt-get install python3-venv)" >&2; exit 1; }
	@$(call install,"pip>=25.1")
	@touch $@

$(VENV)/%.done: pyproject.toml | $(VENV)/created
	@$(call install,--group $*)
	@touch $@

define install
echo "setting up $(VENV): $(subst ",,$(1))"; \
$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --retries 2 --upgrade-strategy only-if-needed $(1) \
|| { echo "Setting up $(VENV) failed, see pip's message above. Where it cannot reach the package index: check the network, or name an index or a folder of wheels with PIP_INDEX_URL or PIP_FIND_LINKS; then run make again." >&2; exit 1; }
endef
