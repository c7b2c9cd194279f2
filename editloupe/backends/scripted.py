"""A backend that plays a script: for tests, for demonstrations, and for dry runs of a rubric.

`scripted/FILE` reads one reply a line: a JSON string, or an object with the fields of Reply (`text`, `finish`, ...) or
with `error` ("rate_limited", "unavailable", "rejected", "context") for a failing endpoint. Each conversation starts at
the first line.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias, get_args

from editloupe.backends.base import BackendURI, Traits, checked_reply
from editloupe.chat import Finish, Reply, Request, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ContextTooLong, RateLimited, Rejected, Unavailable
from editloupe.files import read_bytes
from editloupe.values import parse_json

Line: TypeAlias = str | Reply | Exception
Script: TypeAlias = Callable[[Request], Line]

_ERRORS: Final = {"rate_limited": RateLimited, "unavailable": Unavailable, "rejected": Rejected, "context": ContextTooLong}


class ScriptedLMM:
    """Plays a script; the conversation's length says which line is due, so that it is stateless and safe in threads.

    script: lines for every conversation, or a function of the request.   requests: what was asked, for assertions.
    An exception in the script is raised. A script that is too short raises Rejected, which says so.
    """

    endpoint, version = "in process", ""

    def __init__(
        self,
        script: Sequence[Line] | Script,
        *,
        name: str = "test",
        constrains_schema: bool = False,
        native_tools: bool = False,
    ) -> None:
        self._script, self._name, self._lock = script, name, threading.Lock()
        self.requests: list[Request] = []
        self.traits = Traits(
            describes="a script, not an LMM",
            is_lmm=False,
            constrains_schema=constrains_schema,
            native_tools=native_tools,
            tool_result_images=native_tools,
        )

    @property
    def uri(self) -> str:
        """Canonical URI. A subclass may answer under another one."""
        return f"scripted/{self._name}"

    def complete(self, request: Request, images: ImageStore) -> Reply:
        with self._lock:
            self.requests.append(request)
        if callable(self._script):
            line = self._script(request)
        else:
            turn, lines = sum(message.role == "assistant" for message in request.messages), len(self._script)
            if turn >= lines:
                told = f"the script {self._name!r} ends with line {lines}, and this question needs line {turn + 1}"
                raise Rejected(f"{told}: what was said before is no answer to it")
            line = self._script[turn]
        if isinstance(line, Exception):
            raise line
        if not isinstance(line, str):
            return checked_reply(line, self.uri)
        return Reply(text=line, model=self._name, usage=Usage(output_tokens=len(line.split())))


def open_backend(uri: BackendURI) -> ScriptedLMM:
    """Open `scripted/FILE`. Raises ConfigError for a missing file or a broken line."""
    path = Path(uri.model)
    if not uri.model:
        raise ConfigError("scripted needs a file: scripted/replies.jsonl")
    try:
        data = read_bytes(path)
    except OSError as error:
        raise ConfigError(f"script {path} cannot be read: {error.strerror or error}") from error
    lines = [_parse(line, f"{path}, line {number}") for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    # Wherever the file lies, it is the same judge.
    name = f"{path.name}@{hashlib.sha256(data).hexdigest()[:12]}"
    return ScriptedLMM(lines, name=name)


def _parse(line: bytes, where: str) -> Line:
    try:
        value = parse_json(line)
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON ({error}); expected a string or an object") from error
    if isinstance(value, str):
        return value
    fields = value if isinstance(value, dict) else {}
    if fields.get("error") in _ERRORS:
        return _ERRORS[fields["error"]](str(fields.get("message", "scripted failure")))
    text, finish = fields.get("text"), fields.get("finish", "stop")
    if isinstance(text, str) and fields.keys() <= {"text", "reasoning", "finish"} and finish in get_args(Finish):
        return Reply(text=text, reasoning=str(fields.get("reasoning", "")), finish=finish)
    expected = f"expected a string or an object with text, reasoning and finish, or with error ({', '.join(_ERRORS)})"
    raise ConfigError(f"{where}: {expected}; found {line[:80].decode('utf-8', 'replace')}")
