"""A session of `editloupe annotate`: the command as a user gives it, and its pages as a rater's browser asks for them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from editloupe.annotate.page import make_app
from editloupe.annotate.questions import Annotation

Run = Callable[..., tuple[int, str, str]]
Session = Callable[..., tuple[int, str, str]]


class Desk:
    """One rater's page."""

    def __init__(self, client: TestClient, rater: str) -> None:
        self.client, self.rater = client, rater

    def get(self, address: str, **query: str) -> tuple[int, Any]:
        reply = self.client.get(address, params={"rater": self.rater, **query})
        return reply.status_code, reply.json() if "json" in reply.headers["content-type"] else reply.content

    def queue(self) -> list[dict[str, Any]]:
        status, data = self.get("/queue")
        assert status == 200, data
        return list(data["questions"])

    def question(self, sample: str, name: str, scope: str = "") -> dict[str, Any]:
        """A question by its sample's id and its name."""
        (one,) = (q for q in self.queue() if (q["sample"], q["name"], q["scope"]) == (sample, name, scope))
        status, data = self.get("/question", id=one["id"])
        assert status == 200, data
        return dict(data)

    def answer(self, asked: dict[str, Any], said: str | None, note: str = "", **more: Any) -> tuple[int, Any]:
        """Answer a question as it was when it was asked for."""
        data = {"rater": self.rater, "id": asked["id"], "task_id": asked["task_id"], "answer": said, "note": note}
        reply = self.client.post("/answer", json={**data, "seconds": 1.5, **more})
        return reply.status_code, reply.json()


@pytest.fixture
def annotate(editloupe: Run, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Runs `editloupe annotate` with some words, and does something with the pages that it serves."""

    def run(*words: Any, do: Callable[[Callable[[str], Desk]], None] = lambda desk: None) -> tuple[int, str, str]:
        def serve(annotation: Annotation, _: socket.socket) -> None:
            with TestClient(make_app(annotation), base_url="http://127.0.0.1") as client:
                do(lambda rater: Desk(client, rater))

        monkeypatch.setattr("editloupe.cli.annotate.serve", serve)
        return editloupe("annotate", *words, "--port", "0")

    return run
