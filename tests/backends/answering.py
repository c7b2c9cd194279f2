"""A strict chat completions server that gives one case of `server_answers.jsonl`, and asks what comes of it.

A refused parameter is refused as long as it is sent; what ends in a failure is answered so each time; else the first
request gets the case's answer, and every further one a valid reply.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.backends.loopback import Body
from tests.backends.openai_server import Handler, OpenAIServer, completion
from tests.conftest import final

VALID = json.dumps(completion(final("Flawless Execution"))).encode()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One answer of a server, and what a user should see."""

    id: str
    first: dict[str, Any]
    expect: dict[str, Any]
    kind: str

    @property
    def refused(self) -> set[str]:
        """The parameters that are refused as long as they are sent."""
        without, renamed = self.expect.get("asked_again_without", ()), self.expect.get("asked_again_as", {})
        return {*without, *renamed}

    @property
    def lasts(self) -> bool:
        """Whether the case is answered each time."""
        return self.expect["outcome"] not in ("ok", "asked again")


def read_cases(file: Path) -> list[Case]:
    """Read a table of cases."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
    return [Case(id=row["id"], first=row["first"], expect=row["expect"], kind=row["class"]) for row in rows]


def answering(case: Case) -> OpenAIServer:
    """Return a server that plays a case."""
    asked = 0

    def act(handler: Handler, request: Body) -> None:
        nonlocal asked
        asked += 1
        refuses = bool(case.refused & set(request)) if case.refused else asked == 1 or case.lasts
        if not refuses:
            handler.answer(200, VALID)
        elif isinstance(case.first["status"], str):
            _in_pieces(handler)
        else:
            body = case.first["body"]
            text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
            kind = "text/html" if isinstance(body, str) else "application/json"
            handler.answer(case.first["status"], text.encode(), {"Content-Type": kind, **case.first["headers"]})

    return OpenAIServer(act, model="m")


def _in_pieces(handler: Handler) -> None:
    """Send a head in pieces of 2 bytes, each 0.3 s, and never end it."""
    handler.close_connection = True
    for _ in range(100):
        if handler.house.closing.wait(0.3):
            return
        handler.wfile.write(b"HT")
        handler.wfile.flush()
