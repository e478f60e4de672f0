"""TensorFlow Serving's predict requests and answers in JSON.

Rows (`instances` → `predictions`) and columns (`inputs` → `outputs`), with its
rules: where there is one input or output its name may be left out, or is;
`{"b64": …}` holds bytes, also in an answer where the output's name ends in
`_bytes`; a number that is none is written as NaN, Infinity or -Infinity.
"""

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.serving.requests import RefusalError

Row = tuple[bytes, ...]


def to_rows(request: Mapping[str, Any], names: Sequence[str]) -> list[Row]:
    """Read the inputs of a request.

    Args:
        request: The body, with `instances` or `inputs`.
        names: The inputs of the signature, sorted.

    Returns:
        For each of B texts the inputs, in the order of `names`.

    Raises:
        RefusalError: If they are not as documented.
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
) -> dict[str, Any]:
    """Write an answer.

    Args:
        outputs: Each `(B, ...)`.
        as_rows: Whether the request was in rows, or else in columns.
        strict: Whether NaN and infinities become null, which every parser of
            JSON reads.
    """
    columns = {
        name: _values(name, outputs[name], strict) for name in sorted(outputs)
    }
    if not as_rows:
        (first, *others) = columns.values()
        return {"outputs": columns if others else first}
    rows = zip(*columns.values(), strict=True)
    if len(columns) == 1:
        return {"predictions": [row[0] for row in rows]}
    return {
        "predictions": [dict(zip(columns, row, strict=True)) for row in rows]
    }


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
    """Whether it names inputs, and is no text in base64."""
    return isinstance(value, dict) and not (
        set(value) == {"b64"} and isinstance(value["b64"], str)
    )


def _text(value: Any) -> bytes:
    """A text, or bytes as `{"b64": …}`."""
    if isinstance(value, dict) and not _is_object(value):
        encoded = value["b64"].translate({ord("-"): "+", ord("_"): "/"})
        encoded = encoded.rstrip("=")
        try:
            return base64.b64decode(
                encoded + "=" * (-len(encoded) % 4), validate=True
            )
        except (binascii.Error, ValueError):
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


def _values(name: str, values: np.ndarray, strict: bool) -> Any:
    """An output as nested lists."""
    if values.dtype == object:
        as_bytes = name.endswith("_bytes")
        return _map(_base64 if as_bytes else _decoded, values.tolist())
    if values.dtype.kind != "f":
        return values.tolist()
    # By way of the shortest decimals, without the digits that float64 adds; a
    # row at a time, since these strings take 128 bytes each.
    decimals = [row.astype("U").astype("float64").tolist() for row in values]
    if strict and not np.isfinite(values).all():
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
