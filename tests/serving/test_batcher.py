"""The queue before the model, with a model that only takes notes."""

import asyncio
import threading

import numpy as np
import pytest

from keras_transformer.machine.batching_file import Batching
from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.requests import RefusalError


class Notes:
    """Answers each text with itself, backwards; remembers the batches.

    Attributes:
        batches: The texts of every batch that was begun.
        gate: Batches wait for it.
    """

    padded = {"matrix"}

    def __init__(self, is_open=True):
        self.batches, self.gate = [], threading.Event()
        if is_open:
            self.gate.set()

    def inputs(self, signature):
        return ["text"]

    def run(self, signature, rows):
        texts = [text for (text,) in rows]
        self.batches.append(texts)
        assert self.gate.wait(20)
        if b"bad" in texts:
            raise ValueError("what a model says")
        if signature == "matrix":
            longest = max(map(len, texts))
            return {
                "codes": np.array(
                    [[*text, *[0] * (longest - len(text))] for text in texts]
                )
            }
        return {
            "text": np.array([text[::-1] for text in texts], object),
            "length": np.array([len(text) for text in texts]),
        }


BATCHING = Batching(
    max_batch_size=3,
    batch_timeout_micros=20_000,
    num_batch_threads=1,
    max_enqueued_batches=2,
)


def rows(*texts):
    return [(text.encode(),) for text in texts]


async def begun(model, batches=1):
    """Wait until that many batches have been begun."""
    while len(model.batches) < batches:
        await asyncio.sleep(0.001)


def test_texts_of_many_clients_go_together():
    async def ask():
        model, batcher = Notes(), Batcher(BATCHING)
        found = await asyncio.gather(
            *(batcher.run(model, "plain", rows(text)) for text in ("ab", "cde"))
        )
        return model.batches, [answer["text"].tolist() for answer in found]

    batches, answers = asyncio.run(ask())
    assert batches == [[b"ab", b"cde"]]
    assert answers == [[b"ba"], [b"edc"]]


def test_a_full_batch_does_not_wait_for_company():
    async def ask():
        slow = Batching(3, batch_timeout_micros=60_000_000)
        model, batcher = Notes(), Batcher(slow)
        await asyncio.wait_for(
            batcher.run(model, "plain", rows("a", "b", "c")), 20
        )

    asyncio.run(ask())


def test_free_threads_share_what_waits():
    async def ask():
        batching = Batching(7, batch_timeout_micros=0, num_batch_threads=3)
        model, batcher = Notes(), Batcher(batching)
        await batcher.run(model, "plain", rows("a", "b", "c", "d", "e"))
        return model.batches

    assert sorted(map(len, asyncio.run(ask()))) == [1, 2, 2]


def test_a_batch_of_long_texts_has_few_of_them():
    async def ask():
        model, batcher = Notes(), Batcher(Batching(7, 0, num_batch_threads=1))
        texts = ["x" * 3_000] * 3 + ["y" * 9_000] * 2 + ["z"] * 5
        await batcher.run(model, "plain", rows(*texts))
        return model.batches

    found = [[text[:1] for text in batch] for batch in asyncio.run(ask())]
    # Seven from the shortest on: five of a byte, two of 3,000.
    assert found == [[b"z"] * 5, [b"x"] * 2, [b"x"], [b"y"], [b"y"]]


def test_the_oldest_goes_first_with_those_of_nearest_length():
    async def ask():
        model, batcher = Notes(is_open=False), Batcher(BATCHING)
        first = asyncio.ensure_future(
            batcher.run(model, "plain", rows("x", "x", "x"))
        )
        await begun(model)
        others = [
            asyncio.ensure_future(batcher.run(model, "plain", rows(text)))
            for text in ("12345", "1", "1234567", "1234", "123")
        ]
        await asyncio.sleep(0.05)
        model.gate.set()
        await asyncio.gather(first, *others)
        return model.batches

    _, second, third = asyncio.run(ask())
    # 5, and of 1, 7, 4 and 3 the nearest: 4, then 7 before 3, being older.
    assert second == [b"12345", b"1234", b"1234567"]
    assert third == [b"1", b"123"]


def test_a_large_request_comes_back_in_order_and_lets_others_between():
    texts = [f"{i:0{1 + i % 5}d}" for i in range(17)]

    async def ask():
        model, batcher = Notes(is_open=False), Batcher(BATCHING)
        large = asyncio.ensure_future(batcher.run(model, "plain", rows(*texts)))
        await begun(model)
        small = asyncio.ensure_future(batcher.run(model, "plain", rows("me")))
        await asyncio.sleep(0.05)
        model.gate.set()
        await small
        done_before = large.done()
        return model.batches, await large, done_before

    batches, found, done_before = asyncio.run(ask())
    assert found["text"].tolist() == [text[::-1].encode() for text in texts]
    assert found["length"].tolist() == [len(text) for text in texts]
    assert b"me" in batches[1] and not done_before
    assert max(map(len, batches)) == 3


def test_a_request_beyond_the_room_is_refused_and_the_room_comes_back():
    async def ask():
        # Room for two batches that wait and one in work: nine texts.
        model, batcher = Notes(is_open=False), Batcher(BATCHING)
        held = [
            asyncio.ensure_future(batcher.run(model, "plain", rows(*texts)))
            for texts in ("ab", "ab", "ab", "a", "b")
        ]
        await begun(model)
        with pytest.raises(RefusalError):
            await batcher.run(model, "plain", rows("a", "b"))
        last = asyncio.ensure_future(batcher.run(model, "plain", rows("a")))
        await asyncio.sleep(0)
        assert batcher.taken == 9
        model.gate.set()
        await asyncio.gather(*held, last)
        assert batcher.taken == 0
        await batcher.run(model, "plain", rows("a", "b"))

    asyncio.run(ask())


def test_a_client_that_leaves_is_not_translated_and_frees_its_place():
    async def ask():
        model, batcher = Notes(is_open=False), Batcher(BATCHING)
        first = asyncio.ensure_future(
            batcher.run(model, "plain", rows("a", "b", "c"))
        )
        await begun(model)
        leaving = asyncio.ensure_future(
            batcher.run(model, "plain", rows("left", "too"))
        )
        await asyncio.sleep(0.05)
        assert batcher.taken == 5
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert batcher.taken == 3
        model.gate.set()
        await first
        await batcher.run(model, "plain", rows("next"))
        return model.batches

    assert asyncio.run(ask()) == [[b"a", b"b", b"c"], [b"next"]]


def test_a_batch_that_fails_leaves_the_server_whole():
    async def ask():
        model, batcher = Notes(), Batcher(BATCHING)
        with pytest.raises(ValueError, match="what a model says"):
            await batcher.run(model, "plain", rows("bad", *"abcdefg"))
        assert batcher.taken == 0
        return await batcher.run(model, "plain", rows("good"))

    assert asyncio.run(ask())["text"].tolist() == [b"doog"]


def test_a_text_that_the_model_fails_on_fails_nobody_else():
    async def ask():
        batcher = Batcher(BATCHING)
        model = Notes()
        return await asyncio.gather(
            *(
                batcher.run(model, "plain", rows(text))
                for text in ("one", "bad", "two")
            ),
            return_exceptions=True,
        )

    one, bad, two = asyncio.run(ask())
    assert one["text"].tolist() == [b"eno"]
    assert isinstance(bad, ValueError)
    assert two["text"].tolist() == [b"owt"]


def test_a_padded_answer_tells_nothing_of_other_clients():
    async def ask():
        model, batcher = Notes(), Batcher(BATCHING)
        return await asyncio.gather(
            batcher.run(model, "matrix", rows("\1", "\1\2")),
            batcher.run(model, "matrix", rows("\1\2\3\4\5\6\7")),
            batcher.run(model, "matrix", rows("\1", *["\1\2"] * 3, "\1\2\3")),
        )

    short, long, several = asyncio.run(ask())
    assert short["codes"].tolist() == [[1, 0], [1, 2]]
    assert long["codes"].tolist() == [[1, 2, 3, 4, 5, 6, 7]]
    # As one batch would have padded it, though they were two.
    assert several["codes"].tolist() == [
        [1, 0, 0],
        *[[1, 2, 0]] * 3,
        [1, 2, 3],
    ]


def test_no_text_has_no_answers_of_the_right_shape():
    async def ask():
        return await Batcher(BATCHING).run(Notes(), "matrix", [])

    assert asyncio.run(ask())["codes"].shape == (0, 0)
