"""What servers answer, and what comes of it: a table of cases, played by a strict server on loopback.

`server_answers.jsonl` is a copy of a collection of public servers' answers; `server_answers_own.jsonl` has others of the
same classes, in other words and languages. A refused parameter is refused as long as it is sent; what ends in a failure is
answered so each time; else the first request gets the case's answer, and every further one a valid reply.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe import Judge, Sample
from editloupe.answers import OneOf
from editloupe.backends import openai
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import ImagePart, Sampling, TextPart
from editloupe.data.images import ImageStore
from tests.backends.conftest import Bench, asks
from tests.backends.loopback import Body, drips
from tests.backends.openai_server import Handler, OpenAIServer, completion
from tests.conftest import final, pixels

Run = Callable[..., tuple[int, str, str]]
Edits = Callable[..., Path]


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

    @property
    def late(self) -> bool:
        """Whether the head of the answer never ends."""
        return isinstance(self.first["status"], str)


def read_cases(file: Path) -> list[Case]:
    """Read a table of cases."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
    return [Case(id=row["id"], first=row["first"], expect=row["expect"], kind=row["class"]) for row in rows]


HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared/data/server-answers/cases.jsonl"
CASES = [*read_cases(HERE / "server_answers.jsonl"), *read_cases(HERE / "server_answers_own.jsonl")]
VALID = json.dumps(completion(final("Flawless Execution"))).encode()


def answering(case: Case) -> OpenAIServer:
    """Return a strict server that plays a case."""
    asked = 0

    def act(handler: Handler, request: Body) -> None:
        nonlocal asked
        asked += 1
        refuses = bool(case.refused & set(request)) if case.refused else asked == 1 or case.lasts
        if not refuses:
            handler.answer(200, VALID)
        elif case.late:
            drips(b"HT", 0.1)(handler, request)
        else:
            body = case.first["body"]
            text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
            kind = "text/html" if isinstance(body, str) else "application/json"
            handler.answer(case.first["status"], text.encode(), {"Content-Type": kind, **case.first["headers"]})

    return OpenAIServer(act, model="m")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were to be waited, which are not."""
    found: list[float] = []
    policy = RetryPolicy(sleep=found.append)
    monkeypatch.setattr(openai, "open_backend", partial(openai.open_backend, policy=policy))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_each_answer_comes_to_what_it_should(
    case: Case, bench: Bench, slept: list[float], editloupe: Run, edits: Edits
) -> None:
    if case.kind == "parameter":
        negotiated(case, bench)
    elif case.expect["outcome"] == "run_stops":
        stopped(case, editloupe, edits(3))
    else:
        judged(case, slept)


@pytest.mark.shared
def test_the_collection_itself_is_the_table() -> None:
    assert (HERE / "server_answers.jsonl").read_bytes() == SHARED.read_bytes()
    assert len(CASES) >= 48


def negotiated(case: Case, bench: Bench) -> None:
    """Two questions with everything that may be refused: the first is asked once more without it, the second at once."""
    store = ImageStore()
    picture = ImagePart(image=store.add_array(np.zeros((20, 20, 3), np.uint8)), alias="A")
    held = OneOf(options=("A", "B")).json_schema()
    sampling = Sampling(top_p=0.9, max_tokens=16384)
    question = asks(TextPart(text="A:"), picture, sampling=sampling, answer_schema=held, top_logprobs=3)
    with answering(case) as server:
        backend = bench.open(f"openai/m?base_url={server.url}", policy=RetryPolicy())
        replies = [backend.complete(question, store) for _ in range(2)]
    assert server.complaints == []
    assert len(server.seen) == 3, [sorted(set(body) - {"messages"}) for body in server.seen]
    renamed = set(case.expect.get("asked_again_as", {}).values())
    for body in server.seen[1:]:
        assert set(body) == set(server.seen[0]) - case.refused | renamed
    ours = {"response_format": "answer_schema", "logprobs": "top_logprobs"}
    for name in case.refused if not renamed else ():
        assert ours.get(name, name) in replies[0].sent["dropped"] == replies[1].sent["dropped"]


def stopped(case: Case, editloupe: Run, folder: Path) -> None:
    """Three samples at the command line: one request, exit code 1, the cure."""
    with answering(case) as server:
        words = ("--backend", f"openai/m?base_url={server.url}", "--mode", "plain", "--criteria", "if", "--out", "run")
        code, said, told = editloupe("judge", folder, *words)
    assert (code, len(server.seen), server.complaints) == (1, case.expect.get("requests", 1), [])
    shown = " ".join((said + told).split())
    assert "Stopped asking" in shown
    assert case.expect.get("cure_names", "") in shown


def judged(case: Case, slept: list[float]) -> None:
    """One question from Python: the status of its finding, and what its reason says."""
    expect, tool = case.expect, case.expect.get("with_tool_protocol")
    with answering(case) as server:
        uri = f"openai/m?base_url={server.url}{'&timeout_s=0.4' if case.late else ''}"
        began = time.monotonic()
        judge = Judge(uri, mode="tool" if tool else "plain", criteria="if", tool_protocol=tool or "text")
        [finding] = judge.judge(Sample.from_images(*pixels(1, spots=1), "Add a square."))
        seconds = time.monotonic() - began
    assert server.complaints == []
    again = {"ok": 2, "asked again": 2}.get(expect["outcome"], len(server.seen))
    assert len(server.seen) == expect.get("requests", again)
    if expect["outcome"] in ("not ok", "ends within the time-out of one call"):
        assert finding.status != "ok"
    else:
        allowed = {"asked again": "ok"}.get(expect["outcome"], expect["outcome"])
        assert finding.status in allowed.split(" or "), finding.reason
    holds = expect.get("message_holds", expect.get("cure_names", ()))
    for words in [holds] if isinstance(holds, str) else holds:
        assert words in finding.reason
    if tool:
        assert ["tools" in body for body in server.seen] == [True, False]
    if case.late:
        # Its time-out is 0.4 s; a server that goes on for ever would hold the call without it.
        assert (len(server.seen), seconds < 10) == (1, True)
    waits = expect.get("waits_s")
    if isinstance(waits, int | float):
        assert sum(slept) == pytest.approx(waits, rel=0.05)
    elif waits:
        assert 0 <= sum(slept) <= 600
