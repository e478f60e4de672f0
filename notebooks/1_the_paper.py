# %% [markdown]
# # The paper, part by part
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/keras-transformer/keras-transformer/blob/v0.1.0/notebooks/1_the_paper.ipynb)
#
# Not run in Colab itself yet.

# %% [markdown]
# The first cell installs the package in Colab. Elsewhere it only looks.

# %%
import importlib
import os
import subprocess
import sys
from importlib.metadata import version

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow, be quiet.
RELEASE = "0.1.0"
REPOSITORY = "https://github.com/keras-transformer/keras-transformer"
PACKAGE = (
    f"keras-transformer[demo,plot,serving,tfds] @ git+{REPOSITORY}@v{RELEASE}"
)

try:
    found = importlib.import_module("keras_transformer").__version__
except ImportError:
    found = None
if found != RELEASE and "google.colab" not in sys.modules:
    raise RuntimeError(
        f"Expected keras_transformer {RELEASE}, found {found}; install it "
        f"with: pip install '{PACKAGE}'"
    )
if found != RELEASE:
    # The TensorFlow that is there stays, and with it what stands on it.
    keep = f"tensorflow=={version('tensorflow')}"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", PACKAGE, keep],
        check=True,
    )
    importlib.invalidate_caches()

installed = {name: version(name) for name in ("numpy", "keras", "tensorflow")}
installed["keras_transformer"] = RELEASE
for name, wanted in installed.items():
    loaded = getattr(sys.modules.get(name), "__version__", wanted)
    if loaded != wanted:
        raise RuntimeError(
            f"{name} {wanted} is installed, but {loaded} is loaded; restart "
            "the session (menu Runtime), then run all cells from the first."
        )

import keras
import tensorflow as tf

gpus = [
    tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
    for gpu in tf.config.list_physical_devices("GPU")
]
print(f"keras_transformer {RELEASE}")
print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}")
print("GPU:", ", ".join(gpus) or "none; the CPU will do")

# %%
import matplotlib.pyplot as plt

import keras_transformer as kt

plt.plot(kt.positional_encoding(7, 4))
plt.show()
