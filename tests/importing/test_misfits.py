"""Models whose files are damaged, of another model, or say odd things."""

import numpy as np
import pytest
import sentencepiece
from imported_models import LANGUAGES, change_json, change_marian
from safetensors.numpy import load_file, save_file

from keras_transformer.config import BOS_ID, PAD_ID, UserError
from keras_transformer.importing import run_directory
from keras_transformer.run import Run
from keras_transformer.runs.run_config import RunConfig

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\n"
Q = "model.encoder.layers.0.self_attn.q_proj.weight"
TABLE = "model.shared.weight"


def refuse(folder, message):
    with pytest.raises(UserError, match=message):
        run_directory.import_run(folder, folder.parent / "run", **LANGUAGES)
    assert not (folder.parent / "run").exists()


DATA = "ckpt-600.data-00000-of-00001"


@pytest.mark.parametrize(
    "kind, name, content, named",
    [
        ("hf", "source.spm", POINTER, "source.spm is a pointer of git-lfs"),
        ("npz", "decoder.yml", b"models: [1]\nvocabs: [a]", "No such file.*/1"),
        ("opennmt", DATA, None, "checkpoint"),
        ("opennmt", "checkpoint", b"\xff\xfe\0junk", "checkpoint"),
    ],
)
def test_a_file_of_other_kind_is_refused(copy_of, kind, name, content, named):
    path = copy_of(kind) / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    refuse(path.parent, named)


@pytest.mark.parametrize(
    "kind, name",
    [("hf", "model.safetensors"), ("npz", "opus.npz"), ("hf", "target.spm")],
)
def test_a_part_of_a_file_is_named(copy_of, kind, name):
    path = copy_of(kind) / name
    whole = path.read_bytes()
    path.write_bytes(whole[: 9 * len(whole) // 10])
    refuse(path.parent, f"{name} is not ")


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(encoder_layers=4, decoder_layers=4), r"lacks .*coder.layers.3\."),
        (dict(encoder_ffn_dim=7, decoder_ffn_dim=7), r"encoder/.*\(22, 7\)"),
        (dict(dropout="a"), "`dropout` .* received 'a'"),
        (dict(activation_function="gelu"), "setting activation_function"),
        (dict(model_type="bart"), "exactly: its settings? .*model_type"),
    ],
)
def test_settings_of_another_model_are_refused(copy_of, changes, message):
    folder = copy_of("hf")
    change_json(folder / "config.json", changes)
    refuse(folder, message)


@pytest.mark.parametrize(
    "name, make, message",
    [
        (Q, lambda all: all[Q][:5], r"encoder.*\(22, 5\).* \(22, 22\)"),
        (Q, lambda all: all[Q] * np.nan, "encoder/layer_0.* NaN"),
        ("lm_head.weight", lambda all: all[TABLE] * 2, "lm_head.weight"),
    ],
)
def test_weights_of_another_model_are_refused(copy_of, name, make, message):
    path = copy_of("hf") / "model.safetensors"
    tensors = load_file(path)
    changed = np.ascontiguousarray(make(tensors))
    save_file({**tensors, name: changed}, path)
    refuse(path.parent, message)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"right-left": True}, "right-left"),
        ({"dec-depth": 2}, "decoder_l3_"),
        ({"type": "s2s"}, "type"),
    ],
)
def test_a_marian_model_of_other_settings_is_refused(copy_of, changes, message):
    path = copy_of("npz") / "opus.npz"
    change_marian(path, changes)
    refuse(path.parent, message)


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_vocabulary_may_have_what_pyyaml_rejects(copy_of, quote):
    # yaml-cpp, which Marian reads with, ends lines at line feeds alone.
    odd = [0x0B, 0x0E, 0x7F, 0x85, 0x96, 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF]
    names = [f"a{chr(each)}b" for each in odd]
    npz = copy_of("npz")
    path = npz / "opus.vocab.yml"
    *kept, last = path.read_text("utf-8").splitlines(keepends=True)[: -len(odd)]
    start = len(kept) + 1
    lines = [f"{quote}{x}{quote}: {start + i}\n" for i, x in enumerate(names)]
    text = "".join([*kept, last, *lines])
    path.write_text(text, "utf-8", newline="\n")

    tokenizer = run_directory.read(npz).tokenizer

    found = tokenizer.pieces(range(tokenizer.vocab_size))
    assert found[-len(odd) :] == names


def test_a_sentencepiece_model_can_be_the_vocabulary(copy_of):
    npz = copy_of("npz")
    for side in ("source", "target"):
        (npz / f"{side}.spm").unlink()
    with np.load(npz / "opus.npz") as file:
        table = file["Wemb"]
    text = ["the small dog sees a cat", "der kleine Hund sieht eine Katze"] * 9
    # As Marian trains it.
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(text),
        model_prefix=str(npz / "v"),
        vocab_size=len(table),
        model_type="bpe",
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        user_defined_symbols=[">>deu<<"],
        minloglevel=3,
    )
    (npz / "v.model").rename(npz / "v.spm")
    (npz / "decoder.yml").write_text(
        "models: [opus.npz]\nvocabs: [v.spm, v.spm]\n"
    )

    imported = run_directory.read(npz)

    spm = sentencepiece.SentencePieceProcessor(model_file=str(npz / "v.spm"))
    ours = imported.tokenizer
    for side in (ours, ours.target):
        for text in (">>deu<< the cats", "eine Katze ☃"):
            (ids,) = side.tokenize([text]).to_list()
            theirs = [*spm.encode(text), spm.eos_id()]
            rows = imported.weights["embedding/table"][ids]
            np.testing.assert_array_equal(rows, table[theirs])
            assert ours.pieces(ids) == [spm.id_to_piece(i) for i in theirs]


def test_ctranslate2_gets_padding_that_is_never_written(originals):
    from keras_transformer.exporting import ctranslate2

    run = run_directory.import_run(
        originals / "hf", originals / "run", **LANGUAGES
    )
    translator = Run(run).translator()
    kept = translator.model.embedding.bias.numpy()
    spec = ctranslate2._spec(translator.model, translator.tokenizer)
    bias = spec.decoder.projection.bias
    assert kept[PAD_ID] > -100 and bias[PAD_ID] <= -1000 >= bias[BOS_ID]
    np.testing.assert_array_equal(bias[3:], kept[3:])
    # Those of the model stay as they are.
    np.testing.assert_array_equal(translator.model.embedding.bias, kept)


def test_an_imported_run_says_how_to_go_on(originals, tmp_path):
    path = tmp_path / "run"
    with pytest.raises(UserError, match=f"found none at {tmp_path}/nope"):
        run_directory.import_run(tmp_path / "nope", path, **LANGUAGES)
    run_directory.import_run(originals / "hf", path, **LANGUAGES)
    with pytest.raises(UserError, match="has no corpus of its own; give one"):
        Run(path).evaluate()
    with pytest.raises(UserError, match=f"`init_from` {path}"):
        RunConfig.load(path).with_changes({"dropout": 0.7}, path)
