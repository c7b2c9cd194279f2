"""JSON posted over one kept HTTP/1.1 connection, without a proxy: what a question with pictures costs beside its bytes.

A general HTTP client takes several times as much of the interpreter for a call, and wants the body in one piece. A body
here is a list of pieces: pictures go from where they lie into the socket.
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_PIECES: Final = 512
"""Most pieces in one call of the kernel, which takes 1024."""
_CHUNK: Final = 2**16


class ConnectTimeout(TimeoutError):
    """No connection came about in time."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server answered."""

    status: int
    headers: Sequence[tuple[str, str]]
    content: bytes


class Connection:
    """One connection to one address, for one caller at a time. It opens with the first call, and again where it was closed.

    host, port, path: of the URL, as they go over the wire.   certificates: for https; None for http.
    connect_s, timeout_s: seconds for the connection, and for each wait after it.
    read_whole: makes one body of the chunks of an answer to a call that began then (`time.monotonic`), or raises.
    """

    def __init__(
        self,
        host: str,
        port: int,
        path: str,
        *,
        certificates: ssl.SSLContext | None,
        connect_s: float,
        timeout_s: float,
        read_whole: Callable[[Iterable[bytes], float], bytes],
    ) -> None:
        if certificates is None:
            self._http = http.client.HTTPConnection(host, port, timeout=connect_s)
        else:
            self._http = http.client.HTTPSConnection(host, port, timeout=connect_s, context=certificates)
        self._path, self._timeout_s, self._read_whole = path, timeout_s, read_whole

    def post(self, pieces: Sequence[bytes], headers: Mapping[str, str]) -> Answer:
        """Post a body in pieces and return the answer, whatever its status. No redirect is followed.

        Where that fails it is closed. Raises ConnectTimeout, OSError, http.client.HTTPException, what `read_whole` raises.
        """
        began = time.monotonic()
        try:
            self._open()
            self._http.putrequest("POST", self._path)
            for name, value in headers.items():
                self._http.putheader(name, value)
            self._http.putheader("Content-Length", str(sum(map(len, pieces))))
            self._http.endheaders()
            _send(self._http.sock, pieces)
            response = self._http.getresponse()
            content = self._read_whole(iter(lambda: response.read1(_CHUNK), b""), began)
            if response.length:
                raise http.client.IncompleteRead(content, response.length)
            # Only then is the connection free for the next call.
            response.close()
            return Answer(status=response.status, headers=response.getheaders(), content=content)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _open(self) -> None:
        sock: socket.socket | None = self._http.sock
        if sock is not None and _readable(sock):
            # Nobody was asked: the server has closed it.
            self.close()
            sock = None
        if sock is None:
            try:
                self._http.connect()
            except TimeoutError as error:
                raise ConnectTimeout(str(error)) from error
            self._http.sock.settimeout(self._timeout_s)


def _readable(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _send(sock: socket.socket, pieces: Sequence[bytes]) -> None:
    if isinstance(sock, ssl.SSLSocket):
        for piece in pieces:
            sock.sendall(piece)
        return
    left = [memoryview(piece) for piece in pieces if piece]
    while left:
        sent = sock.sendmsg(left[:_PIECES])
        while left and sent >= len(left[0]):
            sent -= len(left.pop(0))
        if sent:
            left[0] = left[0][sent:]
