"""Reads Marian models as Marian writes them, such as OPUS-MT's archives.

    decoder.yml            names the next two
    opus.spm32k.npz        weights and settings
    opus.spm32k.vocab.yml  the id of every piece
    source.spm, target.spm

Or `decoder.yml` names a sentencepiece model in place of the vocabulary: then it
gives the ids, and segments both sides.

Positions are Marian's own: sines, then cosines, with rates 10000^(-i/(D/2-1)),
which are tensor2tensor's. Marian computes them in
`src/graph/node_initializers.cpp` of marian-nmt/marian,
`sinusoidalPositionEmbeddings`, and in older versions in
`src/models/transformer.h`, `addPositionalEmbeddings`. CTranslate2's converter
and Hugging Face use the rates 10000^(-2i/D) instead.

Axes: D model width, V pieces.
"""

import pathlib

import numpy as np
import sentencepiece

from keras_transformer.config import ModelConfig, UserError
from keras_transformer.data.paired_tokenizer import PairedTokenizer, pack
from keras_transformer.importing import marian_model
from keras_transformer.importing.imported import Arrays, Imported, Names
from keras_transformer.importing.settings import Settings, model_config
from keras_transformer.importing.source_files import (
    check_archive,
    check_file,
    languages,
    parse_yaml,
    read_bytes,
    read_sentencepiece,
)
from keras_transformer.machine.files import ZIP_DAMAGES

DECODER = "decoder.yml"
_SETTINGS = "special:model.yml"
# As in Marian's `transformer.h`.
_EPSILON = 1e-6
_NAMES = Names(
    layer="{stack}_l{n}_",
    endings=("W", "b", "scale", "bias"),
    parts={
        "attention": (*(f"self_*{x}" for x in "qkvo"), "self_Wo_ln_*"),
        "cross_attention": (
            *(f"context_*{x}" for x in "qkvo"),
            "context_Wo_ln_*",
        ),
        "feed_forward": ("ffn_*1", "ffn_*2", "ffn_ffn_ln_*"),
    },
)
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
# Characters that PyYAML rejects or takes for line ends, and Marian does not.
# While YAML is parsed, characters of a private plane stand for them.
_SPECIAL = (
    *(*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0)),
    *(0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF),
)
_HIDDEN = {ordinal: 0x100000 + ordinal for ordinal in _SPECIAL}
_SHOWN = {hidden: ordinal for ordinal, hidden in _HIDDEN.items()}


def read(folder: pathlib.Path) -> Imported:
    """Read a model with its vocabulary."""
    weights_path, vocabulary_path = _paths(folder)
    arrays = Arrays(_arrays(weights_path), weights_path)
    settings = _settings(
        bytes(arrays.take(_SETTINGS)).rstrip(b"\0"), weights_path
    )
    is_spm = vocabulary_path.suffix == ".spm"
    ids = (_ids_of if is_spm else _vocabulary)(vocabulary_path)
    pieces = marian_model.vocabulary(ids, str(vocabulary_path))
    model = _model_config(settings, len(pieces))
    table = arrays.take("Wemb")
    weights = marian_model.embedding(
        table,
        arrays.take("decoder_ff_logit_out_b").reshape(-1),
        *(ids, pieces),
        np.zeros(model.d_model),
        model.positions,
    )
    weights |= arrays.layers(_NAMES, model.layers_of, model.positions)
    arrays.check_all_taken()
    if is_spm:
        spm = vocabulary_path.read_bytes()
        # Marian leaves tags to the sentencepiece model.
        tokenizer = PairedTokenizer(pack(spm, spm, pieces, has_tags=False))
    else:
        tokenizer = marian_model.tokenizer(folder, pieces)
    return Imported(model, weights, tokenizer, *languages(folder))


def _paths(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Find weights and vocabulary, as `decoder.yml` names them."""
    path = folder / DECODER
    said = _settings(read_bytes(path), path)
    found = []
    for setting, wanted in (
        ("models", "one model"),
        ("vocabs", "one vocabulary for both sides"),
    ):
        names = said.values.get(setting)
        if (
            not isinstance(names, list)
            or not all(isinstance(name, str) for name in names)
            or len(set(names)) != 1
        ):
            said.refuse(setting, wanted)
        # The paths come from the training machine; the files lie beside.
        found.append(folder / pathlib.PurePath(names[0]).name)
    return found[0], found[1]


def _arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    check_file(path)
    try:
        check_archive(path)
        with np.load(path) as file:
            arrays = dict(file)
        arrays[_SETTINGS]
    except (*ZIP_DAMAGES, LookupError):
        raise UserError(
            f"{path} is not a file of weights that Marian has written; "
            "download it again."
        ) from None
    return arrays


def _settings(content: bytes, path: pathlib.Path) -> Settings:
    found = parse_yaml(content, path)
    if isinstance(found, dict):
        return Settings(found, path)
    raise UserError(
        f"Expected settings as YAML in {path}, found something else; download "
        "it again."
    )


def _ids_of(path: pathlib.Path) -> dict[str, int]:
    """Read the ids of a sentencepiece model's pieces."""
    model = sentencepiece.SentencePieceProcessor(
        model_proto=read_sentencepiece(path)
    )
    return {model.IdToPiece(i): i for i in range(model.GetPieceSize())}


def _vocabulary(path: pathlib.Path) -> dict[str, int]:
    try:
        text = read_bytes(path).decode("utf-8-sig").translate(_HIDDEN)
        # Plain, so that the piece "no" is not False and "1" not a number.
        found = parse_yaml(text, path, plain=True)
        return {piece.translate(_SHOWN): int(i) for piece, i in found.items()}
    except (AttributeError, TypeError, ValueError):
        raise UserError(
            f"Expected the ids of pieces as YAML in {path}, found something "
            "else; download it again."
        ) from None


def _model_config(settings: Settings, vocab_size: int) -> ModelConfig:
    for name, values in _FOLLOWED.items():
        settings.follow(name, values, values[0])
    settings.follow("tied-embeddings-all", [True])
    ffn_dim = settings.number("transformer-dim-ffn")
    settings.follow("transformer-decoder-dim-ffn", [0, ffn_dim], 0)
    return model_config(
        settings.what,
        encoder_layers=settings.number("enc-depth"),
        decoder_layers=settings.number("dec-depth"),
        d_model=settings.number("dim-emb"),
        num_heads=settings.number("transformer-heads"),
        vocab_size=vocab_size,
        ffn_dim=ffn_dim,
        activation=settings.follow(
            "transformer-ffn-activation", ["swish", "relu"]
        ),
        positions="tensor2tensor",
        norm_epsilon=_EPSILON,
    )
