"""Translates a test set and scores it (section 6.1)."""

import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

import sacrebleu
import sacremoses

from keras_transformer.config import Search, SettingError, UserError, logger
from keras_transformer.data.languages import language_of
from keras_transformer.data.lines import on_one_line
from keras_transformer.data.texts import Corpus, Pair
from keras_transformer.machine import extras, files
from keras_transformer.runs.layout import SCORES_FILE

if TYPE_CHECKING:  # What is scored alone needs no TensorFlow.
    from keras_transformer.translation.text_batches import Batching
    from keras_transformer.translation.translator import Translator


# SacreBLEU's tokenisers of detokenised text.
TOKENIZERS = tuple(sorted(set(sacrebleu.BLEU.TOKENIZERS) - {"none"}))

# A report names the versions of these packages.
_PACKAGES = ("tensorflow", "keras", "sentencepiece", "sacrebleu", "sacremoses")

# Whitespace as Perl sees it in bytes. A match includes the letters on both
# sides, so "a-b-c" is split once, "ab-cd-ef" twice.
_COMPOUND = re.compile(r"(\S)-(\S)", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Score:
    """A figure and how it was computed."""

    name: str
    value: float  # 0 to 100, more is better.
    signature: str  # SacreBLEU's, with any preparation of the text.


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The scores of a test set.

    Attributes:
        translations: One for each pair, in order.
        bleu: SacreBLEU's BLEU, on detokenised text, in the words or characters
            of the target language.
        chrf: SacreBLEU's default chrF, on detokenised text.
        compound_split_bleu: The BLEU of the paper's tables, on tokenised
            text; None if the target language is not German.
        lowercase_tokenised_bleu: BLEU as many papers on small corpora print
            it, such as those on Multi30k; None if not asked for, or if the
            language has no spaces.
        seconds: Time of the translation only.
        target_tokens: Tokens of the translations, including end tokens.
        folder: Where the texts and the figures lie; None if nowhere.
    """

    translations: tuple[str, ...] = dataclasses.field(repr=False)
    bleu: Score
    chrf: Score
    compound_split_bleu: Score | None = None
    lowercase_tokenised_bleu: Score | None = None
    seconds: float | None = None
    target_tokens: int | None = None
    folder: pathlib.Path | None = None

    @property
    def scores(self) -> dict[str, Score]:
        """The scores that were computed, by field name."""
        return {k: x for k, x in vars(self).items() if isinstance(x, Score)}

    def report(self) -> dict[str, Any]:
        """Collect all but the translations, ready for JSON."""
        versions = {name: metadata.version(name) for name in _PACKAGES}
        return {
            "scores": {k: vars(score) for k, score in self.scores.items()},
            "sentences": len(self.translations),
            "seconds": self.seconds,
            "target_tokens": self.target_tokens,
            "versions": {"python": platform.python_version(), **versions},
        }


def evaluate(
    translator: "Translator",
    pairs: Sequence[Pair],
    about: Mapping[str, Any],
    search: Search,
    folder: pathlib.Path,
    batching: "Batching",
    lowercase: bool,
    tokenize: str,
) -> Evaluation:
    """Translate a test set, score it, and write all to a folder, if it can.

    The report begins with what is said `about` the pairs.
    """
    # Before the work, so that a read-only place shows at once.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    is_open = folder.is_dir() and os.access(folder, os.W_OK)
    if not is_open:
        logger.warning("Cannot write to %s: the scores are only shown.", folder)
    sources, references = [x for x, _ in pairs], [y for _, y in pairs]
    translations, speed = translate(translator, sources, search, batching)
    if is_open:
        # These may be figures of other translations.
        (folder / SCORES_FILE).unlink(missing_ok=True)
        texts = sources, references, translations
        names = "source", "reference", "translation"
        for name, lines in zip(names, map(composed, texts), strict=True):
            rows = (f"{on_one_line(text)}\n" for text in lines)
            files.write_text(folder / f"{name}.txt", "".join(rows))
    how = about["target_lang"], lowercase, tokenize
    result = dataclasses.replace(
        score(translations, [references], *how),
        **speed,
        folder=folder if is_open else None,
    )
    if is_open:
        report = {
            **about,
            "search": dataclasses.asdict(search),
            **translator.weights.report(),
            **result.report(),
        }
        text = f"{json.dumps(report, indent=2)}\n"
        files.write_text(folder / SCORES_FILE, text)
        logger.info("Wrote texts and scores to %s.", folder)
    if said := caution(result.bleu.value, references, tokenize):
        logger.warning(said)
    return result


def warn_of_shared(corpus: Corpus, split: str, train_split: str) -> None:
    """Warn of sources that are in the training text too, if that is there."""
    from keras_transformer.data.inspection import Inspection

    looking = Inspection(corpus, [split])
    with contextlib.suppress(UserError):
        for source, _ in corpus.pairs(train_split):
            looking.meet(source)
        for said in looking.shared_advice():
            logger.warning(said)


def folder_name(split: str, corpus: str | None, is_ensemble: bool) -> str:
    """Name the folder of an evaluation; None is the corpus of the run."""
    name = f"{split}.ensemble" if is_ensemble else split
    if corpus is None:
        return name
    of_corpus = re.sub(r"[^\w.-]+", "-", corpus).strip("-.")
    return f"{of_corpus[-99:]}.{name}"


def translate(
    translator: "Translator",
    sources: Sequence[str],
    search: Search,
    batching: "Batching",
) -> tuple[list[str], dict[str, Any]]:
    """Translate all sources, and return `seconds` and `target_tokens` too."""
    from keras_transformer.translation.text_batches import warn_of_cuts

    start = time.perf_counter()
    n_best, are_cut = translator.search_texts(sources, search, batching)
    seconds = time.perf_counter() - start
    warn_of_cuts(are_cut, search.max_source_length)
    translations = [hypotheses[0].text for hypotheses in n_best]
    tokens = translator.tokenizer.target.tokenize(translations)
    target_tokens = int(tokens.row_lengths().numpy().sum())
    return translations, {"seconds": seconds, "target_tokens": target_tokens}


def score(
    translations: Sequence[str],
    references: Sequence[Sequence[str]],
    target_lang: str,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> Evaluation:
    """Score translations, by whatever system.

    `references` has a list for each reference, as sacreBLEU takes them; the
    language `de` also gets the paper's BLEU.
    """
    texts = (translations, *references)
    target = language_of(target_lang)
    tokenize = bleu_tokenizer(target_lang, tokenize)
    scores: dict[str, Any] = {
        "bleu": bleu(*texts, tokenize=tokenize),
        "chrf": _score("chrF2", sacrebleu.CHRF(), texts),
    }
    if target.base == "de":
        scores["compound_split_bleu"] = compound_split_bleu(*texts)
    if lowercase and target.has_spaces:
        tokenised = lowercase_tokenised_bleu(target.base, *texts)
        scores["lowercase_tokenised_bleu"] = tokenised
    return Evaluation(tuple(translations), **scores)


def caution(
    bleu: float, references: Iterable[str], tokenize: str = "13a"
) -> str | None:
    """Say if BLEU, which counts four words, tells nothing of such texts."""
    words = sacrebleu.BLEU(tokenize=tokenize).tokenizer
    references = [*references]
    if sum(text.endswith(" .") for text in references) > len(references) / 2:
        return (
            "The references look tokenised, so BLEU cannot be compared "
            "with published scores; detokenise the corpus."
        )
    if all(len(words(text).split()) < 4 for text in references):
        return (
            "BLEU counts sequences of four words, and no reference has four; "
            "judge by chrF."
        )
    if bleu < 0.005:
        return "BLEU is 0.00, which tells nothing; judge by chrF."
    return None


def bleu_tokenizer(target_lang: str, tokenize: str | None = None) -> str:
    """Choose sacreBLEU's tokeniser for a language, or check the one asked for.

    Where the packages for Japanese or Korean are missing it is `char`, and the
    log says so; one that was asked for is refused.
    """
    if tokenize is not None and tokenize not in TOKENIZERS:
        expected = f"one of {', '.join(TOKENIZERS)}"
        raise SettingError("tokenize", expected, tokenize)
    chosen = tokenize or language_of(target_lang).bleu_tokenizer
    try:
        sacrebleu.BLEU(tokenize=chosen)
    except OSError as error:  # Some models of SentencePiece are downloaded.
        raise UserError(
            f"Expected the model of sacreBLEU's {chosen}, cannot download it "
            f"({error}); connect to the Internet or change `tokenize`."
        ) from None
    except RuntimeError:
        command = extras.install_command(chosen.partition("-")[0])
        said = (
            f"Expected the packages of sacreBLEU's {chosen}, found some "
            f"missing; install them by {command}."
        )
        if tokenize is not None:
            raise UserError(said) from None
        logger.warning("BLEU counts characters. %s", said)
        return "char"
    return chosen


def bleu(*texts: Sequence[str], tokenize: str = "13a") -> Score:
    """Compute sacreBLEU's BLEU, on detokenised text.

    The translations come first, then the references, each a list.
    """
    # `force`: of tokenised text, `caution` tells.
    return _score("BLEU", sacrebleu.BLEU(force=True, tokenize=tokenize), texts)


def compound_split_bleu(*texts: Sequence[str]) -> Score:
    """Compute the BLEU of the paper's tables, as `get_ende_bleu.sh` does.

    German texts are tokenised as Moses does, and compounds are split. Tokens
    are counted without smoothing, as in Moses' `multi-bleu.perl`. The signature
    of the score also names this preparation.
    """
    name = "BLEU, tokenised, compounds split, as in the paper"
    return _bleu_of_tokens(name, texts, split_compounds, "moses-de.atat")


def lowercase_tokenised_bleu(target_lang: str, *texts: Sequence[str]) -> Score:
    """Compute BLEU as papers on Multi30k print it, from its `.lc.norm.tok`.

    Texts are lower-cased, normalised in their punctuation and tokenised, as
    Moses does. The rest is as in `compound_split_bleu`.
    """
    normalise = sacremoses.MosesPunctNormalizer(lang=target_lang).normalize
    tokenise = sacremoses.MosesTokenizer(lang=target_lang).tokenize

    def prepare(texts: Iterable[str]) -> list[str]:
        return [tokenise(normalise(x.lower()), return_str=True) for x in texts]

    name, how = "BLEU, lower-cased, tokenised", f"lc.norm.moses-{target_lang}"
    return _bleu_of_tokens(name, texts, prepare, how)


def split_compounds(sentences: Iterable[str]) -> list[str]:
    """Tokenise German, and make `Rich ##AT##-##AT## Text` of `Rich-Text`."""
    moses = sacremoses.MosesTokenizer(lang="de")
    tokenised = (moses.tokenize(x, return_str=True) for x in sentences)
    return [_COMPOUND.sub(r"\1 ##AT##-##AT## \2", text) for text in tokenised]


def _bleu_of_tokens(
    name: str,
    texts: Sequence[Sequence[str]],
    prepare: Callable[[list[str]], list[str]],
    how: str,
) -> Score:
    """Count the tokens of prepared texts; the signature says how."""
    # `force`: the text is tokenised on purpose, so no warning.
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    score = _score(name, metric, map(prepare, map(composed, texts)))
    prepared = f"|prepared:{how}.{metadata.version('sacremoses')}"
    return dataclasses.replace(score, signature=score.signature + prepared)


def _score(
    name: str,
    metric: sacrebleu.BLEU | sacrebleu.CHRF,
    texts: Iterable[Sequence[str]],
) -> Score:
    """Score the first of several lists by the others."""
    translations, *references = map(composed, texts)
    value = metric.corpus_score(translations, references).score
    # The signature counts the references, so it comes after the score.
    return Score(name, value, str(metric.get_signature()))


def composed(texts: Sequence[str]) -> list[str]:
    """Compose letters and their marks, as a vocabulary does (NFC)."""
    return [unicodedata.normalize("NFC", text) for text in texts]
