"""A session of `editloupe annotate`: the command as a user gives it, and its server as a rater's page asks it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from editloupe.viewer.serve import Viewer

Run = Callable[..., tuple[int, str, str]]
Session = Callable[..., tuple[int, str, str]]


class Desk:
    """One rater's page."""

    def __init__(self, viewer: Viewer, rater: str) -> None:
        self.viewer, self.rater = viewer, rater

    def ask(self, method: str, address: str, data: Any = None, **headers: str | None) -> tuple[int, Any]:
        """Ask the server as the page does; headers: name with _ for -, None to leave one out."""
        own = f"127.0.0.1:{self.viewer.server_address[1]}"
        given: dict[str, str | None] = {
            "Origin": f"http://{own}",
            "Content-Type": "application/json",
            "X-Editloupe-Token": self.viewer.site.token,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        connection = http.client.HTTPConnection(*self.viewer.server_address[:2], timeout=20)
        try:
            body = None if data is None else json.dumps(data).encode()
            connection.request(method, address, body, {k: v for k, v in given.items() if v is not None})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode("utf-8", "replace")

    def queue(self) -> list[dict[str, Any]]:
        status, data = self.ask("GET", f"/queue.json?rater={quote(self.rater)}")
        assert status == 200, data
        return list(data["questions"])

    def question(self, sample: str, name: str, scope: str = "") -> dict[str, Any]:
        """A question by its sample's id and its name."""
        (one,) = (q for q in self.queue() if (q["sample"], q["name"], q["scope"]) == (sample, name, scope))
        return self.fetch(one["id"])

    def fetch(self, id_: str) -> dict[str, Any]:
        """A question by its id."""
        status, data = self.ask("GET", f"/question.json?rater={quote(self.rater)}&id={id_}")
        assert status == 200, data
        return dict(data)

    def answer(self, asked: dict[str, Any], said: str | None, note: str = "", **more: Any) -> tuple[int, Any]:
        """Answer a question as it was when it was asked for."""
        data = {
            "rater": self.rater, "id": asked["id"], "task_id": asked["task_id"], "answer": said, "note": note,
            "seen": asked["revision"], "seconds": 1.5, **more,
        }  # fmt: skip
        return self.ask("POST", "/answer", data)

    def undo(self) -> tuple[int, Any]:
        return self.ask("POST", "/undo", {"rater": self.rater})


@pytest.fixture
def annotate(editloupe: Run, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Runs `editloupe annotate` with some words, does something while it serves, and ends it as Ctrl-C does."""

    def run(*words: Any, do: Callable[[Callable[[str], Desk]], None] = lambda desk: None) -> tuple[int, str, str]:
        failed: list[BaseException] = []

        def serve(server: Viewer) -> None:
            def session() -> None:
                try:
                    do(lambda rater: Desk(server, rater))
                except BaseException as error:  # noqa: BLE001 - it is raised below, in the test's own thread
                    failed.append(error)
                finally:
                    server.shutdown()

            thread = threading.Thread(target=session, daemon=True)
            thread.start()
            server.serve_forever(0.02)
            thread.join(10)

        monkeypatch.setattr("editloupe.cli.annotate.serve_until_stopped", serve)
        ended = editloupe("annotate", *words, "--port", "0")
        if failed:
            raise failed[0]
        return ended

    return run
