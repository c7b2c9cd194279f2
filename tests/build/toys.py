"""What recipes ask, played by programs: a model for every role, a detector, a segmenter, editors. Also in other processes.

The environment says otherwise: TOY is a JSON object of answers by kind of question. "refuse" names a kind that is refused,
"half" one of which each second is, "stop" one at which the endpoint breaks off; after "die" answers or kept items the
process ends at once. TOY_LOG and TOY_EDITS name files with a line a question and an edit.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.build.direct import DoneJournal
from editloupe.build.places import ImagePlace
from editloupe.chat import Reply
from editloupe.errors import EditError, PhraseError, ToolError
from editloupe.models import opening
from editloupe.models.detect.base import Detection, DetectionResult
from editloupe.models.edit.drawing import DrawingEditor
from editloupe.models.segment.base import Segmentation
from editloupe.values import Box
from tests.packages import install

SQUARE = [62.5, 83.333, 137.5, 183.333]
"""A red square of 24 px in an image of 320×240 px, in thousandths."""
PX = (20, 20, 44, 44)
OBJECTS = [
    {"object": "cup", "color": "red", "material": "metal", "text": "HOT TEA", "count": 1, "foreground": True},
    {"object": "wooden table", "color": "none", "material": "wooden", "text": None, "count": 1, "foreground": False},
    {"object": "Cat", "color": None, "material": None, "text": None, "count": 3, "foreground": True},
]
KINDS = {
    "Do these texts belong together": "review",
    "Answer yes if all of this holds": "review",
    "Is the place right?": "review",
    "name small things": "targets",
    "what the image shows before and after": "metadata",
    "You write one instruction": "edit",
    "has to be edited?": "phrase",
    "Can text be read": "text",
    "answer one multiple-choice question": "unedited",
    "list the objects in it": "list",
    "The kind of edit is settled": "suggest",
    "Editing Instruction: ": "verify",
}
asked: Counter[str] = Counter()


def answer(request: Any) -> str | Reply:
    """Answer as a model would that does what is asked, and what TOY says."""
    text, toy = str(request), json.loads(os.environ.get("TOY", "{}"))
    kind = next(kind for words, kind in KINDS.items() if words in text)
    asked[kind] += 1
    if log := os.environ.get("TOY_LOG"):
        with Path(log).open("a") as file:
            file.write(kind + "\n")
    if asked.total() == toy.get("die"):
        os._exit(9)
    if toy.get("stop") == kind:
        raise ConnectionError("gone")
    if toy.get("refuse") == kind or (toy.get("half") == kind and asked[kind] % 2 == 0):
        return Reply(text="I will not.", finish="refusal")
    said = _SAID[kind](text, toy)
    said = said if isinstance(said, str) else json.dumps(said)
    return f"<Start Thinking>.</Start Thinking><Start Final Answer>{said}</Start Final Answer>"


def _targets(text: str, toy: Any) -> Any:
    listed = toy.get("targets", [["red square", SQUARE]])
    return {"targets": [{"kind": "TARGET", "name": name, "box": box} for name, box in listed]}


def _metadata(text: str, toy: Any) -> Any:
    wrong = re.search(r"Another answer, which shall hold after the edit: ([^\\\n]+)", text)
    new = wrong[1] if wrong else "blue"
    return {
        "type": "Change Color", "target": "red square", "instruction": f"Change the color of the red square to {new}.",
        "source_caption": "The square is red.", "reference_caption": f"The square is {new}.", **toy.get("metadata", {}),
    }  # fmt: skip


def _edit(text: str, toy: Any) -> Any:
    name = text.split("Type of edit: ")[1].split("\\")[0].split("\n")[0]
    return {
        "fits": True, "instruction": f"Paint the red square blue ({name}).", "question": "Which color has the square?",
        "options": ["Red", "Blue", "Green"], "answer": "Blue", **toy.get("edit", {}), **toy.get(name, {}),
    }  # fmt: skip


def _suggest(text: str, toy: Any) -> Any:
    if said := toy.get("suggest"):
        return said
    if found := re.search(r"Choose both from these: ([^;]+); ([^.;]+)", text):
        return {"target": found[1], "position": "left", "reference": found[2]}
    if found := re.search(r"Choose from these: ([^.;]+)", text):
        return {"target": found[1]}
    if "new colour" in text:
        colors = [word for word in ("gray", "blue", "pink") if word in text.partition("answers:")[2]]
        return "gray" if colors[:1] == ["gray"] else colors[0]
    if "new material for the glass" in text:
        return "wax"
    kinds = {"new background": "beach", "new material": "glass", "Write": "BIG SALE", "take the place": "a teapot."}
    new = next(word for word in ("spoon", "fork", "owl", "kite", "drum", "globe", "rug", "fan", "tent") if word not in text)
    return next((word for mark, word in kinds.items() if mark in text), new)


def _verify(text: str, toy: Any) -> Any:
    """An instruction says what happens: "none" is No Edit, "mumble" cannot be read, "blank" restates nothing."""
    found = re.search(r"Editing Instruction: (.*)", text)
    assert found is not None
    asked = found[1].split("\\n")[0]
    if "mumble" in asked and not toy.get("speaks"):
        return "I cannot say."
    changed = "none" not in asked
    restated = "" if not changed or "blank" in asked else asked.split(" by ")[0] + " indeed"
    return {"is_changed": changed, "instruction": restated}


_SAID: dict[str, Callable[[str, Any], Any]] = {
    "review": lambda text, toy: "no",
    "targets": _targets,
    "metadata": _metadata,
    "edit": _edit,
    "phrase": lambda text, toy: toy.get("phrase", "The red square."),
    "text": lambda text, toy: toy.get("text", "no"),
    "unedited": lambda text, toy: toy.get("unedited", "Red"),
    "list": lambda text, toy: toy.get("list", {"objects": toy.get("objects", OBJECTS)}),
    "suggest": _suggest,
    "verify": _verify,
}


def open_backend(uri: Any) -> ScriptedLMM:
    """Return the model, for the entry point."""
    return ScriptedLMM(answer, name=uri.model)


class Finder:
    """A detector that sees the red square, and what it is told to: boxes in fractions with scores, by phrase."""

    name = version = "finder"
    threshold, side_px = 0.25, 800

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[tuple[float, float, float, float], float]]] = {}
        self.asked: list[str] = []
        self.broken = self.too_long = ""

    def __call__(self, images: Any, phrase: str, **thresholds: float) -> list[DetectionResult]:
        self.asked.append(phrase)
        if phrase == self.broken:
            raise ToolError("no memory is left")
        if phrase == self.too_long:
            raise PhraseError(f"{phrase!r} is too long")
        results = []
        for rgb in images:
            height, width = rgb.shape[:2]
            boxes = self.seen.get(phrase, [((0.0625, 1 / 12, 0.1375, 11 / 60), 0.8)])
            found = [
                Detection(box=Box(*box).scaled(width, height), score=score, label=phrase)
                for box, score in sorted(boxes, key=lambda one: -one[1])
                if score > thresholds.get("box_threshold", 0.25)
            ]
            results.append(DetectionResult(detections=tuple(found), width=width, height=height))
        return results


class MeanColor:
    """An encoder by the mean color: images of one scene are alike."""

    name = version = "mean color"

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, images: Sequence[Any], patches: Any) -> list[Any]:
        self.seen += len(images)
        return [(image.mean((0, 1)) - 128).astype(np.float32) for image in images]


class Reds:
    """A segmenter that marks what is red inside the box, or what it is told to."""

    name = version = "reds"

    def __init__(self) -> None:
        self.boxes: list[Box] = []
        self.always: bool | None = None

    def __call__(self, rgb: Any, boxes: Sequence[Box]) -> list[Segmentation]:
        self.boxes += boxes
        found = []
        for box in boxes:
            mask = np.zeros(rgb.shape[:2], dtype=bool)
            x0, y0, x1, y1 = box.ints()
            mask[y0:y1, x0:x1] = rgb[y0:y1, x0:x1, 0] > rgb[y0:y1, x0:x1, 2].astype(int) + 60
            found.append(Segmentation(mask=mask if self.always is None else np.full_like(mask, self.always), score=0.9))
        return found


class Odd:
    """An editor that does what its name says."""

    def __init__(self, name: str) -> None:
        self.name = self.version = name

    def __call__(self, rgb: Any, instruction: str, *, seed: int = 0) -> Any:
        what = self.name.partition(":")[2]
        if log := os.environ.get("TOY_EDITS"):
            with Path(log).open("a") as file:
                file.write(f"{seed} {instruction}\n")
        if what == "fails" and "TOY_MENDED" not in os.environ:
            raise EditError("failed", "out of memory")
        if what == "wide":
            return np.zeros((64, 128, 3), np.uint8)
        if what == "same":
            return rgb.copy()
        if what == "darkens":
            return rgb // 4
        if what == "beside":
            # The red square is not touched: it ends at 44.
            made = rgb.copy()
            made[80:92, 80:92] = (0, 0, 250)
            return made
        made = DrawingEditor()(rgb, instruction)
        if what == "seeded":
            made = made.copy()
            made[30, 30] = seed
        return made


def open_editor(name: str, device: str) -> Odd:
    """Return an editor, for the entry point."""
    return Odd(name)


def patch() -> None:
    """Put the detector and the segmenter in their places in another process, and die there where TOY says so."""
    finder, reds = Finder(), Reds()
    vars(opening)["DETECTOR"] = lambda name, device: finder
    vars(opening)["SEGMENTER"] = lambda name, device: reds
    vars(opening)["DINO"] = lambda name, device: MeanColor()
    kept = Counter[str]()

    def dying(do: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any, **named: Any) -> Any:
            found = do(*args, **named)
            kept["all"] += 1
            if kept["all"] == json.loads(os.environ.get("TOY", "{}")).get("die"):
                os._exit(9)
            return found

        return done

    ImagePlace.mask = dying(ImagePlace.mask)  # type: ignore[method-assign]
    ImagePlace.image = dying(ImagePlace.image)  # type: ignore[method-assign]
    DoneJournal.add = dying(DoneJournal.add)  # type: ignore[method-assign]


def put(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the backend toy/NAME and the editors odd:WHAT."""
    points = {"backends": {"toy": "tests.build.toys:open_backend"}, "editors": {"odd": "tests.build.toys:open_editor"}}
    install(folder, monkeypatch, files={}, entry_points=points)
    asked.clear()
