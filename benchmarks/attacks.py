"""Let one client attack the embedded server while another asks properly.

Starts `keras-transformer serve` and attacks it in one way after another, some
seconds each: requests that are cheap to send and dear to read. Meanwhile a
proper client asks for one short text after another, and a second for a
document. The table says how long they had to wait, how many requests were not
answered with 200, and the server's memory at its peak.

Example:
    PYTHONPATH=. python benchmarks/attacks.py --export exported/demo
"""

import asyncio
import contextlib
import json
import pathlib
import re
import signal
import statistics
import sys
import time
from urllib.parse import urlsplit

import httpx
from measuring import memory, parser_of, print_head, print_row
from serving import NAME, Server

MEGABYTE = 1 << 20
SENTENCE = "On May 16, 2024 three hundred and two of them came."
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
PARTS = "multipart/form-data"
PREDICT = f"/v1/models/{NAME}:predict"


def post(path: str, kind: str, body: bytes, chunked: bool = False) -> bytes:
    """Write a request."""
    length = f"Content-Length: {len(body)}"
    if chunked:
        body = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        length = "Transfer-Encoding: chunked"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}"
    return f"{head}\r\n{length}\r\n\r\n".encode() + body


def asked(q: str | list[str], languages: dict) -> bytes:
    """Ask LibreTranslate's interface."""
    text = json.dumps({"q": q, **languages}, separators=(",", ":"))
    return post("/translate", JSON, text.encode())


def attacks(languages: dict) -> dict[str, tuple[bytes, int]]:
    """List requests, and over how many connections each comes."""
    same = {**languages, "target": languages["source"]}
    part = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n"
    blank = asked("\n " * 340_000, languages)
    lists = b'{"instances": [' + b"[]," * 340_000 + b"[]]}"
    long = [SENTENCE * 20] * 32
    inputs = {"source": long, "target": long}
    attention = json.dumps({"signature_name": "attention", "inputs": inputs})
    fields = "&".join(f"a{i}=b" for i in range(116_000)).encode()
    return {
        "none": (b"", 0),
        "349,000 empty texts": (asked([""] * 349_000, languages), 1),
        "empty texts, one language": (asked([""] * 349_000, same), 1),
        "lists in lists": (post(PREDICT, JSON, lists), 4),
        "a form of 116,000 fields": (post("/translate", FORM, fields), 4),
        "a form of 20,000 parts": (
            post("/translate", f"{PARTS}; boundary=x", part * 20_000),
            4,
        ),
        "chunks of a byte": (
            post(PREDICT, JSON, b" " * (MEGABYTE // 6), chunked=True),
            4,
        ),
        "answers of megabytes": (post(PREDICT, JSON, attention.encode()), 2),
        "documents of blank lines": (blank, 30),
        "documents of blank lines, more": (blank, 150),
        "documents of 2,000 sentences": (
            asked(f"{SENTENCE}\n" * 2_000, languages),
            10,
        ),
    }


class Proper:
    """A client that asks for one text after another, and its waits."""

    def __init__(self, host: str, text: str, languages: dict) -> None:
        self.host, self.seconds, self.refused = host, [], 0
        self.body = {"q": text, **languages}

    async def run(self) -> None:
        async with httpx.AsyncClient(base_url=self.host, timeout=100) as client:
            while True:
                begun = time.perf_counter()
                try:
                    answer = await client.post("/translate", json=self.body)
                    self.refused += answer.status_code != 200
                except httpx.HTTPError:
                    self.refused += 1
                finally:  # Cancelled, it has waited at least so long.
                    self.seconds.append(time.perf_counter() - begun)
                await asyncio.sleep(0.05)


async def attack(address: tuple, request: bytes) -> None:
    """Send a request again and again, on a connection after another."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(request)
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = re.search(rb"content-length: (\d+)", head, re.I)
                    await reader.readexactly(int(length[1]))
                    writer.write(request)
            except (asyncio.IncompleteReadError, TypeError):
                pass  # It was closed.
            finally:
                writer.transport.abort()
        await asyncio.sleep(0.02)


def begin(coroutines) -> list[asyncio.Future]:
    return [asyncio.ensure_future(each) for each in coroutines]


async def end(tasks: list[asyncio.Future]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def measure(server: Server, seconds: float) -> None:
    """Print a line for each attack."""
    codes = [x["code"] for x in httpx.get(f"{server.host}/languages").json()]
    languages = dict(zip(("source", "target"), codes, strict=True))
    address = urlsplit(server.host).hostname, urlsplit(server.host).port
    print_head(
        *("attack", "connections", "short: median, ms", "longest", "refused"),
        *("document: longest, ms", "refused", "MB"),
    )
    for name, (request, connections) in attacks(languages).items():
        pid = server.process.pid
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
        short = Proper(server.host, SENTENCE, languages)
        document = Proper(server.host, f"{SENTENCE}\n" * 60, languages)
        tasks = begin(attack(address, request) for _ in range(connections))
        await asyncio.sleep(0.5)
        tasks += begin(client.run() for client in (short, document))
        if not connections:
            await asyncio.sleep(5)  # What comes first is traced.
            short.seconds, document.seconds = [], []
        await asyncio.sleep(seconds)
        await end(tasks)
        print_row(
            *(name, connections),
            f"{1_000 * statistics.median(short.seconds):.0f}",
            f"{1_000 * max(short.seconds):.0f}",
            f"{short.refused} of {len(short.seconds)}",
            f"{1_000 * max(document.seconds):.0f}",
            f"{document.refused} of {len(document.seconds)}",
            f"{memory('VmHWM', pid) / 1e6:.0f}",
        )
        await asyncio.sleep(5)  # What is left of the attack ends.
    # The last attack goes on while the server has to end.
    tasks = begin(attack(address, request) for _ in range(connections))
    await asyncio.sleep(2)
    server.process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    await asyncio.to_thread(server.process.wait, 90)
    print(f"\nended {time.monotonic() - begun:.1f} s after SIGTERM")
    await end(tasks)


def main(argv=None) -> int:
    """Run the trial."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--export", type=pathlib.Path, required=True, help="with its versions")
    add("--seconds", type=float, default=10, help="of each attack")
    args = parser.parse_args(argv)
    server = Server(args.export)
    try:
        asyncio.run(measure(server, args.seconds))
    finally:
        server.process.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
