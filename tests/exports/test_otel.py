"""Spans: their tree, both conventions' names, what is left out, and what a verdict without a label looks like."""

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
from tests.exports.runs import INSTRUCTION, add_fork, baseline_run

Span = dict[str, Any]


def exported(run: Path, out: Path, **options: Any) -> dict[str, list[Span]]:
    """Trace id → spans, each with its attributes as a plain mapping."""
    content = options.pop("content", False)
    count = write_otel(Source(folder=run, **options), out / "spans.jsonl", content=content)
    lines = (out / "spans.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == count
    found: dict[str, list[Span]] = {}
    for line in lines:
        (resource,) = json.loads(line)["resourceSpans"]
        (scope,) = resource["scopeSpans"]
        assert resource["schemaUrl"] == scope["schemaUrl"] == SCHEMA_URL
        for span in scope["spans"]:
            span["plain"] = {a["key"]: value(a["value"]) for a in span["attributes"]}
            found.setdefault(span["traceId"], []).append(span)
    return found


def value(held: dict[str, Any]) -> Any:
    ((kind, inner),) = held.items()
    if kind == "arrayValue":
        return [value(v) for v in inner["values"]]
    return int(inner) if kind == "intValue" else inner


def trace_of(traces: dict[str, list[Span]], sample: str, criterion: str = "instruction_following") -> list[Span]:
    return next(
        spans
        for spans in traces.values()
        if spans[0]["plain"]["editloupe.sample.id"] == sample
        and spans[0]["plain"]["editloupe.criterion"] == criterion
        and not spans[0]["links"]
    )


def test_a_trace_is_an_agent_with_requests_calls_and_a_verdict(native: Path, tmp_path: Path):
    traces = exported(native, tmp_path)
    # 4 samples with an edited image, 2 criteria each; the fifth was never asked.
    assert len(traces) == 8
    spans = trace_of(traces, "s00")
    assert [s["plain"]["openinference.span.kind"] for s in spans] == ["AGENT", "LLM", "TOOL", "LLM", "EVALUATOR"]
    names = ["invoke_agent editloupe", "chat run", "execute_tool zoom_in", "chat run", "verdict instruction_following"]
    assert [s["name"] for s in spans] == names
    root, first, tool, _, verdict = spans
    assert "parentSpanId" not in root
    assert {s["parentSpanId"] for s in spans[1:]} == {root["spanId"]}
    assert len({s["spanId"] for s in spans}) == 5
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
        "gen_ai.response.id": "resp-1",
        "gen_ai.response.model": "script-1",
        "gen_ai.response.finish_reasons": ["tool_call"],
        "llm.token_count.prompt": 1200,
        "llm.token_count.completion": 34,
        "llm.token_count.total": 1234,
        "llm.token_count.prompt_details.cache_read": 200,
        "llm.model_name": "run",
        "editloupe.usage.image_tokens": 800,
    }
    assert told.items() <= first["plain"].items()
    assert {"gen_ai.tool.name": "zoom_in", "gen_ai.tool.call.id": "a", "tool.id": "a"}.items() <= tool["plain"].items()
    assert len(tool["plain"]["editloupe.image.sha256"][0]) == 64
    (event,) = verdict["events"]
    assert event["name"] == "gen_ai.evaluation.result"
    assert {a["key"]: value(a["value"]) for a in event["attributes"]} == {
        "gen_ai.evaluation.name": "instruction_following",
        "gen_ai.evaluation.score.value": 4.0,
        "gen_ai.evaluation.score.label": "Flawless Execution",
    }
    assert root["plain"]["trace.evaluations.0.evaluation.label"] == "Flawless Execution"


def test_texts_and_images_are_left_out_unless_asked_for(native: Path, tmp_path: Path):
    bare, full = tmp_path / "bare", tmp_path / "full"
    exported(native, bare)
    exported(native, full, content=True)
    left, kept = ((folder / "spans.jsonl").read_text(encoding="utf-8") for folder in (bare, full))
    for words in (INSTRUCTION.format(0), "Crop 1 shows it", "I should look", "Splendid", "come again", "file://", '"bbox'):
        assert words not in left, words
    for words in (INSTRUCTION.format(0), "Crop 1 shows it", "Splendid", "come again", "file://", "bbox"):
        assert words in kept, words
    assert "base64" not in kept


def test_images_are_addresses_that_can_be_read(native: Path, tmp_path: Path):
    spans = trace_of(exported(native, tmp_path, content=True), "s00")
    first, tool, second = spans[1], spans[2], spans[3]
    urls = [v for k, v in second["plain"].items() if k.endswith("message_content.image.image.url")]
    # Original, edited and the crop, which the second request has and the first has not.
    assert len(urls) == 3 and len([k for k in first["plain"] if k.endswith("image.image.url")]) == 2
    for url in urls:
        assert Path(url.removeprefix("file://")).is_file()
    crop = tool["plain"]["editloupe.image.sha256"][0]
    assert crop in urls[-1]
    parts = [part for m in json.loads(second["plain"]["gen_ai.input.messages"]) for part in m["parts"]]
    assert [p["type"] for p in parts if p["type"] == "tool_call"] == ["tool_call"]
    (answer,) = [p for p in parts if p["type"] == "tool_call_response"]
    assert answer["id"] == "a"
    assert any(piece["type"] == "uri" and crop in piece["uri"] for piece in answer["response"])

    elsewhere = exported(native, tmp_path, content=True, blob_base_url="https://x.test/blobs/")
    text = (tmp_path / "spans.jsonl").read_text(encoding="utf-8")
    assert "file://" not in text and f"https://x.test/blobs/{crop[:2]}/{crop}.png" in text
    # The same trace has the same ids, however it is exported.
    assert trace_of(elsewhere, "s00")[0]["spanId"] == spans[0]["spanId"]


def test_a_verdict_without_a_label_is_an_error_and_no_score(native: Path, tmp_path: Path):
    traces = exported(native, tmp_path)
    for sample, status in (("s01", "unparsed"), ("s02", "backend_failed")):
        spans = trace_of(traces, sample)
        root, verdict = spans[0], spans[-1]
        assert root["status"] == verdict["status"] == {"code": 2, "message": status}
        (event,) = verdict["events"]
        keys = {a["key"]: value(a["value"]) for a in event["attributes"]}
        assert keys == {"gen_ai.evaluation.name": "instruction_following", "error.type": status}
        assert not [k for k in root["plain"] if k.endswith((".score", "evaluation.label", "editloupe.value"))]
    failed = trace_of(traces, "s02")[1]
    assert failed["status"] == {"code": 2, "message": "Unavailable"}
    assert failed["plain"]["error.type"] == "Unavailable" and failed["plain"]["http.response.status_code"] == 503


def test_a_fork_is_a_trace_of_its_own_that_links_to_its_parent(native: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(native, run)
    add_fork(run)
    traces = exported(run, tmp_path)
    assert len(traces) == 9
    (spans,) = [s for s in traces.values() if s[0]["links"]]
    kinds = [s["plain"]["openinference.span.kind"] for s in spans]
    assert kinds == ["AGENT", "LLM", "EVALUATOR"], "the shared beginning stays there"
    (link,) = spans[0]["links"]
    parent = traces[link["traceId"]]
    linked = next(s for s in parent if s["spanId"] == link["spanId"])
    assert linked == parent[1], "the first request is the last one that both share"
    assert spans[1]["plain"]["gen_ai.request.model"] == "other"


def test_each_target_is_a_trace_with_its_number(oracle: Path, tmp_path: Path):
    roots = [spans[0]["plain"] for spans in exported(oracle, tmp_path).values()]
    parts = [r.get("editloupe.part") for r in roots if r["editloupe.criterion"] == "instruction_following"]
    assert parts == ["target 1", "target 2"]


def test_the_baseline_is_never_an_llm_annotator(tmp_path: Path):
    for spans in exported(baseline_run(tmp_path), tmp_path).values():
        assert spans[0]["plain"]["trace.evaluations.0.evaluation.annotator_kind"] == "CODE"
        assert all(s["plain"].get("editloupe.is_lmm", False) is False for s in spans)


def test_an_unfinished_trace_is_exported_without_a_verdict(native: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(native, run)
    finding = next(f for f in RunStore.read(run).current() if f.sample_id == "s00")
    lines = (run / str(finding.trace)).read_text(encoding="utf-8").splitlines(keepends=True)
    (run / str(finding.trace)).write_text("".join(lines[:5]), encoding="utf-8")
    rows = (run / "findings.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    left = [row for row in rows if str(finding.trace) not in row]
    (run / "findings.jsonl").write_text("".join(left), encoding="utf-8")
    spans = trace_of(exported(run, tmp_path), "s00")
    assert "EVALUATOR" not in [s["plain"]["openinference.span.kind"] for s in spans]
    assert spans[0]["status"] == {}


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
    trace = pytest.importorskip("openinference.semconv.trace", reason="openinference-semantic-conventions is not here")
    spans = [span for spans in exported(native, tmp_path, content=True).values() for span in spans]
    ours = {name for span in spans for name in span["plain"]}
    known = {v for k, v in vars(gen_ai).items() if k.isupper() and isinstance(v, str)}
    assert {name for name in ours if name.startswith("gen_ai.")} <= known
    schemas = importlib.import_module("opentelemetry.semconv.schemas").Schemas
    assert SCHEMA_URL in {s.value for s in schemas}
    named = {
        v for held in vars(trace).values() if isinstance(held, type) for k, v in vars(held).items() if isinstance(v, str)
    }
    other = ("gen_ai.", "error.", "http.", "server.", "editloupe.")
    # A flat name is several names with numbers between them: llm.input_messages.0.message.role.
    pieces = {piece for name in ours if not name.startswith(other) for piece in re.split(r"\.\d+\.", name)}
    image = {"message_content.image.image.url": "message_content.image"}
    assert {image.get(piece, piece) for piece in pieces} <= named


def _base64_ids(data: Any) -> Any:
    if isinstance(data, list):
        return [_base64_ids(item) for item in data]
    if not isinstance(data, dict):
        return data
    ids = ("traceId", "spanId", "parentSpanId")
    return {k: base64.b64encode(bytes.fromhex(v)).decode() if k in ids else _base64_ids(v) for k, v in data.items()}
