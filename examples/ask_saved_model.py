"""Ask an exported SavedModel for translations, without this package.

Example:
    python examples/ask_saved_model.py exported/demo/1 "three hundred and two"
"""

import os
import sys

# TensorFlow's first notices come from C++, before it reads that level.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
standard_error = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401  The tokenizer's operators.

os.dup2(standard_error, 2)

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} SAVED_MODEL_DIR TEXT...")
    path, *texts = sys.argv[1:]
    model = tf.saved_model.load(path)
    result = model.signatures["serving_default"](text=tf.constant(texts))
    for translation in result["translation"].numpy():
        print(translation.decode())
