"""A model in a process of its own, behind an address: one request, one bounded reply. No client library is needed."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from editloupe.errors import ConfigError, ToolError, Unavailable
from editloupe.values import Json, parse_json

TIMEOUT_S: Final = 120.0
"""Of one reply, unless the address ends in ?timeout_s=SECONDS."""
PAUSES_S: Final = (1.0, 4.0)
"""Before a further attempt where nobody answers."""


class NotReady(Unavailable):
    """Nobody answers now, as while a server starts again. A reply that takes too long would take so once more."""


@dataclass(frozen=True, kw_only=True)
class RemoteReply:
    """What a server sent back."""

    status: int
    media_type: str
    """For example "application/json"; "" where it does not say."""
    data: bytes

    def json_object(self) -> dict[str, Any] | None:
        """Return the JSON object of the body; None for any other body."""
        try:
            said = parse_json(self.data)
        except ValueError:
            return None
        return said if isinstance(said, dict) else None

    def told(self) -> str:
        """Return what went wrong, as the server says it: the "error" of its JSON object, else the body."""
        said = self.json_object()
        return short(said["error"] if said and said.get("error") else said or self.data.decode(errors="replace"))


class RemoteModel:
    """An address, checked. Nothing is sent yet.

    what: the beginning of messages, such as "preference".   example: an address for the message.
    Raises ConfigError for what is no address of http or https.
    """

    def __init__(self, what: str, address: str, *, example: str, timeout_s: float = TIMEOUT_S) -> None:
        self.where = f"{what} {address!r}"
        try:
            url = urlsplit(address)
            usable = url.scheme in ("http", "https") and bool(url.hostname) and url.username is None and url.port != 0
            url.path.encode("ascii"), (url.hostname or "").encode("idna")
            given = parse_qs(url.query, strict_parsing=True) if url.query else {}
            timeout_s = float(given.pop("timeout_s", [str(timeout_s)])[-1])
        except ValueError:
            usable, given, timeout_s = False, {}, 0.0
        if not usable or given or not 0 < timeout_s <= 86_400:
            raise ConfigError(f"{self.where}: expected an address such as {example}, or one with ?timeout_s=300")
        self.url, self.timeout_s = url, timeout_s

    @property
    def place(self) -> str:
        """The address without its time-out."""
        return f"{self.url.scheme}://{self.url.netloc}{self.url.path.rstrip('/')}"

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Json] | None,
        *,
        most_bytes: int,
        timeout_s: float | None = None,
        again: bool = True,
    ) -> RemoteReply:
        """Send one request and return the reply, whatever its status but 503.

        path: behind the address.   body: sent as JSON.   most_bytes: of the reply.   timeout_s: of the whole; None for that
        of the address.   again: whether it is sent once more, twice at most, where nobody answers or a server is not ready.
        Raises NotReady after the last attempt, Unavailable for no reply in time, and ToolError for too long a one.
        """
        for pause_s in PAUSES_S if again else ():
            try:
                return self._asked(method, path, body, most_bytes, timeout_s)
            except NotReady:
                time.sleep(pause_s)
        return self._asked(method, path, body, most_bytes, timeout_s)

    def _asked(
        self, method: str, path: str, body: Mapping[str, Json] | None, most_bytes: int, timeout_s: float | None
    ) -> RemoteReply:
        limit = self.timeout_s if timeout_s is None else timeout_s
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.hostname or "", self.url.port, timeout=limit)
        until = time.monotonic() + limit
        try:
            sent = None if body is None else json.dumps(body)
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, self.url.path.rstrip("/") + path, sent, headers)
            data = bytearray()
            with connection.getresponse() as reply:
                while chunk := reply.read1(2**16):
                    data += chunk
                    if time.monotonic() > until:
                        raise TimeoutError
                    if len(data) > most_bytes:
                        raise ToolError(f"{self.where}: its answer is longer than {most_bytes:,} bytes")
                if reply.length:
                    raise http.client.IncompleteRead(bytes(data), reply.length)
                media_type = reply.headers.get_content_type() if reply.headers.get("Content-Type") else ""
                found = RemoteReply(status=reply.status, media_type=media_type, data=bytes(data))
            if found.status == 503:
                raise NotReady(f"{self.where}: is not ready (HTTP 503: {found.told()})")
            return found
        except TimeoutError as error:
            raise Unavailable(f"{self.where}: no answer within {limit:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise NotReady(f"{self.where}: the connection failed ({type(error).__name__}: {error})") from error
        finally:
            connection.close()


def short(value: object) -> str:
    """Return a value as messages quote it."""
    return repr(value)[:200]
