"""Spans: their tree, the names of the conventions, what is left out, and what a verdict without a label looks like."""

from __future__ import annotations

import base64
import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from editloupe.exports.episodes import Source
from editloupe.exports.otel import SCHEMA_URL, write_otel
from editloupe.runs.store import RunStore
from tests.exports.runs import INSTRUCTION

Span = dict[str, Any]


def exported(run: Path, out: Path, **options: Any) -> list[list[Span]]:
    """The spans of each trace, each with its attributes as a plain mapping."""
    count = write_otel(Source(folder=run), out / "spans.jsonl", **options)
    lines = (out / "spans.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == count
    found = []
    for line in lines:
        (resource,) = json.loads(line)["resourceSpans"]
        (scope,) = resource["scopeSpans"]
        assert resource["schemaUrl"] == scope["schemaUrl"] == SCHEMA_URL
        assert len({span["traceId"] for span in scope["spans"]}) == 1
        found.append([{**span, "plain": plain(span)} for span in scope["spans"]])
    return found


def plain(held: Any) -> dict[str, Any]:
    return {a["key"]: value(a["value"]) for a in held["attributes"]}


def value(held: dict[str, Any]) -> Any:
    ((kind, inner),) = held.items()
    if kind == "arrayValue":
        return [value(v) for v in inner["values"]]
    return int(inner) if kind == "intValue" else inner


def trace_of(traces: list[list[Span]], sample: str) -> list[Span]:
    wanted = {"editloupe.sample.id": sample, "editloupe.criterion": "instruction_following"}
    return next(spans for spans in traces if wanted.items() <= spans[0]["plain"].items())


def test_a_finding_is_an_agent_with_requests_calls_and_a_verdict(native: Path, tmp_path: Path):
    traces = exported(native, tmp_path)
    # 4 samples with an edited image, 2 criteria each; the fifth was never asked.
    assert len(traces) == 8
    spans = trace_of(traces, "s00")
    assert [s["name"] for s in spans] == ["invoke_agent editloupe", "chat run", "execute_tool zoom_in", "chat run"]
    root, first, tool, _ = spans
    assert "parentSpanId" not in root
    assert {s["parentSpanId"] for s in spans[1:]} == {root["spanId"]}
    assert len({s["spanId"] for s in spans}) == 4
    for span in spans:
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and re.fullmatch("[0-9a-f]{16}", span["spanId"])
        assert int(root["startTimeUnixNano"]) - 10**9 < int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    # 1,200 tokens in, of which 200 came from the cache, and 34 out.
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": 1200,
        "gen_ai.usage.output_tokens": 34,
        "gen_ai.usage.cache_read.input_tokens": 200,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.max_tokens": 512,
        "gen_ai.response.model": "script-1",
        "gen_ai.response.finish_reasons": ["tool_call"],
        "editloupe.usage.image_tokens": 800,
    }
    assert told.items() <= first["plain"].items()
    assert {"gen_ai.tool.name": "zoom_in", "gen_ai.tool.call.id": "a"}.items() <= tool["plain"].items()
    assert len(tool["plain"]["editloupe.image.sha256"][0]) == 64
    (event,) = root["events"]
    assert (event["name"], plain(event)) == (
        "gen_ai.evaluation.result",
        {
            "gen_ai.evaluation.name": "instruction_following",
            "gen_ai.evaluation.score.value": 4.0,
            "gen_ai.evaluation.score.label": "Flawless Execution",
        },
    )


def test_texts_and_images_are_left_out_unless_asked_for(native: Path, tmp_path: Path):
    bare, full = tmp_path / "bare", tmp_path / "full"
    exported(native, bare)
    exported(native, full, content=True)
    left, kept = ((folder / "spans.jsonl").read_text(encoding="utf-8") for folder in (bare, full))
    for words in (INSTRUCTION.format(0), "Crop 1 shows it", "I should look", "Splendid", "come again", "file://", "bbox"):
        assert words not in left, words
        assert words in kept, words
    assert "base64" not in kept


def test_images_are_addresses_that_can_be_read(native: Path, tmp_path: Path):
    _, first, tool, second = trace_of(exported(native, tmp_path, content=True), "s00")
    asked = [[part for m in messages_of(span) for part in m["parts"]] for span in (first, second)]
    (answer,) = [part for part in asked[1] if part["type"] == "tool_call_response"]
    assert answer["id"] == "a" and [p["name"] for p in asked[1] if p["type"] == "tool_call"] == ["zoom_in"]
    urls = [[p["uri"] for p in (*parts, *answer["response"]) if p["type"] == "uri"] for parts in asked]
    # Original, edited and the crop, which the second request has.
    assert len(set(urls[1])) == 3
    assert all(Path(url.removeprefix("file://")).is_file() for url in urls[1])
    crop = tool["plain"]["editloupe.image.sha256"][0]
    assert any(crop in url for url in urls[1])


def messages_of(span: Span) -> list[dict[str, Any]]:
    return json.loads(span["plain"]["gen_ai.input.messages"])


def test_a_verdict_without_a_label_is_an_error_and_no_score(native: Path, tmp_path: Path):
    traces = exported(native, tmp_path)
    for sample, status in (("s01", "unparsed"), ("s02", "backend_failed")):
        root = trace_of(traces, sample)[0]
        assert root["status"] == {"code": 2, "message": status}
        (event,) = root["events"]
        assert plain(event) == {"gen_ai.evaluation.name": "instruction_following", "error.type": status}
        assert not {"editloupe.label", "editloupe.value"} & root["plain"].keys()
    failed = trace_of(traces, "s02")[1]
    assert failed["status"] == {"code": 2, "message": "Unavailable"}
    assert failed["plain"]["error.type"] == "Unavailable" and failed["plain"]["http.response.status_code"] == 503


def test_a_damaged_trace_is_named_and_the_others_are_written(native: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(native, run)
    finding = next(f for f in RunStore.read(run).current() if f.sample_id == "s00")
    (run / str(finding.trace)).write_text("no trace\n", encoding="utf-8")
    source = Source(folder=run)
    assert write_otel(source, tmp_path / "spans.jsonl") == 7
    assert [p for p in source.problems if "no header" in p]


def test_the_lines_are_otlp_by_its_own_definition(native: Path, tmp_path: Path):
    trace_pb2 = pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2", reason="opentelemetry-proto is not here")
    json_format = importlib.import_module("google.protobuf.json_format")
    write_otel(Source(folder=native), tmp_path / "spans.jsonl", content=True)
    for line in (tmp_path / "spans.jsonl").read_text(encoding="utf-8").splitlines():
        # OTLP writes ids in hexadecimal where protobuf's own JSON has base64.
        data = json_format.ParseDict(_base64_ids(json.loads(line)), trace_pb2.TracesData())
        assert data.resource_spans[0].scope_spans[0].spans


def test_the_names_are_those_of_the_published_conventions(native: Path, tmp_path: Path):
    gen_ai = pytest.importorskip(
        "opentelemetry.semconv._incubating.attributes.gen_ai_attributes",
        reason="opentelemetry-semantic-conventions is not here",
    )
    ours = {name for spans in exported(native, tmp_path, content=True) for span in spans for name in span["plain"]}
    known = {v for k, v in vars(gen_ai).items() if k.isupper() and isinstance(v, str)}
    assert {name for name in ours if name.startswith("gen_ai.")} <= known
    assert {name.partition(".")[0] for name in ours} == {"gen_ai", "error", "http", "editloupe"}
    schemas = importlib.import_module("opentelemetry.semconv.schemas").Schemas
    assert SCHEMA_URL in {s.value for s in schemas}


def _base64_ids(data: Any) -> Any:
    if isinstance(data, list):
        return [_base64_ids(item) for item in data]
    if not isinstance(data, dict):
        return data
    ids = ("traceId", "spanId", "parentSpanId")
    return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in ids else _base64_ids(v) for k, v in data.items()}
