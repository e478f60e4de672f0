"""Reads Marian models, as Marian writes them or in Hugging Face's form.

In Marian's form `decoder.yml` names an `.npz` of weights and settings, and the
`.vocab.yml` with the id of every piece of `source.spm` and `target.spm`; or a
sentencepiece model in its place, which segments both sides. A folder of Hugging
Face has `config.json`, weights, both `.spm` and `vocab.json`.

Both differ from ours in these points, besides those of `imported`:

- The decoder starts from a zero embedding, or from that of padding: it becomes
  the row of our begin token.
- Ids differ: rows of the tied matrix are put in our order.
- Padding and begin token, which are never written, get a logit so low that
  they have no share of a probability.

Marian's positions are sines, then cosines, with tensor2tensor's rates
10000^(-i/(D/2-1)); see `sinusoidalPositionEmbeddings` in its
`src/graph/node_initializers.cpp`. CTranslate2's converter and Hugging Face use
the rates 10000^(-2i/D) instead, even if the weights were trained with others.

Axes: D model width, V pieces of ours, R rows of theirs.
"""

import io
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece

from keras_transformer.config import BOS_ID, UserError
from keras_transformer.data.paired_tokenizer import PairedTokenizer, pack
from keras_transformer.importing import source_files
from keras_transformer.importing.imported import (
    Arrays,
    Imported,
    Names,
    Settings,
    column_order,
    logits,
    model_config,
)

DECODER, CONFIG = "decoder.yml", "config.json"
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
_SETTINGS = "special:model.yml"
_END, _UNKNOWN, _PADDING, _BEGIN = "</s>", "<unk>", "<pad>", "<s>"

_ATTENTION = ("*q", "*k", "*v", "*o", "Wo_ln_*")
_NAMES = Names(
    layer="{stack}_l{n}_",
    endings=("W", "b", "scale", "bias"),
    parts={
        "attention": ("self_", _ATTENTION),
        "cross_attention": ("context_", _ATTENTION),
        "feed_forward": ("ffn_", ("*1", "*2", "ffn_ln_*")),
    },
)
_NUMBERS = {
    "enc-depth": "encoder_layers",
    "dec-depth": "decoder_layers",
    "dim-emb": "d_model",
    "transformer-heads": "num_heads",
    "transformer-dim-ffn": "ffn_dim",
}
# The values that we can follow, Marian's default first.
_FOLLOWED = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-preprocess": ("",),
    "transformer-postprocess": ("dan",),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-postprocess-top": ("",),
    "transformer-ffn-depth": (2,),
    "transformer-no-projection": (False,),
    "transformer-train-position-embeddings": (False,),
    "transformer-tied-layers": ([],),
    "factors-combine": ("sum",),
    "lemma-dim-emb": (0,),
    "right-left": (False,),
    "transformer-decoder-ffn-depth": (0, 2),
    "input-types": ([], ["sequence"], ["sequence"] * 2),
    "output-omit-bias": (False,),
    "ulr": (False,),
}
# As in Marian's `transformer.h`.
_EPSILON = 1e-6

_HF_ATTENTION = (
    *(".q_proj.*", ".k_proj.*", ".v_proj.*", ".out_proj.*"),
    "_layer_norm.*",
)
_HF_NAMES = Names(
    layer="{stack}.layers.{i}.",
    endings=("weight", "bias", "weight", "bias"),
    parts={
        "attention": ("self_attn", _HF_ATTENTION),
        "cross_attention": ("encoder_attn", _HF_ATTENTION),
        "feed_forward": ("", ("fc1.*", "fc2.*", "final_layer_norm.*")),
    },
    transposed=True,
)
_HF_NUMBERS = {
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "d_model": "d_model",
    "encoder_attention_heads": "num_heads",
    "decoder_attention_heads": "num_heads",
    "encoder_ffn_dim": "ffn_dim",
    "decoder_ffn_dim": "ffn_dim",
}
# Settings of old files, with the only value that they have.
_HF_FOLLOWED = {
    "model_type": ("marian",),
    "share_encoder_decoder_embeddings": (True,),
    "tie_word_embeddings": (True,),
    "normalize_before": (False,),
    "normalize_embedding": (False,),
    "add_final_layer_norm": (False,),
    "static_position_embeddings": (True,),
}
_HF_ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu"}
# The epsilon of `torch.nn.LayerNorm`, which no setting changes.
_HF_EPSILON = 1e-5
# Names of the tied matrix, of which a file has one or several.
_TIED = (
    "shared.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "lm_head.weight",
)

# Characters that PyYAML rejects or takes for line ends, and Marian does not.
# While YAML is parsed, characters of a private plane stand for them.
_SPECIAL = (
    *(*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0)),
    *(0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF),
)
_HIDDEN = {ordinal: 0x100000 + ordinal for ordinal in _SPECIAL}
_SHOWN = {hidden: ordinal for ordinal, hidden in _HIDDEN.items()}


def read(folder: pathlib.Path) -> Imported:
    """Read a model as Marian writes it."""
    path = folder / DECODER
    decoder = _settings(source_files.read_bytes(path), path)
    weights_path = _named(folder, decoder, "models")
    vocabulary_path = _named(folder, decoder, "vocabs")
    arrays = Arrays(_arrays(weights_path), weights_path)
    settings = _settings(
        bytes(arrays.take(_SETTINGS)).rstrip(b"\0"), weights_path
    )
    spm = None
    if vocabulary_path.suffix == ".spm":
        spm = source_files.read_sentencepiece(vocabulary_path)
        processor = sentencepiece.SentencePieceProcessor(model_proto=spm)
        size = processor.GetPieceSize()
        ids = {processor.IdToPiece(i): i for i in range(size)}
    else:
        ids = _vocabulary(vocabulary_path)
    pieces = _pieces(ids, vocabulary_path)
    settings.check(_FOLLOWED)
    settings.follow("tied-embeddings-all", [True])
    numbers = settings.numbers(_NUMBERS)
    settings.follow("transformer-decoder-dim-ffn", [0, numbers["ffn_dim"]], 0)
    model = model_config(
        **numbers,
        vocab_size=len(pieces),
        activation=settings.follow(
            "transformer-ffn-activation", ["swish", "relu"]
        ),
        positions="tensor2tensor",
        norm_epsilon=_EPSILON,
    )
    table = arrays.take("Wemb")
    bias = arrays.take("decoder_ff_logit_out_b").reshape(-1)
    start = np.zeros(model.d_model)
    weights = embedding(table, bias, ids, pieces, start, model.positions)
    weights |= arrays.layers(_NAMES, model)
    if spm is not None:
        # Marian leaves tags to the sentencepiece model.
        tokenizer = PairedTokenizer(pack(spm, spm, pieces, has_tags=False))
    else:
        tokenizer = _tokenizer(folder, pieces)
    return Imported(model, weights, tokenizer)


def read_hugging_face(folder: pathlib.Path) -> Imported:
    """Read a `MarianMTModel` and its `MarianTokenizer`."""
    settings = Settings(_read_json(folder / CONFIG), folder / CONFIG)
    path = folder / "vocab.json"
    ids = _read_json(path)
    pieces = _pieces(ids, path)
    settings.check(_HF_FOLLOWED)
    settings.follow("scale_embedding", [True])
    activation = settings.follow("activation_function", _HF_ACTIVATIONS)
    model = model_config(
        **settings.numbers(_HF_NUMBERS),
        vocab_size=len(pieces),
        dropout=settings.values.get("dropout", 0.1),
        activation=_HF_ACTIVATIONS[activation],
        norm_epsilon=_HF_EPSILON,
    )
    path, reader = folder / SAFETENSORS, source_files.read_safetensors
    if not path.exists():
        path, reader = folder / PICKLE, source_files.read_pickle
    tensors = reader(path).items()
    arrays = Arrays(
        {name.removeprefix("model."): x for name, x in tensors}, path
    )
    table = _tied(arrays)
    for side in ("encoder", "decoder"):  # In old files: sinusoids, as ours.
        arrays.left.pop(f"{side}.embed_positions.weight", None)
    start = settings.values.get("decoder_start_token_id")
    if not isinstance(start, int) or not 0 <= start < len(table):
        expected = f"one of the {len(table)} rows of the embedding"
        settings.refuse("decoder_start_token_id", expected)
    bias = arrays.take("final_logits_bias").reshape(-1)
    # Padding keeps its row: `MarianMTModel` counts it in its softmax.
    weights = embedding(table, bias, ids, pieces, table[start], model.positions)
    weights |= arrays.layers(_HF_NAMES, model)
    return Imported(model, weights, _tokenizer(folder, pieces))


def embedding(
    table: np.ndarray,
    bias: np.ndarray,
    ids: Mapping[str, int],
    pieces: Sequence[str],
    start: np.ndarray,
    positions: str,
) -> dict[str, np.ndarray]:
    """Return the tied matrix and the bias of the logits, by our names.

    Of theirs, `(R, D)` and `(R,)`, each id is a row; `start` is `(D,)`.
    """
    if sorted(ids.values()) != list(range(len(table))):
        raise UserError(
            f"The embedding has {len(table)} rows, the vocabulary {len(ids)} "
            "pieces, or two of one id; download the files of one model."
        )
    rows = np.array([ids.get(piece, 0) for piece in pieces])
    lacking = np.array([piece not in ids for piece in pieces])
    lacking[BOS_ID] = True
    ours = logits(table, bias, rows, lacking)
    ours["embedding/table"][BOS_ID] = start
    order = column_order(positions, table.shape[1])
    ours["embedding/table"] = ours["embedding/table"][:, order]
    return ours


def _pieces(ids: Mapping[str, int], path: pathlib.Path) -> list[str]:
    """List their pieces in the order of our ids, with our padding and begin."""
    for piece in (_UNKNOWN, _END):
        if piece not in ids:
            raise UserError(f"{path} lacks the piece {piece}; fetch it again.")
    special = (_PADDING, _UNKNOWN, _BEGIN, _END)
    return [*special, *sorted(set(ids) - set(special), key=ids.__getitem__)]


def _tokenizer(folder: pathlib.Path, pieces: Sequence[str]) -> PairedTokenizer:
    """Join the folder's two sentencepiece models over the pieces."""
    paths = folder / "source.spm", folder / "target.spm"
    source, target = map(source_files.read_sentencepiece, paths)
    return PairedTokenizer(pack(source, target, pieces))


def _named(
    folder: pathlib.Path, decoder: Settings, setting: str
) -> pathlib.Path:
    """Find the one file that a setting of `decoder.yml` names."""
    names = decoder.values.get(setting)
    if not isinstance(names, list) or len(set(map(str, names))) != 1:
        decoder.refuse(setting, "one, for both sides")
    # The paths come from the training machine; the files lie beside.
    return folder / pathlib.PurePath(str(names[0])).name


def _arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    content = io.BytesIO(source_files.read_bytes(path))
    with source_files.refusing(path, "a file of weights"):
        return dict(np.load(content))


def _settings(content: bytes, path: pathlib.Path) -> Settings:
    settings = source_files.parse_yaml(content, path)
    with source_files.refusing(path, "a file of settings"):
        return Settings(dict(settings), path)


def _vocabulary(path: pathlib.Path) -> dict[str, int]:
    with source_files.refusing(path, "a vocabulary"):
        text = source_files.read_bytes(path).decode("utf-8-sig")
        # Plain, so that the piece "no" is not False and "1" not a number.
        ids = source_files.parse_yaml(text.translate(_HIDDEN), path, plain=True)
        return {piece.translate(_SHOWN): int(i) for piece, i in ids.items()}


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    with source_files.refusing(path, "an object of JSON"):
        return dict(json.loads(source_files.read_bytes(path)))


def _tied(arrays: Arrays) -> np.ndarray:
    """Take the tied matrix; refuse a copy that differs from it."""
    first, *copies = [name for name in _TIED if name in arrays.left] or _TIED
    table = arrays.take(first)
    for name in copies:
        if not np.array_equal(arrays.take(name), table):
            raise UserError(
                f"The model cannot be imported exactly: its {name} differs "
                "from its other embeddings, expected one matrix for all."
            )
    return table
