"""Boxes, views, records and hashes: the arithmetic that everything stands on."""

from __future__ import annotations

import json
import math
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from editloupe.answers import YES_NO, Choice, Label, Number, OneOf, Record, answer_from_json
from editloupe.chat import ImagePart, Message, Reply, Request, Sampling, TextPart, ToolCall, Usage, message_hash
from editloupe.findings import Finding, JudgeSpec
from editloupe.tasks import About, Ask, Budget
from editloupe.values import Box, ImageRef, Sample, Target, Turn, View, canonical_json, digest, finite_json, parse_json


def image(name: str, width: int = 400, height: int = 300) -> ImageRef:
    return ImageRef(sha256=name, width=width, height=height, media_type="image/png")


def outcome(read: Any, content: str | bytes) -> str:
    """What reading gives: the value, in which 2 differs from 2.0 and -0.0 from 0, or the kind and words of the error."""
    try:
        return repr(read(content))
    except ValueError as error:
        return f"{type(error).__name__}: {error}"


READ = (
    '{"a": 1, "a": 2}', "-0", "-0.0", "1e400", "1E5", "1e-400", "0.1", "9223372036854775808", "1" * 400, "NaN",
    "-Infinity", '"\\ud800"', '"\\ud83d\\ude00"', '"ü\\u00fc\x7f"', " [1, 2.0]\n",
)  # fmt: skip
REFUSED = (b'"\xff"', b"[1,]", b'{"a": 1} 2', b"", b"\n", b"tru", b'"a\tb"', b"01", b"1" * 5000)


def test_json_is_read_and_refused_as_by_pythons_own_reader():
    forms = [form for text in READ for form in (text, *map(text.encode, ("utf-8", "utf-8-sig", "utf-16")))]
    assert all("Error: " in outcome(json.loads, content) for content in REFUSED)
    assert [c for c in (*forms, *REFUSED) if outcome(parse_json, c) != outcome(json.loads, c)] == []


def test_json_is_read_as_deep_on_every_machine():
    assert parse_json("[" * 100 + "]" * 100)
    failures = []
    # Brackets inside strings do not count.
    for before, after in (
        ("[", "]"), ('["]]]]", ', "]"), ('["\\"}]", ', "]"), ("[[[[]]], ", "]"), ('{"a": ', "}"), ('{"b": "}", "a": ', "}"),
    ):  # fmt: skip
        well, deep = (before * depth + "1" + after * depth for depth in (97, 5000))
        if parse_json(well) != parse_json(well.encode("utf-16")):
            failures.append((well, ""))
        for text in (before * 101 + "1" + after * 101, deep, deep.encode(), deep.rstrip(after)):
            if "nested deeper than 100" not in (said := outcome(parse_json, text)):
                failures.append((before, said))
    assert not failures
    assert parse_json('["' + "[{" * 1000 + '\\"' + "[" * 1000 + '"]') == ["[{" * 1000 + '"' + "[" * 1000]
    assert outcome(parse_json, '["' + "[\\" * 50_000).startswith("JSONDecodeError")


def test_numbers_that_are_not_finite_are_refused_and_bytes_read_as_text_is():
    texts = (*READ, "[" * 101 + "]" * 101, '{"a": [1, {"b": -1e999}], "c": 2.5}', '{"a": [1, {"b": 1e99}], "c": 2.5}')
    forms = [(text, text.encode(coding)) for text in texts for coding in ("utf-8", "utf-8-sig", "utf-16")]
    assert [content for text, content in forms if outcome(finite_json, content) != outcome(finite_json, text)] == []
    assert [content for content in REFUSED if outcome(finite_json, content) != outcome(parse_json, content)] == []
    refused = [text for text in texts if "no finite number" in outcome(finite_json, text)]
    assert refused == ["1e400", "NaN", "-Infinity", '{"a": [1, {"b": -1e999}], "c": 2.5}']


# A crop of x 100–200, y 50–100 shown at twice its size in the right pane of a picture, from x 210 on.
PANE = View(
    image=image("pair", 410, 100), origin=image("s"), region=Box(100, 50, 200, 100), window=Box(210, 0, 410, 100), op="pair"
)
SAMPLE = Sample(
    id="a",
    editor="e/1",
    source=image("s"),
    turns=(Turn(instruction="Do it.", edited=image("t")),),
    targets=(Target(name="mug", boxes={"source": Box(1, 2, 3, 4)}),),
    human={"instruction_following": {"anna": "Wrong Action", "ben": 3.0}},
    extra={"note": [1, None]},
    warnings=("first of 3 frames",),
)


def finding(**fields: Any) -> Finding:
    base = {"task_id": "t", "judge_id": "j", "repeat": 0, "sample_id": "s", "editor": "", "metric": "c"}
    return Finding(**(base | fields))


def test_boxes_are_worked_out_by_hand():
    for corners in ((5, 0, 5, 9), (9, 0, 5, 9), (0, 0, math.nan, 5), (0, 0, math.inf, 5)):
        with pytest.raises(ValueError, match="box"):
            Box(*corners)
    # Two 10×10 boxes that share 5×10: 50 / (100 + 100 − 50).
    assert Box(0, 0, 10, 10).iou(Box(5, 0, 15, 10)) == pytest.approx(1 / 3)
    assert Box(0, 0, 10, 10).iou(Box(10, 0, 20, 10)) == 0
    # 10/400 = 25 ‰, 31/300 = 103.3 ‰ → 103, 52/400 = 130 ‰, 77/300 = 256.67 ‰ → 257: rounded outward.
    assert Box(10, 31, 52, 77).to_thousandths(width=400, height=300) == (25, 103, 130, 257)
    assert Box(0.5, 1.5, 2.5, 3).clipped(width=2, height=9).ints() == (0, 1, 2, 3)
    assert Box(0, 0, 2, 2).union(Box(1, 3, 4, 5)) == Box(0, 0, 4, 5)
    assert PANE.to_origin(Box(230, 20, 250, 40)) == Box(110, 60, 120, 70)
    assert PANE.from_origin(Box(110, 60, 120, 70)) == Box(230, 20, 250, 40)


def test_values_come_back_from_json():
    call = ToolCall(id="1", name="a", arguments={"b": [1]})
    ok = finding(status="ok", answer=Label(name="A", value=4.0), turn=2, trace="traces/a.jsonl")
    values = (
        PANE, SAMPLE, ok, Message.of_text("user", "one"),
        Reply(text="x", tool_calls=(call,), usage=Usage(input_tokens=3), raw={"k": 1}),
    )  # fmt: skip
    assert [v for v in values if type(v).from_json(json.loads(canonical_json(v.to_json()))) != v] == []
    answers = (Label(name="A", value=2.0), Number(value=0.5), Choice(name="b"), Record(data={"k": [1]}))
    assert [answer for answer in answers if answer_from_json(answer.to_json()) != answer] == []


def test_the_content_of_a_sample_is_what_a_judge_sees():
    assert SAMPLE.key == "e%2F1/a"
    assert replace(SAMPLE, extra={}, human={}, id="b").content == SAMPLE.content
    others = (
        replace(SAMPLE, turns=(Turn(instruction="Do it!", edited=image("t")),)), replace(SAMPLE, source=image("z")),
        replace(SAMPLE, reference=image("r")), replace(SAMPLE, masks={"edit": image("m")}), replace(SAMPLE, targets=()),
    )  # fmt: skip
    assert len({SAMPLE.content, *(other.content for other in others)}) == 6


def test_the_hash_of_a_message_covers_all_before_it_and_a_requests_key_no_path():
    one, two = Message.of_text("user", "one"), Message.of_text("assistant", "two")
    assert message_hash(two, message_hash(one, None)) != message_hash(two, None)

    def request(ref: ImageRef, **more: Any) -> Request:
        parts = (TextPart(text="x"), ImagePart(image=ref, alias="Original Image"))
        return Request(messages=(Message(role="user", parts=parts),), **more)

    key = request(image("a")).key()
    assert request(replace(image("a"), path=Path("/x"))).key() == key
    assert len({key, request(image("b")).key(), request(image("a"), answer_schema={"type": "string"}).key()}) == 3


def test_a_failure_or_what_is_unknown_is_never_a_number():
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            Number(value=value)
        with pytest.raises(ValueError, match="JSON compliant"):
            canonical_json({"x": value})
    total = Usage(input_tokens=3) + Usage(input_tokens=4, output_tokens=0)
    assert (total.input_tokens, total.output_tokens, total.image_tokens, total.total) == (7, 0, None, 7)
    ok = finding(status="ok", answer=Label(name="A", value=4.0))
    assert (ok.label, ok.value, finding(status="ok", answer=Choice(name="b")).value) == ("A", 4.0, None)
    for fields, told in (
        ({"status": "ok"}, "exactly when"),
        ({"status": "refused", "answer": Label(name="A", value=4.0)}, "exactly when"),
        ({"status": "refused", "trace": "traces/../a.jsonl"}, "a trace is a path inside the run folder"),
    ):
        with pytest.raises(ValueError, match=told):
            finding(**fields)


def test_a_judges_id_changes_with_anything_that_changes_a_verdict():
    spec = JudgeSpec(backend="a/b", endpoint="e", image_policy="own", prompts="p", questions="r", tools={"zoom_in": "1"})
    changes = (
        {"endpoint": "f"}, {"sampling": Sampling(temperature=0.7)}, {"prompts": "q"}, {"questions": "s"},
        {"answers": "auto"}, {"tools": {"zoom_in": "2"}}, {"backend_version": "2"}, {"remind_answers": True},
    )  # fmt: skip
    assert len({spec.id, *(replace(spec, **change).id for change in changes)}) == len(changes) + 1


# On a busy machine two inputs may take seconds.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    prompt=st.text(st.characters(codec=None), max_size=20).map(lambda text: 40 * text),
    name=st.text(st.characters(codec=None), max_size=5),
    turns=st.integers(min_value=0),
)
def test_the_id_of_a_task_is_the_digest_of_its_json(prompt: str, name: str, turns: int):
    # Texts of every kind and length: quotes, control characters, half a surrogate pair.
    about, options = About(sample_id=name), OneOf(options=("yes", "no", f"x{name}"))
    budget = Budget(max_turns=turns)
    for _ in range(2):  # the second shares answer and budget with the first
        task = Ask(protocol="p", metric="m", about=about, prompt=prompt, answer=options, budget=budget, rests_on=(name,))
        assert task.id == digest(task.to_json())
    other = replace(task, answer=replace(options, options=("yes", "no")))
    assert other.id == digest(other.to_json()) != task.id


def test_the_id_of_a_task_is_of_all_its_fields_in_any_order():
    plain = {"protocol": "p", "metric": "m", "about": About(sample_id="s"), "prompt": "?", "answer": YES_NO}
    # A question with a field of its own.
    Hinted = make_dataclass("Hinted", [("hint", str)], bases=(Ask,), frozen=True, kw_only=True)  # noqa: N806
    one, other = Hinted(**plain, hint="left"), Hinted(**plain, hint="right")
    assert one.id == digest(dict(reversed(one.to_json().items()))) != other.id
    # Equal to the eye of Python, and not the same JSON.
    whole, broken = (Ask(**plain, budget=Budget(max_seconds=seconds)) for seconds in (1, 1.0))
    assert whole == broken and (whole.id, broken.id) == (digest(whole.to_json()), digest(broken.to_json()))
