"""A backend that plays a script: for tests, for demonstrations, and for dry runs of a rubric.

`scripted/FILE` reads one reply a line: a JSON string, or an object with the fields of Reply (`text`, `finish`, ...) or
with `error` ("rate_limited", "unavailable", "rejected", "context") for a failing endpoint. Each conversation starts at
the first line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from editloupe.backends.base import BackendURI, Traits, checked_reply
from editloupe.chat import Reply, Request, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ContextTooLong, RateLimited, Rejected, Unavailable
from editloupe.files import read_bytes
from editloupe.values import parse_json

Line: TypeAlias = str | Reply | Exception

_ERRORS: Final = {"rate_limited": RateLimited, "unavailable": Unavailable, "rejected": Rejected, "context": ContextTooLong}


class ScriptedLMM:
    """Plays a script; the conversation's length says which line is due, so that it is stateless and safe in threads.

    script: lines for every conversation, or a function of the request.   requests: what was asked, for assertions.
    An exception in the script is raised. A script that is too short raises Rejected, which says so.
    """

    endpoint, version = "in process", ""

    def __init__(
        self,
        script: Sequence[Line] | Callable[[Request], Line],
        *,
        name: str = "test",
        constrains_schema: bool = False,
        native_tools: bool = False,
    ) -> None:
        self._script, self._name = script, name
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
        self.requests.append(request)
        line = self._script(request) if callable(self._script) else self._due(self._script, request)
        if isinstance(line, Exception):
            raise line
        if not isinstance(line, str):
            return checked_reply(line, self.uri)
        return Reply(text=line, model=self._name, usage=Usage(output_tokens=len(line.split())))

    def _due(self, lines: Sequence[Line], request: Request) -> Line:
        turn = sum(message.role == "assistant" for message in request.messages)
        if turn < len(lines):
            return lines[turn]
        told = f"the script {self._name!r} ends with line {len(lines)}, and this question needs line {turn + 1}"
        raise Rejected(f"{told}: what was said before is no answer to it")


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
    return ScriptedLMM(lines, name=f"{path.name}@{hashlib.sha256(data).hexdigest()[:12]}")


def _parse(line: bytes, where: str) -> Line:
    expected = f"a string or an object with text, reasoning and finish, or with error ({', '.join(_ERRORS)})"
    told = f"{where}: not JSON of a line; expected {expected}; found {line[:80].decode('utf-8', 'replace')}"
    try:
        value = parse_json(line)
        if isinstance(value, str):
            return value
        fields = dict(value)
        if fields.get("error") in _ERRORS:
            return _ERRORS[fields["error"]](str(fields.get("message", "scripted failure")))
        if fields.keys() <= {"text", "reasoning", "finish"}:
            return Reply.from_json(fields)
    except (TypeError, ValueError) as error:
        raise ConfigError(told) from error
    raise ConfigError(told)
