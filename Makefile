# make env          the environment, in .venv, with the command keras-transformer
# make demo         train, evaluate and export on the built-in corpus; query
#                   the export
# make test         the tests of what a change is most likely to break
# make test-rest    all others: make test-slow and make test-examples
# make test-all     every test
# make programs     Debian's chromium and nginx, which tests of the viewer, of
#                   the server's page and of a proxy before it need
# make notebooks    the notebooks whose source changed, executed
# make lint         ruff, mypy, and zizmor over the workflows
# make docs         the documentation, in docs/_build/html
# make dist         a wheel and an sdist in dist/, checked
# make test-oldest  make test with the oldest packages, in .venv-oldest
# make test-torch   the model wing on Keras's PyTorch backend, in .venv-torch
# make test-older   exports of the demo in older TensorFlows, as a table; makes
#                   an environment of 2 GB for each
# make test-node    clients of LibreTranslate from npm; needs Node.js with npm
# make clean        remove what these have made
# make help         this list
#
# PYTHON=python3.12 names another Python for new environments.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
TORCH := .venv-torch
RUN := runs/demo
EXPORT := exported/demo
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)
# The tests of a file share what they have in common: one process for each.
ON_ALL_CORES := --numprocesses auto --maxprocesses 4 --dist loadfile \
    --no-loadscope-reorder
# CONTRIBUTING.md says what the tiers are.
CONTRACT := -m "not slow and not example" --durations 9 --durations-min 5

.PHONY: demo env test test-slow test-examples test-rest \
	test-all programs notebooks lint docs dist test-oldest test-torch \
	test-older test-node clean help

demo: $(VENV)/run.stamp
	$(BIN)/python train.py --preset demo --corpus demo --run-dir $(RUN)
	$(BIN)/python -m keras_transformer evaluate --run-dir $(RUN)
	rm -rf $(EXPORT)
	$(BIN)/python export.py --run-dir $(RUN) --output $(EXPORT)
	$(BIN)/python examples/ask_saved_model.py $(EXPORT)/1 \
		"The lamp costs two hundred and twelve euros and seven cents."

env: $(VENV)/run.stamp
	@echo "The environment is in $(VENV); activate it with"
	@echo "    . $(BIN)/activate"

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest $(ON_ALL_CORES) $(CONTRACT)

test-slow: $(VENV)/test.stamp
	$(BIN)/python -m pytest $(ON_ALL_CORES) -m slow

test-examples: $(VENV)/test.stamp
	$(BIN)/python -m pytest $(ON_ALL_CORES) -m "example and not slow"

# In one go they share processes, and what those have made.
test-rest: $(VENV)/test.stamp
	$(BIN)/python -m pytest $(ON_ALL_CORES) -m "slow or example"

test-all: $(VENV)/test.stamp
	$(BIN)/python -m pytest $(ON_ALL_CORES)

programs:
	{ command -v chromium && PATH="$$PATH:/usr/sbin" command -v nginx; } || { \
		$(AS_ROOT) apt-get update && $(AS_ROOT) apt-get install --yes \
		--no-install-recommends chromium nginx-light; }

notebooks: $(VENV)/test.stamp
	$(BIN)/python notebooks/make.py

lint: $(VENV)/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/zizmor --offline --quiet --pedantic --strict-collection .

# A link that leads nowhere fails the build; nothing is fetched.
docs: $(VENV)/docs.stamp
	TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m sphinx -b html -n -W \
		--keep-going docs docs/_build/html

# Without isolation nothing is downloaded for the build.
dist: $(VENV)/test.stamp
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

test-oldest: $(OLDEST)/stamp
	$(OLDEST)/bin/python -m pytest $(ON_ALL_CORES) $(CONTRACT)

test-older: $(VENV)/run.stamp
	PYTHONPATH=. $(BIN)/python benchmarks/older_tensorflows.py \
		--run-dir $(RUN)

test-torch: $(TORCH)/stamp
	$(TORCH)/bin/python -m pytest tests_torch

test-node: $(VENV)/test.stamp
	$(BIN)/python -m pytest tests_node

# An environment $(1) with a new pip: the one that comes with Python 3.10 finds
# no solution in minutes.
define new_environment
	$(PYTHON) -c 'import sys; (3, 10) <= sys.version_info < (3, 14) or \
		sys.exit("Python 3.10 to 3.13 is needed, found %s; name one with " \
		"make PYTHON=..." % sys.version.split()[0])'
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --upgrade pip
endef

$(VENV)/run.stamp: requirements.txt
	$(call new_environment,$(VENV))
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

$(VENV)/test.stamp: $(VENV)/run.stamp requirements-test.txt
	$(BIN)/python -m pip install --quiet --requirement requirements-test.txt
	touch $@

$(OLDEST)/stamp: requirements.txt requirements-test.txt requirements-oldest.txt
	$(call new_environment,$(OLDEST))
	$(OLDEST)/bin/python -m pip install --quiet \
		--constraint requirements-oldest.txt \
		--requirement requirements.txt --requirement requirements-test.txt
	touch $@

$(VENV)/docs.stamp: $(VENV)/run.stamp requirements-docs.txt
	$(BIN)/python -m pip install --quiet --requirement requirements-docs.txt
	touch $@

# The package without its extras, as a stranger installs it.
$(TORCH)/stamp: requirements.txt requirements-torch.txt
	$(call new_environment,$(TORCH))
	$(TORCH)/bin/python -m pip install --quiet --editable . \
		--requirement requirements-torch.txt
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(TORCH) $(RUN) $(EXPORT) .pytest_cache build \
		dist docs/_build

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile
