"""The verbs of `python -m keras_transformer`, one in each module.

TensorFlow takes seconds to import. A verb imports it only when it runs, so
--help and mistakes in the arguments need not wait.
"""
