"""Against what OpenNMT-tf itself computed; `make_opennmt.py` says how."""

import pathlib
import shutil

import ctranslate2
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID, UserError
from keras_transformer.exporting import ctranslate2 as ctranslate2_export
from keras_transformer.importing import opennmt, run_directory
from keras_transformer.importing.run_directory import import_run
from keras_transformer.run import Run

MODELS = pathlib.Path(__file__).parent / "opennmt"
# Model, checkpoint, and whether one matrix does all.
KINDS = {
    "separate": ("separate", "en.vocab", "de.vocab", False),
    "unequal": ("unequal/avg", "shared.vocab", "shared.vocab", True),
}


class Case:
    """An imported model, and what the original has found."""

    def __init__(self, name, folder):
        checkpoint, source, target, self.is_shared = KINDS[name]
        self.run_dir = import_run(
            MODELS / checkpoint, folder / name, "en", "de"
        )
        self.translator = Run(self.run_dir).translator()
        self.model = self.translator.model
        self.expected = np.load(MODELS / name / "expected.npz")
        self.texts = self.expected["texts"].tolist()
        self.source = self.ours(MODELS / name / source)
        self.target = self.ours(MODELS / name / target)

    def ours(self, path):
        """Our ids in the order of theirs, the unknown's last."""
        tokenizer = self.translator.tokenizer
        pieces = tokenizer.pieces(range(tokenizer.vocab_size))
        names = path.read_text().splitlines()[3:]
        ids = [pieces.index(name) for name in names]
        return np.array([PAD_ID, BOS_ID, EOS_ID, *ids, UNK_ID])

    def source_ids(self):
        """The oracle's source by our ids, ended as ours are."""
        ids = self.source[self.expected["source"]]
        ids = np.pad(ids, [[0, 0], [0, 1]])
        ends = self.expected["source_length"] - (not self.is_shared)
        ids[np.arange(len(ids)), ends] = EOS_ID
        return ids if self.is_shared else ids[:, :-1]


@pytest.fixture(scope="module", params=KINDS)
def case(request, tmp_path_factory):
    return Case(request.param, tmp_path_factory.mktemp("runs"))


def test_texts_become_the_originals_ids(case):
    ids = case.translator.tokenizer.tokenize(case.texts).to_tensor().numpy()
    np.testing.assert_array_equal(ids, case.source_ids())
    assert UNK_ID in ids


def test_memory_and_logits_are_the_originals(case):
    expected = case.expected
    memory, source_mask = case.model.encode(case.source_ids())
    target_in = case.target[expected["target_in"]]
    logits = case.model.decode(target_in, memory, source_mask).numpy()
    for side, name, found in (
        ("source", "memory", memory.numpy()),
        ("target", "logits", logits[..., case.target]),
    ):
        lengths = expected[f"{side}_length"]
        for row, theirs, length in zip(
            found, expected[name], lengths, strict=True
        ):
            np.testing.assert_allclose(row[:length], theirs[:length], 0, 1e-4)


@pytest.mark.parametrize("case", ["separate"], indirect=True)
def test_what_a_side_lacks_is_read_as_unknown_and_never_written(case):
    everything = set(range(case.model.vocab_size))
    foreign = everything - set(case.source)
    assert foreign
    for each in foreign:
        rows = case.model.encode(np.array([[each, UNK_ID, EOS_ID]]))[0]
        again = case.model.encode(np.array([[UNK_ID, UNK_ID, EOS_ID]]))[0]
        np.testing.assert_array_equal(rows, again)
    memory, mask = case.model.encode(case.source_ids()[:1])
    logits = case.model.decode(np.array([[BOS_ID]]), memory, mask)
    log_probs = tf.nn.log_softmax(logits)[0, 0].numpy()
    assert max(log_probs[list(everything - set(case.target))]) < -90


# Each is a trace. Neither a length penalty nor a single beam has to do with the
# matrices of a model.
@pytest.mark.parametrize(
    "case, beam_size, alpha",
    [
        ("separate", 3, 0.0),
        pytest.param("separate", 3, 0.6, marks=pytest.mark.slow),
        pytest.param("separate", 1, 0.0, marks=pytest.mark.slow),
        pytest.param("unequal", 3, 0.0, marks=pytest.mark.slow),
    ],
    indirect=["case"],
)
def test_searches_find_what_the_original_finds(case, beam_size, alpha):
    found = case.translator.translate(
        case.texts, beam_size=beam_size, length_penalty=alpha, n_best=beam_size
    )
    name = f"beam_{beam_size}_{alpha}"
    expected = case.expected[f"{name}_texts"]
    log_probs = case.expected[f"{name}_log_probs"]
    for row, texts, of_texts in zip(found, expected, log_probs, strict=True):
        # The original ends a search with the first `beam_size` that ended.
        assert row[0].text == texts[0]
        if alpha == 0:
            assert row[0].score == pytest.approx(of_texts[0], abs=1e-3)


def test_ctranslate2_translates_likewise(case, tmp_path):
    tokenizer = case.translator.tokenizer
    folder = ctranslate2_export.export(case.translator, tmp_path / "model")
    sources = [
        tokenizer.pieces(ids[:-1])  # It adds the end token, if there is one.
        for ids in tokenizer.tokenize(case.texts).numpy()
    ]
    results = ctranslate2.Translator(str(folder)).translate_batch(
        sources, beam_size=1, length_penalty=0, return_scores=True
    )
    decode = sentencepiece.SentencePieceProcessor(
        model_file=str(folder / "target.spm")
    ).decode
    texts = [decode(result.hypotheses[0]) for result in results]
    assert texts == case.expected["beam_1_0.0_texts"][:, 0].tolist()
    np.testing.assert_allclose(
        [result.scores[0] for result in results],
        case.expected["beam_1_0.0_log_probs"][:, 0],
        atol=1e-3,
    )


def test_a_folder_without_its_files_is_refused(tmp_path):
    folder = shutil.copytree(MODELS / "separate", tmp_path / "model")
    (folder / "data.yml").rename(folder / "data")
    with pytest.raises(UserError, match="source_vocabulary"):
        run_directory.read(folder)
    (folder / "data").rename(folder / "data.yml")
    assert run_directory.read(folder).model.num_heads == 3
    # A vocabulary of another model.
    with open(folder / "de.vocab", "a") as file:
        file.write("more\n")
    with pytest.raises(UserError, match="target_vocabulary .* 26 .* 27"):
        run_directory.read(folder)


CATALOG = "from opennmt import models\nmodel = lambda: "
CATALOG += 'models.get_model_from_catalog("{}")'
ARGUMENTS = "import opennmt\nclass Mine(opennmt.models.Transformer):\n"
ARGUMENTS += "  def __init__(self):\n    super().__init__({})\nmodel = Mine"


@pytest.mark.parametrize(
    "source, heads",
    [
        (CATALOG.format("TransformerBase"), 8),
        (CATALOG.format("TransformerBig"), 16),
        (ARGUMENTS.format("a, b, ffn_activation=tf.nn.relu, num_heads=7"), 7),
    ],
)
def test_the_heads_are_those_of_the_description(tmp_path, source, heads):
    (tmp_path / "model_description.py").write_text(source)
    assert opennmt.read_heads(tmp_path) == heads


@pytest.mark.parametrize(
    "source, named",
    [
        (CATALOG.format("NMTMediumV1"), "NMTMediumV1"),
        (ARGUMENTS.format("ffn_activation=tf.nn.gelu"), "ffn_activation"),
        (ARGUMENTS.format("a, b, num_heads=4 * 2"), "num_heads"),
        (ARGUMENTS.format("num_heads=8, **{}"), "num_heads"),
        # Which of the two?
        (f"{CATALOG.format('TransformerBig')}\nnum_heads=8", "num_heads"),
        # Takes minutes where each letter begins a search.
        pytest.param("a" * 200_000, "num_heads", id="letters"),
    ],
)
def test_another_model_is_refused_by_its_setting(tmp_path, source, named):
    (tmp_path / "model_description.py").write_text(source)
    with pytest.raises(UserError, match=named):
        opennmt.read_heads(tmp_path)


def test_the_end_of_a_source_is_what_the_data_says():
    read = opennmt.read_source_end
    assert not read({})
    assert not read({"source_sequence_controls": {"end": False}})
    assert read({"source_sequence_controls": {"end": True}})
    for name, controls in (
        ("source_sequence_controls", {"start": True}),
        ("target_sequence_controls", {"start": True, "end": False}),
    ):
        with pytest.raises(UserError, match=name):
            read({name: controls})


def tokenized(how):
    return {"source_vocabulary": "shared.vocab", "source_tokenization": how}


def test_a_tokenization_without_sentencepiece_is_refused():
    data = tokenized({"mode": "aggressive", "bpe_model_path": "bpe"})
    with pytest.raises(UserError, match="source_tokenization"):
        opennmt.read_side(data, "source", MODELS / "unequal")
    # OpenNMT's own tokenizer may hold one.
    data = tokenized({"mode": "none", "sp_model_path": "sp.model"})
    side = opennmt.read_side(data, "source", MODELS / "unequal")
    assert side.sentencepiece == (MODELS / "unequal/sp.model").read_bytes()


def test_a_tokenization_may_be_a_file_beside_the_configuration(tmp_path):
    # Its path was that of the machine of the training.
    data = tokenized("config/tokenization.yml")
    folder = shutil.copytree(MODELS / "unequal", tmp_path / "model")
    with pytest.raises(UserError, match="no tokenization.yml; copy it"):
        opennmt.read_side(data, "source", folder)
    (folder / "tokenization.yml").write_text(
        "type: SentencePieceTokenizer\nparams:\n  model: sp.model\n"
    )
    side = opennmt.read_side(data, "source", folder)
    assert side.sentencepiece == (MODELS / "unequal/sp.model").read_bytes()
