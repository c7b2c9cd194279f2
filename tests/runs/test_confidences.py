"""Confidences from token probabilities: the same however a recorded answer is read again, in whatever units it was said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends import openai
from editloupe.backends.base import parse_uri
from editloupe.findings import Finding
from editloupe.runs.replay import fork
from editloupe.runs.rescore import protocol_with, rescore
from editloupe.runs.store import RunStore
from editloupe.tools.base import open_toolbox
from tests.backends.openai_server import OpenAIServer
from tests.backends.test_logprobs import THREE, told, with_tokens

Cli = Callable[..., tuple[int, str, str]]
Edits = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("toys")


def answered(box: str = "[100, 200, 300, 400]") -> tuple[str, list[dict[str, Any]]]:
    """A reply, and its tokens: EDIT where ADD was the most probable, then a label that nobody offered, then REMOVE."""
    top = [told(word, logprob) for word, logprob in THREE.items()]
    pieces: list[str | dict[str, Any]] = ["<Start Thinking>EDIT, perhaps.</Start Thinking><Start Final Answer>"]
    pieces.append('{"differences": [')
    for number, op in enumerate(("EDIT", "MOVE", "REMOVE")):
        pieces += [", " if number else "", '{"op": "', told(op, THREE.get(op, -9), top_logprobs=top)]
        pieces.append(f'", "object": "cup {number}", "box": {box}}}')
    pieces.append("]}</Start Final Answer>")
    tokens = [piece if isinstance(piece, dict) else told(piece, -0.1) for piece in pieces]
    return "".join(token["token"] for token in tokens), tokens


def listed(finding: Finding | None) -> list[tuple[str, list[float], float | None]]:
    assert finding is not None and finding.answer is not None, finding
    data: Any = finding.to_json()["answer"]["data"]  # type: ignore[index,call-overload]
    assert data["confidence_source"] == ("logprob" if any("confidence" in one for one in data["differences"]) else None)
    assert [one["why"] for one in data["dropped"]] == ["its label is none of ADD, EDIT, REMOVE"]
    return [(one["op"], one["box"], one.get("confidence")) for one in data["differences"]]


WANTED = [("EDIT", [100, 200, 300, 400], pytest.approx(0.2447, abs=5e-5)),
          ("REMOVE", [100, 200, 300, 400], pytest.approx(0.09, abs=5e-5))]  # fmt: skip


def judged(editloupe: Cli, edits: Path, server: OpenAIServer, query: str = "") -> Finding:
    backend = f"openai/tiny-vl?base_url={server.url}{query}"
    code, out, err = editloupe("judge", edits, "--protocol", "changes", "--backend", backend, "--out", "run")
    assert code == 0, out + err
    (finding,) = RunStore.read(Path("run")).current()
    return finding


def test_live_resumed_replayed_rescored_and_forked_they_are_the_same(editloupe: Cli, edits: Edits) -> None:
    one = edits(1)
    with OpenAIServer(with_tokens(*answered())) as server:
        finding = judged(editloupe, one, server)
        assert listed(finding) == WANTED
        (trace,) = Path("run/traces").glob("*/*/*.jsonl")
        # The payload does not hold the tokens a second time.
        recorded = trace.read_text(encoding="utf-8")
        assert ('"tokens":[' in recorded, '"top_logprobs":[' in recorded) == (True, False)

        # Resumed behind the reply, before its answer was read.
        lines = trace.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = next(n for n, line in enumerate(lines) if '"kind":"model_call"' in line) + 1
        trace.write_text("".join(lines[:kept]), encoding="utf-8")
        Path("run/findings.jsonl").write_text("", encoding="utf-8")
        assert listed(judged(editloupe, one, server)) == WANTED
        assert len(server.seen) == 1

        store = RunStore.read(Path("run"))
        forked = fork(
            Path("run"),
            str(store.current()[0].trace),
            at=1,
            backend=openai.open_backend(parse_uri(f"openai/tiny-vl?base_url={server.url}")),
            toolbox=open_toolbox(()),
            instruction="Look again.",
        )
        assert listed(forked.finding) == WANTED

    assert editloupe("replay", "run")[0] == 0
    assert editloupe("verify", "run")[0] == 0
    (same,) = rescore(store, protocol_with(store, {}))
    assert listed(same.now) == WANTED
    (without,) = rescore(store, protocol_with(store, {"wants_logprobs": False}))
    assert [confidence for _, _, confidence in listed(without.now)] == [None, None]
    assert (same.changed, without.changed) == (False, True)
    # What was recorded answers a second run too.
    code, out, err = editloupe("judge", one, "--protocol", "changes", "--backend", "recorded/run", "--out", "again")
    assert code == 0, out + err
    assert listed(RunStore.read(Path("again")).current()[0]) == WANTED
