"""A model of preference behind an address, since its package pins other versions of what editloupe needs.

The protocol is JSON over HTTP. `examples/preference_worker.py` speaks it for HPSv3, in HPSv3's own environment.

    GET  ADDRESS/        → {"model": "HPSv3 1.0.0"}
    POST ADDRESS/score   {"prompt": "", "image": "<PNG, base64>"} → {"model": "HPSv3 1.0.0", "mean": 5.14, "sigma": 1.02}

`model` is part of the judge's identity, and every answer repeats it. Any other status than 200 is a failure, whose body may
be {"error": "what went wrong"}. 503 says that it is not ready, and is tried again.
"""

from __future__ import annotations

import base64
from functools import cache
from typing import Any, Final

from editloupe.data.images import RGB, encode_png
from editloupe.errors import ConfigError, ModelAbsent, ToolError, Unavailable
from editloupe.models.preference.base import Preference, Preferred
from editloupe.models.remote import RemoteModel, RemoteReply, short
from editloupe.values import finite

LOOK_S: Final = 10.0
"""Of the look before a run."""
MAX_BYTES: Final = 2**20
"""A longer answer is no answer."""
_WORKER: Final = (
    "start examples/preference_worker.py in HPSv3's own environment and name its address by --set preference=… or "
    "EDITLOUPE_PREFERENCE (docs/measures.md)"
)


class RemotePreference:
    """A model behind an address. It is asked for its name now. Raises ConfigError where it cannot be asked."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._remote = RemoteModel("preference", address, example="http://127.0.0.1:8100")
        try:
            look_s = min(LOOK_S, self._remote.timeout_s)
            said = self._object(self._remote.ask("GET", "/", None, most_bytes=MAX_BYTES, timeout_s=look_s, again=False))
        except (Unavailable, ToolError) as error:
            raise ConfigError(f"{error}; {_WORKER}") from error
        model = said.get("model")
        if not isinstance(model, str) or not model.strip():
            raise ConfigError(f'preference {address!r}: expected {{"model": NAME}} from GET /, found {short(said)}')
        self.version = model.strip()
        self.name = f"{self.version} at {address}"

    def __call__(self, rgb: RGB, prompt: str) -> Preferred:
        body = {"prompt": prompt, "image": base64.b64encode(encode_png(rgb)).decode()}
        said = self._object(self._remote.ask("POST", "/score", body, most_bytes=MAX_BYTES))
        if said.get("model") != self.version:
            raise ToolError(f"preference {self.address!r}: asked {self.version!r}, and {said.get('model')!r} answers")
        mean, sigma = finite(said.get("mean")), finite(said.get("sigma"))
        if mean is None or sigma is None or sigma < 0:
            raise ToolError(f"preference {self.address!r}: expected a finite mean and a sigma from 0, found {short(said)}")
        return Preferred(mean=mean, sigma=sigma)

    def _object(self, reply: RemoteReply) -> dict[str, Any]:
        """Return the JSON object of an answer. Raises ToolError for anything else."""
        said = reply.json_object()
        if reply.status != 200:
            raise ToolError(f"{self._remote.where}: HTTP {reply.status}: {reply.told()}")
        if said is None:
            raise ToolError(f"{self._remote.where}: expected a JSON object, found {reply.told()}")
        return said


def open_preference(name: str | None, device: str) -> Preference:
    """Return the model behind an address.   device: does not count; the model has its own.

    Raises ModelAbsent where no address was given, and ConfigError where it cannot be asked.
    """
    if name is None:
        raise ModelAbsent(f"it needs a model of preference such as HPSv3: {_WORKER}")
    return _shared(name)


_shared = cache(RemotePreference)
