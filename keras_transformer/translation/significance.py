"""Compares translations with references and with another system's.

Both systems have translated the same sentences. A difference may be chance;
the p-value of sacreBLEU's paired tests is how often chance alone would make one
as large.
"""

import dataclasses
import json
import os
import pathlib
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import sacrebleu
from sacrebleu import significance

from keras_transformer.config import SettingError, UserError
from keras_transformer.data.corpus import Corpus, absolute_name
from keras_transformer.data.languages import language_of
from keras_transformer.data.lines import open_file, read_lines
from keras_transformer.data.texts import Pair, checked_texts
from keras_transformer.runs.layout import EVALUATION
from keras_transformer.runs.run_config import RunConfig

# A file with a text on each line, or the texts.
Texts: TypeAlias = str | os.PathLike | Sequence[str]

# By sacreBLEU's names, with its default number of samples.
_TESTS = {"bs": "paired bootstrap", "ar": "paired approximate randomization"}


@dataclasses.dataclass(frozen=True)
class Tested:
    """The result of a test for one system.

    Attributes:
        score: 0 to 100, more is better.
        mean: Mean of the resampled scores; None if the test resamples none.
        confidence: Half the width of their 95 % interval; likewise.
        p_value: p-value of the difference, 1 if there is none; None for the
            baseline.
    """

    score: float
    mean: float | None
    confidence: float | None
    p_value: float | None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One test of one metric on two systems.

    Attributes:
        metric: `"BLEU"` or `"chrF2"`.
        test: Name of the test in print.
        other: The baseline.
        system: The system that was evaluated.
        signature: SacreBLEU's, with the number of samples and the seed.
    """

    metric: str
    test: str
    other: Tested
    system: Tested
    signature: str


def compare(
    translations: Sequence[str],
    others: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: str = "13a",
) -> tuple[Comparison, ...]:
    """Test the difference of two systems, in BLEU and chrF.

    Args:
        translations: The system's.
        others: The baseline's, for the same sources.
        references: A list for each reference, as sacreBLEU takes them.
        tokenize: SacreBLEU's tokeniser.

    Returns:
        Each metric by each test. sacreBLEU's fixed seed makes them repeat.
    """
    found = []
    for test, name in _TESTS.items():
        run_test = significance.PairedTest(
            [
                ("baseline", composed(others)),
                ("system", composed(translations)),
            ],
            {
                "BLEU": sacrebleu.BLEU(tokenize=tokenize),
                "chrF2": sacrebleu.CHRF(),
            },
            [composed(texts) for texts in references],
            test_type=test,
        )
        signatures, results = run_test()
        for metric, signature in signatures.items():
            other, system = map(_tested, results[metric])
            if other.score == system.score:
                # SacreBLEU counts only larger differences: with equal systems
                # it finds none, and says 1 / (samples + 1).
                system = dataclasses.replace(system, p_value=1.0)
            found.append(
                Comparison(metric, name, other, system, str(signature))
            )
    return tuple(sorted(found, key=lambda each: each.metric))


def composed(texts: Sequence[str]) -> list[str]:
    """Compose letters and their marks, as a vocabulary does (NFC)."""
    return [unicodedata.normalize("NFC", text) for text in texts]


def _tested(result: Any) -> Tested:
    """Turn NumPy's numbers into Python's."""
    numbers = (result.mean, result.ci, result.p_value)
    return Tested(
        float(result.score),
        *(None if number is None else float(number) for number in numbers),
    )


def read_translations(
    against: Texts,
    corpus: str,
    split: str,
    target_lang: str,
    count: int,
) -> list[str]:
    """Read another system's translations of a split of `count` sentences.

    They are those of a run directory where `evaluate` has translated the split,
    those of a text file with a translation on each line, or a list.

    Raises:
        UserError: If there are none, or they belong to something else.
    """
    if not isinstance(against, str | os.PathLike):
        return given_texts(against, "against", split, count)
    path = pathlib.Path(against)
    if not path.exists():
        raise UserError(
            "Expected a run directory or a file of translations as `against`, "
            f"found nothing at {path}; check the path."
        )
    if path.is_dir():
        path = _evaluated(path, corpus, split, target_lang)
    return given_texts(path, "against", split, count)


def given_texts(
    given: Texts,
    argument: str,
    split: str,
    count: int,
) -> list[str]:
    """Read a text for each of the `count` sentences of a split.

    Args:
        given: The texts, or a file with one on each line.
        argument: The argument that they came as, for the error.
        split: Name of the split, likewise.
        count: How many there must be.

    Raises:
        UserError: If there are more or fewer, or they are no texts.
    """
    if isinstance(given, str | os.PathLike):
        where = f"lines in {os.fspath(given)}"
        with open_file(given, f"`{argument}`") as file:
            found = list(read_lines(file, os.fspath(given)))
    else:
        where = f"texts as `{argument}`"
        found = list(checked_texts(argument, given))
    if len(found) != count:
        raise UserError(
            f"Expected {count} {where}, one for each sentence of the split "
            f"{split}, found {len(found)}; give translations of the same "
            "split."
        )
    return found


def name_of(given: Texts) -> str:
    """Name the file in a report, or say that there was none."""
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    return "a list of texts"


def _evaluated(
    run_dir: pathlib.Path, corpus: str, split: str, target_lang: str
) -> pathlib.Path:
    """Find what `evaluate` has written in a run directory."""
    other = RunConfig.load(run_dir).target_lang
    if language_of(other).code != language_of(target_lang).code:
        raise UserError(
            f"Expected a run that translates into {target_lang}, but "
            f"{run_dir} translates into {other}; give another one as "
            "`against`."
        )
    folder = run_dir / EVALUATION
    report = folder / f"{split}.json"
    try:
        found = json.loads(report.read_text(encoding="utf-8"))["corpus"]
    except (OSError, ValueError, KeyError, TypeError):
        command = shlex.join(
            ["keras-transformer", "evaluate", "--run-dir", str(run_dir)]
        )
        raise UserError(
            f"Expected the evaluation of the split {split} in {report}, found "
            f"none; first run: {command} --split {split}."
        ) from None
    if absolute_name(found) != absolute_name(corpus):
        raise UserError(
            f"Expected an evaluation of {corpus} in {report}, found one of "
            f"{found}; evaluate {run_dir} on the same corpus first."
        )
    return folder / f"{split}.{other}.txt"


def refuse_beside_hypotheses(given: Mapping[str, Any]) -> None:
    """Refuse what only a search uses where translations are given.

    Raises:
        UserError: If something is not None.
    """
    for name, value in given.items():
        if value is not None:
            raise UserError(
                f"Expected no `{name}` beside `hypotheses`, for which nothing "
                "is searched; leave one of them out."
            )


def comparison(
    corpus: Corpus,
    split: str,
    pairs: Sequence[Pair],
    reference: Texts | Sequence[Texts] | None,
    against: Texts | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read references and another system's translations of a split.

    A corpus may have several references; `reference` are files or lists of
    texts to take instead.

    Returns:
        Arguments of `evaluation.score`, and the beginning of the report.

    Raises:
        UserError: If something is missing, or of another split.
    """
    report: dict[str, Any] = {
        "corpus": corpus.name,
        "split": split,
        "source_lang": corpus.source_lang,
        "target_lang": corpus.target_lang,
    }
    scoring: dict[str, Any] = {"target_lang": corpus.target_lang}
    if against is not None:
        scoring["against"] = read_translations(
            against, corpus.name, split, corpus.target_lang, len(pairs)
        )
        report["against"] = name_of(against)
    if reference is None:
        found = corpus.references(corpus.find(split))
        if found and len(found) != len(pairs):  # Some pairs are held out.
            found = None
        rows = found or ((target,) for _, target in pairs)
        scoring["references"] = list(zip(*rows, strict=True))
        return scoring, report
    if isinstance(reference, str | os.PathLike):
        reference = [reference]
    if not reference:
        raise SettingError("reference", "a file or several", reference)
    scoring["references"] = [
        given_texts(each, "reference", split, len(pairs)) for each in reference
    ]
    report["reference"] = [name_of(each) for each in reference]
    return scoring, report
