"""Reading traces that are damaged, tampered with, or newer than this version."""

from __future__ import annotations

import json
from pathlib import Path

from editloupe.chat import Message, message_hash
from editloupe.findings import Finding
from editloupe.traces.events import EVENT, Header, MessageEvent, Note
from editloupe.traces.read import read_trace
from editloupe.traces.record import TraceWriter


def header() -> Header:
    return Header(editloupe="0", run="r", task_id="t", judge_id="j", repeat=0, task={}, judge={}, tools=[], absent={})


def message(text: str, parent: str | None) -> MessageEvent:
    said = Message.of_text("user", text)
    return MessageEvent(hash=message_hash(said, parent), parent=parent, message=said.to_json())


def written(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def test_what_is_written_is_read_back_and_verifies(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    with TraceWriter(path) as writer:
        writer.append(header())
        writer.append(first := message("one", None))
        writer.append(message("two", first.hash))
    trace = read_trace(path)
    assert [m.text for m in trace.messages()] == ["one", "two"]
    assert trace.problems == ()
    with TraceWriter(path) as writer:
        assert [e.kind for e in writer.events] == ["header", "message", "message"]


def test_a_torn_last_line_is_cut_off_on_opening_and_the_next_event_follows_cleanly(tmp_path: Path):
    path = written(tmp_path / "t.jsonl", EVENT.dump_json(header()))
    with path.open("ab") as file:
        file.write(b'{"kind":"note","te')
    with TraceWriter(path) as writer:
        writer.append(Note(text="after"))
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == ["header", "note"]


def test_a_changed_message_and_a_missing_parent_are_named(tmp_path: Path):
    first, second = message("one", None), message("two", "f" * 64)
    lines = [EVENT.dump_json(e) for e in (header(), first, second)]
    lines[1] = lines[1].replace(b"one", b"uno")
    problems = read_trace(written(tmp_path / "t.jsonl", *lines)).problems
    assert any("hash mismatch" in p for p in problems)
    assert any("which is missing" in p for p in problems)


def test_unknown_events_and_broken_lines_are_named_with_their_line_and_left_out(tmp_path: Path):
    path = written(
        tmp_path / "t.jsonl",
        EVENT.dump_json(header()),
        b'{"kind": "dream"}',
        b"[",
        b'{"kind": "note"}',
        EVENT.dump_json(Note(text="x")),
    )
    trace = read_trace(path)
    assert [e.kind for e in trace.events] == ["header", "note"]
    told = "\n".join(trace.problems)
    assert "line 2: unknown event 'dream'" in told
    assert "line 3: not JSON" in told
    assert "line 4: note event: note.text" in told


def test_a_message_that_holds_nan_is_left_out(tmp_path: Path):
    path = written(tmp_path / "t.jsonl")
    with TraceWriter(path) as writer:
        writer.append(header())
        writer.append(first := message("one", None))
        writer.append(message("two", first.hash))
    text = path.read_text(encoding="utf-8")
    assert '"carry"' not in text
    path.write_text(text.replace('"role":"user"', '"role":"user","carry":{"x":NaN}', 1), encoding="utf-8")
    trace = read_trace(path)
    assert "line 2: not JSON (holds NaN, which is no finite number)" in trace.problems[0] and len(trace.messages()) == 1
    assert len(trace.tampering) == 1 and "which is missing" in trace.tampering[0]


def test_the_end_of_a_trace_tells_that_a_line_before_it_was_changed(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    finding = Finding(task_id="t", judge_id="j", repeat=0, sample_id="s", editor="", metric="m", status="refused")
    with TraceWriter(path) as writer:
        writer.append(header().model_copy(update={"parent": {"trace": "forks/one.jsonl", "head": "h"}}))
        writer.append(Note(text="one"))
        writer.finish(finding)
    whole = path.read_text(encoding="utf-8")
    assert read_trace(path).tampering == ()
    # A merge may give the parent another name.
    path.write_text(whole.replace("forks/one.jsonl", "forks/two.jsonl"), encoding="utf-8")
    assert read_trace(path).tampering == ()
    lines = "lines before its end was changed after it was recorded"
    for old, new, said in (
        ('"text":"one"', '"text":"two"', lines),
        ('"task":{}', '"task":{"prompt":"x"}', lines),
        ('"refused"', '"filtered"', lines),
        ('"lines_digest":"', '"lines_digest":null,"x":"', "Extra inputs are not permitted"),
    ):
        assert old in whole
        path.write_text(whole.replace(old, new), encoding="utf-8")
        assert said in "; ".join(read_trace(path).problems), new
    with TraceWriter(path) as writer:
        assert writer.problems != []
