"""Posting over one kept connection: what goes over the wire, and what a server may do to it."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from editloupe.backends.direct import Connection, ConnectTimeout

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def server(*answers: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that gives an answer a connection, then closes it; and the requests of closed connections."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests: list[bytes] = []

    def serve() -> None:
        for answer in answers:
            with listener.accept()[0] as sock:
                request = b""
                while not request.endswith(b"}"):
                    request += sock.recv(2**16)
                sock.sendall(answer)
            requests.append(request)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], requests
    finally:
        thread.join(5)
        listener.close()


def connection(port: int) -> Connection:
    return Connection(
        "127.0.0.1",
        port,
        "/v1/chat/completions",
        certificates=None,
        connect_s=5,
        timeout_s=5,
        read_whole=lambda chunks, began: b"".join(chunks),
    )


def test_a_body_in_pieces_goes_out_whole_and_a_connection_that_was_closed_is_opened_again():
    # More pieces than the kernel takes at once, and one that no buffer of a socket holds.
    pieces = [b'{"a":"', *[b"0123456789"] * 2000, b"", b"x" * 8_000_000, b'"}']
    with server(ANSWER, ANSWER) as (port, requests):
        line = connection(port)
        for number in (1, 2):
            answer = line.post(pieces, {"Content-Type": "application/json"})
            assert (answer.status, answer.content) == (200, b"{}")
            while len(requests) < number:
                time.sleep(0.01)
        line.close()
    for request in requests:
        head, _, body = request.partition(b"\r\n\r\n")
        assert body == b"".join(pieces)
        assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
        # 6 + 20,000 + 8,000,000 + 2.
        assert b"\r\nContent-Length: 8020008" in head and b"\r\nContent-Type: application/json" in head


def test_half_an_answer_is_none():
    with (
        server(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}") as (port, _),
        pytest.raises(http.client.IncompleteRead),
    ):
        connection(port).post([b"{}"], {})


def test_an_answer_in_chunks_is_one_body():
    chunked = b'HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n'
    with server(chunked) as (port, _):
        line = connection(port)
        answer = line.post([b"{}"], {})
        line.close()
    assert (answer.status, answer.content) == (500, b'{"a":1}')


def test_a_connection_that_does_not_come_about_in_time_says_so(monkeypatch: pytest.MonkeyPatch):
    def connect(*_: object, **__: object) -> socket.socket:
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(ConnectTimeout):
        connection(9).post([b"{}"], {})
