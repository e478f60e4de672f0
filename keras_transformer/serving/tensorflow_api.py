"""TensorFlow Serving's REST interface: `/v1/models/…`.

    GET  /v1/models/NAME[/versions/N]             the versions
    GET  /v1/models/NAME[/versions/N]/metadata    their signatures
    POST /v1/models/NAME[/versions/N]:predict     outputs for inputs

Beyond it, `:predict?nonfinite=null` writes null where TensorFlow Serving
writes -Infinity, which strict parsers of JSON refuse.

A request has rows (`instances` → `predictions`) or columns (`inputs` →
`outputs`). The name of a single input may be left out; that of a single output
is. `{"b64": …}` holds bytes, also in an answer if the output's name ends in
`_bytes`. Numbers that are not finite are written as NaN, Infinity or -Infinity.
"""

import base64
import contextlib
import math
import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keras_transformer.serving.requests import (
    RefusalError,
    json_response,
    json_written,
)
from keras_transformer.serving.served_model import (
    DEFAULT_SIGNATURE,
    Row,
    ServedModel,
)
from keras_transformer.serving.service import Job, Service

_PLACE = r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?"
_PREDICT = re.compile(f"{_PLACE}:(classify|regress|predict)", re.I | re.A)
_STATUS = re.compile(f"{_PLACE}(/metadata)?", re.I | re.A)


class TensorFlowApi:
    """The routes of TensorFlow Serving's interface."""

    def __init__(self, service: Service) -> None:
        self.service = service
        # TensorFlow Serving answers every path below this one.
        self.routes = [
            Route(f"/{v1}/{{rest:path}}", answer, methods=[method])
            for v1 in ("v1", "V1")
            for method, answer in (("GET", self.get), ("POST", self.post))
        ]

    async def get(self, request: Request) -> Response:
        """Answer with status or metadata."""
        found = _matched(_STATUS, "GET", request)
        answer = self._metadata if found[4] else self._status
        return json_response(answer(unquote(found[1]), _version(found)))

    async def post(self, request: Request) -> Response:
        """Answer a prediction."""
        found = _matched(_PREDICT, "POST", request)
        if found[4].lower() != "predict":
            raise RefusalError(
                400, "Expected :predict, which is what this model answers."
            )
        strict = request.query_params.get("nonfinite") == "null"
        name, version = unquote(found[1]), _version(found)
        return await self.service.answer(
            request, lambda job: self._predict(job, name, version, strict)
        )

    async def _predict(
        self, job: Job, name: str, version: int | None, strict: bool
    ) -> Response:
        with self._use(name, version) as model:
            fields = await job.turn(job.as_json)
            signature = fields.get("signature_name", "")
            if not isinstance(signature, str):
                raise RefusalError(
                    400,
                    "not formatted correctly. 'signature_name' key must be a "
                    "string value.",
                )
            signature = signature or DEFAULT_SIGNATURE
            if signature not in model.signatures:
                raise RefusalError(
                    400,
                    f'Serving signature name: "{signature}" not found in '
                    "signature def",
                )
            rows = await job.turn(
                lambda: to_rows(fields, model.inputs(signature))
            )
            most = self.service.batcher.batching.max_batch_size
            if signature in model.padded and len(rows) > most:
                # The answers are large, and all are padded to the longest.
                raise RefusalError(
                    400,
                    f"Task size {len(rows)} is larger than maximum batch size "
                    f"{most}",
                )
            outputs = await self.service.run(model, signature, rows)
        as_rows = "instances" in fields
        # Even the answer to a short text may be large.
        job.is_long = job.is_long or signature in model.padded
        content = await job.finish(to_json(outputs, as_rows, strict))
        return await job.finish(json_written(content))

    def _use(
        self, name: str, version: int | None
    ) -> contextlib.AbstractContextManager[ServedModel]:
        """Lend a version; refuse a name or version that is not served."""
        versions = self.service.versions
        is_served = version in (None, versions.current.version)
        if name == self.service.name and is_served:
            return versions.use()
        wanted = (
            f"Latest({name})"
            if version is None
            else f"Specific({name}, {version})"
        )
        raise RefusalError(404, f"Servable not found for request: {wanted}")

    def _status(self, name: str, version: int | None) -> dict[str, Any]:
        states = self.service.versions.states
        if name != self.service.name or version not in (None, *states):
            which = "any versions" if version is None else f"version {version}"
            raise RefusalError(404, f"Could not find {which} of model {name}")
        return {
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

    def _metadata(self, name: str, version: int | None) -> dict[str, Any]:
        with self._use(name, version) as model:
            signatures = {
                # Protobuf's own rules write 64-bit numbers as strings.
                key: json_format.MessageToDict(
                    signature,
                    preserving_proto_field_name=True,
                    always_print_fields_with_no_presence=True,
                )
                for key, signature in model.signatures.items()
            }
        return {
            "model_spec": {
                "name": name,
                "signature_name": "",
                "version": str(model.version),
            },
            "metadata": {"signature_def": {"signature_def": signatures}},
        }


def _matched(
    pattern: re.Pattern[str], method: str, request: Request
) -> re.Match[str]:
    """Match the path as it was sent, where %2F is not a slash."""
    raw = request.scope.get("raw_path") or request.url.path.encode()
    path = raw.decode("ascii", "replace")
    found = pattern.fullmatch(path)
    if found is None:
        raise RefusalError(400, f"Malformed request: {method} {path}")
    return found


def _version(found: re.Match[str]) -> int | None:
    if found[3] is not None:
        raise RefusalError(
            400,
            f"Unrecognized servable version label: {unquote(found[3])}; name a "
            "version's number instead.",
        )
    if found[2] is None:
        return None
    if len(found[2]) > 19 or int(found[2]) >= 2**63:
        raise RefusalError(400, "Failed to convert version to numeric.")
    return int(found[2])


def to_rows(request: Mapping[str, Any], names: Sequence[str]) -> list[Row]:
    """Read the inputs of each text of a request, in the order of `names`.

    Raises:
        RefusalError: If they do not have a documented form.
    """
    if "instances" in request and "inputs" in request:
        raise RefusalError(
            400,
            "Not formatted correctly expecting only one of 'inputs' or "
            "'instances' keys to exist",
        )
    if "instances" in request:
        return _from_instances(request["instances"], names)
    if "inputs" in request:
        return _from_inputs(request["inputs"], names)
    raise RefusalError(400, "Missing 'inputs' or 'instances' key")


def to_json(
    outputs: Mapping[str, np.ndarray], as_rows: bool, strict: bool
) -> Generator[None, None, dict[str, Any]]:
    """Make the JSON of an answer, row by row.

    Args:
        outputs: The outputs, each `(B, ...)`.
        as_rows: Whether the request had rows; otherwise it had columns.
        strict: Whether NaN and infinities become null, which every parser of
            JSON reads.
    """
    columns: dict[str, list] = {}
    for name in sorted(outputs):
        columns[name] = []
        for row in outputs[name]:
            columns[name].append(_value(name, row, strict))
            yield
    answer: Any = columns
    if len(columns) == 1:
        (answer,) = columns.values()
    elif as_rows:
        rows = zip(*columns.values(), strict=True)
        answer = [dict(zip(columns, row, strict=True)) for row in rows]
    return {"predictions" if as_rows else "outputs": answer}


def _from_instances(instances: Any, names: Sequence[str]) -> list[Row]:
    if not isinstance(instances, list):
        raise RefusalError(400, "Excepting 'instances' to be an list/array")
    if not instances:
        raise RefusalError(400, "No values in 'instances' array")
    are_objects = _is_object(instances[0])
    if not are_objects and len(names) > 1:
        raise RefusalError(
            400,
            "instances is a plain list, but expecting list of objects as "
            "multiple input tensors required as per tensorinfo_map",
        )
    rows = []
    for number, item in enumerate(instances):
        if _is_object(item) != are_objects:
            raise RefusalError(
                400,
                f"Expecting {'object' if are_objects else 'value/list'} but "
                f"got another kind at item {number} of input list",
            )
        row = item if are_objects else {names[0]: item}
        if sorted(row) != list(names):
            raise RefusalError(
                400,
                f"Failed to process element: {number} of 'instances' list. "
                f"JSON object: keys must be equal to: {','.join(names)}",
            )
        rows.append(tuple(_text(row[name]) for name in names))
    return rows


def _from_inputs(inputs: Any, names: Sequence[str]) -> list[Row]:
    if not _is_object(inputs):
        if len(names) > 1:
            raise RefusalError(
                400,
                "inputs is a plain value/list, but expecting an object as "
                "multiple input tensors required as per tensorinfo_map",
            )
        inputs = {names[0]: inputs}
    columns = []
    for name in names:
        if name not in inputs:
            raise RefusalError(
                400, f"Missing named input: {name} in 'inputs' object."
            )
        if not isinstance(inputs[name], list):
            raise RefusalError(
                400, f"Expected a list of texts as the input {name}."
            )
        columns.append([_text(value) for value in inputs[name]])
    if len({len(column) for column in columns}) > 1:
        raise RefusalError(
            400, f"Expected as many texts in each of: {','.join(names)}."
        )
    return list(zip(*columns, strict=True))


def _is_object(value: Any) -> bool:
    """Return whether a value names inputs, and is not a text in base64."""
    return isinstance(value, dict) and not (
        set(value) == {"b64"} and isinstance(value["b64"], str)
    )


def _text(value: Any) -> bytes:
    """Encode a text, or bytes as `{"b64": …}`."""
    if isinstance(value, dict) and not _is_object(value):
        encoded = value["b64"].translate({ord("-"): "+", ord("_"): "/"})
        encoded = encoded.rstrip("=")
        try:
            return base64.b64decode(
                encoded + "=" * (-len(encoded) % 4), validate=True
            )
        except ValueError:
            raise RefusalError(400, "Unable to base64 decode") from None
    if not isinstance(value, str):
        kind = type(value).__name__
        raise RefusalError(
            400, f"JSON Value of type: {kind} is not of expected type: string"
        )
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise RefusalError(
            400,
            "JSON Parse error: The surrogate pair in string is invalid.",
        ) from None


def _value(name: str, row: Any, strict: bool) -> Any:
    """Turn a row of an output into a value or nested lists."""
    # A part at a time: NumPy stops all other threads.
    if np.ndim(row) > 1:
        return [_value(name, each, strict) for each in row]
    if isinstance(row, bytes) or row.dtype == object:
        texts = row if isinstance(row, bytes) else row.tolist()
        as_bytes = name.endswith("_bytes")
        return _map(_base64 if as_bytes else _decoded, texts)
    if row.dtype.kind != "f":
        return row.tolist()
    # The shortest decimals leave out the digits that float64 adds.
    decimals = np.asarray(row).astype("U").astype("float64").tolist()
    if strict and not np.isfinite(row).all():
        return _map(lambda x: x if math.isfinite(x) else None, decimals)
    return decimals


def _map(function: Any, values: Any) -> Any:
    if isinstance(values, list):
        return [_map(function, value) for value in values]
    return function(values)


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _base64(text: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(text).decode()}
