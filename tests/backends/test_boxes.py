"""Box dialects: numbers there and back, and our own texts, which are found in what tools and prompts really write."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from editloupe.answers import LabelledBoxes
from editloupe.backends.boxes import (
    DIALECTS,
    Four,
    answer_image,
    checked,
    from_thousandths,
    incoming,
    outgoing,
    sizes_of,
    to_thousandths,
)
from editloupe.chat import ImagePart, Message, Reply, Request, TextPart, ToolCall
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.errors import ConfigError, ToolError
from editloupe.prompts import render
from editloupe.replies import neutralise, parse_reply
from editloupe.tools.base import Toolbox, open_toolbox
from editloupe.tools.session import Conversation
from editloupe.values import ImageRef, Json, View

SIDES = (1, 7, 333, 999, 1000, 1001, 4032)
BITING = st.sampled_from(SIDES)


def boxes(low: int, high: int) -> st.SearchStrategy[Four]:
    edge = st.integers(low, high)
    return st.tuples(edge, edge, edge, edge)


# Numbers


@given(box=boxes(-50, 1500))
def test_y_first_there_and_back_is_the_same(box: Four) -> None:
    spoken = from_thousandths(box, "thousandths_yx", None)
    assert spoken == (box[1], box[0], box[3], box[2])
    assert to_thousandths(spoken, "thousandths_yx", None) == box


@given(box=boxes(0, 1000), width=BITING, height=BITING)
def test_thousandths_survive_the_way_over_pixels_as_far_as_the_pixels_are_fine_enough(
    box: Four, width: int, height: int
) -> None:
    back = to_thousandths(from_thousandths(box, "pixels", (width, height)), "pixels", (width, height))
    for axis, side in enumerate((width, height)):
        low, high = box[axis], box[axis + 2]
        for edge, was in ((back[axis], low), (back[axis + 2], high)):
            if side >= 1000:
                assert edge == was
            else:
                # One px of such an image is more than one thousandth; edges on one px are drawn apart by one more.
                assert abs(edge - was) <= 1000 / side * (1.5 if low < high else 1) + 0.5
                assert 0 <= edge <= 1000


@given(width=BITING, height=BITING, data=st.data())
def test_pixels_in_range_stay_in_range_and_in_order(width: int, height: int, data: st.DataObject) -> None:
    x = sorted(data.draw(st.tuples(st.integers(0, width), st.integers(0, width))))
    y = sorted(data.draw(st.tuples(st.integers(0, height), st.integers(0, height))))
    back = to_thousandths((x[0], y[0], x[1], y[1]), "pixels", (width, height))
    assert all(0 <= v <= 1000 and v == int(v) for v in back)
    assert [(back[0] < back[2]), (back[1] < back[3])] == [x[0] < x[1], y[0] < y[1]]
    for given_px, got, side in zip(
        (*x, *y), (back[0], back[2], back[1], back[3]), (width, width, height, height), strict=True
    ):
        # To the nearest; only edges that would fall together move further.
        assert abs(got - 1000 * given_px / side) <= 1


@given(side=BITING, past=st.integers(1, 5000), other=st.integers(0, 5000))
def test_what_is_out_of_range_or_inverted_stays_so_for_the_tools_own_check(side: int, past: int, other: int) -> None:
    size = (side, side)
    assert to_thousandths((0, 0, side + past, side), "pixels", size)[2] > 1000
    assert to_thousandths((-past, 0, side, side), "pixels", size)[0] < 0
    assert from_thousandths((0, 0, 1000 + past, 1000), "pixels", size)[2] > side
    assert from_thousandths((-past, 0, 1000, 1000), "pixels", size)[0] < 0
    low, high = sorted((other % (side + 1), past % (side + 1)))
    inverted = to_thousandths((high, 0, low, side), "pixels", size)
    assert inverted[0] >= inverted[2]


@pytest.mark.parametrize(
    ("px", "size", "thousandths"),
    [
        ((0, 0, 4032, 3024), (4032, 3024), (0, 0, 1000, 1000)),
        # 1008 / 4032 = 1/4; 2 / 7 = 285.7 thousandths.
        ((1008, 2, 2016, 5), (4032, 7), (250, 286, 500, 714)),
        # 3501 and 3502 of 4032 px are 868.3 and 868.6: apart. 3502 and 3503 are 868.6 and 868.8: both 869.
        ((3501, 0, 3502, 1), (4032, 1), (868, 0, 869, 1000)),
        ((3502, 0, 3503, 1), (4032, 1), (868, 0, 869, 1000)),
        # Fractions as px would be nothing at all: they stay, and the tool has a word for them.
        ((0.1, 0.2, 0.5, 0.6), (4032, 3024), (0.1, 0.2, 0.5, 0.6)),
    ],
)
def test_pixels_by_hand(px: Four, size: tuple[int, int], thousandths: Four) -> None:
    assert to_thousandths(px, "pixels", size) == thousandths


def test_a_box_of_an_image_that_nobody_knows_stays_as_it_is() -> None:
    assert to_thousandths((1, 2, 3, 4), "pixels", None) == (1, 2, 3, 4)


def test_an_unknown_dialect_is_named_with_those_that_there_are() -> None:
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
        self.images: dict[str, ImageRef] = {
            "Original Image": self.store.add_array(before),
            "Edited Image": self.store.add_array(after),
        }
        self.box: Toolbox = open_toolbox(("localize_differences", "zoom_in", "enhancer"))
        specs = self.box.specs(self.box.tools)
        tools = [
            {"name": s.name, "description": s.description, "schema": json.dumps(s.parameters, ensure_ascii=False)}
            for s in specs
        ]
        self.form = render("agent/tools", tools=tools, absent={}, max_turns=6, native=False)
        self.specs = specs
        self.asked = f"Editing Instruction: Move it to bbox [1, 2, 3, 4]. {DIALECTS['thousandths'].rule}"
        parts: list[TextPart | ImagePart] = [TextPart(text=self.asked)]
        for name, ref in self.images.items():
            parts += [TextPart(text=f"{name}:"), ImagePart(image=ref, alias=name)]
        self.first = Message(role="user", parts=(*parts, TextPart(text=self.form)))

    def observed(self, name: str, **arguments: Json) -> str:
        """What the agent's observation says of a call."""
        views = {name: (View.whole(ref),) for name, ref in self.images.items()}
        try:
            text = self.box.call(name, arguments, Conversation(panes=views).tool_context(self.store)).text
        except ToolError as error:
            text = f"Error: {error}"
        return f"Observation of {neutralise(name)}:\n{neutralise(text)}"

    def spoken(self, dialect: str, *more: Message) -> Request:
        request = Request(messages=(self.first, *more), tools=self.specs)
        return outgoing(request, dialect, sizes_of(request, ImagePolicy()))


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def call(image: str, box: list[int]) -> str:
    asked = {"name": "zoom_in", "parameters": {"target_image": image, "bbox": box}}
    return f"<tool_call>\n{json.dumps(asked)}\n</tool_call>"


def test_thousandths_are_the_request_itself(scene: Scene) -> None:
    request = Request(messages=(scene.first,), tools=scene.specs)
    assert outgoing(request, "thousandths", sizes_of(request, ImagePolicy())) is request
    reply = Reply(text="x")
    assert incoming(reply, "thousandths", {}) is reply


@pytest.mark.parametrize("dialect", ["thousandths_yx", "pixels"])
def test_rule_and_schemas_name_the_dialect_and_the_instruction_stays(scene: Scene, dialect: str) -> None:
    request = scene.spoken(dialect)
    plain, words = DIALECTS["thousandths"], DIALECTS[dialect]
    form = request.messages[0].parts[-1]
    assert isinstance(form, TextPart)
    assert plain.rule in scene.form and plain.schema in scene.form
    assert (form.text.count(words.rule), form.text.count(words.schema)) == (1, 2)
    assert plain.rule not in form.text and plain.schema not in form.text
    assert request.messages[0].parts[:-1] == scene.first.parts[:-1]
    by_name = {tool.name: tool.parameters["properties"] for tool in request.tools}
    for name in ("zoom_in", "enhancer"):
        box = by_name[name]["bbox"]  # type: ignore[call-overload,index]
        assert words.schema in box["description"]
        assert ("maximum" in box["items"]) == (dialect != "pixels")
        assert box["items"]["minimum"] == 0
    assert by_name["localize_differences"] == scene.specs[0].parameters["properties"]


def test_observations_speak_the_dialect_of_the_image_they_name(scene: Scene) -> None:
    text = scene.observed("localize_differences", comparison_image_1="Original Image", comparison_image_2="Edited Image")
    assert "bbox [200, 200, 250, 300] in 'Original Image', bbox [200, 200, 250, 300] in 'Edited Image'" in text
    said = {d: scene.spoken(d, Message.of_text("user", text)).messages[-1].text for d in DIALECTS}
    assert said["thousandths"] == text
    assert "bbox [200, 200, 300, 250] in 'Original Image', bbox [200, 200, 300, 250] in" in said["thousandths_yx"]
    # 2000×500 px.
    assert "bbox [400, 100, 500, 150] in 'Original Image', bbox [400, 100, 500, 150] in" in said["pixels"]
    for dialect in ("thousandths_yx", "pixels"):
        assert DIALECTS[dialect].note in said[dialect]
        assert DIALECTS["thousandths"].note not in said[dialect]


@pytest.mark.parametrize("tool", ["zoom_in", "enhancer"])
def test_a_crop_repeats_the_box_as_the_model_wrote_it(scene: Scene, tool: str) -> None:
    text = scene.observed(tool, target_image="Edited Image", bbox=[200, 200, 250, 300])
    assert "bbox [200, 200, 250, 300] (px [400, 100, 500, 150]" in text
    said = {d: scene.spoken(d, Message.of_text("user", text)).messages[-1].text for d in DIALECTS}
    assert "bbox [200, 200, 300, 250] (px [100, 400, 150, 500]" in said["thousandths_yx"]
    assert "bbox [400, 100, 500, 150] (px [400, 100, 500, 150]" in said["pixels"]


def test_what_the_model_was_looking_for_stays_its_own_words(scene: Scene) -> None:
    text = scene.observed("zoom_in", target_image="Edited Image", bbox=[0, 0, 500, 500], label="bbox [1, 2, 3, 4]")
    said = scene.spoken("thousandths_yx", Message.of_text("user", text)).messages[-1].text
    assert "Looking for: bbox [1, 2, 3, 4]." in said


@pytest.mark.parametrize(
    ("box", "as_written", "told"),
    [
        ([900, 0, 800, 500], [1800, 0, 1600, 250], "bbox [1800, 0, 1600, 250] is empty or inverted"),
        ([300, 300, 301, 302], [600, 150, 602, 151], "bbox [600, 150, 602, 151] is only 2.0×1.0 px of 'Edited Image'"),
    ],
)
def test_errors_speak_the_dialect_too_where_they_do_not_name_the_image(
    scene: Scene, box: list[int], as_written: list[int], told: str
) -> None:
    said = Message.of_text("assistant", call("Edited Image", box))
    text = scene.observed("zoom_in", target_image="Edited Image", bbox=box)  # type: ignore[arg-type]
    _, before, after = scene.spoken("pixels", said, Message.of_text("user", text)).messages
    assert before.text == call("Edited Image", as_written)
    assert told in after.text
    if "only" in told:
        # At least 4 px a side: 2 thousandths of 2000 px, 8 of 500.
        assert "x1 - x0 ≥ 4 and y1 - y0 ≥ 4" in after.text


def test_a_box_off_the_schema_is_answered_in_the_dialects_words(scene: Scene) -> None:
    said = Message.of_text("assistant", call("Edited Image", [0, 0, 1200, 500]))
    text = scene.observed("zoom_in", target_image="Edited Image", bbox=[0, 0, 1200, 500])
    assert DIALECTS["thousandths"].schema in text
    for dialect in ("thousandths_yx", "pixels"):
        told = scene.spoken(dialect, said, Message.of_text("user", text)).messages[-1].text
        assert DIALECTS[dialect].schema in told
        assert DIALECTS["thousandths"].schema not in told


def test_a_users_own_text_is_never_rendered(scene: Scene) -> None:
    theirs = Message.of_text("user", "Crop 1: bbox [200, 300, 250, 400] in 'Edited Image'")
    assert scene.spoken("pixels", theirs).messages[-1] == theirs


# Calls


def test_calls_as_text_come_back_in_thousandths_and_all_else_stays(scene: Scene) -> None:
    two = (
        'Thinking of "bbox": [1, 2, 3, 4].\n<tool_call>\n'
        '{"name": "zoom_in", "parameters": {"bbox": [400, 100, 500, 150], "target_image": "edited image", "label": "}"}}'
        '{"name": "zoom_in", "parameters": {"target_image": "Nowhere", "bbox":[400,100,500,150]}}'
        "\n</tool_call> [5, 6, 7, 8]"
    )
    request = Request(messages=(scene.first,))
    reply = incoming(Reply(text=two), "pixels", sizes_of(request, ImagePolicy()))
    assert reply.text == two.replace("[400, 100, 500, 150]", "[200, 200, 250, 300]")
    turned = incoming(Reply(text=two), "thousandths_yx", sizes_of(request, ImagePolicy()))
    assert turned.text == two.replace("[400, 100, 500, 150]", "[100, 400, 150, 500]").replace(
        "[400,100,500,150]", "[100, 400, 150, 500]"
    )


@pytest.mark.parametrize(
    "block",
    [
        "{'name': 'zoom_in', 'parameters': {'target_image': 'Edited Image', 'bbox': [400, 100, 500, 150]}}",
        "{“name”: “zoom_in”, “parameters”: {“bbox”: [400, 100, 500, 150,], “target_image”: “Edited Image”}}",
        '```json\n{"name": "zoom_in", "parameters": {target_image: "Edited Image", bbox: [4e2, 100.0, 500, +150]}}\n```',
    ],
)
def test_every_call_that_the_parser_would_mend_is_converted_too(scene: Scene, block: str) -> None:
    """Else its box would be another place."""
    sizes = sizes_of(Request(messages=(scene.first,)), ImagePolicy())
    reply = incoming(Reply(text=f"<tool_call>{block}</tool_call>"), "pixels", sizes)
    [asked] = parse_reply(reply, turn=1).calls
    assert asked.arguments["bbox"] == [200, 200, 250, 300]


@pytest.mark.parametrize("value", [[1, 2, 3], "left", None, [1, 2, 3, True], [[1, 2], [3, 4]], {"x": 1}, [1, 2, 3, "4"]])
def test_what_is_no_box_is_left_to_the_tools_own_check(value: Json) -> None:
    asked = ToolCall(id="c", name="zoom_in", arguments={"target_image": "Edited Image", "bbox": value})
    reply = incoming(Reply(text="", tool_calls=(asked,)), "thousandths_yx", {})
    assert reply.tool_calls == (asked,)


@given(box=boxes(-5, 1005), dialect=st.sampled_from(sorted(DIALECTS)))
def test_native_and_text_calls_are_rendered_alike(box: Four, dialect: str) -> None:
    sizes = {"Edited Image": (4032, 1001)}
    asked = ToolCall(id="c", name="zoom_in", arguments={"target_image": "Edited Image", "bbox": list(box)})
    text = f"<tool_call>{json.dumps({'name': 'zoom_in', 'parameters': dict(asked.arguments)})}</tool_call>"
    message = Message(role="assistant", parts=(TextPart(text=text),), tool_calls=(asked,))
    [spoken] = outgoing(Request(messages=(message,)), dialect, sizes).messages
    written = json.loads(spoken.text.removeprefix("<tool_call>").removesuffix("</tool_call>"))["parameters"]
    assert written == spoken.tool_calls[0].arguments
    back = incoming(Reply(text=spoken.text, tool_calls=spoken.tool_calls), dialect, sizes)
    assert (back.text, back.tool_calls) == (text, (asked,))


def test_sizes_are_those_of_the_images_as_sent(scene: Scene) -> None:
    request = Request(messages=(scene.first,))
    assert sizes_of(request, ImagePolicy())["Edited Image"] == (2000, 500)
    assert sizes_of(request, ImagePolicy(max_side=1000))["Edited Image"] == (1000, 250)


# Answers with boxes

SPEC = LabelledBoxes(labels=("ADD", "REMOVE"), list_key="found", label_key="op", name_key="object", image="Edited Image")
SPOKEN = {"thousandths_yx": "[200, 100, 400, 300]", "pixels": "[200, 100, 600, 200]"}
"""[100, 200, 300, 400] in each dialect; the edited image has 2000×500 px."""


def found(box: str) -> str:
    return f'<Start Final Answer>{{"found": [{{"op": "ADD", "object": "box", "box": {box}}}]}}</Start Final Answer>'


def of_answers(scene: Scene, *more: Message) -> Request:
    form = TextPart(text=render("agent/format", tools=False, answer=SPEC, native=False))
    asked = TextPart(text=f"Editing Instruction: {SPEC.instructions()}")
    return Request(messages=(Message(role="user", parts=(asked, *scene.first.parts[1:-1], form)), *more))


@pytest.mark.parametrize("dialect", sorted(SPOKEN))
def test_the_rule_of_an_answer_and_its_boxes_are_in_the_dialect(scene: Scene, dialect: str) -> None:
    said = Message.of_text("assistant", found("[100, 200, 300, 400]"))
    reminder = Message.of_text(
        "user", render("agent/remind", problem="p", tools=False, answer=SPEC, native=False, held=False)
    )
    request = of_answers(scene, said, reminder)
    sizes = sizes_of(request, ImagePolicy())
    first, before, again = outgoing(request, dialect, sizes).messages
    plain, rule = (DIALECTS[d].answer.format(image="Edited Image") for d in ("thousandths", dialect))
    *others, form = [part.text for part in first.parts if isinstance(part, TextPart)]
    # The user's own words stay.
    assert (plain in SPEC.instructions(), plain in others[0], rule in others[0]) == (True, True, False)
    assert [(plain in text, text.count(rule)) for text in (form, again.text)] == [(False, 1), (False, 1)]
    assert before.text == found(SPOKEN[dialect])
    image = answer_image(request, sizes)
    assert image == "Edited Image"
    reply = Reply(text=found(SPOKEN[dialect]) + call("Edited Image", [1, 2, 3, 4]).replace('"bbox"', '"box"'))
    back = incoming(reply, dialect, sizes, answer=image).text
    assert back == found("[100, 200, 300, 400]") + reply.text[len(found(SPOKEN[dialect])) :]
    # A question for another answer carries no such rule, and nothing of its replies is touched.
    assert answer_image(Request(messages=(scene.first,)), sizes) is None
    assert incoming(reply, dialect, sizes).text == reply.text


@pytest.mark.parametrize("image", ["A 'b' \\ c", 'The "first"', "Bild ä"])
def test_the_rule_names_an_image_of_any_name(image: str) -> None:
    ref = ImageRef(sha256="0" * 64, width=2000, height=500, media_type="image/png")
    spec = replace(SPEC, image=image)
    parts = (TextPart(text="?"), ImagePart(image=ref, alias=image), TextPart(text=spec.instructions()))
    request = Request(messages=(Message(role="user", parts=parts),))
    assert answer_image(request, sizes_of(request, ImagePolicy())) == image
    assert answer_image(request, {"Another": (10, 10)}) is None


def test_an_answer_in_lines_is_in_fractions_for_every_model(scene: Scene) -> None:
    lines = replace(SPEC, form="lines")
    parts = (*scene.first.parts[:-1], TextPart(text=lines.instructions()))
    request = Request(messages=(Message(role="user", parts=parts),))
    sizes = sizes_of(request, ImagePolicy())
    assert outgoing(request, "pixels", sizes).messages == request.messages
    assert answer_image(request, sizes) is None
