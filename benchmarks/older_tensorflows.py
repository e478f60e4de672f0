"""Ask exports for the same texts in older TensorFlows, and print a table.

Makes an environment of 2 GB for each version, with pip.

Example:
    PYTHONPATH=. python benchmarks/older_tensorflows.py --run-dir runs/demo
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import venv

from measuring import QUIET, parser_of, print_head, print_row

VERSIONS = "2.20.0", "2.19.1", "2.17.1", "2.15.1"  # All of Python 3.11.
FORMS = ["float32"], ["float32", "--portable"], ["bfloat16"], ["int8"]
TEXTS = ["May 16, 2024", "three hundred and two", "", "12:30 p.m.", "$1,250.75"]
PROGRAM = f"""
import json, sys, tensorflow as tf, tensorflow_text
answer = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
found = answer(text=tf.constant({TEXTS}))["translation"].numpy()
print(json.dumps([each.decode() for each in found]))
"""


def answers(python, export):
    """Translate with an environment's TensorFlow, or say what it lacks."""
    command = [python, "-c", PROGRAM, export]
    done = subprocess.run(command, capture_output=True, text=True, env=QUIET)
    if done.returncode == 0:
        return json.loads(done.stdout)
    lacks = re.search(r"Op type not registered '(\w+)'", done.stderr)
    return f"lacks `{lacks[1]}`" if lacks else done.stderr.splitlines()[-1]


def main(argv=None) -> int:
    """Print a row for each version."""
    parser = parser_of(__doc__)
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--folder", type=pathlib.Path, default="build/older")
    args = parser.parse_args(argv)
    made, expected = tempfile.TemporaryDirectory(), {}
    for i, form in enumerate(FORMS, 1):
        command = [sys.executable, "-m", "keras_transformer", "export"]
        command += ["--run-dir", args.run_dir, "--precision", *form]
        command += ["--output", made.name, "--version", str(i)]
        subprocess.run(command, check=True, env=QUIET)
        export = pathlib.Path(made.name, str(i))
        expected[export] = answers(sys.executable, export)
    print_head("TensorFlow", *map(" ".join, FORMS))
    for version in VERSIONS:
        python = args.folder / version / "bin" / "python"
        if not python.exists():
            venv.create(args.folder / version, with_pip=True)
            text = f"tensorflow-text=={version.rpartition('.')[0]}.*"
            names = f"tensorflow=={version}", text
            command = [python, "-m", "pip", "install", "--quiet", *names]
            subprocess.run(command, check=True)
        found = [answers(python, export) for export in expected]
        pairs = zip(found, expected.values(), strict=True)
        print_row(
            version,
            *("yes" if isinstance(x, list) and x == y else x for x, y in pairs),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
