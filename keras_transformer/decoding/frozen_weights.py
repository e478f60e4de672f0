"""Products with weights that no longer change, packed once.

`MatMul` lays its weights out for the processor at every call. Two operators of
TensorFlow's wheels for x86-64 keep the layout of their first call instead:
`_MklNativeFusedMatMul`, in float32 and bfloat16, and `_QuantizedMatMul`, in
8-bit integers. `benchmarks/decoding.md` says what they save.

A float32 layout fits only some numbers of rows; with another the operator is
several times as slow as `MatMul`. So float32 is packed only where the number of
rows is known while tracing, as it is in the search of a single sentence.

Axes: N rows, D width, E columns, V vocabulary, K words of it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import keras_internals
from keras_transformer.config import UserError
from keras_transformer.layers import TiedEmbedding, products
from keras_transformer.machine import devices
from keras_transformer.model import Transformer

_PACKED = "_MklNativeFusedMatMul"
_INT8 = "_QuantizedMatMul"
_Attribute = tf.compat.v1.AttrValue
_AVX512, _VNNI = "AVX-512", "VNNI"
# The largest numbers of 8 and 7 bits. Processors without VNNI add products in
# pairs, in 16 bits, which only those of 7 bits fit.
_EIGHT_BITS, _SEVEN_BITS = 127, 63


def missing_operators(names: Sequence[str]) -> list[str]:
    """Return the operators that this TensorFlow lacks on processors."""
    return [x for x in names if not keras_internals.has_kernel(x, "CPU")]


def freeze(
    models: Sequence[Any], precision: str, portable: bool = False
) -> "tuple[Sequence[Any], FrozenWeights | None]":
    """Freeze models, as `Translator.freeze` says.

    The weights are None where this TensorFlow lacks the operators.
    """
    others = [x for x in models if not isinstance(x, Transformer)]
    lacking = portable or missing_operators((_PACKED, _INT8))
    packs = not (lacking or others or tf.config.list_physical_devices("GPU"))
    if precision != "float32":
        if others:
            raise UserError(
                f"Expected a Transformer to compute in {precision}, received "
                f"{type(others[0]).__name__}; choose float32, or export the "
                "weights in float16."
            )
        if precision == "int8" and not packs:
            raise UserError(
                "Expected a TensorFlow for x86-64 processors without a GPU, "
                "since int8 needs its operators, found another or `portable`; "
                "choose float32 or bfloat16."
            )
    if not others:
        dtype = "bfloat16" if precision == "bfloat16" else "float32"
        models = [_computing_in(dtype, model) for model in models]
    if not packs:
        return models, None
    kind = Int8Weights if precision == "int8" else PackedWeights
    return models, kind(*models)


def _computing_in(dtype: str, model: Transformer) -> Transformer:
    """Return a model, or make it again if it computes in the other type."""
    if (model.compute_dtype == "bfloat16") == (dtype == "bfloat16"):
        return model
    copy = type(model).from_config({**model.get_config(), "dtype": dtype})
    copy.set_weights(model.get_weights())
    return copy


class PackedWeights(products.Products):
    """Weights in float32 or bfloat16, each packed by the first product with it.

    A graph that is traced while they replace `products` keeps multiplying by
    the weights of its first call, even if a model is trained later. Eager calls
    use the models' own weights. The models are all in float32 or in bfloat16.

    Attributes:
        fits_one_size: Whether products are packed only where the number of
            their rows is known while tracing.
        operators: Names of its operators that not every TensorFlow has.
        instructions: What they need of a processor, of
            `devices.INSTRUCTIONS`. Others end the process or miscalculate.
    """

    def __init__(self, *models: Transformer) -> None:
        in_bfloat16 = models[0].compute_dtype == "bfloat16"
        # Its kernel ends the process without AVX-512.
        crashes = in_bfloat16 and not devices.has(_AVX512)
        self.fits_one_size = not in_bfloat16
        self.operators = () if crashes else (_PACKED,)
        self.instructions = (_AVX512,) if in_bfloat16 and not crashes else ()

    def product(
        self,
        rows: tf.Tensor,
        kernel: keras.Variable,
        bias: keras.Variable | None = None,
        activation: str | Callable | None = None,
    ) -> tf.Tensor:
        if not self._packs(rows):
            return super().product(rows, kernel, bias, activation)
        if activation == "relu":
            return _packed(rows, kernel, bias, has_relu=True)
        return keras.activations.get(activation)(_packed(rows, kernel, bias))

    def table_product(
        self, table: keras.Variable, dtype: str, words: tf.Tensor | None = None
    ) -> Callable[[tf.Tensor], tf.Tensor]:
        plain = super().table_product(table, dtype, words)
        if words is not None:  # Each search has its own.
            return plain
        return lambda rows: (
            _packed(rows, table, transposed=True)
            if self._packs(rows)
            else plain(rows)
        )

    def _packs(self, rows: tf.Tensor) -> bool:
        """Return whether a product of these rows, in a graph, is packed."""
        if tf.executing_eagerly() or not self.operators:
            return False
        return not self.fits_one_size or rows.shape[0] is not None


class Int8Weights(products.Products):
    """Matrices of float32 models in 8 bits, or 7 on a processor without VNNI.

    The attributes are those of `PackedWeights`, and so is what graphs and eager
    calls multiply by.
    """

    fits_one_size = False
    operators = (_INT8,)

    def __init__(self, *models: Transformer) -> None:
        self.instructions = (_VNNI,) if devices.has(_VNNI) else ()
        largest = _EIGHT_BITS if self.instructions else _SEVEN_BITS
        layers = [layer for model in models for layer in model.layers]
        tables = {id(x.table) for x in layers if isinstance(x, TiedEmbedding)}
        # By the `id` of the weight that it rounds.
        self._matrices = {
            id(weight): _Int8Matrix(weight, id(weight) in tables, largest)
            for model in models
            for weight in model.weights
            if len(weight.shape) == 2
        }

    def product(
        self,
        rows: tf.Tensor,
        kernel: keras.Variable,
        bias: keras.Variable | None = None,
        activation: str | Callable | None = None,
    ) -> tf.Tensor:
        if not (matrix := self._matrix(kernel)):
            return super().product(rows, kernel, bias, activation)
        result = matrix.product(rows, transposed=False)
        if bias is not None:
            result += tf.convert_to_tensor(bias)
        return keras.activations.get(activation)(result)

    def table_product(
        self, table: keras.Variable, dtype: str, words: tf.Tensor | None = None
    ) -> Callable[[tf.Tensor], tf.Tensor]:
        if not (matrix := self._matrix(table)):
            return super().table_product(table, dtype, words)
        if words is None:
            return functools.partial(matrix.product, transposed=True)
        return matrix.product_with_some(words)

    def lookup(self, table: keras.Variable, ids: tf.Tensor) -> tf.Tensor:
        matrix = self._matrix(table)
        return matrix.lookup(ids) if matrix else super().lookup(table, ids)

    def _matrix(self, weight: keras.Variable) -> "_Int8Matrix | None":
        """Return the rounded weight, if there is one and a graph is traced."""
        if tf.executing_eagerly():
            return None
        return self._matrices.get(id(weight))


FrozenWeights = PackedWeights | Int8Weights


class _Int8Matrix:
    """A matrix `(D, E)` in 8 bits, and the scale of each column or row."""

    def __init__(
        self, weight: keras.Variable, by_rows: bool, largest: int
    ) -> None:
        # By rows an embedding matrix, whose rows are the columns of the logits.
        values = np.asarray(weight)
        scales = np.abs(values).max(1 if by_rows else 0) / largest
        scales = np.where(scales > 0, scales, 1.0).astype(np.float32)
        rounded = np.round(values / (scales[:, None] if by_rows else scales))
        self._values = tf.Variable(
            rounded.astype(np.int8), False, name=f"{weight.name}_int8"
        )
        # The value that 127 stands for.
        self._ranges = tf.Variable(
            scales * _EIGHT_BITS, False, name=f"{weight.name}_ranges"
        )

    def product(self, rows: tf.Tensor, transposed: bool) -> tf.Tensor:
        """Multiply float32 rows `(N, D)`."""
        return _int8_product(
            rows, self._values.value(), self._ranges.value(), transposed
        )

    def product_with_some(
        self, words: tf.Tensor
    ) -> Callable[[tf.Tensor], tf.Tensor]:
        """Make the product with a few rows `(K,)` of an embedding matrix."""
        return functools.partial(
            _int8_product,
            kernel=tf.gather(self._values.value(), words),
            ranges=tf.gather(self._ranges.value(), words),
            transposed=True,
            # Packed at every call, because each search has its own words.
            stays=False,
        )

    def lookup(self, ids: tf.Tensor) -> tf.Tensor:
        """Pick rows, float32 `(..., D)`."""
        rows = tf.cast(tf.gather(self._values.value(), ids), tf.float32)
        scales = tf.gather(self._ranges.value(), ids) * (1 / _EIGHT_BITS)
        return rows * scales[..., None]


def _packed(
    rows: tf.Tensor,
    kernel: keras.Variable,
    bias: keras.Variable | None = None,
    has_relu: bool = False,
    transposed: bool = False,
) -> tf.Tensor:
    """Multiply by weights that the first call packs, and later calls keep."""
    if bias is None:
        added = tf.zeros([kernel.shape[0 if transposed else 1]], rows.dtype)
    else:
        added = tf.cast(tf.convert_to_tensor(bias), rows.dtype)
    fused = [b"BiasAdd", b"Relu"] if has_relu else [b"BiasAdd"]
    return _operator(
        _PACKED,
        [rows, tf.cast(tf.convert_to_tensor(kernel), rows.dtype), added],
        rows.dtype,
        T=_Attribute(type=rows.dtype.as_datatype_enum),
        transpose_b=_Attribute(b=transposed),
        num_args=_Attribute(i=1),
        fused_ops=_listed(s=fused),
        is_filter_const=_Attribute(b=True),
        # The label under which its kernels are registered.
        _kernel=_Attribute(s=b"MklNameChangeOp"),
    )


def _int8_product(
    rows: tf.Tensor,
    kernel: tf.Tensor,
    ranges: tf.Tensor,
    transposed: bool,
    stays: bool = True,
) -> tf.Tensor:
    """Multiply float32 rows `(N, D)`, rounded to 8 bits, by int8 weights."""
    # If the kernel `stays`, later calls multiply by that of the first.
    # A row of zeros has the scale 0. It rounds to something undefined, which
    # is then multiplied by 0.
    sizes = tf.reduce_max(tf.abs(rows), axis=-1, keepdims=True)
    scales = sizes * (1 / _EIGHT_BITS)
    # A division of each number takes twice as long as a product.
    rounded = tf.cast(tf.round(rows * (_EIGHT_BITS / sizes)), tf.int8)
    # Hardly any other operator takes qint8, not even a loop.
    rounded, kernel = (tf.bitcast(x, tf.qint8) for x in (rounded, kernel))
    largest = tf.constant(float(_EIGHT_BITS))
    # The scales of the rows are multiplied in later: here they would be part
    # of the operator's program, compiled anew for each scale. The operator
    # takes a least and a largest number and uses the one farther from 0; we
    # pass the same number twice.
    inputs = [
        *(rounded, kernel, tf.zeros_like(ranges)),
        *(largest, largest, ranges, ranges),
    ]
    types = [tensor.dtype.as_datatype_enum for tensor in inputs]
    of_integers = _Attribute(type=tf.qint8.as_datatype_enum)
    of_floats = _Attribute(type=tf.float32.as_datatype_enum)
    product = _operator(
        _INT8,
        inputs,
        tf.float32,
        Tdevice_inputs=_listed(type=types),
        Thost_inputs=_listed(),
        Tdevice_outputs=_listed(type=[of_floats.type]),
        Thost_outputs=_listed(),
        T1=of_integers,
        T2=of_integers,
        Tbias=of_floats,
        U=of_floats,
        Tout=of_floats,
        transpose_b=_Attribute(b=transposed),
        is_weight_const=_Attribute(b=stays),
        is_bias_const=_Attribute(b=stays),
        input_quant_mode=_Attribute(s=b"SCALED"),
        fused_ops=_listed(s=[b"BiasAdd", b"Dequantize"]),
    )
    return product * scales


def _operator(
    kind: str, inputs: list[tf.Tensor], dtype: tf.DType, **attributes: Any
) -> tf.Tensor:
    """Make an operator that has no function; return its only output."""
    graph = tf.compat.v1.get_default_graph()
    name = kind.lstrip("_")  # A name must not begin with an underscore.
    made = graph.create_op(kind, inputs, [dtype], name=name, attrs=attributes)
    return made.outputs[0]


def _listed(**items: Any) -> Any:
    return _Attribute(list=_Attribute.ListValue(**items))
