"""The way of a request's texts, whichever interface it came by.

A request is let in, read, split into sentences, translated while its client
waits, and forgotten. What takes longer the more a client sends is done in
threads of its own, never on the event loop: reading JSON and forms, finding
sentences, placing tags, writing answers.

A model translates sentences and cuts those beyond its limit. So a text is split
into lines and sentences, and a sentence that would still be cut is halved until
it fits. Blank lines, indentation and the space between sentences stay.
"""

import asyncio
import dataclasses
import json
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from keras_transformer.config import UserError
from keras_transformer.data.languages import words_of
from keras_transformer.serving.batcher import Batcher
from keras_transformer.serving.limits import AGAIN, CLOSE, Limits, RefusalError
from keras_transformer.serving.versions import (
    DEFAULT_SIGNATURE,
    Row,
    ServedModel,
    Versions,
    card_of,
)
from keras_transformer.translation.alignment import word_links
from keras_transformer.translation.sentences import Sentence, Splitter, tag_of
from keras_transformer.translation.terms import marker

T = TypeVar("T")

# Bytes of a body that is read within milliseconds, whatever it holds.
_SHORT = 2_048
# A text is at most an object with two names, each with an object in base64.
_VALUES_PER_TEXT = 5
_VALUES_BESIDE = 64


@dataclasses.dataclass
class Service:
    """A model that is served, by its name for clients."""

    name: str
    versions: Versions
    batcher: Batcher
    limits: Limits
    # Turns a text into the HTML document of its explanation by weights of the
    # name given; raises `UserError` if it has others. None without a run.
    explain: Callable[[str, str], str] | None = None
    # Other sites whose pages may ask, and names of this server; "*" for any.
    origins: Sequence[str] = ()
    hosts: Sequence[str] = ("*",)
    # Bytes of the bodies that are arriving or being worked on.
    held: int = 0
    # Threads for what takes longer the more a client sends.
    readers: ThreadPoolExecutor = dataclasses.field(
        default_factory=lambda: ThreadPoolExecutor(4, "reader")
    )

    async def answer(
        self, request: Request, work: Callable[["Job"], Awaitable[dict]]
    ) -> Response:
        """Answer a body in JSON; cancel work that nobody needs any more."""
        job = Job(self, request)
        try:
            await job.receive()
            job.model = self.versions.current
            content = await self.unless_gone(request, work(job))
            return await job.apart(json_response, content)
        finally:
            self.held -= len(job.body)

    async def unless_gone(self, request: Request, work: Awaitable[T]) -> T:
        """Do work for a request that has been read, as `answer` does."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_left(request))
        seconds, first = self.limits.timeout, asyncio.FIRST_COMPLETED
        try:
            await asyncio.wait({task, gone}, timeout=seconds, return_when=first)
            if task.done():
                return task.result()
            if gone.done():
                raise RefusalError("The client has left.", 499)
            why = f"No answer within {seconds:g} s; send less at a time."
            raise RefusalError(why, 504)
        finally:
            task.cancel()
            gone.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@dataclasses.dataclass
class Job:
    """A request that was let in."""

    service: Service
    request: Request  # Its head.
    body: bytearray = dataclasses.field(default_factory=bytearray)
    # The version that works on it until it is answered.
    model: ServedModel = dataclasses.field(init=False)
    # Whether work on it may take so long that others must not wait for it.
    is_long: bool = False
    # What words of its texts become, as it says itself.
    terms: Any = None

    @property
    def splitter(self) -> Splitter:
        """What finds sentences; `RefusalError` without a card."""
        return card_of(self.model).splitter

    def marker(self) -> Callable[[str], str]:
        """What marks a sentence; `RefusalError` of terms that make no sense."""
        card, (language, _) = card_of(self.model), self.splitter.languages
        try:
            return marker(self.terms, language, card.terms)
        except UserError as error:
            raise RefusalError(str(error)) from None

    async def receive(self) -> None:
        """Read the body, within limits of size, time and number."""
        seconds = self.service.limits.body_seconds
        try:
            await asyncio.wait_for(self._read(), seconds)
        except asyncio.TimeoutError:
            why = "The body of the request did not arrive in time."
            raise RefusalError(why, 408, CLOSE) from None
        except ClientDisconnect:
            raise RefusalError("The client has left.", 499) from None
        query = self.request.scope["query_string"]
        self.is_long = len(self.body) + len(query) > _SHORT

    async def _read(self) -> None:
        service, limits = self.service, self.service.limits
        async for part in self.request.stream():
            self.body += part
            service.held += len(part)
            if (size := len(self.body)) > limits.max_body_bytes:
                most = f"at most {limits.max_body_bytes} bytes at a time"
                raise RefusalError(f"Send {most}, received more.", 413)
            if size > _SHORT and service.held > limits.max_bytes_held:
                busy = "Too many long texts are being read; try again."
                raise RefusalError(busy, 503, AGAIN | CLOSE)

    def check_texts(self, count: int, what: str = "") -> None:
        """Refuse more texts, or more of `what`, than a request may have."""
        if count > (most := self.service.limits.max_texts):
            asked = f"request ({f'{count} {what}'.strip()})"
            why = f"Invalid request: {asked} exceeds text limit ({most})"
            raise RefusalError(why)

    async def apart(self, work: Callable[..., T], *inputs: Any) -> T:
        """Do work in a thread, or at once if the request is short."""
        if not self.is_long:
            return work(*inputs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.service.readers, work, *inputs)

    def as_json(self) -> dict[str, Any]:
        """Read the body as a JSON object of no more values than texts need."""
        most = _VALUES_PER_TEXT * self.service.limits.max_texts + _VALUES_BESIDE
        try:
            encoding = json.detect_encoding(self.body)
            text = self.body.decode(encoding, "surrogatepass")
            # One of these stands before each value. Strings are left out, and
            # before that the quotes inside them.
            bare = text.replace("\\\\", "").replace('\\"', "").split('"')[::2]
            if sum(map("".join(bare).count, ",[{")) > most:
                why = f"Expected JSON of at most {most} values, received more."
                raise RefusalError(why)
            fields = json.loads(text)
        except (ValueError, RecursionError):
            raise RefusalError("Expected UTF-8 JSON, cannot read it.") from None
        if not isinstance(fields, dict):
            raise RefusalError("Expected a JSON object.")
        return fields

    async def search(
        self, texts: Sequence[str], count: int = 1, tags: Sequence[str] = ()
    ) -> list[list[Sentence]]:
        """Translate sentence by sentence, halving what the model cuts.

        A text without a tag of its own gets that of `tags`. Return the
        sentences of each text, each with at most `count` hypotheses.
        """
        model, halves = self.model, self.splitter.halves
        mark = await self.apart(self.marker)
        results: list[list[Sentence]] = [[] for _ in texts]
        signature, names = DEFAULT_SIGNATURE, ("translation", "score")
        if count > 1 and "n_best" in model.signatures:
            signature, names = "n_best", ("translations", "scores")

        def sort_out(
            part: Sentence, answers: list, scores: list, is_cut: bool
        ) -> list[Sentence]:
            """Keep a sentence, or return its halves to translate."""
            if is_cut and (two := halves(part.text, part.span)):
                return [dataclasses.replace(part, span=half) for half in two]
            # Texts of other bytes may be equal once they are decoded.
            hypotheses: dict[str, float] = {}
            for answer, score in zip(answers, scores, strict=True):
                said = answer.decode("utf-8", "replace")
                if not hypotheses or math.isfinite(score):  # Some are missing.
                    hypotheses.setdefault(said, score)
            part.hypotheses = [*hypotheses.items()]
            results[part.number].append(part)
            return []

        def row_of(part: Sentence) -> Row:
            return ((part.tag + mark(part.source)).encode(),)

        waiting = await self.apart(list[Sentence], self._split(texts, tags))
        while waiting:
            rows: list[Row] = await self.apart(list, map(row_of, waiting))
            outputs = await self.service.batcher.run(model, signature, rows)
            columns = (outputs[x].reshape(len(rows), -1) for x in names)
            answers, scores = (x[:, :count].tolist() for x in columns)
            is_cut = outputs["truncated"].tolist()
            sorting = map(sort_out, waiting, answers, scores, is_cut)
            cut: list[list[Sentence]] = await self.apart(list, sorting)
            waiting = [half for two in cut for half in two]
        return [sorted(sentences) for sentences in results]

    def _split(self, texts: Sequence, tags: Sequence) -> Iterator[Sentence]:
        count = 0
        for number, text in enumerate(texts):
            tag = tag_of(text) or (tags[number] if tags else "")
            for span in self.splitter.spans(text):
                count += 1
                self.check_texts(count, "sentences or more")
                yield Sentence(number, text, span, tag)

    async def link(
        self, sentences: Sequence[Sentence], as_read: Callable[[str], str] = str
    ) -> None:
        """Find which words of each sentence belong together, where known.

        `as_read` writes texts as the model reads them, of as many words.
        """
        batcher, model = self.service.batcher, self.model
        if "attention" not in model.signatures:
            return
        languages = self.splitter.languages

        def put(sentence: Sentence, *of_pieces: Any) -> None:
            source, best = as_read(sentence.source), as_read(sentence.best)
            pair = sentence.tag + source, best
            links = word_links(pair, languages, *of_pieces)
            first = len(words_of(sentence.tag, languages[0]))
            moved = [(x - first, y) for x, y in links or () if x >= first]
            sentence.links = links and moved

        # The matrices of a document take much memory: one batch at a time.
        size = batcher.batching.max_batch_size
        for start in range(0, len(sentences), size):
            part = sentences[start : start + size]
            rows = [
                ((x.tag + as_read(x.source)).encode(), as_read(x.best).encode())
                for x in part
            ]
            outputs = await batcher.run(model, "attention", rows)
            names = "source_pieces", "target_pieces", "attention"
            columns = [outputs[name] for name in names]
            await self.apart(list, map(put, part, *columns))

    def join(self, text: str, parts: Sequence[Sentence], rank: int = 1) -> str:
        """Join the translations of a text, of each sentence its `rank`-th."""
        spans = [part.span for part in parts]
        said = [part.hypotheses[:rank][-1][0] for part in parts]
        return "".join(self.splitter.pieces(text, spans, said))


def json_response(
    content: Any, status: int = 200, headers: Any = None
) -> Response:
    """Answer in JSON, which may hold arrays of a model."""

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if value.ndim > 1:  # A row at a time: NumPy stops all other threads.
            return list(value)
        if value.dtype.kind == "f":
            # The shortest decimals leave out the digits that float64 adds.
            value = value.astype("U").astype("float64")
        return value.tolist()

    text = json.dumps(content, ensure_ascii=False, default=plain)
    encoded = text.encode("utf-8", "replace")
    return Response(encoded, status, headers, "application/json")


def scalar_text(text: str) -> str:
    r"""Drop lone surrogates, which JSON's \ud800 may leave."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
