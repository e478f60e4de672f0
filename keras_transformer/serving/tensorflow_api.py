"""TensorFlow Serving's REST interface, as `docs/reference/http.md` lists it.

A request has rows (`instances` → `predictions`) or columns (`inputs` →
`outputs`). A request may leave out the name of a single input, and an answer
leaves out the name of a single output.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keras_transformer.serving.limits import RefusalError
from keras_transformer.serving.service import Job, Service, json_response
from keras_transformer.serving.versions import DEFAULT_SIGNATURE, Row

_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/([^/:]+))?(:predict)?")


def routes(service: Service) -> list[Route]:
    """Make the route, since TensorFlow Serving answers every path of /v1."""
    answer = partial(_answer, service)
    return [Route("/v1/{rest:path}", answer, methods=["GET", "POST"])]


async def _answer(service: Service, request: Request) -> Response:
    """Answer with the status of the version or with a prediction."""
    # In the path as it was sent, %2F is not a slash.
    path = request.scope["raw_path"].decode()
    match = _PATH.fullmatch(path)
    if not match or bool(match[3]) != (request.method == "POST"):
        raise RefusalError(f"There is no {request.method} {path} here.")
    if (name := unquote(match[1])) != service.name:
        raise RefusalError(f"There is no model {name} here.", 404)
    if match[3]:
        predict = partial(_predict, version=match[2])
        return await service.answer(request, predict)
    model = service.versions.current
    _check_version(model.version, match[2])
    status = {
        "version": str(model.version),
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    return json_response({"model_version_status": [status]})


def _check_version(served: int, version: str | None) -> None:
    if version not in (None, str(served)):
        raise RefusalError(f"There is no version {version} here.", 404)


async def _predict(job: Job, version: str | None) -> dict[str, Any]:
    model, batcher = job.model, job.service.batcher
    _check_version(model.version, version)
    fields = await job.apart(job.as_json)
    signature = str(fields.get("signature_name") or DEFAULT_SIGNATURE)
    if signature not in model.signatures:
        known = ", ".join(sorted(model.signatures))
        why = f"Expected signature_name to be one of {known}"
        raise RefusalError(f"{why}; received {signature}.")
    rows = await job.apart(to_rows, fields, model.inputs(signature))
    job.check_texts(len(rows))
    if signature in model.padded:
        # Padded to the longest, the answer to a short text may be large too.
        job.is_long = True
        most = batcher.batching.max_batch_size
        if (count := len(rows)) > most:
            expected = f"at most {most} rows for {signature}"
            raise RefusalError(f"Expected {expected}, received {count}.")
    outputs = await batcher.run(model, signature, rows)
    columns: Any = dict(sorted(outputs.items()))
    if len(columns) == 1:
        (columns,) = columns.values()
    elif "instances" in fields:
        names, of_rows = list(columns), zip(*columns.values(), strict=True)
        columns = [dict(zip(names, row, strict=True)) for row in of_rows]
    return {"predictions" if "instances" in fields else "outputs": columns}


def to_rows(request: Mapping[str, Any], names: Sequence[str]) -> list[Row]:
    """Read the inputs of each text of a request, in the order of `names`."""
    inputs, instances = request.get("inputs"), request.get("instances")
    rows: list[Sequence[Any]] = []
    if instances is None:
        named: Any = inputs if _is_object(inputs) else {names[0]: inputs}
        columns = [named.get(name) for name in names]
        sizes = {len(x) if isinstance(x, list) else 0 for x in columns}
        if len(sizes) == 1 and 0 not in sizes:
            rows = list(zip(*columns, strict=True))
    elif inputs is None and isinstance(instances, list):
        rows = [
            [row.get(name) for name in names] if _is_object(row) else [row]
            for row in instances
        ]
    if not rows or any(len(row) != len(names) for row in rows):
        raise RefusalError(
            "Expected either instances, a list with an object of "
            f"{', '.join(names)} for each text, or inputs, an object with a "
            "list of as many texts for each of these."
        )
    return [tuple(map(_text, row)) for row in rows]


def _is_object(value: Any) -> bool:
    """Return whether a value names inputs, and is not a text in base64."""
    return isinstance(value, dict) and set(value) != {"b64"}


def _text(value: Any) -> bytes:
    """Encode a text, or bytes as `{"b64": …}`."""
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and isinstance(value.get("b64"), str):
            # Like TensorFlow Serving, in either alphabet, in lines or whole.
            encoded = "".join(value["b64"].split()).rstrip("=")
            padding = "=" * (-len(encoded) % 4)
            return base64.b64decode(encoded + padding, "-_", validate=True)
    except ValueError:
        pass
    raise RefusalError(
        "Expected a text, a string of whole characters or base64 as b64, "
        f"received {type(value).__name__}."
    )
