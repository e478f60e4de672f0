"""The verbs of `python -m keras_transformer`, one a module.

TensorFlow takes seconds to import. Neither --help nor a mistake in the
arguments waits for it: a verb imports what needs it when it runs.
"""
