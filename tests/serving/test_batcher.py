"""The queue before the model, with a model that only takes notes."""

import asyncio

import numpy as np
import pytest
from still_model import StillModel
from waiting import until_in_loop

from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.limits import Batching

pytestmark = pytest.mark.anyio


BATCHING = Batching(
    max_batch_size=3,
    batch_timeout_micros=20_000,
    num_batch_threads=1,
    max_enqueued_batches=2,
)


def asking(batcher, model, *texts, signature="plain"):
    """A request under way."""
    rows = [(text.encode(),) for text in texts]
    return asyncio.ensure_future(batcher.run(model, signature, rows))


async def test_texts_of_many_clients_go_together():
    model, batcher = StillModel(), Batcher(BATCHING)
    found = await asyncio.gather(
        *(asking(batcher, model, text) for text in ("ab", "cde"))
    )
    assert model.batches == [[b"ab", b"cde"]]
    said = [answer["translation"].tolist() for answer in found]
    assert said == [[b"ba"], [b"edc"]]


async def test_a_full_batch_does_not_wait_for_company():
    batcher = Batcher(Batching(3, batch_timeout_micros=60_000_000))
    await asyncio.wait_for(asking(batcher, StillModel(), "a", "b", "c"), 20)


async def test_free_threads_share_what_waits():
    batching = Batching(7, batch_timeout_micros=0, num_batch_threads=3)
    model = StillModel()
    await asking(Batcher(batching), model, "a", "b", "c", "d", "e")
    assert sorted(map(len, model.batches)) == [1, 2, 2]


async def test_a_batch_of_long_texts_has_few_of_them():
    model, batcher = StillModel(), Batcher(Batching(7, 0, num_batch_threads=1))
    texts = ["x" * 3_000] * 3 + ["y" * 9_000] * 2 + ["z"] * 5
    await asking(batcher, model, *texts)
    found = [[text[:1] for text in batch] for batch in model.batches]
    # Seven from the shortest on: five of a byte, two of 3,000.
    assert found == [[b"z"] * 5, [b"x"] * 2, [b"x"], [b"y"], [b"y"]]


async def test_a_large_request_comes_back_in_order_and_lets_others_between():
    texts = [f"{i:0{1 + i % 5}d}" for i in range(17)]
    model, batcher = StillModel(is_open=False), Batcher(BATCHING)
    large = asking(batcher, model, *texts)
    await until_in_loop(lambda: model.batches)
    small = asking(batcher, model, "me")
    await asyncio.sleep(0.05)
    model.gate.set()
    await small
    assert b"me" in model.batches[1] and not large.done()
    found = await large
    expected = [text[::-1].encode() for text in texts]
    assert found["translation"].tolist() == expected
    assert found["score"].tolist() == [len(text) for text in texts]
    assert max(map(len, model.batches)) == 3


async def test_a_text_that_the_model_fails_on_fails_nobody_else():
    model, batcher = StillModel(), Batcher(BATCHING)
    one, bad, two = await asyncio.gather(
        *(asking(batcher, model, text) for text in ("one", "bad", "two")),
        return_exceptions=True,
    )
    assert one["translation"].tolist() == [b"eno"]
    assert isinstance(bad, ValueError)
    assert two["translation"].tolist() == [b"owt"]
    assert batcher.taken == 0


async def test_an_output_without_an_axis_of_texts_stops_no_thread():
    model, batcher = StillModel(), Batcher(BATCHING)
    odd = StillModel()
    odd.run = lambda signature, rows: {"size": np.float32(7)}
    for _ in range(2):
        with pytest.raises(IndexError):
            await asking(batcher, odd, "one")
    answer = await asyncio.wait_for(asking(batcher, model, "one"), 20)
    assert answer["translation"].tolist() == [b"eno"]


async def test_a_padded_answer_tells_nothing_of_other_clients():
    model, batcher = StillModel(), Batcher(BATCHING)
    short, long, several = await asyncio.gather(
        *(
            asking(batcher, model, *texts, signature="matrix")
            for texts in (
                ["\1", "\1\2"],
                ["\1\2\3\4\5\6\7"],
                ["\1", *["\1\2"] * 3, "\1\2\3"],
            )
        )
    )
    assert short["codes"].tolist() == [[1, 0], [1, 2]]
    assert long["codes"].tolist() == [[1, 2, 3, 4, 5, 6, 7]]
    # As one batch would have padded it, though they were two.
    expected = [[1, 0, 0], *[[1, 2, 0]] * 3, [1, 2, 3]]
    assert several["codes"].tolist() == expected
