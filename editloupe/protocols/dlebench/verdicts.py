"""What people say of a row that was built, and what follows from it (paper, 3.1, Human Verification). Pure.

A row passes if somebody said so of its box, its texts and its reference, and nobody said otherwise. The strictest answer of
several people counts, unless their disagreement was settled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from editloupe.answers import Text
from editloupe.protocols.reviews import Said, Verdict, counted
from editloupe.replies import one_line
from editloupe.values import Sample

BOX: Final = "box"
TEXTS: Final = "texts"
FOLLOWS: Final = "instruction_following"
KEEPS: Final = "visual_consistency"
"""Ids of the questions. The last two are the rubric's criteria."""
BEST: Final = {FOLLOWS: "Flawless Execution", KEEPS: "Perfect Consistency"}
"""The label with which a reference passes."""
CORRECTIONS: Final = ("instruction", "source_caption", "reference_caption")
"""Ids of the questions for better texts, asked where the texts are wrong; each may be left unanswered."""


def verdict(sample: Sample, said: Said) -> Verdict | None:
    """Return what people say of a row; None where a question is open and nothing speaks against the row.

    sample: the row as it was shown.
    """
    if sample.reference is None:
        return None
    answers = {name: counted(name, said) for name in (BOX, TEXTS, FOLLOWS, KEEPS, *CORRECTIONS)}
    labels = {name: [one.label for one in answers[name]] for name in (BOX, TEXTS, FOLLOWS, KEEPS)}
    texts = {name: [one.answer.text for one in answers[name] if isinstance(one.answer, Text)] for name in CORRECTIONS}
    # Of several corrections the last one counts.
    corrections = {name: one_line(found[-1]) for name, found in texts.items() if found}
    found = Verdict(row=sample.id, seen=sample.reference.sha256, kind="passed", corrections=corrections)
    notes = "; ".join(dict.fromkeys(one.reason for several in answers.values() for one in several if one.reason))
    if "no" in labels[BOX]:
        return replace(found, kind="rejected", why=BOX, detail=notes or "the box does not enclose the target")
    if "no" in labels[TEXTS] and not corrections:
        return replace(
            found, kind="rejected", why=TEXTS, detail=notes or "the texts are wrong, and nobody has corrected them"
        )
    for name, best in BEST.items():
        if worse := [label for label in labels[name] if label != best]:
            return replace(found, kind="again", why=name, detail=notes or f"the reference is {worse[0]}")
    return found if all(labels.values()) else None
