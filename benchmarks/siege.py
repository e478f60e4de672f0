"""Besiege the embedded server: 64 clients, a tenth of their requests hostile.

Exports a run and starts `keras-transformer serve`. The clients ask for one text
after another by all three interfaces, first alone, then with one hostile
request to nine proper ones:

- documents of a megabyte whose sender hangs up, or that have too many lines;
- bodies and heads that trickle in, or never come to their end;
- clients that do not read, names and origins of other hosts, broken JSON, HTML
  of many attributes and depths;
- versions in the folder that are none.

Every proper answer is compared with `Translator`; where rounding in other
company has chosen between two that score alike, that is counted apart. In the
end SIGTERM comes in the middle of requests, none of which may be lost.

Exits with 1 where a proper request was not answered rightly, or was lost.

Example:
    PYTHONPATH=. python benchmarks/siege.py --run-dir runs/tiny \
        --sentences multi30k/test_2016_flickr.en
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from urllib.parse import urlsplit

import httpx
import numpy as np
from measuring import json_of, parser_of, print_head, print_row
from serving import NAME, Server

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

PREDICT = f"/v1/models/{NAME}:predict"
# Two translations that differ by less in their score are as good.
TIE = 1e-3
# A request that ends sooner came to a connection that was being closed, before
# the server had read it.
UNREAD_SECONDS = 0.02


def parse_args(argv=None) -> argparse.Namespace:
    """Read the command line."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--run-dir", type=pathlib.Path, required=True, help="a trained run")
    add("--sentences", type=pathlib.Path, help="a file, a sentence a line")
    add("--requests", type=int, default=10_000, help="of each of two rounds")
    add("--clients", type=int, default=64)
    add("--share", type=float, default=0.1, help="of hostile requests")
    add("--minutes", type=float, default=10, help="of the siege, at least")
    add("--seed", type=int, default=1)
    add("--alone", help=argparse.SUPPRESS)  # In a process of its own.
    return parser.parse_args(argv)


def languages(run_dir: pathlib.Path) -> dict[str, str]:
    """Return the languages to ask LibreTranslate's interface with."""
    config = json.loads((run_dir / "config.json").read_text())
    return {side: config[f"{side}_lang"] for side in ("source", "target")}


class Siege:
    """Clients of a server, and what became of their requests.

    Args:
        server: The server.
        exported: Folder of the versions.
        expected: The translation of each sentence.
        args: The command line.
    """

    def __init__(self, server, exported, expected, args) -> None:
        self.server, self.exported = server, exported
        self.expected, self.args = expected, args
        self.sentences = list(expected)
        self.languages = languages(args.run_dir)
        self.address = (
            urlsplit(server.host).hostname,
            urlsplit(server.host).port,
        )
        self.draw = random.Random(args.seed)
        self.seconds: list[float] = []
        self.wrong: list[tuple[str, str]] = []
        self.failures: Counter[str] = Counter()
        self.hostile: Counter[str] = Counter()
        self.unread = 0
        self._sieges: set[asyncio.Task] = set()

    async def run(self, requests: int, share: float, minutes: float) -> float:
        """Send proper requests and a share of hostile ones; minutes taken."""
        self.seconds, self._left = [], requests
        begun = time.monotonic()
        self._end = begun + 60 * minutes
        await asyncio.gather(
            *(self._client(share) for _ in range(self.args.clients))
        )
        for siege in self._sieges:
            siege.cancel()
        await asyncio.gather(*self._sieges, return_exceptions=True)
        return (time.monotonic() - begun) / 60

    async def _client(self, share: float) -> None:
        async with httpx.AsyncClient(
            base_url=self.server.host, timeout=120
        ) as client:
            while self._left > 0 or time.monotonic() < self._end:
                self._left -= 1
                if self.draw.random() < share:
                    siege = asyncio.ensure_future(self._attack())
                    self._sieges.add(siege)
                    siege.add_done_callback(self._sieges.discard)
                else:
                    await self._ask(client)

    async def _ask(self, client: httpx.AsyncClient) -> None:
        """Ask as a proper client does, and look at the answer."""
        texts = self.draw.sample(self.sentences, 2)
        found: list[str] = []
        begun = time.monotonic()
        try:
            match self.draw.randrange(3):
                case 0:
                    body = {"instances": texts[:1]}
                    answer = await client.post(PREDICT, json=body)
                    rows = answer.raise_for_status().json()["predictions"]
                    found = [row["translation"] for row in rows]
                case 1:
                    body = {"q": texts, **self.languages}
                    answer = await client.post("/translate", json=body)
                    found = answer.raise_for_status().json()["translatedText"]
                case _:
                    body = {"text": texts[0]}
                    answer = await client.post("/api/translate", json=body)
                    found = [answer.raise_for_status().json()["translation"]]
        except httpx.HTTPStatusError as error:
            self.failures[str(error.response.status_code)] += 1
            return
        except httpx.HTTPError as error:
            is_unread = time.monotonic() - begun < UNREAD_SECONDS
            if isinstance(error, httpx.ConnectError) or is_unread:
                self.unread += 1
                raise
            self.failures[type(error).__name__] += 1
            return
        self.seconds.append(time.monotonic() - begun)
        for text, translation in zip(texts, found, strict=False):
            if translation != self.expected[text]:
                self.wrong.append((text, translation))

    async def _attack(self) -> None:
        attacks = [
            self._abandoned,
            self._many_lines,
            self._slow_body,
            self._half_head,
            self._unread,
            self._foreign,
            self._broken,
            self._html,
            self._odd_version,
        ]
        attack = self.draw.choice(attacks)
        self.hostile[attack.__name__.strip("_")] += 1
        with contextlib.suppress(OSError, httpx.HTTPError):
            await attack()

    @contextlib.asynccontextmanager
    async def _line(self):
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    def _post(self, path: str, body: bytes, length: int | None = None) -> bytes:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {length or len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _document(self, text: str) -> bytes:
        return json.dumps(
            {"q": text, **self.languages}, ensure_ascii=False
        ).encode()

    async def _abandoned(self) -> None:
        async with self._line() as (_, writer):
            body = self._document("“" * 340_000)
            writer.write(self._post("/translate", body))
            await writer.drain()
            await asyncio.sleep(0.1)

    async def _many_lines(self) -> None:
        async with self._line() as (reader, writer):
            body = self._document("a\n" * 300_000)
            writer.write(self._post("/translate", body))
            await reader.read()

    async def _slow_body(self) -> None:
        async with self._line() as (reader, writer):
            writer.write(self._post(PREDICT, b"", 1_000))
            while not reader.at_eof() and not writer.is_closing():
                writer.write(b" ")
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(reader.read(1 << 16), 4)

    async def _half_head(self) -> None:
        async with self._line() as (reader, writer):
            writer.write(b"GET /languages HTTP/1.1\r\nHost: ")
            await reader.read()

    async def _unread(self) -> None:
        async with self._line() as (_, writer):
            body = {"inputs": self.draw.sample(self.sentences, 8)}
            body["signature_name"] = "n_best"
            for _ in range(3):
                writer.write(self._post(PREDICT, json.dumps(body).encode()))
            await asyncio.sleep(20)

    async def _foreign(self) -> None:
        headers = self.draw.choice(
            [
                {"Host": "evil.example", "Origin": "http://evil.example"},
                {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
            ]
        )
        async with httpx.AsyncClient(base_url=self.server.host) as client:
            answer = await client.get("/explain?text=a", headers=headers)
        assert answer.status_code in (400, 403)

    async def _broken(self) -> None:
        body = self.draw.choice(
            [b"[" * 500_000, b'{"q": "\\ud83d', b"\xff\0", b'{"inputs": 7}']
        )
        async with self._line() as (reader, writer):
            writer.write(self._post(PREDICT, body))
            writer.write_eof()
            await reader.read()

    async def _html(self) -> None:
        text = self.draw.choice(
            [
                "<a " + " ".join(f"x{i}" for i in range(18_000)) + ">a</a>",
                "<b>" * 200 + "a " * 200,
                "<i></i>" * 18_000 + "a",
            ]
        )
        fields = {"q": text, "format": "html", **self.languages}
        async with self._line() as (reader, writer):
            writer.write(self._post("/translate", json.dumps(fields).encode()))
            await asyncio.wait_for(reader.read(), 60)

    async def _odd_version(self) -> None:
        number = 2 + self.draw.randrange(10**6)
        folder = self.exported / str(number)
        folder.mkdir()
        (folder / "model_card.json").write_text('{"scores": null}')
        (folder / "saved_model.pb").write_bytes(self.draw.randbytes(999))
        await asyncio.sleep(5)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    async def end(self) -> int:
        """Send SIGTERM among requests; count the answers."""
        self.seconds, self.unread = [], 0
        self._left, self._end = 10**9, float("inf")
        clients = [
            asyncio.ensure_future(self._client(0))
            for _ in range(self.args.clients)
        ]
        await asyncio.sleep(3)
        self.server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*clients, return_exceptions=True)
        return len(self.seconds)


def alone(args: argparse.Namespace) -> None:
    """Write each sentence's translation, and the score of those given."""
    from keras_transformer.run import Run

    translator = Run(args.run_dir).translator()
    asked = json.loads(pathlib.Path(args.alone).read_text())
    if isinstance(asked[0], str):
        found = translator.translate(asked)
    else:
        found = translator.score(*zip(*asked, strict=True))
    print(json.dumps(found))


def ask_alone(args: argparse.Namespace, asked: list) -> list:
    """Call `alone` in a process of its own, which then frees its memory."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(asked, file)
        file.flush()
        flags = ["--run-dir", args.run_dir, "--alone", file.name]
        return json_of(__file__, *flags)


async def besiege(siege: Siege, args: argparse.Namespace) -> bool:
    """Print what happens; whether all proper requests were answered rightly."""
    await siege.run(1_000, 0, 0)
    print_head(
        *("round", "proper", "hostile", "minutes"),
        *("50 %, ms", "95 %", "99 %", "MB"),
    )
    for name, share, minutes in (
        ("proper alone", 0.0, 0.0),
        ("besieged", args.share, 1.0),
        ("besieged on", args.share, args.minutes - 1),
    ):
        before = siege.hostile.total()
        requests = args.requests if name != "besieged" else 0
        took = await siege.run(requests, share, minutes)
        percentiles = np.percentile(siege.seconds, [50, 95, 99]) * 1_000
        print_row(
            name,
            f"{len(siege.seconds):,}",
            f"{siege.hostile.total() - before:,}",
            f"{took:.1f}",
            *(f"{milliseconds:.0f}" for milliseconds in percentiles),
            f"{siege.server.megabytes():.0f}",
        )
    before = dict(siege.failures)
    siege.failures.clear()
    answered = await siege.end()
    code = siege.server.process.wait(60)
    print(f"\nhostile: {dict(siege.hostile)}")
    print(f"proper, not answered with 200: {before}")
    print(
        f"at SIGTERM {answered} answered, {siege.unread} came when the "
        f"connection was closed, {dict(siege.failures)} otherwise, exit code "
        f"{code}"
    )
    return not before and not siege.failures


def main(argv=None) -> int:
    """Run the siege."""
    args = parse_args(argv)
    if args.alone:
        alone(args)
        return 0
    from keras_transformer.run import Run

    lines = args.sentences.read_text("utf-8").splitlines()
    lines = list(dict.fromkeys(lines))
    expected = dict(zip(lines, ask_alone(args, lines), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        exported = pathlib.Path(folder, NAME)
        Run(args.run_dir).export(exported)
        siege = Siege(Server(exported), exported, expected, args)
        is_well = asyncio.run(besiege(siege, args))
    ties = 0
    if siege.wrong:
        other = ask_alone(args, siege.wrong)
        own = ask_alone(
            args, [(text, expected[text]) for text, _ in siege.wrong]
        )
        ties = sum(abs(a - b) < TIE for a, b in zip(own, other, strict=True))
    print(f"other than alone: {len(siege.wrong)}, of which {ties} score alike")
    return 0 if is_well and ties == len(siege.wrong) else 1


if __name__ == "__main__":
    sys.exit(main())
