"""The recorded backend: a run judged again from its own traces, and what a miss says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from editloupe.backends.base import open_backend as open_any
from editloupe.backends.base import parse_uri
from editloupe.backends.image_tokens import image_tokens_of
from editloupe.backends.recorded import RecordedLMM, open_backend
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Reply, Request, ToolCall
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ContextTooLong
from editloupe.runs.outcome import Outcome
from tests.conftest import LOOK, final
from tests.setups import open_with, run_over

Edits = Callable[..., Path]


def answers(request: Request) -> str | Reply:
    """Looks, then answers either criterion with a label that it offers."""
    if len(request.messages) > 1:
        return final("Wrong Action" if "Wrong Action" in request.messages[0].text else "Single Anomaly")
    call = ToolCall(id="a", name="zoom_in", arguments={"target_image": "Edited Image", "bbox": [100, 100, 400, 400]})
    return Reply(text="", tool_calls=(call,), finish="tools", carry={"mine": "c2ln"}) if request.tools else LOOK


def run(backend: object, folder: Path, out: Path, **settings: object) -> Outcome:
    return run_over(open_with(backend=backend, **settings), folder, out, config={})  # type: ignore[arg-type]


def reopened(out: Path, query: str = "") -> RecordedLMM:
    return open_backend(parse_uri(f"recorded/{out}{query}"))


@pytest.mark.parametrize("protocol", ["text", "native"])
def test_a_run_judged_again_from_its_recording_gives_the_same_labels(edits: Edits, tmp_path: Path, protocol: str) -> None:
    live = ScriptedLMM(answers, native_tools=True)
    first = run(live, edits(3), tmp_path / "first", tool_protocol=protocol)
    backend = reopened(tmp_path / "first")
    again = run(backend, tmp_path / "edits", tmp_path / "again", tool_protocol="auto")
    labels = [[(f.task_id, f.label) for f in outcome.findings] for outcome in (first, again)]
    assert labels[0] == labels[1] and None not in dict(labels[0]).values() and len(live.requests) == 12
    assert backend.uri.startswith("recorded/scripted/test?run=") and str(parse_uri(backend.uri)) == backend.uri
    assert (again.setup.judge.tool_protocol, backend.traits.is_lmm) == (protocol, False)
    # Who was recorded is what the judge is, not where the folder lies.
    reply = backend.complete(next(r for r in live.requests if len(r.messages) > 1), ImageStore())
    assert str(reply.sent["recorded_in"]).endswith(".0.jsonl, call 2")
    (tmp_path / "first").rename(tmp_path / "moved")
    assert reopened(tmp_path / "moved").uri == backend.uri


def test_a_recorded_failure_fails_again_and_a_bare_judge_stays_bare(edits: Edits, tmp_path: Path) -> None:
    too_long = ScriptedLMM(lambda request: ContextTooLong("too long by 9 tokens"))
    run(too_long, edits(1), tmp_path / "long", criteria=("if",))
    failed = run(reopened(tmp_path / "long"), tmp_path / "edits", tmp_path / "longer", criteria=("if",)).findings[0]
    assert (failed.status, "too long by 9 tokens" in failed.reason) == ("over_budget", True)
    bare = ScriptedLMM(["Wrong Action"])
    bare.traits = replace(bare.traits, bare_replies=True)
    run(bare, tmp_path / "edits", tmp_path / "bare", criteria=("if",), mode="plain")
    again = run(reopened(tmp_path / "bare"), tmp_path / "edits", tmp_path / "again", criteria=("if",), mode="plain")
    assert [f.label for f in again.findings] == ["Wrong Action"]


def test_what_is_no_recording_or_several_says_so(edits: Edits, tmp_path: Path) -> None:
    folder, out = edits(1), tmp_path / "first"
    one = run(ScriptedLMM(answers, name="one"), folder, out)
    two = run(ScriptedLMM(answers, name="two"), folder, out)
    mine = two.setup.judge.id
    assert reopened(out, f"?judge={mine[:6]}").uri.startswith("recorded/scripted/two?run=")
    for uri, told in (
        (f"recorded/{out}", r"expected one judge, found 2; name one with \?judge=ID: .*scripted/one"),
        (f"recorded/{out}?judge=zz", "one judge whose id begins with 'zz', found 0"),
        (f"recorded/{tmp_path}/nowhere", "no run folder"), ("recorded", "recorded needs a run folder"),
        ("recorded/x?speed=1", "unknown parameter 'speed'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=told):
            open_any(uri)
    written = (out / "run.json").read_text(encoding="utf-8")
    (out / "run.json").write_text(written.replace("scripted/two", "openai/gpt-4o?max_image_side=abc"), encoding="utf-8")
    with pytest.raises(ConfigError, match="max_image_side='abc': expected px of the longest side"):
        reopened(out, f"?judge={mine[:6]}")
    # Pictures are sent as they were to its backend.
    (out / "run.json").write_text(written.replace("scripted/two", "openai/gpt-4o?max_image_side=1024"), encoding="utf-8")
    traits = reopened(out, f"?judge={mine[:6]}").traits
    assert (traits.max_image_side, traits.image_tokens) == (1024, image_tokens_of("gpt-4o"))
    # A trace that lost a call is not answered from, and is named.
    for path in (out / "traces" / one.setup.judge.id).glob("*/*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(line for line in lines if b'"kind":"model_call","ordinal":0' not in line))
    with pytest.raises(ConfigError, match=r"has no recorded answer \(.*a model call is missing from the trace\)"):
        reopened(out, f"?judge={one.setup.judge.id[:6]}")
