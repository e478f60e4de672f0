"""Hypotheses of several texts, compared but for the rounding of scores."""

import numpy as np


def assert_alike(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert [x.text for x in ours] == [x.text for x in theirs]
        scores = [[x.score for x in both] for both in (ours, theirs)]
        np.testing.assert_allclose(*scores, rtol=1e-4)


def assert_answered(answer, expected, n_best):
    """An export's `n_best` has these, and fills up with nothing."""
    for row, hypotheses in enumerate(expected):
        missing = n_best - len(hypotheses)
        texts = np.asarray(answer["translations"])[row]
        assert [text.decode() for text in texts] == (
            [x.text for x in hypotheses] + [""] * missing
        )
        scores = [x.score for x in hypotheses] + [-np.inf] * missing
        np.testing.assert_allclose(answer["scores"][row], scores, 1e-4, 1e-4)
