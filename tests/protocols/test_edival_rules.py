"""EdiVal's rules on hand-made detections: a truth table for each type of edit, by the paper and by the published code.

`at(x, y)` is a box of 0.2 × 0.2 around that center, in fractions of the picture: its sides are at x ± 0.1 and y ± 0.1.
Expected: 1 followed, 0 not followed, None no verdict.
"""

from __future__ import annotations

from typing import Any

import pytest

from editloupe.protocols.edival.instructions import Edit
from tests.protocols.edival_play import Play, chain_of


def at(x: float, y: float, score: float = 0.9, *, side: float = 0.2, high: float | None = None) -> Any:
    height = side if high is None else high
    x0, y0, x1, y1 = x - side / 2, y - height / 2, x + side / 2, y + height / 2
    return [200 * x0, 100 * y0, 200 * x1, 100 * y1], score


LEFT, MIDDLE, RIGHT, HIGH = at(0.2, 0.5), at(0.5, 0.5), at(0.8, 0.5), at(0.5, 0.2)
HUGE, WIDE = at(0.5, 0.5, side=1), at(0.475, 0.475, side=0.95)
"""WIDE: its sides are above 0.9, and not above 0.98."""
# IoU with MIDDLE: at(0.5 + d, 0.5) shares (0.2 - d) * 0.2; the union is 0.08 - that. d = 0.016: 0.0368 / 0.0432 = 0.852.
TWIN = at(0.516, 0.5, 0.6)
# d = 0.1: 0.02 / 0.06 = 0.333.   d = 0.15: 0.01 / 0.07 = 0.143.
NEAR, FAR = at(0.6, 0.5), at(0.65, 0.5)


def judged(edit: Edit, rules: Any, before: dict[str, Any], after: dict[str, Any], said: str = "yes") -> float | None:
    """The verdict on one edit. before, after: what is seen of each name, also of its short form.   said: of a model."""
    seen = {(turn, name): boxes for turn, its in ((0, before), (1, after)) for name, boxes in its.items()}
    questions = ("newly_added", "replaced", "attribute_in_crop", "attribute_in_image", "background")
    replies = {**dict.fromkeys(questions, said), "text_in_crop": said, "text_in_image": said}
    play = Play(options={"rules": rules}, seen=seen, said={**replies, "short_name": ("refused",)})
    value, missing = play.verdict(chain_of(edit))
    assert (missing == "not_defined") == (value is None), missing
    return value


def compare(edit: Edit, before: dict[str, Any], after: dict[str, Any], said: str, paper: Any, code: Any) -> None:
    """Check the verdicts by the paper's rules and by those of the published code, but for names, which a model shortens."""
    found = judged(edit, "paper", before, after, said)
    assert (found, judged(edit, {"like": "official", "position_names": "full"}, before, after, said)) == (paper, code)


@pytest.mark.parametrize(
    ("new", "before", "after", "position", "said", "paper", "code"),
    [
        # A lamp left of the cup, seen in both pictures.
        ([LEFT], [RIGHT], [RIGHT], "left", "yes", 1, 1),
        # The same, and a model does not see it newly there: the code alone asks one.
        ([LEFT], [RIGHT], [RIGHT], "left", "no", 1, 0),
        ([], [RIGHT], [RIGHT], "left", "yes", 0, 0),
        # 0.3 is not above 0.3.
        ([at(0.2, 0.5, 0.3)], [RIGHT], [RIGHT], "left", "yes", 0, 0),
        # A miss in the source: no verdict, or 0.
        ([LEFT], [], [RIGHT], "left", "yes", None, 0),
        # The reference in the source alone: the code compares with its old place.
        ([LEFT], [RIGHT], [], "left", "yes", 0, 1),
        # Of two references one is enough: 0.5 is left of 0.8.
        ([MIDDLE], [LEFT, RIGHT], [LEFT, RIGHT], "left", "yes", 1, 1),
        # 0.02 to the right: more than nothing, less than the margin of 0.03.
        ([at(0.52, 0.5)], [MIDDLE], [MIDDLE], "right", "yes", 1, 0),
        ([at(0.54, 0.5)], [MIDDLE], [MIDDLE], "right", "yes", 1, 1),
        # y grows downwards.
        ([HIGH], [MIDDLE], [MIDDLE], "above", "yes", 1, 1),
        ([HIGH], [MIDDLE], [MIDDLE], "below", "yes", 0, 0),
        # No reference: seen is enough.
        ([LEFT], [], [], "", "yes", 1, 1),
        ([], [], [], "", "yes", 0, 0),
    ],
)
def test_add(new: Any, before: Any, after: Any, position: str, said: str, paper: Any, code: Any) -> None:
    edit = Edit(edit_type="subject_add", new="lamp", position=position, reference="cup" if position else "")
    compare(edit, {"cup": before}, {"cup": after, "lamp": new}, said, paper, code)


@pytest.mark.parametrize(
    ("before", "after", "hat", "paper", "code"),
    [
        ([MIDDLE], [], [], 1, 1),
        ([MIDDLE], [MIDDLE], [MIDDLE], 0, 0),
        ([], [], [], None, 0),
        ([], [MIDDLE], [MIDDLE], None, 0),
        # 0.34 is not above 0.35: before it is a miss, after it is gone.
        ([at(0.5, 0.5, 0.34)], [], [], None, 0),
        ([MIDDLE], [at(0.5, 0.5, 0.34)], [MIDDLE], 1, 1),
        # IoU 0.143 with the old place, then 0.333.
        ([MIDDLE], [FAR], [MIDDLE], 0, 1),
        ([MIDDLE], [NEAR], [MIDDLE], 0, 0),
        # The best box after the edit is the one that counts, and it is far.
        ([MIDDLE], [at(0.2, 0.5, 0.95), at(0.5, 0.5, 0.5)], [MIDDLE], 0, 1),
        # A box as large as the image is no object for the code.
        ([HUGE], [], [], 1, 0),
        ([MIDDLE], [HUGE], [MIDDLE], 0, 1),
        # The word alone, "hat", finds nothing: the code looks for it again.
        ([MIDDLE], [MIDDLE], [], 0, 1),
    ],
)
def test_remove(before: Any, after: Any, hat: Any, paper: Any, code: Any) -> None:
    edit = Edit(edit_type="subject_remove", target="Straw Hat")
    compare(edit, {"straw hat": before}, {"straw hat": after, "hat": hat}, "yes", paper, code)


@pytest.mark.parametrize(
    ("before", "left", "new", "said", "paper", "code"),
    [
        # A cup by a jar in its place.
        ([MIDDLE], [], [MIDDLE], "yes", 1, 1),
        ([MIDDLE], [], [MIDDLE], "no", 0, 0),
        # Both are reported in one place (appendix E): gone is not true, overlap is.
        ([MIDDLE], [MIDDLE], [MIDDLE], "yes", 0, 1),
        # The old one is gone and the new one stands elsewhere: the boxes do not meet.
        ([LEFT], [], [RIGHT], "yes", 1, 0),
        # Boxes that touch share nothing: [0.1, 0.3] and [0.3, 0.5].
        ([LEFT], [], [at(0.4, 0.5)], "yes", 1, 0),
        ([MIDDLE], [], [], "yes", 0, 0),
        ([], [], [MIDDLE], "yes", None, 0),
        # Below the threshold after the edit is gone.
        ([MIDDLE], [at(0.5, 0.5, 0.3)], [NEAR], "yes", 1, 1),
        # Any pair is enough for the code.
        ([LEFT, RIGHT], [], [MIDDLE, at(0.85, 0.5)], "yes", 1, 1),
    ],
)
def test_replace(before: Any, left: Any, new: Any, said: str, paper: Any, code: Any) -> None:
    edit = Edit(edit_type="subject_replace", target="cup", new="jar")
    compare(edit, {"cup": before}, {"cup": left, "jar": new}, said, paper, code)


@pytest.mark.parametrize(
    ("cup", "jar", "position", "paper", "code"),
    [
        # (before, after) of both. The cup goes from right to left of the jar.
        (([RIGHT], [LEFT]), ([MIDDLE], [MIDDLE]), "left", 1, 1),
        (([LEFT], [RIGHT]), ([MIDDLE], [MIDDLE]), "left", 0, 0),
        # Nothing moved: it was left of it before.
        (([LEFT], [LEFT]), ([MIDDLE], [MIDDLE]), "left", 1, 1),
        # A second cup appeared: more than before.
        (([RIGHT], [LEFT, RIGHT]), ([MIDDLE], [MIDDLE]), "left", 0, 0),
        # One of two jars is gone: fewer are no increase, and not equal.
        (([RIGHT], [LEFT]), ([MIDDLE, at(0.5, 0.9)], [MIDDLE]), "left", 1, 0),
        # A duplicate of IoU 0.852 is no second jar.
        (([RIGHT], [LEFT]), ([MIDDLE], [MIDDLE, TWIN]), "left", 1, 1),
        # Misses before: the code does not look there, but 0 and 1 differ where it counts (0.9 is above 0.4).
        (([], [LEFT]), ([MIDDLE], [MIDDLE]), "left", None, 0),
        (([RIGHT], [LEFT]), ([], [MIDDLE]), "left", None, 0),
        # At 0.35 nothing is counted above 0.4, before or after, and both are found above 0.3.
        (([at(0.8, 0.5, 0.35)], [at(0.2, 0.5, 0.35)]), ([MIDDLE], [MIDDLE]), "left", 1, 1),
        # Misses after.
        (([RIGHT], []), ([MIDDLE], [MIDDLE]), "left", 0, 0),
        (([RIGHT], [LEFT]), ([MIDDLE], []), "left", 0, 0),
        # [0.4, 0.6] lies in [0.1, 0.99], whose center is 0.545.
        (([RIGHT], [MIDDLE]), ([at(0.545, 0.5, side=0.89)], [at(0.545, 0.5, side=0.89)]), "left", 1, 0),
        # The same center is not left.
        (([RIGHT], [HIGH]), ([MIDDLE], [MIDDLE]), "left", 0, 0),
        (([RIGHT], [HIGH]), ([MIDDLE], [MIDDLE]), "above", 1, 1),
    ],
)
def test_position(cup: Any, jar: Any, position: str, paper: Any, code: Any) -> None:
    edit = Edit(edit_type="position_change", target="cup", position=position, reference="jar")
    compare(edit, {"cup": cup[0], "jar": jar[0]}, {"cup": cup[1], "jar": jar[1]}, "yes", paper, code)


@pytest.mark.parametrize(
    ("before", "after", "due", "paper", "code"),
    [
        ([MIDDLE], [LEFT, MIDDLE, RIGHT], 3, 1, 1),
        # Four boxes, of which two have an IoU of 0.852: three.
        ([MIDDLE], [LEFT, MIDDLE, TWIN, RIGHT], 3, 1, 1),
        ([MIDDLE], [LEFT, MIDDLE, TWIN, RIGHT], 4, 0, 0),
        # TWIN meets both its neighbors by 0.852, they meet one another by d = 0.032: 0.0336 / 0.0464 = 0.724. Best first,
        # the two outer boxes stay; were TWIN the best, it alone would.
        ([MIDDLE], [MIDDLE, at(0.532, 0.5, 0.8), TWIN], 2, 1, 1),
        ([MIDDLE], [MIDDLE, at(0.532, 0.5, 0.8), at(0.516, 0.5, 0.95)], 1, 1, 1),
        # IoU 0.333: two objects.
        ([MIDDLE], [MIDDLE, NEAR], 2, 1, 1),
        ([MIDDLE], [LEFT, RIGHT], 3, 0, 0),
        ([], [LEFT, MIDDLE, RIGHT], 3, None, 0),
        ([MIDDLE], [], 3, 0, 0),
        # A box at 0.3 is not above it.
        ([MIDDLE], [LEFT, MIDDLE, at(0.8, 0.5, 0.3)], 3, 0, 0),
        ([at(0.5, 0.5, 0.29)], [LEFT, MIDDLE, RIGHT], 3, None, 0),
    ],
)
def test_count(before: Any, after: Any, due: int, paper: Any, code: Any) -> None:
    compare(Edit(edit_type="count_change", target="cup", count=due), {"cup": before}, {"cup": after}, "yes", paper, code)


@pytest.mark.parametrize(
    ("new", "read", "value"),
    [
        ("OPEN", "OPEN", 1),
        ("OPEN", "We are OPEN today", 1),
        ("OPEN", "CLOSED", 0),
        ("OPEN", "No text", 0),
        # White space, width and quotes are no difference; the letters of Ｏ Ｐ are full width.
        ("wild  path", "“WILD\n Path”", 1),
        ("OPEN", "ＯＰEN", 1),
        ("咖啡", "咖啡", 1),
        ("IT'S", "It’s", 1),
        # Nothing is there to read, whatever words say so; quotes alone are no part of every text.
        ("TEXT", "NO TEXT.", 0),
        ("NO", "No text.", 0),
        ("NO TEXT", "no text", 1),
        ('""', "hello", 0),
    ],
)
def test_text(new: str, read: str, value: int) -> None:
    compare(Edit(edit_type="text_change", new=new), {}, {}, read, value, value)


@pytest.mark.parametrize(
    ("bear", "said", "paper", "code"),
    [
        ([MIDDLE], "yes", 1, 1),
        ([MIDDLE], "no", 0, 0),
        ([], "yes", 1, 0),
        ([at(0.5, 0.5, 0.25)], "yes", 1, 0),
        ([at(0.5, 0.5, 0.26)], "yes", 1, 1),
        # The best box fills the image: a false detection. A second box does not save it.
        ([HUGE], "yes", 1, 0),
        ([WIDE, at(0.5, 0.5, 0.5)], "yes", 1, 0),
        # As wide, and not as high.
        ([at(0.5, 0.5, side=0.95, high=0.5)], "yes", 1, 1),
    ],
)
def test_background(bear: Any, said: str, paper: Any, code: Any) -> None:
    compare(Edit(edit_type="background_change", new="park", keep=("bear",)), {}, {"bear": bear}, said, paper, code)
    # Seven sentences of the benchmark name nothing to keep: its code cannot read them.
    compare(Edit(edit_type="background_change", new="park"), {}, {}, said, int(said == "yes"), 0)
