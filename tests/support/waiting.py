"""Waiting until something is so, but not for ever."""

import asyncio
import time


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


async def until_in_loop(condition):
    """The same, while the event loop goes on."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.001)
