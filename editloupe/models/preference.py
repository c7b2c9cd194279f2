"""How much people would like an image: a model such as HPSv3, in a process of its own behind an address.

The protocol is JSON over HTTP. `examples/preference_worker.py` speaks it for HPSv3, in HPSv3's own environment.

    GET  ADDRESS/        → {"model": "HPSv3 1.0.0"}
    POST ADDRESS/score   {"prompt": "", "image": "<PNG, base64>"} → {"model": "HPSv3 1.0.0", "mean": 5.14, "sigma": 1.02}

`model` is part of the judge's identity, and every answer repeats it. Any other status than 200 is a failure, whose body may
be {"error": "what went wrong"}.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import httpx

from editloupe.data.images import RGB, encode_png
from editloupe.errors import ConfigError, ModelAbsent, ToolError, Unavailable
from editloupe.values import finite, parse_json

TIMEOUT_S: Final = 120.0
"""Of one answer."""
_WORKER: Final = (
    "start examples/preference_worker.py in HPSv3's own environment and name its address by --set preference=… or "
    "EDITLOUPE_PREFERENCE (docs/measures.md)"
)


@dataclass(frozen=True, kw_only=True)
class Preferred:
    """How much people would like an image, as a distribution."""

    mean: float
    """Higher is better. Of HPSv3 mostly -5 to 10."""
    sigma: float
    """Standard deviation, in the unit of the mean."""


class Preference:
    """A model behind an address. It is asked for its name now. It is called from several threads.

    Raises ConfigError where it cannot be asked.
    """

    def __init__(self, address: str) -> None:
        self._where = f"preference {address!r}"
        if not address.startswith(("http://", "https://")):
            raise ConfigError(f"{self._where}: expected an address such as http://127.0.0.1:8100")
        self._address = address.rstrip("/")
        try:
            said = self._ask("GET", "/")
        except (Unavailable, ToolError) as error:
            raise ConfigError(f"{error}; {_WORKER}") from error
        model = said.get("model")
        if not isinstance(model, str) or not model.strip():
            raise ConfigError(f'{self._where}: expected {{"model": NAME}} from GET /, found {_short(said)}')
        self.version = model.strip()
        self.name = f"{self.version} at {address}"

    def __call__(self, rgb: RGB, prompt: str) -> Preferred:
        """Return the score of an image, H×W×3 uint8, as an answer to a prompt; "" for the image alone.

        Raises Unavailable where it does not answer, and ToolError where its answer cannot be used.
        """
        said = self._ask("POST", "/score", {"prompt": prompt, "image": base64.b64encode(encode_png(rgb)).decode()})
        if said.get("model") != self.version:
            raise ToolError(f"{self._where}: asked {self.version!r}, and {said.get('model')!r} answers")
        mean, sigma = finite(said.get("mean")), finite(said.get("sigma"))
        if mean is None or sigma is None or sigma < 0:
            raise ToolError(f"{self._where}: expected a finite mean and a sigma from 0, found {_short(said)}")
        return Preferred(mean=mean, sigma=sigma)

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the JSON object of an answer. Raises Unavailable for none, ToolError for anything else."""
        try:
            reply = httpx.request(method, f"{self._address}{path}", json=body, timeout=TIMEOUT_S)
            said = parse_json(reply.content)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"{self._where}: the connection failed ({type(error).__name__}: {error})") from error
        except ValueError:
            said = None
        if reply.status_code != 200:
            told = said.get("error", said) if isinstance(said, dict) else reply.text
            raise ToolError(f"{self._where}: HTTP {reply.status_code}: {_short(told)}")
        if not isinstance(said, dict):
            raise ToolError(f"{self._where}: expected a JSON object, found {_short(reply.text)}")
        return said


def _short(value: object) -> str:
    return repr(value)[:200]


@cache
def open_preference(name: str | None, device: str) -> Preference:
    """Return the model behind an address.   device: does not count; the model has its own.

    Raises ModelAbsent where no address was given, and ConfigError where it cannot be asked.
    """
    if name is None:
        raise ModelAbsent(f"it needs a model of preference such as HPSv3: {_WORKER}")
    return Preference(name)
