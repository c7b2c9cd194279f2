"""Box dialects: numbers there and back, and our own texts, which are found in what tools and prompts really write."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from editloupe.backends.base import Traits
from editloupe.backends.boxes import DIALECTS, checked, converted, in_dialect
from editloupe.chat import ImagePart, Message, Reply, Request, TextPart, ToolCall
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ToolError
from editloupe.prompts import render
from editloupe.protocols.labeled_boxes import LabeledBoxes
from editloupe.replies import neutralise, parse_reply
from editloupe.tools.base import ToolContext, open_toolbox
from editloupe.values import Json, View

RULE, SCHEMA, NOTE, _, ANSWER = range(5)
PLAIN = DIALECTS["thousandths"]
OTHERS = ("thousandths_yx", "pixels")

STORE = ImageStore()
BEFORE = np.random.default_rng(0).integers(100, 140, (500, 2000, 3), dtype=np.uint8)
AFTER = BEFORE.copy()
AFTER[100:150, 400:500] = (255, 0, 0)
IMAGES = {"Original Image": STORE.add_array(BEFORE), "Edited Image": STORE.add_array(AFTER)}
"""Both of 2000×500 px, the second with a square."""
BOX = open_toolbox(("localize_differences", "zoom_in", "enhancer"))
SPECS = BOX.specs(BOX.tools)
SHOWN = [{"name": s.name, "description": s.description, "schema": json.dumps(s.parameters)} for s in SPECS]
FORM = render("agent/tools", tools=SHOWN, absent={}, max_turns=6, native=False)
SPEC = LabeledBoxes(labels=("ADD", "REMOVE"), list_key="found", label_key="op", name_key="object", image="Edited Image")


def first(form: str, asked: str = "?", images: dict[str, Any] = IMAGES) -> Message:
    """The first message as the agent writes it: the instruction, the pictures, the form."""
    shown = (ImagePart(image=ref, alias=name) for name, ref in images.items())
    return Message(role="user", parts=(TextPart(text=asked), *shown, TextPart(text=form)))


def sent(dialect: str, *messages: Message, side: int | None = None) -> Request:
    """What reaches a model that writes boxes in this dialect."""
    seen: list[Request] = []

    def ask(request: Request) -> Reply:
        seen.append(request)
        return Reply(text="")

    in_dialect(Traits(describes="m", boxes=dialect, max_image_side=side), Request(messages=messages, tools=SPECS), ask)
    return seen[0]


def told(dialect: str, text: str, *before: Message) -> str:
    """How an observation reaches the model."""
    return sent(dialect, first(FORM), *before, Message.of_text("user", text)).messages[-1].text


def read(dialect: str, reply: Reply | str, form: str = FORM, images: dict[str, Any] = IMAGES) -> Reply:
    """A model's reply as it is recorded."""
    said = Reply(text=reply) if isinstance(reply, str) else reply
    request = Request(messages=(first(form, images=images),))
    return in_dialect(Traits(describes="m", boxes=dialect), request, lambda _: said)


def call(image: str, box: Any) -> str:
    asked = {"name": "zoom_in", "parameters": {"target_image": image, "bbox": box}}
    return f"<tool_call>\n{json.dumps(asked)}\n</tool_call>"


def observed(name: str, **arguments: Json) -> str:
    """What the agent's observation says of a call."""
    views = {name: View.whole(ref) for name, ref in IMAGES.items()}
    try:
        text = BOX.call(name, arguments, ToolContext(images=STORE, views=views)).text
    except ToolError as error:
        text = f"Error: {error}"
    return f"Observation of {neutralise(name)}:\n{neutralise(text)}"


def test_numbers_by_hand() -> None:
    for px, size, thousandths in (
        ((0, 0, 4032, 3024), (4032, 3024), (0, 0, 1000, 1000)),
        # 1008 / 4032 = 1/4; 2 / 7 = 285.7 thousandths.
        ((1008, 2, 2016, 5), (4032, 7), (250, 286, 500, 714)),
        # Inverted stays inverted, outside stays outside: the tool has words for them.
        ((900, 0, 800, 50), (1000, 100), (900, 0, 800, 500)),
        ((-4, 0, 1100, 50), (1000, 100), (-4, 0, 1100, 500)),
        ((1, 2, 3, 4), None, (1, 2, 3, 4)),
    ):
        assert converted(px, "pixels", size, back=True) == thousandths
        assert converted(thousandths, "pixels", size) == px
    for back in (False, True):
        assert converted((1, 2, 3, 4), "thousandths_yx", None, back=back) == (2, 1, 4, 3)
    assert [checked(name) for name in DIALECTS] == list(DIALECTS)
    with pytest.raises(ConfigError, match=r"'xywh'.*one of thousandths, thousandths_yx, pixels"):
        checked("xywh")


def test_rule_and_schemas_name_the_dialect_and_the_instruction_stays() -> None:
    message = first(FORM, f"Editing Instruction: Move it to bbox [1, 2, 3, 4]. {PLAIN[RULE]}")
    assert sent("thousandths", message) == Request(messages=(message,), tools=SPECS)
    assert (FORM.count(PLAIN[RULE]), FORM.count(PLAIN[SCHEMA])) == (1, 2)
    for dialect in OTHERS:
        spoken, words = sent(dialect, message), DIALECTS[dialect]
        assert spoken.messages[0].parts[:-1] == message.parts[:-1]
        form = spoken.messages[0].parts[-1].text  # type: ignore[union-attr]
        assert (form.count(words[RULE]), form.count(words[SCHEMA])) == (1, 2)
        assert PLAIN[RULE] not in form and PLAIN[SCHEMA] not in form
        assert ('"maximum": 1000' in form) == (dialect != "pixels")
        properties: dict[str, Any] = {tool.name: tool.parameters["properties"] for tool in spoken.tools}
        for name in ("zoom_in", "enhancer"):
            box = properties[name]["bbox"]
            assert words[SCHEMA] in box["description"] and box["items"]["minimum"] == 0
            assert ("maximum" in box["items"]) == (dialect != "pixels")
        assert properties["localize_differences"] == SPECS[0].parameters["properties"]


def test_observations_and_errors_speak_the_dialect_of_the_image_they_name() -> None:
    found = observed("localize_differences", comparison_image_1="Original Image", comparison_image_2="Edited Image")
    assert "bbox [200, 200, 250, 300] in 'Original Image', bbox [200, 200, 250, 300] in 'Edited Image'" in found
    crop = observed("zoom_in", target_image="Edited Image", bbox=[200, 200, 250, 300], label="bbox [1, 2, 3, 4]")
    assert "bbox [200, 200, 250, 300] (px [400, 100, 500, 150]" in crop
    for dialect, box, px in (
        ("thousandths_yx", "[200, 200, 300, 250]", "[100, 400, 150, 500]"),
        ("pixels", "[400, 100, 500, 150]", "[400, 100, 500, 150]"),
    ):
        said = told(dialect, found)
        assert f"bbox {box} in 'Original Image', bbox {box} in 'Edited Image'" in said
        assert DIALECTS[dialect][NOTE] in said and PLAIN[NOTE] not in said
        # What the model was looking for are its own words.
        assert f"bbox {box} (px {px}" in told(dialect, crop)
        assert "Looking for: bbox [1, 2, 3, 4]." in told(dialect, crop)
    theirs = "Crop 1: bbox [200, 300, 250, 400] in 'Edited Image'"
    assert told("pixels", theirs) == theirs, "a user's own text is never rendered"
    # Errors also where they do not name the image.
    errors: tuple[tuple[list[Json], str], ...] = (
        ([900, 0, 800, 500], "bbox [1800, 0, 1600, 250] is empty or inverted"),
        ([300, 300, 301, 302], "bbox [600, 150, 602, 151] is only 2.0×1.0 px of 'Edited Image'"),
        ([0, 0, 1200, 500], DIALECTS["pixels"][SCHEMA]),
    )
    for wrong, words in errors:
        said = Message.of_text("assistant", call("Edited Image", wrong))
        found = told("pixels", observed("zoom_in", target_image="Edited Image", bbox=wrong), said)
        assert words in found and "If these are px" not in found


def test_calls_come_back_in_thousandths_and_all_else_stays() -> None:
    two = (
        'Thinking of "bbox": [1, 2, 3, 4].\n<tool_call>\n'
        '{"name": "zoom_in", "parameters": {"bbox": [400, 100, 500, 150], "target_image": "edited image", "label": "}"}}'
        '{"name": "zoom_in", "parameters": {"target_image": "Nowhere", "bbox": [400, 100, 500, 150]}}'
        "\n</tool_call> [5, 6, 7, 8]"
    )
    assert read("thousandths", two).text == two
    assert read("pixels", two).text == two.replace("[400, 100, 500, 150]", "[200, 200, 250, 300]", 1)
    assert read("thousandths_yx", two).text == two.replace("[400, 100, 500, 150]", "[100, 400, 150, 500]")
    # So does what the parser would mend: else its box would be another place.
    for block in (
        "{'name': 'zoom_in', 'parameters': {'target_image': 'Edited Image', 'bbox': [400, 100, 500, 150]}}",
        "{“name”: “zoom_in”, “parameters”: {“bbox”: [400, 100, 500, 150,], “target_image”: “Edited Image”}}",
        '```json\n{"name": "zoom_in", "parameters": {target_image: "Edited Image", bbox: [4e2, 100.0, 500, +150]}}\n```',
    ):
        [asked] = parse_reply(read("pixels", f"<tool_call>{block}</tool_call>"), turn=1).calls
        assert asked.arguments["bbox"] == [200, 200, 250, 300]


def test_a_box_in_another_dress_comes_back_in_thousandths_too() -> None:
    # Tools take it, so that one that is not converted would be another place. The image has 2000×500 px.
    for dressed in (["400", "100", "500", "150"], [[400, 100, 500, 150]], "[400, 100, 500, 150]", [400.0, 100.0, 5e2, 150]):
        [block] = parse_reply(read("pixels", call("Edited Image", dressed)), turn=1).calls
        assert block.arguments["bbox"] == [200, 200, 250, 300], dressed
        asked = ToolCall(id="c", name="zoom_in", arguments={"target_image": "Edited Image", "bbox": dressed})
        [native] = read("pixels", Reply(text="", tool_calls=(asked,))).tool_calls
        assert native.arguments["bbox"] == [200, 200, 250, 300], dressed


def test_a_reply_of_300_kb_is_read_in_linear_time() -> None:
    form = render("agent/format", tools=False, answer=SPEC, native=False, held=False)
    box = '"bbox": [1, 2, 3, 4'
    for unit in ("<tool_call>", box, f"{box}   ", "{", "}{", '"box": [', "target_image: '", " "):
        text = "<tool_call>" + unit * (300_000 // len(unit))
        began = time.process_time()
        read("pixels", text, form)
        assert time.process_time() - began < 2, unit


def test_the_rule_of_an_answer_and_its_boxes_are_in_the_dialect() -> None:
    answer = '<Start Final Answer>{"found": [{"op": "ADD", "object": "box", "box": %s}]}</Start Final Answer>'
    ours, beside = answer % "[100, 200, 300, 400]", call("Edited Image", [1, 2, 3, 4]).replace('"bbox"', '"box"')
    words = {"problem": "p", "tools": False, "answer": SPEC, "native": False, "held": False}
    forms = {name: render(f"agent/{name}", **words) for name in ("format", "remind")}
    asked = f"Editing Instruction: {SPEC.instructions()}"
    talk = (first(forms["format"], asked), Message.of_text("assistant", ours), Message.of_text("user", forms["remind"]))
    for dialect, box in (("thousandths_yx", "[200, 100, 400, 300]"), ("pixels", "[200, 100, 600, 200]")):
        opened, before, reminder = sent(dialect, *talk).messages
        assert opened.parts[0] == TextPart(text=asked), "the user's own words stay"
        for text in (opened.parts[-1].text, reminder.text):  # type: ignore[union-attr]
            assert (PLAIN[ANSWER] in text, text.count(f"{DIALECTS[dialect][ANSWER]}'Edited Image'")) == (False, 1)
        assert before.text == answer % box
        assert read(dialect, answer % box + beside, forms["format"]).text == ours + beside
        # A question for another answer carries no such rule, and nothing of its replies is touched.
        assert read(dialect, answer % box).text == answer % box
        # In another dress it is as little an answer as it is in thousandths.
        for dressed in (f'"{box}"', f"[{box}]"):
            assert read(dialect, answer % dressed, forms["format"]).text == answer % dressed
    # The rule names an image of any name.
    for name in ("A 'b' \\ c", 'The "first"', "Bild ä"):
        images, form = {name: IMAGES["Edited Image"]}, replace(SPEC, image=name).instructions()
        assert read("pixels", answer % "[200, 100, 600, 200]", form, images).text == ours
        assert read("pixels", answer % "[200, 100, 600, 200]", form).text == answer % "[200, 100, 600, 200]"
