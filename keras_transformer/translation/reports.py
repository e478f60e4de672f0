"""What a split is scored against, and how its report names that."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformer.config import UserError
from keras_transformer.data.corpus import Corpus, Pair
from keras_transformer.translation import significance
from keras_transformer.translation.evaluation import references_of
from keras_transformer.translation.significance import Texts


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
    against: str | os.PathLike | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read references and another system's translations of a split.

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
        scoring["against"] = significance.read_translations(
            against, corpus.name, split, corpus.target_lang, len(pairs)
        )
        report["against"] = os.fspath(against)
    if isinstance(reference, str | os.PathLike):
        reference = [reference]
    scoring["references"] = references_of(split, corpus, pairs, reference)
    if reference is not None:
        report["reference"] = [significance.name_of(each) for each in reference]
    return scoring, report


def read_hypotheses(
    hypotheses: Texts, split: str, pairs: Sequence[Pair], report: dict[str, Any]
) -> list[str]:
    """Read translations to score, and name them in the report.

    Raises:
        UserError: If they are not as many as the pairs.
    """
    report["hypotheses"] = significance.name_of(hypotheses)
    return significance.given_texts(hypotheses, "hypotheses", split, len(pairs))
