"""Box dialects: numbers there and back, and our own texts, which are found in what tools and prompts really write."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from editloupe.answers import LabelledBoxes
from editloupe.backends.boxes import DIALECTS, Four, answer_image, checked, converted, incoming, outgoing, sizes_of
from editloupe.chat import ImagePart, Message, Reply, Request, TextPart, ToolCall
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.errors import ConfigError, ToolError
from editloupe.prompts import render
from editloupe.replies import neutralise, parse_reply
from editloupe.tools.base import Toolbox, open_toolbox
from editloupe.tools.session import Conversation
from editloupe.values import ImageRef, Json, View

RULE, SCHEMA, NOTE, _, ANSWER = range(5)
OTHERS = ("thousandths_yx", "pixels")


# Numbers


@given(box=st.tuples(*[st.integers(-50, 1500)] * 4), size=st.tuples(*[st.sampled_from((1, 7, 999, 1000, 4032))] * 2))
def test_boxes_there_and_back_are_the_same_as_far_as_pixels_are_fine_enough(box: Four, size: tuple[int, int]) -> None:
    turned = converted(box, "thousandths_yx", None)
    assert turned == (box[1], box[0], box[3], box[2]) and converted(turned, "thousandths_yx", None, back=True) == box
    back = converted(converted(box, "pixels", size), "pixels", size, back=True)
    for at in range(4):
        # Half a px there, and half a thousandth back.
        assert abs(back[at] - box[at]) <= 500 / size[at % 2] + 0.5


def test_pixels_by_hand() -> None:
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
    assert [checked(name) for name in DIALECTS] == list(DIALECTS)
    with pytest.raises(ConfigError, match=r"'xywh'.*one of thousandths, thousandths_yx, pixels"):
        checked("xywh")


# Our own texts


class Scene:
    """Two images of 2000×500 px, the second with a square, a toolbox, and the first message as the agent writes it."""

    def __init__(self) -> None:
        self.store = ImageStore()
        before = np.random.default_rng(0).integers(100, 140, (500, 2000, 3), dtype=np.uint8)
        after = before.copy()
        after[100:150, 400:500] = (255, 0, 0)
        pictures = {"Original Image": before, "Edited Image": after}
        self.images: dict[str, ImageRef] = {name: self.store.add_array(rgb) for name, rgb in pictures.items()}
        self.box: Toolbox = open_toolbox(("localize_differences", "zoom_in", "enhancer"))
        self.specs = self.box.specs(self.box.tools)
        tools = [
            {"name": s.name, "description": s.description, "schema": json.dumps(s.parameters, ensure_ascii=False)}
            for s in self.specs
        ]
        self.form = render("agent/tools", tools=tools, absent={}, max_turns=6, native=False)
        asked = TextPart(text=f"Editing Instruction: Move it to bbox [1, 2, 3, 4]. {DIALECTS['thousandths'][RULE]}")
        self.parts: list[TextPart | ImagePart] = [asked]
        for name, ref in self.images.items():
            self.parts += [TextPart(text=f"{name}:"), ImagePart(image=ref, alias=name)]
        self.first = Message(role="user", parts=(*self.parts, TextPart(text=self.form)))
        self.sizes = sizes_of(Request(messages=(self.first,)), ImagePolicy())

    def observed(self, name: str, **arguments: Json) -> str:
        """What the agent's observation says of a call."""
        views = {name: (View.whole(ref),) for name, ref in self.images.items()}
        try:
            text = self.box.call(name, arguments, Conversation(panes=views).tool_context(self.store)).text
        except ToolError as error:
            text = f"Error: {error}"
        return f"Observation of {neutralise(name)}:\n{neutralise(text)}"

    def spoken(self, dialect: str, *more: Message) -> tuple[Message, ...]:
        return outgoing(Request(messages=(self.first, *more), tools=self.specs), dialect, self.sizes).messages

    def told(self, dialect: str, text: str, *before: Message) -> str:
        return self.spoken(dialect, *before, Message.of_text("user", text))[-1].text


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def call(image: str, box: list[int]) -> str:
    asked = {"name": "zoom_in", "parameters": {"target_image": image, "bbox": box}}
    return f"<tool_call>\n{json.dumps(asked)}\n</tool_call>"


def test_rule_and_schemas_name_the_dialect_and_the_instruction_stays(scene: Scene) -> None:
    request = Request(messages=(scene.first,), tools=scene.specs)
    assert outgoing(request, "thousandths", scene.sizes) is request
    plain = DIALECTS["thousandths"]
    assert (scene.form.count(plain[RULE]), scene.form.count(plain[SCHEMA])) == (1, 2)
    assert sizes_of(request, ImagePolicy(max_side=1000))["Edited Image"] == (1000, 250)
    for dialect in OTHERS:
        spoken, words = outgoing(request, dialect, scene.sizes), DIALECTS[dialect]
        form = spoken.messages[0].parts[-1].text  # type: ignore[union-attr]
        assert (form.count(words[RULE]), form.count(words[SCHEMA])) == (1, 2)
        assert plain[RULE] not in form and plain[SCHEMA] not in form
        assert ('"maximum": 1000' in form) == (dialect != "pixels")
        assert spoken.messages[0].parts[:-1] == scene.first.parts[:-1]
        properties = {tool.name: tool.parameters["properties"] for tool in spoken.tools}
        for name in ("zoom_in", "enhancer"):
            box = properties[name]["bbox"]  # type: ignore[call-overload,index]
            assert words[SCHEMA] in box["description"] and box["items"]["minimum"] == 0
            assert ("maximum" in box["items"]) == (dialect != "pixels")
        assert properties["localize_differences"] == scene.specs[0].parameters["properties"]


def test_observations_speak_the_dialect_of_the_image_they_name(scene: Scene) -> None:
    text = scene.observed("localize_differences", comparison_image_1="Original Image", comparison_image_2="Edited Image")
    assert "bbox [200, 200, 250, 300] in 'Original Image', bbox [200, 200, 250, 300] in 'Edited Image'" in text
    crop = scene.observed("zoom_in", target_image="Edited Image", bbox=[200, 200, 250, 300], label="bbox [1, 2, 3, 4]")
    assert "bbox [200, 200, 250, 300] (px [400, 100, 500, 150]" in crop
    # 2000×500 px.
    for dialect, box, px in (
        ("thousandths_yx", "[200, 200, 300, 250]", "[100, 400, 150, 500]"),
        ("pixels", "[400, 100, 500, 150]", "[400, 100, 500, 150]"),
    ):
        said = scene.told(dialect, text)
        assert f"bbox {box} in 'Original Image', bbox {box} in 'Edited Image'" in said
        assert DIALECTS[dialect][NOTE] in said and DIALECTS["thousandths"][NOTE] not in said
        # What the model was looking for are its own words.
        assert f"bbox {box} (px {px}" in scene.told(dialect, crop)
        assert "Looking for: bbox [1, 2, 3, 4]." in scene.told(dialect, crop)
    theirs = "Crop 1: bbox [200, 300, 250, 400] in 'Edited Image'"
    assert scene.told("pixels", theirs) == theirs, "a user's own text is never rendered"


def test_errors_speak_the_dialect_too_where_they_do_not_name_the_image(scene: Scene) -> None:
    for box, told in (
        ([900, 0, 800, 500], "bbox [1800, 0, 1600, 250] is empty or inverted"),
        ([300, 300, 301, 302], "bbox [600, 150, 602, 151] is only 2.0×1.0 px of 'Edited Image'"),
        ([0, 0, 1200, 500], DIALECTS["pixels"][SCHEMA]),
    ):
        said = Message.of_text("assistant", call("Edited Image", box))
        text = scene.observed("zoom_in", target_image="Edited Image", bbox=box)  # type: ignore[arg-type]
        assert told in scene.told("pixels", text, said), box


# Calls


def test_calls_as_text_come_back_in_thousandths_and_all_else_stays(scene: Scene) -> None:
    two = (
        'Thinking of "bbox": [1, 2, 3, 4].\n<tool_call>\n'
        '{"name": "zoom_in", "parameters": {"bbox": [400, 100, 500, 150], "target_image": "edited image", "label": "}"}}'
        '{"name": "zoom_in", "parameters": {"target_image": "Nowhere", "bbox": [400, 100, 500, 150]}}'
        "\n</tool_call> [5, 6, 7, 8]"
    )
    reply = incoming(Reply(text=two), "pixels", scene.sizes)
    assert reply.text == two.replace("[400, 100, 500, 150]", "[200, 200, 250, 300]", 1)
    turned = two.replace("[400, 100, 500, 150]", "[100, 400, 150, 500]")
    assert incoming(Reply(text=two), "thousandths_yx", scene.sizes).text == turned
    assert incoming(reply, "thousandths", {}) is reply


def test_every_call_that_the_parser_would_mend_is_converted_too(scene: Scene) -> None:
    """Else its box would be another place."""
    for block in (
        "{'name': 'zoom_in', 'parameters': {'target_image': 'Edited Image', 'bbox': [400, 100, 500, 150]}}",
        "{“name”: “zoom_in”, “parameters”: {“bbox”: [400, 100, 500, 150,], “target_image”: “Edited Image”}}",
        '```json\n{"name": "zoom_in", "parameters": {target_image: "Edited Image", bbox: [4e2, 100.0, 500, +150]}}\n```',
    ):
        reply = incoming(Reply(text=f"<tool_call>{block}</tool_call>"), "pixels", scene.sizes)
        [asked] = parse_reply(reply, turn=1).calls
        assert asked.arguments["bbox"] == [200, 200, 250, 300]


def test_native_and_text_calls_are_rendered_alike_and_what_is_no_box_is_left_to_the_tools_own_check() -> None:
    sizes = {"Edited Image": (4032, 1001)}
    for dialect in DIALECTS:
        for box in ([100, 200, 300, 400], [-5, 0, 1005, 9], [0, 0, 0, 0], [7, 8, 6, 5]):
            asked = ToolCall(id="c", name="zoom_in", arguments={"target_image": "Edited Image", "bbox": box})  # type: ignore[dict-item]
            message = Message(role="assistant", parts=(TextPart(text=call("Edited Image", box)),), tool_calls=(asked,))
            [spoken] = outgoing(Request(messages=(message,)), dialect, sizes).messages
            written = json.loads(spoken.text.removeprefix("<tool_call>").removesuffix("</tool_call>"))["parameters"]
            assert written == spoken.tool_calls[0].arguments
            back = incoming(Reply(text=spoken.text, tool_calls=spoken.tool_calls), dialect, sizes)
            assert (back.text, back.tool_calls) == (message.text, (asked,))
    values: list[Json] = [[1, 2, 3], "left", None, [1, 2, 3, True], [[1, 2], [3, 4]], {"x": 1}, [1, 2, 3, "4"]]
    for value in values:
        asked = ToolCall(id="c", name="zoom_in", arguments={"target_image": "Edited Image", "bbox": value})
        assert incoming(Reply(text="", tool_calls=(asked,)), "thousandths_yx", {}).tool_calls == (asked,)


@pytest.mark.parametrize(
    "unit",
    ["<tool_call>", '"bbox": [1, 2, 3, 4', "{", "}{", '"box": [', "target_image: '", "<", " ", '"bbox": [1, 2, 3, 4   '],
)
def test_a_reply_of_a_megabyte_is_read_in_linear_time(unit: str) -> None:
    text = "<tool_call>" + unit * (10**6 // len(unit))
    began = time.process_time()
    incoming(Reply(text=text), "pixels", {"A": (10, 10)}, answer="A")
    assert time.process_time() - began < 2


# Answers with boxes

SPEC = LabelledBoxes(labels=("ADD", "REMOVE"), list_key="found", label_key="op", name_key="object", image="Edited Image")


def found(box: str) -> str:
    return f'<Start Final Answer>{{"found": [{{"op": "ADD", "object": "box", "box": {box}}}]}}</Start Final Answer>'


def test_the_rule_of_an_answer_and_its_boxes_are_in_the_dialect(scene: Scene) -> None:
    form = TextPart(text=render("agent/format", tools=False, answer=SPEC, native=False, held=False))
    asked = TextPart(text=f"Editing Instruction: {SPEC.instructions()}")
    said = Message.of_text("assistant", found("[100, 200, 300, 400]"))
    again = render("agent/remind", problem="p", tools=False, answer=SPEC, native=False, held=False)
    first = Message(role="user", parts=(asked, *scene.parts[1:], form))
    request = Request(messages=(first, said, Message.of_text("user", again)))
    assert answer_image(request, scene.sizes) == "Edited Image"
    # The edited image has 2000×500 px.
    for dialect, box in (("thousandths_yx", "[200, 100, 400, 300]"), ("pixels", "[200, 100, 600, 200]")):
        opened, before, reminder = outgoing(request, dialect, scene.sizes).messages
        plain, rule = DIALECTS["thousandths"][ANSWER], DIALECTS[dialect][ANSWER]
        assert opened.parts[0] == asked, "the user's own words stay"
        for text in (opened.parts[-1].text, reminder.text):  # type: ignore[union-attr]
            assert (plain in text, text.count(f"{rule}'Edited Image'")) == (False, 1)
        assert before.text == found(box)
        reply = Reply(text=found(box) + call("Edited Image", [1, 2, 3, 4]).replace('"bbox"', '"box"'))
        back = incoming(reply, dialect, scene.sizes, answer="Edited Image").text
        assert back == found("[100, 200, 300, 400]") + reply.text[len(found(box)) :]
        # A question for another answer carries no such rule, and nothing of its replies is touched.
        assert incoming(reply, dialect, scene.sizes).text == reply.text
    assert answer_image(Request(messages=(scene.first,)), scene.sizes) is None


@pytest.mark.parametrize("image", ["A 'b' \\ c", 'The "first"', "Bild ä"])
def test_the_rule_names_an_image_of_any_name(image: str) -> None:
    ref = ImageRef(sha256="0" * 64, width=2000, height=500, media_type="image/png")
    spec = replace(SPEC, image=image)
    parts = (TextPart(text="?"), ImagePart(image=ref, alias=image), TextPart(text=spec.instructions()))
    request = Request(messages=(Message(role="user", parts=parts),))
    assert answer_image(request, sizes_of(request, ImagePolicy())) == image
    assert answer_image(request, {"Another": (10, 10)}) is None
    lines = Message(role="user", parts=(*parts[:-1], TextPart(text=replace(spec, form="lines").instructions())))
    assert outgoing(Request(messages=(lines,)), "pixels", sizes_of(request, ImagePolicy())).messages == (lines,)
