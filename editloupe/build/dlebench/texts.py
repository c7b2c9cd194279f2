"""What the answers of models and the questions of the data must hold (paper, 3.1). Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from editloupe.answers import fold
from editloupe.build.base import LeftOut
from editloupe.build.engine import record
from editloupe.build.shown import IMAGE, plain_name
from editloupe.protocols.labeled_boxes import LabeledBoxes
from editloupe.replies import one_line
from editloupe.values import Box, ImageRef, Json

_TYPES: Final = (
    "Change Color", "Change Material", "Change OCR", "Change Shape", "Removal Object", "Replace Object", "Change Count",
)  # fmt: skip
NONE: Final = "None"
"""The type of a target that no edit suits."""
LONGEST_NAME: Final = 80
"""Characters of a target's name."""
LONGEST_TEXT: Final = 400
"""Characters of an instruction or a caption."""
TARGETS: Final = LabeledBoxes(labels=("TARGET",), list_key="targets", label_key="kind", name_key="name", image=IMAGE)
_TEXTS: Final = ("target", "instruction", "source_caption", "reference_caption")
METADATA: Final = record(type={"enum": [*_TYPES, NONE]}, **{name: {"type": "string"} for name in _TEXTS})
"""(S_C, T_O, Type, Instruction, R_C) of the paper."""


def read_targets(data: Any, image: ImageRef, *, most: int) -> tuple[dict[str, tuple[Box, ...]], list[dict[str, Json]]]:
    """Return the targets that a model lists, name → boxes in px, and lines of left_out.jsonl for the others.

    Things of one name are one target. why: "unusable_entry" (a box that leaves the image, or is none), "unusable_name", or
    "beyond_the_most".
    """
    found: dict[str, tuple[Box, ...]] = {}
    others = [(str(one["entry"]), "unusable_entry", str(one["why"])) for one in data.get("dropped", ())]
    for one in data["targets"]:
        name = plain_name(one["name"])
        if not name or len(name) > LONGEST_NAME:
            others.append((name, "unusable_name", f"expected 1 to {LONGEST_NAME} characters"))
        elif name not in found and len(found) == most:
            others.append((name, "beyond_the_most", f"at most {most} of an image"))
        else:
            box = Box.from_thousandths(one["box"], width=image.width, height=image.height)
            found[name] = (*found.get(name, ()), box)
    return found, [
        {"target": name[:LONGEST_NAME], "stage": "listed", "why": why, "detail": detail} for name, why, detail in others
    ]


def matched(wanted: Sequence[Box], seen: Sequence[Box], *, iou: float) -> tuple[Box, ...] | None:
    """Return for each box the seen one that overlaps it most, each once; None where one has none of at least this IoU."""
    pairs = sorted(((a.iou(b), i, j) for i, a in enumerate(wanted) for j, b in enumerate(seen)), reverse=True)
    found: dict[int, int] = {}
    for overlap, i, j in pairs:
        if overlap >= iou and i not in found and j not in found.values():
            found[i] = j
    return tuple(seen[found[i]] for i in range(len(wanted))) if len(found) == len(wanted) else None


def read_metadata(data: Mapping[str, str]) -> dict[str, str]:
    """Return what a model wrote of an edit, by the columns of the ImageFolder.

    Raises LeftOut, why: "no_edit" (the model knows none), "unusable_text", or "captions_are_equal".
    """
    if data["type"] == NONE:
        raise LeftOut("no_edit", "the model knows no edit that suits the target")
    texts = {name: one_line(data[name]).strip() for name in _TEXTS}
    if wrong := next((name for name, text in texts.items() if not fold(text) or len(text) > LONGEST_TEXT), None):
        raise LeftOut("unusable_text", f"{wrong}: expected 1 to {LONGEST_TEXT} characters, found {texts[wrong][:80]!r}")
    if fold(texts["source_caption"]) == fold(texts["reference_caption"]):
        raise LeftOut("captions_are_equal", f"before and after: {texts['source_caption']!r}")
    return {"edit_type": data["type"], "target_name": texts.pop("target"), **texts}


def read_question(values: Mapping[str, Json]) -> tuple[str, str, tuple[str, ...]] | None:
    """Return the question of a row, its answer, and the wrong options, () where none are named: (Q, A, O) of the paper.

    None for a row without a question.   options: a list of texts.   answer: one of them, or its letter.
    Raises ValueError for what cannot be read, and where no option is wrong.
    """
    text, options, said = values.get("question"), values.get("options"), one_line(str(values.get("answer") or ""))
    if not text:
        return None
    if not options and said:
        return one_line(str(text)), said, ()
    if not isinstance(options, list | tuple) or not all(isinstance(one, str) for one in options):
        raise ValueError(f"column 'options': expected a list of texts, found {options!r}"[:200])
    texts = [one_line(str(one)) for one in options]
    letters = dict(zip("ABCDEFGHIJ", texts, strict=False))
    right = next((one for one in texts if fold(one) == fold(said)), letters.get(said.upper()))
    if right is None:
        raise ValueError(f"column 'answer': expected one of the options or its letter, found {said!r}"[:200])
    wrong = tuple(one for one in texts if fold(one) and fold(one) != fold(right))
    if not wrong:
        raise ValueError("column 'options': expected a wrong option beside the answer, found none")
    return one_line(str(text)), right, wrong
