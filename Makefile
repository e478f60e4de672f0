# make demo   train, evaluate and export on the built-in corpus; ask the export
# make test   every test; make fast leaves out the slow ones
# make lint   ruff

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := runs/demo
EXPORT := exported/demo

.PHONY: demo test fast lint clean

demo: $(VENV)/run.stamp
	$(BIN)/python train.py --preset demo --corpus demo --run-dir $(RUN)
	rm -rf $(EXPORT)
	$(BIN)/python export.py --run-dir $(RUN) --output $(EXPORT)
	$(BIN)/python -m keras_transformer evaluate --run-dir $(RUN)
	$(BIN)/python examples/ask_saved_model.py $(EXPORT)/1 \
		"The lamp costs two hundred and twelve euros and seven cents."

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest

fast: $(VENV)/test.stamp
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

$(VENV)/run.stamp: requirements.txt
	$(PYTHON) -c 'import sys; (3, 10) <= sys.version_info < (3, 14) or \
		sys.exit("Python 3.10 to 3.13 is needed, found %s; name one with " \
		"make PYTHON=..." % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	# The pip that comes with Python 3.10 finds no solution in minutes.
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	touch $@

$(VENV)/test.stamp: $(VENV)/run.stamp requirements-test.txt
	$(BIN)/python -m pip install --quiet --requirement requirements-test.txt
	touch $@

clean:
	rm -rf $(VENV) $(RUN) $(EXPORT)
