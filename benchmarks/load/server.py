"""A chat completions server that answers after a fixed time, in a process of its own. Standard library only.

It plays one dialogue: a call of zoom_in in each turn but the last, then a label; a model of the name LOOKS first calls
localize_differences. Which turn it is, it sees by the replies that a request holds. With faults it goes wrong on purpose,
and counts how often each request came.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import multiprocessing
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

CALLS = 3
"""In one dialogue."""

FAULTS = ("rate limit", "rate limit with a wait", "HTTP 500", "reset", "hang", "cut JSON", "empty")

LOOKS = "looks"
"""The name of a model that first asks where the pictures differ."""

_CALL = """<tool_call>
{"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [%d, 100, 400, 400]}}
</tool_call>"""
_LOCALIZE = """<tool_call>
{"name": "localize_differences", "parameters":
 {"comparison_image_1": "Original Image", "comparison_image_2": "Edited Image"}}
</tool_call>"""
_LABEL = "<Start Thinking>ok</Start Thinking><Start Final Answer>Flawless Execution</Start Final Answer>"
_REPLIES = (b'"role":"assistant"', b'"role": "assistant"')


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a server saw. asked: for each request, how often it came; only where there are faults.
    first: when the first one came, by the monotonic clock; None for none."""

    calls: int
    asked: list[int]
    first: float | None


class Server:
    """A running server. url: ends in /v1."""

    def __init__(self, url: str, pipe: Connection) -> None:
        self.url, self._pipe = url, pipe

    def seen(self) -> Seen:
        """Since the last time it was asked."""
        self._pipe.send("seen")
        seen = self._pipe.recv()
        assert isinstance(seen, Seen)
        return seen


@contextmanager
def serving(latency: float, *, faults: float = 0.0, seed: int = 0) -> Iterator[Server]:
    """A server for the block. latency: seconds.   faults: share of the requests that go wrong."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, latency, faults, seed), daemon=True)
    process.start()
    try:
        yield Server(f"http://127.0.0.1:{ours.recv()}/v1", ours)
    finally:
        process.terminate()
        process.join()


def _run(pipe: Connection, latency: float, faults: float, seed: int) -> None:
    asyncio.run(_House(latency, faults, seed).serve(pipe))


class _House:
    def __init__(self, latency: float, faults: float, seed: int) -> None:
        self._latency, self._faults = latency, faults
        self._rng = random.Random(seed)
        self._calls = 0
        self._first: float | None = None
        self._asked: Counter[bytes] = Counter()

    async def serve(self, pipe: Connection) -> None:
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, limit=2**26, backlog=1024)
        asyncio.get_running_loop().add_reader(pipe.fileno(), self._tell, pipe)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    def _tell(self, pipe: Connection) -> None:
        pipe.recv()
        asked = list(self._asked.values())
        pipe.send(Seen(calls=self._calls, asked=asked, first=self._first))
        self._calls, self._first = 0, None
        self._asked.clear()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = (line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                body = await reader.readexactly(int(next(lengths, b"content-length:0").split(b":")[1]))
                turn = sum(body.count(reply) for reply in _REPLIES)
                looks = turn == 0 and f'"{LOOKS}"'.encode() in body
                self._calls += 1
                self._first = self._first or time.monotonic()
                fault = None
                if self._faults:
                    self._asked[hashlib.blake2b(body).digest()] += 1
                    fault = self._rng.choice(FAULTS) if self._rng.random() < self._faults else None
                del body
                if not await self._answer(writer, turn, fault, first=_LOCALIZE if looks else ""):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, turn: int, fault: str | None, *, first: str) -> bool:
        """Whether the connection can go on. first: a call in the place of zoom_in; "" for none."""
        if fault in ("rate limit", "rate limit with a wait"):
            # At once, as a gateway does that has not even asked the model.
            wait = "Retry-After: 1\r\n" if fault == "rate limit with a wait" else ""
            return await _send(writer, _failure("slow down"), status="429 Too Many Requests", headers=wait)
        if fault == "hang":
            await asyncio.sleep(3600)
        await asyncio.sleep(self._latency)
        if fault == "HTTP 500":
            return await _send(writer, _failure("it broke"), status="500 Internal Server Error")
        said = "" if fault == "empty" else _LABEL if turn >= CALLS - 1 else first or _CALL % (100 + turn)
        reply = _completion(said)
        if fault == "cut JSON":
            return await _send(writer, reply[: len(reply) // 2])
        if fault == "reset":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{")
            await writer.drain()
            # A linger of 0 s turns the close into a reset.
            peer = writer.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        return await _send(writer, reply)


async def _send(writer: asyncio.StreamWriter, body: bytes, *, status: str = "200 OK", headers: str = "") -> bool:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return True


def _completion(said: str) -> bytes:
    usage = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
    reply = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return json.dumps(reply).encode()


def _failure(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "error", "param": None, "code": None}}).encode()
