"""Which questions are frozen: small drawn data, a command, and what the model answers so that all questions come up."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from tests.guards.wire import Asked, Call, Says

SIZE, BOX = (320, 240), (200, 40, 240, 80)
RED, GREEN, YELLOW = (200, 30, 30), (30, 160, 30), (220, 200, 40)


def scene(square: tuple[int, int, int], *, wall: tuple[int, int, int] = (170, 180, 200), more: bool = False) -> Image.Image:
    """A wall, a floor, a lamp and a square, each unlike the others. more: a bright plate on the floor too."""
    image = Image.new("RGB", SIZE, wall)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 160, 319, 239), fill=(110, 80, 60))
    draw.rectangle((20, 20, 60, 120), fill=(40, 40, 50))
    draw.rectangle((*BOX[:2], BOX[2] - 1, BOX[3] - 1), fill=square)
    if more:
        draw.ellipse((80, 170, 190, 230), fill=(250, 250, 245))
    return image


ROW: dict[str, Any] = {
    "id": "mug",
    "source_file_name": "source.png",
    "edited_file_name": "edited.png",
    "instruction": "Change the color of the red mug to green.",
    "edit_type": "Change Color",
}


def draw(folder: Path, **columns: Any) -> Path:
    """An ImageFolder with one edit; `edited_file_name=None` is one without its output."""
    folder.mkdir(parents=True, exist_ok=True)
    scene(RED).save(folder / "source.png")
    scene(GREEN, more=True).save(folder / "edited.png")
    for editor, square in (("a", GREEN), ("b", YELLOW)):
        (folder / editor).mkdir(exist_ok=True)
        scene(square, wall=(120, 140, 160), more=editor == "a").save(folder / editor / "mug.png")
    mask = Image.new("L", SIZE, 0)
    ImageDraw.Draw(mask).rectangle((190, 30, 249, 89), fill=255)
    mask.save(folder / "mask.png")
    row = {name: value for name, value in {**ROW, **columns}.items() if value is not None}
    (folder / "metadata.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    return folder


def final(answer: Any) -> str:
    said = answer if isinstance(answer, str) else json.dumps(answer)
    return f"<Start Thinking>I have seen enough.</Start Thinking>\n<Start Final Answer>{said}</Start Final Answer>"


def said(answers: Mapping[str, Any]) -> Callable[[Asked], Says]:
    """Answer by the first of these patterns that the question has."""

    def says(asked: Asked) -> Says:
        return final(next((answer for words, answer in answers.items() if re.search(words, asked.text)), "yes"))

    return says


def with_tools(answer: str) -> Callable[[Asked], Says]:
    """Compare the images, look closer, answer what is no answer, and answer when reminded."""
    looks: tuple[Says, ...] = (
        Call("localize_differences", {"comparison_image_1": "Original Image", "comparison_image_2": "Edited Image"}),
        Call("zoom_in", {"target_image": "Edited Image", "bbox": [600, 150, 780, 350]}),
        final("Splendid"),
    )
    return lambda asked: looks[asked.turn] if asked.turn < len(looks) else final(answer)


@dataclass(frozen=True)
class Scenario:
    """A command whose questions are frozen. {data}, {uri} and {out} in its words are filled in."""

    command: str
    says: Callable[[Asked], Says]
    columns: Mapping[str, Any]
    whole: bool = False
    """Whether the whole of one dialogue is frozen, and not the first message of each question."""
    left_out: str = ""
    """A pattern of questions that are not frozen, since others are that differ by a word."""


DIFFERENCES = {
    "differences": [
        {"op": "EDIT", "object": "mug", "box": [620, 160, 760, 340]},
        {"op": "ADD", "object": "plate", "box": [250, 708, 597, 963]},
        {"op": "REMOVE", "object": "cat", "box": [50, 80, 190, 500]},
    ]
}
TASKS = {
    "reference": [{"object": "mug", "action": "green"}],
    "restated": [{"object": "mug", "action": "green"}],
    "pairs": [[1, 1]],
}
MUG, LAMP, PLATE = [list(BOX)], [[20, 20, 61, 121]], [[80, 170, 191, 231]]
EDITS = (
    ("color_alter", "Change the color of [mug] to [green]"),
    ("text_change", "Replace the text '[open]' on [mug] with '[shut]'"),
    ("background_change", "Change the background to [park]"),
    ("subject_replace", "Replace [lamp] with [clock]"),
    ("subject_add", "Add [plate] on the [left] of [mug]"),
)
REMAIN = {"background_change": ", remain the mug unchanged"}
CHAIN = {
    "instruction": None,
    "instructions": [re.sub(r"[\[\]]", "", sentence) + REMAIN.get(kind, "") for kind, sentence in EDITS],
    "edited_file_name": None,
    "edited_file_names": ["edited.png", "a/mug.png", "b/mug.png", "edited.png", "a/mug.png"],
    "edit_type": None,
    "task_type": [kind for kind, _ in EDITS],
    "format_instructions": [sentence for _, sentence in EDITS],
    "bg_consistency": [True, True, False, False, False],
    **{f"{name}_objects": [["mug", "lamp"]] * len(EDITS) for name in ("all", "available", "unchanged")},
    "boxes": [
        *({"mug": MUG, "lamp": LAMP, "clock": [], "plate": []} for _ in range(4)),
        {"mug": MUG, "lamp": [], "clock": LAMP, "plate": []},
        {"mug": MUG, "lamp": [], "clock": LAMP, "plate": PLATE},
    ],
}
UNIC = {
    "task": "Reasoning Editing",
    "subtask": "Multi-object Coordination",
    "reasoning_points": ["The mug is green.", "It is lit."],
}
GIE = {
    "evaluation_question": "Which color has the mug, compared with the original?",
    "multiple_choice_options": ["Red", "Green", "Blue", "I can not tell from the image"],
    "expected_answer": "Green",
    "edit_type": "Color Change",
}
REVIEWED = {
    "reference_file_name": "edited.png",
    "edited_file_name": None,
    "bbox": list(BOX),
    "target_name": "mug",
    "source_caption": "The mug is red.",
    "reference_caption": "The mug is green.",
    "row_digest": "0",
}
IMAGES = {"edited_file_name": None, "instruction": None, "edit_type": None}
OBJECTS = {"objects": [{"object": "mug", "color": "red", "material": None, "text": None, "count": 1, "foreground": True}]}
WRITTEN = {
    "type": "Change Color", "target": "mug", "instruction": "Change the color of the mug to green.",
    "source_caption": "The mug is red.", "reference_caption": "The mug is green.",
}  # fmt: skip
QUESTION = {
    "fits": True, "instruction": "Paint the mug green.", "question": "Which color has the mug?",
    "options": ["Red", "Green", "Blue"], "answer": "Green",
}  # fmt: skip

LABELS = said({"Instruction Following": "Flawless Execution", "Visual Consistency": "Perfect Consistency"})
EDITORS = "--edited a={data}/a --edited b={data}/b"
OUTPUTS = {"edited_file_name": None}
JUDGE = "judge {data} --backend {uri} --out {out} --fail-on-error 1"
EDIVAL = f"{JUDGE} --protocol edival --set cc=none --set quality=none"

SCENARIOS: Mapping[str, Scenario] = {
    "dlebench-plain": Scenario(f"{JUDGE} --mode plain", LABELS, {}),
    "dlebench-oracle": Scenario(f"{JUDGE} --mode oracle", LABELS, {"bbox": list(BOX)}),
    "dlebench-tool": Scenario(f"{JUDGE} --mode tool --criteria if", with_tools("Flawless Execution"), {}, whole=True),
    "unicbench-plain": Scenario(f"{JUDGE} --protocol unicbench", said({"": "7"}), UNIC),
    "unicbench-tool": Scenario(f"{JUDGE} --protocol unicbench --mode tool --criteria nc", said({"": "7"}), UNIC),
    "unicverify-plain": Scenario(
        f"{JUDGE} --protocol unicverify",
        said({"[Aa]tomic tasks": TASKS, "": {"is_changed": True, "instruction": "Paint the mug green."}}),
        {},
    ),
    "edival-plain": Scenario(EDIVAL, said({"[Rr]ead|text": "shut"}), CHAIN),
    "edival-official": Scenario(
        f"{EDIVAL} --set rules=official --set role.shorten={{uri}}",
        said({"[Rr]ead|text": "shut", "[Ss]hort": "mug"}),
        CHAIN,
    ),
    "dice-plain": Scenario(f"{JUDGE} --protocol dice", said({"Editing instruction": "yes", "": DIFFERENCES}), {}),
    "dice-lines": Scenario(
        f"{JUDGE} --protocol dice --set form=lines --set option.marks=official", said({"": "no differences"}), {}
    ),
    "giebench-plain": Scenario(f"{JUDGE} --protocol giebench", said({"": "B"}), GIE),
    "giebench-tool": Scenario(f"{JUDGE} --protocol giebench --mode tool --set answer=text", said({"": "Green"}), GIE),
    "pairwise-plain": Scenario(
        f"{JUDGE} --protocol pairwise --mode plain --criteria if {EDITORS}", said({"": "A"}), OUTPUTS
    ),
    "targets": Scenario(f"{JUDGE} --protocol targets", said({"": "mug"}), {}),
    "dlebench-review": Scenario(
        f"{JUDGE} --protocol dlebench-review", said({"belong": "no"}), REVIEWED, left_out="Visual Con"
    ),
    "giebench-review": Scenario(
        f"{JUDGE} --protocol giebench-review", said({}), {**GIE, "mask_file_name": "mask.png", "row_digest": "0"}
    ),
    "dlebench-build": Scenario(
        "build dlebench {data} --backend {uri} --set editor=drawing --set grounding=given --out {out}",
        said({"small things": {"targets": []}, "": WRITTEN}),
        {**IMAGES, "bbox": list(BOX), "target_name": "mug"},
    ),
    "giebench-build": Scenario(
        "build giebench {data} --backend {uri} --set masks=given --out {out}",
        said({"write one instruction": QUESTION, "has to be edited": "The mug.", "Can text be read": "no", "": "Red"}),
        {**IMAGES, "mask_file_name": "mask.png", "target_name": "mug"},
        left_out="Type of edit: Size",
    ),
    "edival-build": Scenario(
        "build edival {data} --backend {uri} --set grounding=none --set turns=2 --out {out}",
        said({"[Ll]ist": OBJECTS, "": "spoon"}),
        IMAGES,
    ),
}
