"""How to search, in one place for Python and every command line.

Without TensorFlow, so that a mistake shows before it is loaded.
"""

import dataclasses
import math

from keras_transformer.config import SearchConfig

# Tokens after which a source is cut wherever nobody says otherwise.
MAX_SOURCE_LENGTH = 256


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Draw each next token by chance instead of searching for the best.

    The logits are divided by the temperature; then only the `top_k` likeliest
    tokens stay; then, of their renormalised probabilities, the smallest set of
    likeliest tokens that together reach `top_p` (nucleus sampling).

    Attributes:
        temperature: Above 0; 1 is the model as it is, less is bolder.
        top_k: Likeliest tokens that may be drawn; 0 for all.
        top_p: Probability that they must reach together, in (0, 1]; 1 for all.
        seed: The same seed and text give the same draws, whatever else is in
            the batch; without one every call draws afresh.

    Raises:
        ValueError: If an option is out of range.

    Reference:
        [Holtzman et al., 2020](https://arxiv.org/abs/1904.09751), section 3.1.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(
                "`temperature` must be above 0 and finite. Received: "
                f"temperature={self.temperature}"
            )
        _check_at_least("top_k", self.top_k, 0)
        if not 0 < self.top_p <= 1:
            raise ValueError(
                "`top_p` must be above 0 and at most 1. Received: "
                f"top_p={self.top_p}"
            )
        if self.seed is not None and not 0 <= self.seed < 2**31:
            raise ValueError(
                f"`seed` must be from 0 to 2^31 - 1. Received: seed={self.seed}"
            )


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """How to search.

    Attributes:
        beam_size: Live hypotheses per sentence. At least 1; 1 is greedy.
            Without meaning where `sampling` is given.
        length_penalty: The exponent alpha of `length_normaliser`, at least 0.
        n_best: Hypotheses per sentence, from 1 to `beam_size`; with `sampling`
            as many independent draws.
        min_length: Fewest tokens of a translation, its end token included.
        max_length: Most tokens of a translation, its end token included;
            source length + `max_extra_length` where not given.
        max_extra_length: Most tokens of a translation beyond its source's, at
            least 0. Without meaning where `max_length` is given.
        max_source_length: Tokens, end token included, after which a source is
            cut; never where not given. At least 2.
        no_unknown: Whether the unknown piece is never written.
        no_repeat_ngram: No row of so many tokens occurs twice in a
            translation; 0 for any.
        sampling: Draws by chance in place of the beam search.

    Raises:
        ValueError: If an option is out of range.
    """

    beam_size: int = SearchConfig.beam_size
    length_penalty: float = SearchConfig.length_penalty
    n_best: int = 1
    min_length: int = 0
    max_length: int | None = None
    max_extra_length: int = SearchConfig.max_extra_length
    max_source_length: int | None = None
    no_unknown: bool = False
    no_repeat_ngram: int = 0
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        _check_at_least("beam_size", self.beam_size, 1)
        if not 0 <= self.length_penalty < math.inf:
            raise ValueError(
                "`length_penalty` must be at least 0 and finite. Received: "
                f"length_penalty={self.length_penalty}"
            )
        if self.sampling:
            _check_at_least("n_best", self.n_best, 1)
        elif not 1 <= self.n_best <= self.beam_size:
            raise ValueError(
                "`n_best` must be from 1 to `beam_size`. Received: "
                f"n_best={self.n_best}, beam_size={self.beam_size}"
            )
        _check_at_least("min_length", self.min_length, 0)
        _check_at_least("max_length", self.max_length, 1)
        _check_at_least("max_extra_length", self.max_extra_length, 0)
        if self.max_extra_length >= 2**30:  # Lengths are int32.
            raise ValueError(
                "`max_extra_length` must be below 2^30. Received: "
                f"max_extra_length={self.max_extra_length}"
            )
        _check_at_least("max_source_length", self.max_source_length, 2)
        _check_at_least("no_repeat_ngram", self.no_repeat_ngram, 0)
        if self.max_length is not None and self.max_length < self.min_length:
            raise ValueError(
                "`max_length` must be at least `min_length`. Received: "
                f"max_length={self.max_length}, min_length={self.min_length}"
            )


def _check_at_least(name: str, value: float | None, least: int) -> None:
    if value is not None and value < least:
        raise ValueError(
            f"`{name}` must be at least {least}. Received: {name}={value}"
        )
