"""Students of a teacher: `kt.distill` and `keras-transformer distill`."""

import functools

import pytest
import sample_runs
from translated_chunks import count_in_chunks, read

import keras_transformer as kt
from keras_transformer.__main__ import main

# A training of two updates, which is quickly traced.
TINY = dict(
    preset="tiny",
    **dict(num_layers=1, d_model=22, num_heads=2, ffn_dim=17),
    **dict(steps=2, batch_tokens=64),
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Digits whose originals end a word early, which no teacher has learnt."""
    folder = tmp_path_factory.mktemp("corpus")
    sample_runs.write_digits(folder, train=53, val=7, test=5)
    originals = [line.rsplit(" ", 1)[0] for line in read(folder, "train.de")]
    (folder / "train.de").write_text("\n".join(originals) + "\n", "utf-8")
    return folder


@pytest.fixture(scope="module")
def teacher():
    run = kt.Run(sample_runs.digit_run())
    run.translator = functools.cache(run.translator)  # So that it traces once.
    return run


translated = pytest.fixture(autouse=True)(count_in_chunks)


@pytest.mark.stands_for("distillations")
def test_a_student_learns_from_a_teacher(teacher, corpus, tmp_path, translated):
    run = kt.distill(teacher, tmp_path / "student", corpus=corpus, **TINY)

    folder = run.path / "distilled"
    sources = read(corpus, "train.en")
    assert read(folder, "train.en") == sources
    said = teacher.translator().translate(sources)
    assert read(folder, "train.de") == said
    assert said != read(corpus, "train.de") and any(said)
    for name in ("val.en", "val.de", "test.en", "test.de"):
        assert read(folder, name) == read(corpus, name)
    assert run.config.corpus == str(folder)
    vocabulary = (run.path / "tokenizer.model").read_bytes()
    assert vocabulary == (teacher.path / "tokenizer.model").read_bytes()
    assert translated == [17, 17, 17, 2]
    kt.distill(teacher, run.path, corpus=corpus, **TINY)
    assert len(translated) == 4


@pytest.mark.slow
def test_the_verb_takes_several_teachers(teacher, corpus, tmp_path):
    student = tmp_path / "student"
    words = ["distill", *2 * ["--teacher", str(teacher.path)]]
    words += ["--corpus", str(corpus), "--run-dir", str(student)]
    for name, value in TINY.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    assert main(words) == 0
    said = teacher.translator().translate(read(corpus, "train.en"))
    assert read(student / "distilled", "train.de") == said


def test_what_cannot_be_distilled_is_one_sentence(teacher, corpus, tmp_path):
    student = tmp_path / "student"
    turned = dict(source_lang="de", target_lang="en")
    with pytest.raises(kt.UserError, match="de to en"):
        kt.distill(teacher, student, corpus=corpus, **TINY, **turned)
    assert not student.exists()
    with pytest.raises(kt.UserError, match="<x>"):
        kt.distill(teacher, student, corpus=[corpus, f"{corpus}:<x>"], **TINY)
    assert not student.exists()
    with pytest.raises(kt.UserError, match="run_dir"):
        kt.distill(teacher, teacher.path, corpus=corpus, **TINY)
