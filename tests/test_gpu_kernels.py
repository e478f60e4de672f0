"""Every operator of training and translating has a kernel for GPUs.

No GPU is needed: TensorFlow's wheel says which kernels it holds.
"""

import json

import pytest
import tensorflow as tf
from gpu_kernels import PRECISIONS, missing_kernels, train_step_graph
from programs import run_program
from sample_runs import OPTIONS
from session_loader import operators
from small_models import SIZES
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.config import Sampling, Search
from keras_transformer.decoding.id_model import IdModel
from keras_transformer.exporting import saved_model
from keras_transformer.model import Transformer

# What may run on the host, and why.
ON_THE_HOST = {
    "Assert": "it stops the host",
    "Const": "the text of an `Assert`",
    "RaggedGather": "cuts the tokenizer's ids, once a call",
    "RaggedRange": "cuts the tokenizer's ids, once a call",
    "RaggedTensorToTensor": "pads the tokenizer's ids, once a call",
    "SentencepieceDetokenizeOp": "text",
    "SentencepieceTokenizeOp": "text",
    "StaticRegexFullMatch": "text",
    "StaticRegexReplace": "text",
    "StringLength": "text",
    "StringToHashBucketFast": "text",
    "Substr": "text",
    "UnsortedSegmentJoin": "text",
}
IDS = tf.TensorSpec([None, None], tf.int32)
TEXT = tf.TensorSpec([None], tf.string)
SEARCHES = {
    "beam search": Search(
        beam_size=3, n_best=2, no_repeat_ngram=2, min_length=2, no_unknown=True
    ),
    "sampling": Search(
        n_best=2, sampling=Sampling(top_k=5, top_p=0.9, seed=1), min_length=2
    ),
}


def graph_of(function, *specs):
    traced = tf.function(function, autograph=False)
    return traced.get_concrete_function(*specs).graph.as_graph_def()


def beyond_text(missing):
    """Leave out operators on strings, and those allowed by name."""
    return {
        (device, op, types)
        for device, op, types in missing
        if op not in ON_THE_HOST and "string" not in types
    }


def assert_searches_on_gpus(precision, name, **changes):
    """From ids to ids, with a prefix."""
    model = IdModel(Transformer(dtype=precision, **SIZES, **changes))

    def search(source, prefix, seeds):
        options = SEARCHES[name]
        return model.search_ids(source, options, prefix, seeds)._asdict()

    graph_def = graph_of(search, IDS, IDS, tf.TensorSpec([None, 2], tf.int32))
    assert not beyond_text(missing_kernels(graph_def))


@pytest.mark.stands_for("GPU kernels")
def test_training_and_translating_have_kernels_for_gpus():
    assert not missing_kernels(train_step_graph("mixed_float16", 2))
    assert_searches_on_gpus("float32", "beam search")


@pytest.mark.slow
def test_a_training_step_of_two_replicas_has_kernels_for_gpus():
    told = json.loads(run_program("gpu_kernels.py"))
    assert told == dict.fromkeys(PRECISIONS, [])


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("precision", (*PRECISIONS, "bfloat16"))
def test_a_search_has_kernels_for_gpus(precision, name):
    assert_searches_on_gpus(precision, name)


@pytest.mark.slow
def test_a_restricted_model_has_kernels_for_gpus():
    assert not missing_kernels(train_step_graph("float32", 1, restriction=3))
    assert_searches_on_gpus("float32", "beam search", restriction=3)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_every_signature_of_a_portable_export_has_kernels_for_gpus(
    small_translator, tmp_path, precision
):
    how = dict(search=OPTIONS, precision=precision, portable=True)
    path = saved_model.export(small_translator, tmp_path, **how)
    # None is one that TensorFlow keeps for itself.
    assert not [name for name in operators(path) if name[0] == "_"]
    saved = SavedModel.FromString((path / "saved_model.pb").read_bytes())
    graph_def = saved.meta_graphs[0].graph_def
    signatures = [
        f.signature.name
        for f in graph_def.library.function
        if "signature_wrapper" in f.signature.name
    ]
    assert len(signatures) == 5
    assert not beyond_text(missing_kernels(graph_def, signatures))


def test_an_operator_without_a_kernel_is_found_in_a_branch_of_a_loop():
    def lower_twice(text):
        def body(i, text):
            lower = tf.cond(i > 0, lambda: tf.strings.lower(text), lambda: text)
            return i + 1, lower

        return tf.while_loop(lambda i, _: i < 2, body, (0, text))[1]

    missing = missing_kernels(graph_of(lower_twice, TEXT))
    assert "StringLower" in {op for _, op, _ in missing}
