"""A model of preference behind an address, since its package pins other versions of what editloupe needs.

The protocol is JSON over HTTP. `examples/preference_worker.py` speaks it for HPSv3, in HPSv3's own environment.

    GET  ADDRESS/        → {"model": "HPSv3 1.0.0"}
    POST ADDRESS/score   {"prompt": "", "image": "<PNG, base64>"} → {"model": "HPSv3 1.0.0", "mean": 5.14, "sigma": 1.02}

`model` is part of the judge's identity, and every answer repeats it. Any other status than 200 is a failure, whose body may
be {"error": "what went wrong"}. 503 says that it is not ready, and is tried again.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from editloupe.data.images import RGB, encode_png
from editloupe.errors import ConfigError, ModelAbsent, ToolError, Unavailable
from editloupe.models.preference.base import Preference, Preferred
from editloupe.values import finite, parse_json

TIMEOUT_S: Final = 120.0
"""Of one answer, unless the address ends in ?timeout_s=SECONDS."""
LOOK_S: Final = 10.0
"""Of the look before a run."""
PAUSES_S: Final = (1.0, 4.0)
"""Before a further attempt where nobody answers."""
MAX_BYTES: Final = 2**20
"""A longer answer is no answer."""
_WORKER: Final = (
    "start examples/preference_worker.py in HPSv3's own environment and name its address by --preference or "
    "EDITLOUPE_PREFERENCE (docs/measures.md)"
)


class _NotReady(Unavailable):
    """Nobody answers now, as while a server starts again. An answer that takes too long would take so once more."""


class RemotePreference:
    """A model behind an address. It is asked for its name now. Raises ConfigError where it cannot be asked."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._url, self._timeout_s = _read(address)
        try:
            said = self._answer("GET", "/", None, min(LOOK_S, self._timeout_s), pauses_s=())
        except (Unavailable, ToolError) as error:
            raise ConfigError(f"{error}; {_WORKER}") from error
        model = said.get("model")
        if not isinstance(model, str) or not model.strip():
            raise ConfigError(f'preference {address!r}: expected {{"model": NAME}} from GET /, found {_short(said)}')
        self.version = model.strip()
        self.name = f"{self.version} at {address}"

    def __call__(self, rgb: RGB, prompt: str) -> Preferred:
        body = {"prompt": prompt, "image": base64.b64encode(encode_png(rgb)).decode()}
        said = self._answer("POST", "/score", body, self._timeout_s, pauses_s=PAUSES_S)
        if said.get("model") != self.version:
            raise ToolError(f"preference {self.address!r}: asked {self.version!r}, and {said.get('model')!r} answers")
        mean, sigma = finite(said.get("mean")), finite(said.get("sigma"))
        if mean is None or sigma is None or sigma < 0:
            raise ToolError(f"preference {self.address!r}: expected a finite mean and a sigma from 0, found {_short(said)}")
        return Preferred(mean=mean, sigma=sigma)

    def _answer(
        self, method: str, path: str, body: Mapping[str, str] | None, timeout_s: float, *, pauses_s: tuple[float, ...]
    ) -> dict[str, Any]:
        """Return the JSON object that it answers. Raises Unavailable after the last attempt, and ToolError."""
        for pause_s in pauses_s:
            try:
                return self._once(method, path, body, timeout_s)
            except _NotReady:
                time.sleep(pause_s)
        return self._once(method, path, body, timeout_s)

    def _once(self, method: str, path: str, body: Mapping[str, str] | None, timeout_s: float) -> dict[str, Any]:
        secure = self._url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=timeout_s)
        where = f"preference {self.address!r}"
        until = time.monotonic() + timeout_s
        try:
            sent = None if body is None else json.dumps(body).encode()
            headers = {} if sent is None else {"Content-Type": "application/json"}
            connection.request(method, self._url.path.rstrip("/") + path, sent, headers)
            data = bytearray()
            with connection.getresponse() as reply:
                while chunk := reply.read1(2**16):
                    data += chunk
                    if time.monotonic() > until:
                        raise TimeoutError
                    if len(data) > MAX_BYTES:
                        raise ToolError(f"{where}: its answer is longer than {MAX_BYTES:,} bytes")
                if reply.length:
                    raise http.client.IncompleteRead(bytes(data), reply.length)
        except TimeoutError as error:
            raise Unavailable(f"{where}: no answer within {timeout_s:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise _NotReady(f"{where}: the connection failed ({type(error).__name__}: {error})") from error
        finally:
            connection.close()
        return _object(bytes(data), reply.status, where)


def open_preference(name: str | None, device: str) -> Preference:
    """Return the model behind an address.   device: does not count; the model has its own.

    Raises ModelAbsent where no address was given, and ConfigError where it cannot be asked.
    """
    if name is None:
        raise ModelAbsent(f"it needs a model of preference such as HPSv3: {_WORKER}")
    return _shared(name)


@cache
def _shared(address: str) -> RemotePreference:
    return RemotePreference(address)


def _read(address: str) -> tuple[Any, float]:
    """Return an address, taken apart, and the seconds of one answer. Raises ConfigError."""
    try:
        url = urlsplit(address)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.username is None and url.port != 0
        url.path.encode("ascii"), (url.hostname or "").encode("idna")
        given = parse_qs(url.query, strict_parsing=True) if url.query else {}
        timeout_s = float(given.pop("timeout_s", [str(TIMEOUT_S)])[-1])
    except ValueError:
        usable, given, timeout_s = False, {}, 0.0
    if not usable or given or not 0 < timeout_s <= 86_400:
        raise ConfigError(
            f"preference {address!r}: expected an address such as http://127.0.0.1:8100, or one with ?timeout_s=300"
        )
    return url, timeout_s


def _object(data: bytes, status: int, where: str) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises Unavailable for 503, and ToolError for anything else but an object."""
    try:
        said = parse_json(data)
    except ValueError:
        said = None
    if status == 503:
        raise _NotReady(f"{where}: is not ready (HTTP 503: {_short(said)})")
    if status != 200:
        why = said.get("error") if isinstance(said, dict) else None
        raise ToolError(f"{where}: HTTP {status}: {_short(why or said)}")
    if not isinstance(said, dict):
        raise ToolError(f"{where}: expected a JSON object, found {_short(data.decode(errors='replace'))}")
    return said


def _short(value: object) -> str:
    return repr(value)[:200]
