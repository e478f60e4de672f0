"""Ask TensorFlow Serving for translations over HTTP, with only Python.

Example:
    python rest_client.py --model demo "three hundred and two"
"""

import argparse
import json
import sys
import urllib.error
import urllib.request


def translate(server, model, texts, timeout):
    """Return one translation for each text."""
    request = urllib.request.Request(
        f"http://{server}/v1/models/{model}:predict",
        data=json.dumps(
            {"signature_name": "serving_default", "inputs": {"text": texts}}
        ).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return json.load(response)["outputs"]["translation"]


def main():
    """Print a translation a line, or one sentence of what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="localhost:8501")
    parser.add_argument("--model", required=True, help="its name on the server")
    parser.add_argument("--timeout", type=float, default=30, help="seconds")
    parser.add_argument("text", nargs="+")
    args = parser.parse_args()
    try:
        found = translate(args.server, args.model, args.text, args.timeout)
    except urllib.error.HTTPError as error:
        reason = error.read().decode(errors="replace")
        try:
            reason = json.loads(reason)["error"]
        except (ValueError, KeyError, TypeError):
            pass
        sys.exit(f"error: {args.server} refused: {' '.join(reason.split())}")
    except (OSError, ValueError, KeyError) as error:
        reason = getattr(error, "reason", error)
        sys.exit(
            f"error: no translation from {args.server} ({reason}); is "
            "TensorFlow Serving running there with its REST port open?"
        )
    print(*found, sep="\n")


if __name__ == "__main__":
    main()
