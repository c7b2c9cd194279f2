"""Boxes, views, records and hashes: the arithmetic that everything stands on."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editloupe.answers import YES_NO, Choice, Label, Number, OneOf, Record, answer_from_json
from editloupe.chat import ImagePart, Message, Reply, Request, TextPart, ToolCall, Usage, message_hash
from editloupe.findings import Finding, JudgeSpec
from editloupe.tasks import About, Ask, Budget
from editloupe.values import Box, ImageRef, Sample, Target, Turn, View, cached_property, canonical_json, digest, parse_json

coordinate = st.integers(min_value=0, max_value=4000)


def image(name: str, width: int = 400, height: int = 300) -> ImageRef:
    return ImageRef(sha256=name, width=width, height=height, media_type="image/png")


def nested(brackets: str, inside: str, depth: int) -> str:
    """JSON text with a number in so many lists or objects, with `inside` before each but the last."""
    before = f"[{inside}" if brackets == "[]" else '{"a": ' + (f'"b", "c{depth}": ' if inside else "")
    return before * depth + "1" + brackets[1] * depth


def test_json_is_read_as_deep_on_every_machine():
    assert parse_json("[" * 100 + "]" * 100)
    failures = []
    for brackets, inside in product(("[]", "{}"), ("", '"]]]]", ', '"\\"}]", ', "[[[]]], ")):
        well = nested(brackets, inside, 97)
        if parse_json(well) != parse_json(well.encode("utf-16")):
            failures.append((brackets, inside, 97))
        for depth in (101, 5000, 60_000):
            text = nested(brackets, inside, depth)
            said = [refusal(parse_json, deep) for deep in (text, text.encode(), text.rstrip("]}"))]
            if not all("nested deeper than 100" in words for words in said):
                failures.append((brackets, inside, depth, said))
    assert not failures


def refusal(read: Callable[[str | bytes], object], content: str | bytes) -> str:
    """The kind and the words of the ValueError; nothing if the content is read."""
    try:
        read(content)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return ""


READ = (
    '{"a": 1, "a": 2}', "-0", "-0.0", "1e400", "1E5", "1e-400", "0.1", "9223372036854775808", "1" * 400, "NaN",
    "-Infinity", '"\\ud800"', '"\\ud83d\\ude00"', '"ü\\u00fc\x7f"', " [1, 2.0]\n",
)  # fmt: skip
REFUSED = (b'"\xff"', b"[1,]", b'{"a": 1} 2', b"", b"\n", b"tru", b'"a\tb"', b"01", b"1" * 5000)


def test_bytes_say_what_pythons_own_reader_says():
    forms = [(text, form) for text in READ for form in (text, *map(text.encode, ("utf-8", "utf-8-sig", "utf-16")))]
    # repr tells 2 from 2.0, and -0.0 from 0.
    assert [form for text, form in forms if repr(parse_json(form)) != repr(json.loads(text))] == []


def test_bytes_that_are_no_json_are_refused_as_by_pythons_own_reader():
    assert all(refusal(json.loads, content) for content in REFUSED)
    assert [c for c in REFUSED if refusal(parse_json, c) != refusal(json.loads, c)] == []


def test_brackets_inside_strings_do_not_count():
    assert parse_json('["' + "[{" * 1000 + '\\"' + "[" * 1000 + '"]') == ["[{" * 1000 + '"' + "[" * 1000]
    with pytest.raises(json.JSONDecodeError):
        parse_json('["' + "[\\" * 50_000)


@pytest.mark.parametrize("corners", [(5, 0, 5, 9), (9, 0, 5, 9), (0, 0, math.nan, 5), (0, 0, math.inf, 5)])
def test_a_box_that_is_empty_inverted_or_not_finite_is_no_box(corners: tuple[float, ...]):
    with pytest.raises(ValueError, match="box"):
        Box(*corners)


def test_thousandths_are_rounded_outward_and_come_back_around_the_box():
    # 10/400 = 25 ‰, 31/300 = 103.3 ‰ → 103, 52/400 = 130 ‰, 77/300 = 256.67 ‰ → 257.
    box = Box(10, 31, 52, 77)
    assert box.to_thousandths(width=400, height=300) == (25, 103, 130, 257)


@given(x=coordinate, y=coordinate, w=st.integers(1, 500), h=st.integers(1, 500))
def test_a_box_survives_the_way_to_thousandths_and_back_within_a_thousandth(x: int, y: int, w: int, h: int):
    width, height = 4600, 4700
    box = Box(x, y, x + w, y + h)
    back = Box.from_thousandths(box.to_thousandths(width=width, height=height), width=width, height=height)
    assert back.x0 <= box.x0 + 1e-6 and back.y1 >= box.y1 - 1e-6
    assert abs(back.x0 - box.x0) <= width / 1000 and abs(back.y1 - box.y1) <= height / 1000


def test_a_box_from_a_crop_maps_back_to_the_source():
    # A crop of x 100–200, y 50–100 shown at twice its size in the right pane of a picture, from x 210 on.
    view = View(
        image=image("crop", 410, 100),
        origin=image("source"),
        region=Box(100, 50, 200, 100),
        window=Box(210, 0, 410, 100),
        op="side_by_side",
    )
    assert view.to_origin(Box(230, 20, 250, 40)) == Box(110, 60, 120, 70)
    assert view.from_origin(Box(110, 60, 120, 70)) == Box(230, 20, 250, 40)
    assert View.from_json(view.to_json()) == view


def test_iou_is_worked_out_by_hand():
    # Two 10×10 boxes that share 5×10: 50 / (100 + 100 − 50).
    assert Box(0, 0, 10, 10).iou(Box(5, 0, 15, 10)) == pytest.approx(1 / 3)
    assert Box(0, 0, 10, 10).iou(Box(10, 0, 20, 10)) == 0


def test_a_sample_comes_back_from_json_and_its_content_knows_what_a_judge_sees():
    sample = Sample(
        id="a",
        editor="e",
        source=image("s"),
        turns=(Turn(instruction="Do it.", edited=image("t")),),
        targets=(Target(name="mug", boxes={"source": Box(1, 2, 3, 4)}),),
        human={"instruction_following": {"anna": "Wrong Action", "ben": 3.0}},
        extra={"note": [1, None]},
        warnings=("first of 3 frames",),
    )
    again = Sample.from_json(sample.to_json())
    assert again == sample
    assert again.content == sample.content
    assert sample.key == "e/a"
    from dataclasses import replace

    assert replace(sample, extra={}, human={}).content == sample.content
    assert replace(sample, turns=(Turn(instruction="Do it!", edited=image("t")),)).content != sample.content


def test_the_hash_of_a_message_covers_all_before_it():
    one, two = Message.of_text("user", "one"), Message.of_text("assistant", "two")
    first = message_hash(one, None)
    assert message_hash(two, first) != message_hash(two, None)
    assert message_hash(Message.from_json(one.to_json()), None) == first


def test_a_request_key_knows_images_by_their_digest_and_not_by_their_path():
    from dataclasses import replace
    from pathlib import Path

    ref = image("a")
    here = Message(role="user", parts=(TextPart(text="x"), ImagePart(image=ref, alias="Original Image")))
    there = Message(
        role="user", parts=(TextPart(text="x"), ImagePart(image=replace(ref, path=Path("/x")), alias="Original Image"))
    )
    assert Request(messages=(here,)).key() == Request(messages=(there,)).key()
    assert Request(messages=(here,), answer_schema={"type": "string"}).key() != Request(messages=(here,)).key()


def test_a_reply_comes_back_from_json():
    reply = Reply(
        text="x", tool_calls=(ToolCall(id="1", name="a", arguments={"b": [1]}),), usage=Usage(input_tokens=3), raw={"k": 1}
    )
    assert Reply.from_json(reply.to_json()) == reply


def test_usage_adds_up_and_keeps_unknown_apart_from_zero():
    total = Usage(input_tokens=3) + Usage(input_tokens=4, output_tokens=0)
    assert (total.input_tokens, total.output_tokens, total.image_tokens, total.total) == (7, 0, None, 7)


@pytest.mark.parametrize(
    "answer", [Label(name="A", value=2.0), Number(value=0.5), Choice(name="b"), Record(data={"k": [1]})]
)
def test_answers_come_back_from_json(answer: object):
    assert answer_from_json(answer.to_json()) == answer  # type: ignore[attr-defined]


def finding(**fields: object) -> Finding:
    base = {"task_id": "t", "judge_id": "j", "repeat": 0, "sample_id": "s", "editor": "", "metric": "c"}
    return Finding(**(base | fields))  # type: ignore[arg-type]


def test_a_finding_has_an_answer_exactly_when_it_is_ok():
    ok = finding(status="ok", answer=Label(name="A", value=4.0))
    assert (ok.label, ok.value) == ("A", 4.0)
    assert finding(status="ok", answer=Choice(name="b")).value is None
    with pytest.raises(ValueError, match="exactly when"):
        finding(status="ok")
    with pytest.raises(ValueError, match="exactly when"):
        finding(status="refused", answer=Label(name="A", value=4.0))
    assert Finding.from_json(ok.to_json()) == ok


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_is_finite_or_it_is_no_number(value: float):
    with pytest.raises(ValueError, match="finite"):
        Number(value=value)
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"x": value})


def test_canonical_json_does_not_know_the_order_of_keys():
    assert digest({"b": 1, "a": [True, None]}) == digest({"a": [True, None], "b": 1})


def test_a_judges_id_changes_with_anything_that_changes_a_verdict():
    from dataclasses import replace

    from editloupe.chat import Sampling

    spec = JudgeSpec(
        backend="a/b",
        endpoint="e",
        sampling=Sampling(),
        tool_protocol="text",
        image_policy="own",
        prompts="p",
        questions="r",
        tools={"zoom_in": "1"},
    )
    others = [
        replace(spec, endpoint="f"),
        replace(spec, sampling=Sampling(temperature=0.7)),
        replace(spec, prompts="q"),
        replace(spec, questions="s"),
        replace(spec, tools={"zoom_in": "2"}),
        replace(spec, backend_version="2"),
        replace(spec, answers="auto"),
    ]
    assert len({spec.id, *(o.id for o in others)}) == len(others) + 1


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


@dataclass(frozen=True, kw_only=True)
class Hinted(Ask):
    """A question with a field of its own."""

    hint: str


def test_the_id_of_a_task_is_of_all_its_fields():
    plain = {"protocol": "p", "metric": "m", "about": About(sample_id="s"), "prompt": "?", "answer": YES_NO}
    one, other = Hinted(**plain, hint="left"), Hinted(**plain, hint="right")
    assert one.id == digest(one.to_json()) != other.id
    # Equal to the eye of Python, and not the same JSON.
    whole, broken = (Ask(**plain, budget=Budget(max_seconds=seconds)) for seconds in (1, 1.0))
    assert whole == broken and (whole.id, broken.id) == (digest(whole.to_json()), digest(broken.to_json()))


def test_two_threads_compute_what_two_instances_keep_side_by_side():
    class Kept:
        @cached_property
        def number(self) -> int:
            """A number."""
            return both.wait(5)

    both = threading.Barrier(2)
    instances = [Kept(), Kept()]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda one: one.number, instances))
    # The barrier lets them pass together, and gives each another number; nothing is computed again.
    assert sorted(found) == [0, 1]
    assert [one.number for one in instances] == found
    assert Kept.number.__doc__ == "A number."
