"""Connections that no client can hold open by doing nothing.

Uvicorn waits for ever for the rest of a head and for a client that does not
read. It also drops the request of a client that has closed its sending side,
and reads a body in chunks of a byte each for seconds. No setting changes that,
so this leans on Uvicorn's own protocol, which may change with every version.
"""

import asyncio
import select
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
# How long a client may take to read what waits to be sent.
READ_SECONDS = 30.0
# How long a client that has left may take to refuse what is sent to it.
_REFUSAL_SECONDS = 0.2
# Bytes to read before others have their turn.
_READ_BYTES = 1 << 11
# Each chunk of a body costs as much as reading a thousand bytes of it.
MOST_CHUNKS = 2_048
_TOO_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain; charset=utf-8"
    b"\r\nConnection: close\r\n\r\nThe request did not arrive in time."
)


class _FewChunks(h11.Connection):
    """Refuses a body in too many chunks."""

    _chunks = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = 0
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            if self._chunks > MOST_CHUNKS:
                raise h11.RemoteProtocolError("too many chunks")
        return event


class Connection(H11Protocol):
    """HTTP/1.1 with a time limit for every head and every answer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _FewChunks(h11.SERVER)
        self._deadline: asyncio.TimerHandle | None = None
        self._reader: asyncio.TimerHandle | None = None
        self._is_last = False

    def connection_made(self, transport: Any) -> None:
        transport.max_size = _READ_BYTES  # Asyncio reads 256 KiB otherwise.
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        if self._reader is not None:
            self._reader.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reader = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reader is not None:
            self._reader.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def send_400_response(self, msg: str) -> None:
        # After an answer nothing else can be sent.
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]
        is_begun = bool(self.conn.trailing_data[0])
        if self.conn.their_state is h11.IDLE and is_begun:
            self.send_400_response("Invalid HTTP request received.")
        # A client that has left sends the same end as one that still reads. But
        # its machine refuses what we send, and every client knows "Continue".
        is_waiting = (
            self.conn.their_state is h11.DONE
            and self.conn.our_state is h11.SEND_RESPONSE
            and self.conn.their_http_version == b"1.1"
        )
        if is_waiting:
            self._is_last = True
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.loop.call_later(_REFUSAL_SECONDS, self._leave_if_refused)
        return is_waiting

    def _leave_if_refused(self) -> None:
        file = self.transport.get_extra_info("socket")
        if self.transport.is_closing() or file.fileno() < 0:
            return
        poll = select.poll()
        poll.register(file.fileno(), select.POLLHUP | select.POLLERR)
        if poll.poll(0):
            self.transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_last:
            self.transport.close()
        self._watch()

    def _watch(self) -> None:
        """Start the clock while only the client can go on.

        It owes us a head, or the rest of a body that was answered unread.
        """
        state = self.conn.their_state
        is_answered = self.cycle is not None and self.cycle.response_complete
        if state is h11.IDLE or (state is h11.SEND_BODY and is_answered):
            if self._deadline is None:
                self._deadline = self.loop.call_later(
                    HEAD_SECONDS, self._too_late
                )
        else:
            self._unwatch()

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self.conn.their_state is h11.IDLE:
            self.transport.write(_TOO_LATE)
        self.transport.close()
