"""Byte-pair encoding with merges left out by chance, many words at once.

Sentencepiece samples segmentations too, but from version 0.2.3 on its draws
differ from process to process, whatever the seed.

Axes: N symbols, W words.
"""

import itertools

import numpy as np

from keras_transformer.data import words

NORMAL = 1  # A piece's type in a sentencepiece model.


class Merges:
    """The merges of a vocabulary.

    Two neighbours merge where the vocabulary has their text as one piece; of
    several such pairs the one that was learnt first goes first.

    Args:
        model: A serialised sentencepiece model of byte-pair encoding.

    Attributes:
        begins_word: Boolean array `(V,)`, which pieces begin with a space.

    Reference:
        [Provilkov et al., 2020](https://arxiv.org/abs/1910.13267), algorithm 1.
    """

    def __init__(self, model: bytes) -> None:
        pieces = words.parse_model(model).pieces
        names = [piece.piece for piece in pieces]
        self.begins_word = np.array(
            [name.startswith(words.SPACE) for name in names]
        )
        ids = {
            piece.piece: i
            for i, piece in enumerate(pieces)
            if piece.type == NORMAL
        }
        # The characters of each piece, `(V,)` begins and lengths in `(N,)`.
        spelled = [
            [ids[character] for character in name]
            if name in ids and all(character in ids for character in name)
            else [i]  # A byte, a role, or a user's own piece.
            for i, name in enumerate(names)
        ]
        self._characters = np.array(list(itertools.chain(*spelled)), np.int32)
        self._sizes = np.array([len(characters) for characters in spelled])
        self._begins = np.cumsum(self._sizes) - self._sizes
        self._add_pairs(names, ids, [piece.score for piece in pieces])

    def _add_pairs(
        self, names: list[str], ids: dict[str, int], scores: list[float]
    ) -> None:
        """Tabulate which pairs merge: sorted keys, ranks, merged pieces."""
        self._vocab_size = len(names)
        pairs = [
            (ids[name[:i]] * len(names) + ids[name[i:]], merged)
            for name, merged in ids.items()
            for i in range(1, len(name))
            if name[:i] in ids and name[i:] in ids
        ]
        pairs.append((self._vocab_size**2, 0))  # So that no search ends beyond.
        keys, merged = np.array(sorted(pairs), np.int64).T
        self._keys, self._merged = keys, merged.astype(np.int32)
        best_first = np.argsort(-np.array(scores), kind="stable")
        ranks = np.empty(len(names), np.int64)
        ranks[best_first] = np.arange(len(names))
        self._ranks = ranks[merged]

    def segment(
        self,
        pieces: np.ndarray,
        word_of: np.ndarray,
        dropout: float,
        random: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cut words into pieces, from their characters on.

        In each step every merge that is possible is left out with the
        probability `dropout`, and the best of the others is done; a word of
        which all are left out stays as it is then.

        Args:
            pieces: Integer array `(N,)`, the words as they are cut now.
            word_of: Integer array `(N,)`, the word of each, ascending.
            dropout: In [0, 1].
            random: Decides what is left out.

        Returns:
            Other `pieces` and `word_of`.
        """
        sizes = self._sizes[pieces]
        symbols = self._characters[_ranges(self._begins[pieces], sizes)]
        word_of = np.repeat(word_of, sizes)
        done = []
        while len(symbols):
            chosen, merged = self._choose(symbols, word_of, dropout, random)
            active = np.zeros(int(word_of[-1]) + 1, bool)
            active[word_of[chosen]] = True
            going_on = active[word_of]
            done.append((symbols[~going_on], word_of[~going_on]))
            symbols[chosen] = merged
            going_on[chosen + 1] = False
            symbols, word_of = symbols[going_on], word_of[going_on]
        if not done:
            return symbols, word_of
        symbols, word_of = (
            np.concatenate(parts) for parts in zip(*done, strict=True)
        )
        order = np.argsort(word_of, kind="stable")
        return symbols[order], word_of[order]

    def _choose(
        self,
        symbols: np.ndarray,
        word_of: np.ndarray,
        dropout: float,
        random: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The place of the next merge in every word that has one, and its id.

        The place is that of the left symbol.
        """
        keys = symbols[:-1] * np.int64(self._vocab_size) + symbols[1:]
        at = np.searchsorted(self._keys, keys)
        possible = (self._keys[at] == keys) & (word_of[:-1] == word_of[1:])
        places = np.flatnonzero(possible)
        places = places[random.random(len(places)) >= dropout]
        ranks = self._ranks[at[places]]
        # The first place of the best rank in each word.
        order = np.lexsort((ranks, word_of[places]))
        places = places[order]
        first = np.flatnonzero(np.diff(word_of[places], prepend=-1))
        chosen = places[first]
        return chosen, self._merged[at[chosen]]


def _ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The places `start, …, start + size - 1` of every pair, end to end."""
    ends = np.cumsum(sizes)
    within = np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)
    return np.repeat(starts, sizes) + within
