"""Translate a test set and score it (section 6.1).

A score never stands alone: its signature says how it was computed.
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
from typing import Any

import sacrebleu
import sacremoses

from keras_transformer.config import MAX_SOURCE_LENGTH
from keras_transformer.data.lines import on_one_line
from keras_transformer.machine import files
from keras_transformer.runs.layout import EVALUATION
from keras_transformer.translation.translator import Translator

logger = logging.getLogger("keras_transformer")

# Whose versions a report names.
_PACKAGES = ("tensorflow", "keras", "sentencepiece", "sacrebleu", "sacremoses")

# Whitespace as Perl sees it in bytes. A match takes the letters on both sides
# with it, so "a-b-c" comes apart once, "ab-cd-ef" twice.
_COMPOUND = re.compile(r"(\S)-(\S)", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Score:
    """A figure and how it was computed.

    Attributes:
        name: What it is called in print.
        value: 0 to 100, more is better.
        signature: SacreBLEU's, with what was done to the text before.
    """

    name: str
    value: float
    signature: str


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The scores of a test set.

    Attributes:
        bleu: SacreBLEU's default BLEU, on detokenised text.
        chrf: SacreBLEU's default chrF, on detokenised text.
        compound_split_bleu: The BLEU of the paper's tables, on tokenised
            text; None where the target language is not German.
        lowercase_bleu: The first again, of lower-cased text; None where
            nobody asked for it.
        lowercase_tokenised_bleu: What many papers on small corpora print,
            such as those on Multi30k; likewise.
        translations: One for each pair, in order.
        seconds: Time of the translation alone.
        target_tokens: Tokens of the translations, end tokens included.
    """

    bleu: Score
    chrf: Score
    compound_split_bleu: Score | None
    lowercase_bleu: Score | None
    lowercase_tokenised_bleu: Score | None
    translations: tuple[str, ...] = dataclasses.field(repr=False)
    seconds: float
    target_tokens: int

    @property
    def scores(self) -> dict[str, Score]:
        """The scores there are, by field name."""
        names = (
            "bleu",
            "chrf",
            "compound_split_bleu",
            "lowercase_bleu",
            "lowercase_tokenised_bleu",
        )
        found = {name: getattr(self, name) for name in names}
        return {name: score for name, score in found.items() if score}

    def report(self) -> dict[str, Any]:
        """All but the translations, ready for JSON."""
        sentences = len(self.translations)
        return {
            "scores": {
                name: dataclasses.asdict(score)
                for name, score in self.scores.items()
            },
            "sentences": sentences,
            "seconds": self.seconds,
            "sentences_per_second": sentences / self.seconds,
            "target_tokens_per_second": self.target_tokens / self.seconds,
            "versions": {
                "python": platform.python_version(),
                **{name: metadata.version(name) for name in _PACKAGES},
            },
        }


def longest_source(max_length: int) -> int:
    """Tokens after which a sentence of a validation or test set is cut.

    As many as a source has by default when it is translated, unless the run
    was trained on longer ones: what the model has seen, it is judged by.

    Args:
        max_length: Most tokens of a training pair's side.
    """
    return max(max_length, MAX_SOURCE_LENGTH)


def evaluate(
    translator: Translator,
    pairs: Iterable[tuple[str, str]],
    target_lang: str,
    *,
    max_source_length: int = MAX_SOURCE_LENGTH,
    references: Sequence[Sequence[str]] | None = None,
    lowercase: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Evaluation:
    """Translate every source, leaving none out, and score the result.

    Args:
        translator: The translator.
        pairs: Source and reference texts, not tokenised.
        target_lang: Language code; `de` also gets the paper's BLEU.
        max_source_length: Tokens, end token included, after which a source is
            cut; the log names those that are. Its reference is whole.
        references: All references of each source, of one number, in place of
            the one that its pair has.
        lowercase: Whether to score lower-cased text too.
        progress: Called with the numbers of sentences done and of all.
        **options: Of the search, as for `Translator.translate`.

    Returns:
        The scores and the translations.

    Raises:
        ValueError: If there are no pairs.
    """
    pairs = list(pairs)
    if not pairs:
        raise ValueError("`pairs` must not be empty. Received: no pair")
    sources, first = zip(*pairs, strict=True)
    # A list for each reference, as sacreBLEU takes them.
    streams = list(zip(*references, strict=True)) if references else [first]
    start = time.perf_counter()
    translations = translator.translate(
        sources,
        max_source_length=max_source_length,
        split_sentences=False,
        progress=progress,
        **options,
    )
    seconds = time.perf_counter() - start
    tokens = translator.tokenizer.target.tokenize(translations)
    return Evaluation(
        bleu=bleu(translations, *streams),
        chrf=chrf(translations, *streams),
        compound_split_bleu=compound_split_bleu(translations, *streams)
        if target_lang == "de"
        else None,
        lowercase_bleu=lowercase_bleu(translations, *streams)
        if lowercase
        else None,
        lowercase_tokenised_bleu=lowercase_tokenised_bleu(
            target_lang, translations, *streams
        )
        if lowercase
        else None,
        translations=tuple(translations),
        seconds=seconds,
        target_tokens=int(tokens.row_lengths().numpy().sum()),
    )


def bleu(translations: Sequence[str], *references: Sequence[str]) -> Score:
    """SacreBLEU's default BLEU, on detokenised text."""
    return _score("BLEU", sacrebleu.BLEU(), translations, references)


def chrf(translations: Sequence[str], *references: Sequence[str]) -> Score:
    """SacreBLEU's default chrF, on detokenised text."""
    return _score("chrF2", sacrebleu.CHRF(), translations, references)


def compound_split_bleu(
    translations: Sequence[str], *references: Sequence[str]
) -> Score:
    """The BLEU of the paper's tables: `get_ende_bleu.sh` of tensor2tensor.

    Both sides are tokenised as Moses does for German, compounds are put
    apart, and tokens are counted as they stand and without smoothing, as in
    Moses' `multi-bleu.perl`.

    Args:
        translations: German texts, not tokenised.
        *references: A reference for each, not tokenised; once or more.

    Returns:
        The score; its signature also names the preparation.
    """
    return _prepared_score(
        "BLEU, tokenised, compounds split, as in the paper",
        "moses-de.atat",
        split_compounds,
        translations,
        references,
    )


def lowercase_bleu(
    translations: Sequence[str], *references: Sequence[str]
) -> Score:
    """SacreBLEU's BLEU of lower-cased text."""
    metric = sacrebleu.BLEU(lowercase=True)
    return _score("BLEU, lower-cased", metric, translations, references)


def lowercase_tokenised_bleu(
    target_lang: str, translations: Sequence[str], *references: Sequence[str]
) -> Score:
    """BLEU as papers on Multi30k print it.

    Both sides are lower-cased, their punctuation is normalised and they are
    tokenised, as Moses does and in this order (`.lc.norm.tok` in Multi30k);
    tokens are counted as in its `multi-bleu.perl`.

    Args:
        target_lang: Language code.
        translations: Texts, not tokenised.
        *references: A reference for each, not tokenised; once or more.

    Returns:
        The score; its signature also names the preparation.
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
    """Tokenise German and put compounds apart at their hyphens.

    Args:
        sentences: Such as `Ein Rich-Text-Format.`

    Returns:
        Such as `Ein Rich ##AT##-##AT## Text ##AT##-##AT## Format .`
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
    """BLEU that counts the tokens of prepared text as they stand."""
    counting = sacrebleu.BLEU(
        tokenize="none",
        smooth_method="none",
        force=True,  # The text is tokenised on purpose: no warning.
    )
    score = _score(
        name,
        counting,
        prepare(translations),
        [prepare(texts) for texts in references],
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
        list(translations), [list(texts) for texts in references]
    ).score
    # The signature counts the references, so it comes after the score.
    return Score(name, value, str(metric.get_signature()))


@contextlib.contextmanager
def written(
    run_dir: pathlib.Path,
    split: str,
    target_lang: str,
    json_file: str | os.PathLike | None,
) -> Iterator[Callable[[Evaluation, Mapping[str, Any]], None]]:
    """Open the files of an evaluation before its work, whole or none.

    Args:
        run_dir: Gets `evaluation/SPLIT.LANG.txt` and `evaluation/SPLIT.json`.
        split: The split.
        target_lang: Language code of the translations.
        json_file: Gets the figures too.

    Yields:
        Writes an evaluation, and in the report before it what is given.
    """
    folder = run_dir / EVALUATION
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{split}.{target_lang}.txt", folder / f"{split}.json"]
    if json_file and pathlib.Path(json_file).resolve() != paths[1].resolve():
        paths.append(pathlib.Path(json_file))
    with contextlib.ExitStack() as stack:
        # A place that cannot be written shows now.
        text_file, *json_files = [
            stack.enter_context(files.open_whole(path)) for path in paths
        ]

        def write(result: Evaluation, more: Mapping[str, Any]) -> None:
            report = json.dumps({**more, **result.report()}, indent=2)
            for line in result.translations:
                text_file.write(on_one_line(line).encode() + b"\n")
            for file in json_files:
                file.write(report.encode() + b"\n")

        yield write
    logger.info("Wrote %s.", " and ".join(map(str, paths)))
