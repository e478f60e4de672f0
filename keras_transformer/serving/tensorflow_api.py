"""TensorFlow Serving's REST interface, as `docs/reference/http.md` lists it.

A request has rows (`instances` → `predictions`) or columns (`inputs` →
`outputs`). A request may leave out the name of a single input, and an answer
leaves out the name of a single output.
"""

import base64
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keras_transformer.serving.limits import RefusalError
from keras_transformer.serving.service import Job, Service, json_response
from keras_transformer.serving.versions import DEFAULT_SIGNATURE, Row

_PATH = re.compile(
    r"/v1/models/([^/:]+)(?:/versions/(\d{1,19}))?(/metadata|:predict)?", re.A
)


def routes(service: Service) -> list[Route]:
    """Make the route, since TensorFlow Serving answers every path of /v1."""
    answer = partial(_answer, service)
    return [Route("/v1/{rest:path}", answer, methods=["GET", "POST"])]


async def _answer(service: Service, request: Request) -> Response:
    """Answer with a status, with metadata or with a prediction."""
    # In the path as it was sent, %2F is not a slash.
    path = request.scope["raw_path"].decode()
    match = _PATH.fullmatch(path)
    name, digits, of = match.groups("") if match else ("", "", None)
    if of is None or (of == ":predict") != (request.method == "POST"):
        raise RefusalError(f"There is no {request.method} {path} here.")
    if unquote(name) != service.name:
        raise RefusalError(f"There is no model {unquote(name)} here.", 404)
    version = int(digits) if digits else None
    if of == ":predict":
        return await service.answer(request, partial(_predict, version=version))
    model, states = service.versions.current, service.versions.states
    _check_version(version, [model.version] if of else states)
    if of:
        signatures = {
            # Protobuf's own rules write 64-bit numbers as strings.
            key: json_format.MessageToDict(
                signature,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            )
            for key, signature in model.signatures.items()
        }
        spec = {"name": service.name, "signature_name": ""}
        return json_response(
            {
                "model_spec": {**spec, "version": str(model.version)},
                "metadata": {"signature_def": {"signature_def": signatures}},
            }
        )
    return json_response(
        {
            "model_version_status": [
                {
                    "version": str(number),
                    "state": state,
                    "status": {
                        "error_code": "UNKNOWN" if error else "OK",
                        "error_message": error,
                    },
                }
                for number, (state, error) in sorted(states.items())[::-1]
                if version in (None, number)
            ]
        }
    )


def _check_version(version: int | None, known: Collection[int]) -> None:
    if version not in (None, *known):
        raise RefusalError(f"There is no version {version} here.", 404)


async def _predict(job: Job, version: int | None) -> dict[str, Any]:
    model, batcher = job.model, job.service.batcher
    _check_version(version, [model.version])
    fields = await job.apart(job.as_json)
    signature = str(fields.get("signature_name") or DEFAULT_SIGNATURE)
    if signature not in model.signatures:
        raise RefusalError(
            "Expected signature_name to be one of "
            f"{', '.join(sorted(model.signatures))}; received {signature}."
        )
    rows = await job.apart(to_rows, fields, model.inputs(signature))
    job.check_texts(len(rows))
    if signature in model.padded:
        # Even the answer to a short text may be large, and all are padded to
        # the longest.
        job.is_long = True
        most = batcher.batching.max_batch_size
        if len(rows) > most:
            raise RefusalError(
                f"Expected at most {most} rows for {signature}, received "
                f"{len(rows)}."
            )
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
    if ("instances" in request) == ("inputs" in request):
        raise RefusalError("Expected either instances or inputs.")
    if "inputs" in request:
        inputs = request["inputs"]
        if not _is_object(inputs):
            inputs = dict.fromkeys(names[:1], inputs)
        columns = [inputs.get(name) for name in names]
        if not all(isinstance(column, list) and column for column in columns):
            raise RefusalError(
                f"Expected a list of texts for {' and for '.join(names)}."
            )
        if len(set(map(len, columns))) > 1:
            raise RefusalError(
                f"Expected as many texts in each of {', '.join(names)}."
            )
        return [tuple(map(_text, row)) for row in zip(*columns, strict=True)]
    instances = request["instances"]
    if not isinstance(instances, list) or not instances:
        raise RefusalError("Expected instances to be a list of rows.")
    if len(names) == 1 and not _is_object(instances[0]):
        return [(_text(each),) for each in instances]
    for number, row in enumerate(instances):
        if not _is_object(row) or sorted(row) != list(names):
            raise RefusalError(
                f"Expected an object with {', '.join(names)} as row {number} "
                "of instances."
            )
    return [tuple(_text(row[name]) for name in names) for row in instances]


def _is_object(value: Any) -> bool:
    """Return whether a value names inputs, and is not a text in base64."""
    return isinstance(value, dict) and not (
        set(value) == {"b64"} and isinstance(value["b64"], str)
    )


def _text(value: Any) -> bytes:
    """Encode a text, or bytes as `{"b64": …}`."""
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and not _is_object(value):
            # Like TensorFlow Serving, in either alphabet, in lines or whole.
            encoded = "".join(value["b64"].split()).rstrip("=")
            padding = "=" * (-len(encoded) % 4)
            return base64.b64decode(encoded + padding, "-_", validate=True)
    except ValueError:
        expected = "base64 as b64, cannot decode it"
        if isinstance(value, str):
            expected = "whole characters, received half a surrogate pair"
        raise RefusalError(f"Expected {expected}.") from None
    raise RefusalError(
        f"Expected a text (a string), received {type(value).__name__}."
    )
