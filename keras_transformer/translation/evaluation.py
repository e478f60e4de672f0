"""Translates a test set and scores it (section 6.1).

Every score carries a signature, which says how it was computed.
"""

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

import sacrebleu
import sacremoses

from keras_transformer.config import (
    Search,
    SettingError,
    UserError,
)
from keras_transformer.data.languages import language_of
from keras_transformer.data.lines import on_one_line
from keras_transformer.machine import extras, files
from keras_transformer.runs.layout import EVALUATION
from keras_transformer.translation.significance import (
    Comparison,
    compare,
    composed,
)

if TYPE_CHECKING:  # What is scored alone needs no TensorFlow.
    from keras_transformer.translation.translator import Translator

logger = logging.getLogger("keras_transformer")

# SacreBLEU's tokenisers of detokenised text.
TOKENIZERS = tuple(sorted(set(sacrebleu.BLEU.TOKENIZERS) - {"none"}))

# A report names the versions of these packages.
_PACKAGES = ("tensorflow", "keras", "sentencepiece", "sacrebleu", "sacremoses")

# Whitespace as Perl sees it in bytes. A match includes the letters on both
# sides, so "a-b-c" is split once, "ab-cd-ef" twice.
_COMPOUND = re.compile(r"(\S)-(\S)", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Score:
    """A figure and how it was computed.

    Attributes:
        name: Its name in print.
        value: 0 to 100, more is better.
        signature: SacreBLEU's signature, with any preparation of the text.
    """

    name: str
    value: float
    signature: str


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The scores of a test set.

    Attributes:
        bleu: SacreBLEU's BLEU, on detokenised text, in the words or characters
            of the target language.
        chrf: SacreBLEU's default chrF, on detokenised text.
        compound_split_bleu: The BLEU of the paper's tables, on tokenised
            text; None if the target language is not German.
        lowercase_bleu: SacreBLEU's BLEU of lower-cased text; None if not
            asked for.
        lowercase_tokenised_bleu: BLEU as many papers on small corpora print
            it, such as those on Multi30k; None if not asked for, or if the
            language has no spaces.
        translations: One for each pair, in order.
        seconds: Time of the translation only; None if the translations were
            given.
        target_tokens: Tokens of the translations, including end tokens; None
            likewise.
        comparisons: Tests of the difference from another system; empty unless
            one was named.
    """

    bleu: Score
    chrf: Score
    compound_split_bleu: Score | None
    lowercase_bleu: Score | None
    lowercase_tokenised_bleu: Score | None
    translations: tuple[str, ...] = dataclasses.field(repr=False)
    seconds: float | None = None
    target_tokens: int | None = None
    comparisons: tuple[Comparison, ...] = ()

    @property
    def scores(self) -> dict[str, Score]:
        """The scores that were computed, by field name."""
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, Score)
        }

    def report(self) -> dict[str, Any]:
        """Collect all but the translations, ready for JSON."""
        sentences = len(self.translations)
        comparisons = [dataclasses.asdict(each) for each in self.comparisons]
        speed = {}
        if self.seconds and self.target_tokens is not None:
            speed = {
                "seconds": self.seconds,
                "sentences_per_second": sentences / self.seconds,
                "target_tokens_per_second": self.target_tokens / self.seconds,
            }
        return {
            "scores": {
                name: dataclasses.asdict(score)
                for name, score in self.scores.items()
            },
            **({"comparisons": comparisons} if comparisons else {}),
            "sentences": sentences,
            **speed,
            "versions": {
                "python": platform.python_version(),
                **{name: metadata.version(name) for name in _PACKAGES},
            },
        }


def translate(
    translator: "Translator",
    sources: Sequence[str],
    search: Search,
    *,
    parallel: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[str], dict[str, Any]]:
    """Translate every source, leaving none out.

    Args:
        translator: The translator.
        sources: Texts, not tokenised. The log names those that the search
            cuts; references stay whole.
        search: How to search.
        parallel: As in `Translator.n_best`.
        progress: Called with the number of sentences done and in all.

    Returns:
        The translations, and `seconds` and `target_tokens` of `Evaluation`.

    Raises:
        ValueError: If there are no sources.
    """
    if not sources:
        raise ValueError("`sources` must not be empty. Received: none")
    from keras_transformer.translation.text_batches import warn_of_cuts

    start = time.perf_counter()
    found, are_cut = translator.n_best(
        sources, search, parallel=parallel, progress=progress
    )
    seconds = time.perf_counter() - start
    warn_of_cuts(are_cut, search.max_source_length)
    translations = [hypotheses[0].text for hypotheses in found]
    tokens = translator.tokenizer.target.tokenize(translations)
    target_tokens = int(tokens.row_lengths().numpy().sum())
    return translations, {"seconds": seconds, "target_tokens": target_tokens}


def score(
    translations: Sequence[str],
    references: Sequence[Sequence[str]],
    target_lang: str,
    lowercase: bool = False,
    tokenize: str | None = None,
    against: Sequence[str] | None = None,
) -> Evaluation:
    """Score translations, by whatever system.

    Args:
        translations: One for each source.
        references: A list for each reference, as sacreBLEU takes them.
        target_lang: Language code; `de` also gets the paper's BLEU.
        lowercase: Whether to score lower-cased text too.
        tokenize: As in `bleu_tokenizer`.
        against: Another system's translations, to compare with.
    """
    texts = (translations, *references)
    target = language_of(target_lang)
    is_german = target.base == "de"
    tokenize = bleu_tokenizer(target_lang, tokenize)
    return Evaluation(
        bleu=bleu(*texts, tokenize=tokenize),
        chrf=chrf(*texts),
        compound_split_bleu=compound_split_bleu(*texts) if is_german else None,
        lowercase_bleu=lowercase_bleu(*texts, tokenize=tokenize)
        if lowercase
        else None,
        lowercase_tokenised_bleu=lowercase_tokenised_bleu(target.base, *texts)
        if lowercase and target.has_spaces
        else None,
        translations=tuple(translations),
        comparisons=compare(translations, against, references, tokenize)
        if against is not None
        else (),
    )


def bleu_tokenizer(target_lang: str, tokenize: str | None = None) -> str:
    """Choose sacreBLEU's tokeniser for a language.

    Args:
        target_lang: Language code.
        tokenize: The name of one, to choose it nevertheless.

    Returns:
        Its name. Where the packages for Japanese or Korean are missing it is
        `char`, and the log says so.

    Raises:
        UserError: If there is no such tokeniser, or its packages or its model
            are missing.
    """
    if tokenize is not None and tokenize not in TOKENIZERS:
        raise SettingError(
            "tokenize", f"one of {', '.join(TOKENIZERS)}", tokenize
        )
    chosen = tokenize or language_of(target_lang).bleu_tokenizer
    try:
        sacrebleu.BLEU(tokenize=chosen)
    except OSError as error:  # Some models of SentencePiece are downloaded.
        raise UserError(
            f"Expected the model of sacreBLEU's {chosen}, which it downloads "
            f"once, cannot get it ({error}); connect to the Internet or choose "
            "another `tokenize`."
        ) from None
    except RuntimeError:  # Its packages are missing.
        command = extras.install_command(chosen.partition("-")[0])
        if tokenize:
            raise UserError(
                f"Expected the packages of sacreBLEU's {chosen}, found none; "
                f"install them with {command}."
            ) from None
        logger.warning(
            "BLEU counts characters, since sacreBLEU lacks the packages of "
            "%s; install them with %s.",
            *(chosen, command),
        )
        return "char"
    return chosen


def bleu(
    translations: Sequence[str],
    *references: Sequence[str],
    tokenize: str = "13a",
) -> Score:
    """Compute sacreBLEU's BLEU, on detokenised text."""
    metric = sacrebleu.BLEU(tokenize=tokenize)
    return _score("BLEU", metric, translations, references)


def chrf(translations: Sequence[str], *references: Sequence[str]) -> Score:
    """Compute sacreBLEU's default chrF, on detokenised text."""
    return _score("chrF2", sacrebleu.CHRF(), translations, references)


def compound_split_bleu(
    translations: Sequence[str], *references: Sequence[str]
) -> Score:
    """Compute the BLEU of the paper's tables, as `get_ende_bleu.sh` does.

    Both sides, German texts that are not tokenised yet, are tokenised as Moses
    does, and compounds are split. Tokens are counted as they are and without
    smoothing, as in Moses' `multi-bleu.perl`. The signature of the score also
    names this preparation.
    """
    return _prepared_score(
        "BLEU, tokenised, compounds split, as in the paper",
        "moses-de.atat",
        split_compounds,
        translations,
        references,
    )


def lowercase_bleu(
    translations: Sequence[str],
    *references: Sequence[str],
    tokenize: str = "13a",
) -> Score:
    """Compute sacreBLEU's BLEU of lower-cased text."""
    metric = sacrebleu.BLEU(lowercase=True, tokenize=tokenize)
    return _score("BLEU, lower-cased", metric, translations, references)


def lowercase_tokenised_bleu(
    target_lang: str, translations: Sequence[str], *references: Sequence[str]
) -> Score:
    """Compute BLEU as papers on Multi30k print it.

    Both sides are lower-cased, normalised in their punctuation and tokenised,
    in this order and as Moses does (`.lc.norm.tok` in Multi30k). Tokens are
    counted, and the preparation is named, as in `compound_split_bleu`.
    """
    return _prepared_score(
        "BLEU, lower-cased, tokenised",
        f"lc.norm.moses-{target_lang}",
        lambda texts: _lowercase_tokens(texts, target_lang),
        translations,
        references,
    )


def _lowercase_tokens(texts: Iterable[str], language: str) -> list[str]:
    normalise = sacremoses.MosesPunctNormalizer(lang=language).normalize
    tokenise = sacremoses.MosesTokenizer(lang=language).tokenize
    return [
        tokenise(normalise(text.lower()), return_str=True) for text in texts
    ]


def split_compounds(sentences: Iterable[str]) -> list[str]:
    """Tokenise German and split compounds at their hyphens.

    Args:
        sentences: Sentences such as `Ein Rich-Text-Format.`

    Returns:
        Sentences such as `Ein Rich ##AT##-##AT## Text ##AT##-##AT## Format .`
    """
    moses = sacremoses.MosesTokenizer(lang="de")
    return [
        _COMPOUND.sub(
            r"\1 ##AT##-##AT## \2", moses.tokenize(sentence, return_str=True)
        )
        for sentence in sentences
    ]


def _prepared_score(
    name: str,
    preparation: str,
    prepare: Callable[[Sequence[str]], list[str]],
    translations: Sequence[str],
    references: Sequence[Sequence[str]],
) -> Score:
    """Compute BLEU that counts the tokens of prepared text as they are."""
    counting = sacrebleu.BLEU(
        tokenize="none",
        smooth_method="none",
        force=True,  # The text is tokenised on purpose: no warning.
    )
    score = _score(
        name,
        counting,
        prepare(composed(translations)),
        [prepare(composed(texts)) for texts in references],
    )
    version = metadata.version("sacremoses")
    return dataclasses.replace(
        score,
        signature=f"{score.signature}|prepared:{preparation}.{version}",
    )


def _score(
    name: str,
    metric: sacrebleu.BLEU | sacrebleu.CHRF,
    translations: Sequence[str],
    references: Sequence[Sequence[str]],
) -> Score:
    value = metric.corpus_score(
        composed(translations), [composed(texts) for texts in references]
    ).score
    # The signature counts the references, so it comes after the score.
    return Score(name, value, str(metric.get_signature()))


@contextlib.contextmanager
def written(
    run_dir: pathlib.Path | None,
    split: str,
    target_lang: str,
    json_file: str | os.PathLike | None,
) -> Iterator[
    tuple[
        Callable[[Sequence[str]], None],
        Callable[[Evaluation, Mapping[str, Any]], None],
    ]
]:
    """Open the files of an evaluation before its work, whole or not at all.

    They are `evaluation/SPLIT.LANG.txt` and `evaluation/SPLIT.json` of the run
    directory, if there is one, and `json_file`, which gets the figures too.

    Yields:
        A function that writes the translations at once, where scoring may take
        long, and removes the figures of earlier ones; and one that writes an
        evaluation's figures, with further fields first in the report.
    """
    texts, reports = [], [pathlib.Path(json_file)] if json_file else []
    if run_dir:
        folder = run_dir / EVALUATION
        folder.mkdir(exist_ok=True)
        texts = [folder / f"{split}.{target_lang}.txt"]
        earlier = folder / f"{split}.json"
        if [path.resolve() for path in reports] != [earlier.resolve()]:
            reports.insert(0, earlier)
    with contextlib.ExitStack() as stack:
        # An unwritable place shows now.
        report_files = [
            stack.enter_context(files.open_whole(path)) for path in reports
        ]
        of_texts = stack.enter_context(contextlib.ExitStack())
        text_files = [
            of_texts.enter_context(files.open_whole(path)) for path in texts
        ]

        def write_texts(translations: Sequence[str]) -> None:
            lines = "".join(f"{on_one_line(text)}\n" for text in translations)
            for file in text_files:
                file.write(lines.encode())
                earlier.unlink(missing_ok=True)
            of_texts.close()

        def write_figures(result: Evaluation, more: Mapping[str, Any]) -> None:
            report = json.dumps({**more, **result.report()}, indent=2)
            for file in report_files:
                file.write(f"{report}\n".encode())

        yield write_texts, write_figures
    if paths := [*texts, *reports]:
        logger.info("Wrote %s.", " and ".join(map(str, paths)))
