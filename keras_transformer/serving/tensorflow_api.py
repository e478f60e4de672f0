"""TensorFlow Serving's REST interface: `/v1/models/…`.

    GET  /v1/models/NAME[/versions/N]             which versions there are
    GET  /v1/models/NAME[/versions/N]/metadata    their signatures
    POST /v1/models/NAME[/versions/N]:predict     outputs for inputs

Beyond it, `:predict?nonfinite=null` writes null where TensorFlow Serving
writes -Infinity, which strict parsers of JSON refuse.
"""

import asyncio
import json
import re
from typing import Any
from urllib.parse import unquote

from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keras_transformer.serving import tensorflow_json
from keras_transformer.serving.requests import (
    RefusalError,
    as_json,
    json_response,
    read_body,
    unless_gone,
)
from keras_transformer.serving.served_model import DEFAULT_SIGNATURE
from keras_transformer.serving.service import Service
from keras_transformer.serving.versions import UnknownVersionError

_PLACE = r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?"
_PREDICT = re.compile(f"{_PLACE}:(classify|regress|predict)", re.I | re.A)
_STATUS = re.compile(f"{_PLACE}(/metadata)?", re.I | re.A)
_INT64 = 2**63


class TensorFlowApi:
    """Its routes."""

    def __init__(self, service: Service) -> None:
        self.service = service
        # Whatever the rest is like: TensorFlow Serving answers it here.
        self.routes = [
            Route(f"/{v1}/{{rest:path}}", answer, methods=[method])
            for v1 in ("v1", "V1")
            for method, answer in (("GET", self.get), ("POST", self.post))
        ]

    async def get(self, request: Request) -> Response:
        """Status or metadata."""
        path = _path(request)
        found = _STATUS.fullmatch(path)
        if found is None:
            raise RefusalError(400, f"Malformed request: GET {path}")
        name, version, is_metadata = (
            unquote(found[1]),
            _version(found),
            found[4],
        )
        if is_metadata:
            return json_response(self._metadata(name, version))
        return json_response(self._status(name, version))

    async def post(self, request: Request) -> Response:
        """Predict."""
        path = _path(request)
        found = _PREDICT.fullmatch(path)
        if found is None:
            raise RefusalError(400, f"Malformed request: POST {path}")
        if found[4].lower() != "predict":
            raise RefusalError(
                400, "Expected :predict, which is what this model answers."
            )
        body = await read_body(request, self.service.limits)
        strict = request.query_params.get("nonfinite") == "null"
        name, version = unquote(found[1]), _version(found)
        answer = self._predict(name, version, body, strict)
        return await unless_gone(request, answer, self.service.limits)

    async def _predict(
        self, name: str, version: int | None, body: bytes, strict: bool
    ) -> Response:
        self._check(name, version)
        with self.service.versions.use(version) as model:
            fields = as_json(body)
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
            rows = tensorflow_json.to_rows(fields, model.inputs(signature))
            most = self.service.batcher.batching.max_batch_size
            if signature in model.padded and len(rows) > most:
                # Its answers are large, and all are padded to the longest.
                raise RefusalError(
                    400,
                    f"Task size {len(rows)} is larger than maximum batch size "
                    f"{most}",
                )
            outputs = await self.service.run(model, signature, rows)
            as_rows = "instances" in fields
            # Of large answers a matter of seconds, in which others are served.
            return await asyncio.to_thread(
                lambda: json_response(
                    tensorflow_json.to_json(outputs, as_rows, strict)
                )
            )

    def _check(self, name: str, version: int | None) -> None:
        """That the model is served under this name in this version."""
        wanted = (
            f"Latest({name})"
            if version is None
            else (f"Specific({name}, {version})")
        )
        missing = RefusalError(404, f"Servable not found for request: {wanted}")
        if name != self.service.name:
            raise missing
        try:
            with self.service.versions.use(version):
                pass
        except UnknownVersionError:
            raise missing from None

    def _status(self, name: str, version: int | None) -> dict[str, Any]:
        states = self.service.versions.states
        if name != self.service.name or version not in (None, *states):
            of = "" if version is None else f"version {version} of "
            raise RefusalError(
                404,
                f"Could not find {of or 'any versions of '}model {name}",
            )
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
        self._check(name, version)
        model = self.service.versions.current
        signatures = {
            # By protobuf's own rules, 64-bit numbers as strings.
            key: json.loads(
                json_format.MessageToJson(
                    signature,
                    preserving_proto_field_name=True,
                    always_print_fields_with_no_presence=True,
                )
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


def _path(request: Request) -> str:
    """The path as it was sent, in which %2F is no slash."""
    raw = request.scope.get("raw_path") or request.url.path.encode()
    return raw.decode("ascii", "replace")


def _version(found: re.Match[str]) -> int | None:
    if found[3] is not None:
        raise RefusalError(
            400,
            f"Unrecognized servable version label: {unquote(found[3])}; name a "
            "version's number instead.",
        )
    if found[2] is None:
        return None
    if len(found[2]) > 19 or int(found[2]) >= _INT64:
        raise RefusalError(400, "Failed to convert version to numeric.")
    return int(found[2])
