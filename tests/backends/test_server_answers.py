"""What servers answer, and what comes of it: a table of cases, played by a strict server on loopback.

`server_answers.jsonl` is a copy of a collection of public servers' answers; `server_answers_own.jsonl` has others of the
same classes, in other words and languages.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from editloupe import Judge, Sample
from editloupe.backends import openai
from editloupe.backends.base import parse_uri
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import ImagePart, Message, Request, Sampling, TextPart
from editloupe.data.images import ImageStore
from editloupe.findings import Finding
from tests.backends.answering import Case, answering, read_cases
from tests.conftest import pixels

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared/data/server-answers/cases.jsonl"
CASES = [*read_cases(HERE / "server_answers.jsonl"), *read_cases(HERE / "server_answers_own.jsonl")]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}

Run = Callable[..., tuple[int, str, str]]
Edits = Callable[..., Path]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were to be waited, which are not."""
    found: list[float] = []
    policy = RetryPolicy(sleep=found.append)
    monkeypatch.setattr(openai, "open_backend", partial(openai.open_backend, policy=policy))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_each_answer_comes_to_what_it_should(case: Case, slept: list[float], editloupe: Run, edits: Edits) -> None:
    plays(case, slept, editloupe, edits)


@pytest.mark.shared
def test_the_collection_itself_comes_to_what_it_should(slept: list[float], editloupe: Run, edits: Edits) -> None:
    cases = read_cases(SHARED)
    assert len(cases) >= 48
    for case in cases:
        slept.clear()
        plays(case, slept, editloupe, edits)


def plays(case: Case, slept: list[float], editloupe: Run, edits: Edits) -> None:
    if case.kind == "parameter":
        negotiated(case)
    elif case.expect["outcome"] == "run_stops":
        stopped(case, editloupe, edits(3, name=f"edits-{case.id}"))
    else:
        judged(case, slept)


def negotiated(case: Case) -> None:
    """Two questions with everything that may be refused: the first is asked once more without it, the second at once."""
    store = ImageStore()
    picture = ImagePart(image=store.add_array(np.zeros((20, 20, 3), np.uint8)), alias="A")
    message = Message(role="user", parts=(TextPart(text="A:"), picture))
    sampling = Sampling(top_p=0.9, max_tokens=16384)
    question = Request(messages=(message,), sampling=sampling, answer_schema=SCHEMA, top_logprobs=3)
    with answering(case) as server:
        backend = openai.open_backend(parse_uri(f"openai/m?base_url={server.url}"))
        replies = [backend.complete(question, store) for _ in range(2)]
        backend.close()
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
        words = (
            "judge",
            folder,
            "--backend",
            f"openai/m?base_url={server.url}",
            "--mode",
            "plain",
            "--out",
            f"run-{case.id}",
        )
        code, said, told = editloupe(*words)
    assert (code, len(server.seen), server.complaints) == (1, case.expect.get("requests", 1), [])
    shown = " ".join((said + told).split())
    assert "Stopped asking" in shown
    assert case.expect.get("cure_names", "") in shown


def judged(case: Case, slept: list[float]) -> None:
    """One question from Python: the status of its finding, and what its reason says."""
    expect = case.expect
    tool = expect.get("with_tool_protocol")
    late = isinstance(case.first["status"], str)
    with answering(case) as server:
        uri = f"openai/m?base_url={server.url}{'&timeout_s=1' if late else ''}"
        began = time.monotonic()
        judge = Judge(uri, mode="tool" if tool else "plain", criteria="if", tool_protocol=tool or "text")
        [finding] = judge.judge(Sample.from_images(*pixels(1, spots=1), "Add a square."))
        seconds = time.monotonic() - began
    assert server.complaints == []
    assert_outcome(case, finding)
    if "requests" in expect:
        assert len(server.seen) == expect["requests"]
    elif expect["outcome"] in ("ok", "asked again"):
        assert len(server.seen) == 2
    holds = expect.get("message_holds", expect.get("cure_names", ()))
    for words in [holds] if isinstance(holds, str) else holds:
        assert words in finding.reason
    if tool:
        assert ["tools" in body for body in server.seen] == [True, False]
    if late:
        assert (len(server.seen), seconds < 2.5) == (1, True)
    waits = expect.get("waits_s")
    if isinstance(waits, int | float):
        assert sum(slept) == pytest.approx(waits, rel=0.05)
    elif waits:
        assert 0 <= sum(slept) <= 600


def assert_outcome(case: Case, finding: Finding) -> None:
    wanted = case.expect["outcome"]
    if wanted in ("not ok", "ends within the time-out of one call"):
        assert finding.status != "ok"
    else:
        allowed = {"asked again": ["ok"]}.get(wanted, re.split(" or ", wanted))
        assert finding.status in allowed, finding.reason
