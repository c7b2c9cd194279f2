"""EdiVal's rules on hand-made detections: a truth table for each type of edit, by the paper and by the published code.

Boxes are in fractions. `at(x, y)` is a box of 0.2 × 0.2 around that centre, so that its sides are at x ± 0.1 and y ± 0.1.
Expected: True followed, False not followed, None no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from editloupe.protocols.edival import rules
from editloupe.protocols.edival.rules import OFFICIAL, OPEN, Rules, SeenPair, Verdict
from editloupe.protocols.edival.sights import Sight
from editloupe.values import Box

PAPER, CODE = Rules(), Rules.model_validate({"if": "official"})


def with_(**options: Any) -> Rules:
    """The paper's rules with some options."""
    return Rules.model_validate(options)


def at(x: float, y: float, score: float = 0.9, *, side: float = 0.2, high: float | None = None) -> Sight:
    height = side if high is None else high
    return Sight(box=Box(x - side / 2, y - height / 2, x + side / 2, y + height / 2), score=score)


def check(verdict: Verdict, expected: bool | None) -> None:
    assert (verdict.done, verdict.status) == (expected, "not_defined" if expected is None else None), verdict.reason
    assert verdict.reason and (expected is not None or "not seen before the edit" in verdict.reason)


def compare(judge: Callable[[Rules], Verdict], paper: bool | None, code: bool | None) -> None:
    """Check a rule's verdicts by the paper's options and by those of the published code."""
    check(judge(PAPER), paper)
    check(judge(CODE), code)


LEFT, MIDDLE, RIGHT = at(0.2, 0.5), at(0.5, 0.5), at(0.8, 0.5)
HUGE = Sight(box=Box(0, 0, 1, 1), score=0.9)
WIDE = Sight(box=Box(0, 0, 0.95, 0.95), score=0.9)
"""Its sides are above 0.9, and not above 0.98."""

# IoU with MIDDLE: at(0.5 + d, 0.5) shares (0.2 - d) * 0.2; the union is 0.08 - that. d = 0.016: 0.0368 / 0.0432 = 0.852.
TWIN = at(0.516, 0.5, 0.6)
# d = 0.1: 0.02 / 0.06 = 0.333.   d = 0.15: 0.01 / 0.07 = 0.143.
NEAR, FAR = at(0.6, 0.5), at(0.65, 0.5)


@pytest.mark.parametrize(
    "case",
    [
        # A lamp left of the cup, seen in both pictures.
        ([LEFT], [RIGHT], [RIGHT], "left", True, True, True),
        # The same, and a model does not see it newly there: the code alone asks one.
        ([LEFT], [RIGHT], [RIGHT], "left", False, True, False),
        ([], [RIGHT], [RIGHT], "left", True, False, False),
        # 0.3 is not above 0.3.
        ([at(0.2, 0.5, 0.3)], [RIGHT], [RIGHT], "left", True, False, False),
        # A miss in the source: no verdict, or 0.
        ([LEFT], [], [RIGHT], "left", True, None, False),
        # The reference in the source alone: the code compares with its old place.
        ([LEFT], [RIGHT], [], "left", True, False, True),
        # Of two references one is enough: 0.5 is left of 0.8.
        ([MIDDLE], [LEFT, RIGHT], [LEFT, RIGHT], "left", True, True, True),
        # 0.02 to the right: more than nothing, less than the margin of 0.03.
        ([at(0.52, 0.5)], [MIDDLE], [MIDDLE], "right", True, True, False),
        ([at(0.54, 0.5)], [MIDDLE], [MIDDLE], "right", True, True, True),
        # y grows downwards.
        ([at(0.5, 0.2)], [MIDDLE], [MIDDLE], "above", True, True, True),
        ([at(0.5, 0.2)], [MIDDLE], [MIDDLE], "below", True, False, False),
        # No reference: seen is enough.
        ([LEFT], None, None, "", True, True, True),
        ([], None, None, "", True, False, False),
    ],
)
def test_add(case: Any) -> None:
    new, before, after, position, said, paper, code = case
    reference = None if before is None or after is None else (before, after)
    compare(lambda by: rules.add(new, reference=reference, position=position, said=said, rules=by), paper, code)


@pytest.mark.parametrize(
    "case",
    [
        ([MIDDLE], [], None, True, True),
        ([MIDDLE], [MIDDLE], None, False, False),
        ([], [], None, None, False),
        ([], [MIDDLE], None, None, False),
        # 0.34 is not above 0.35: before it is a miss, after it is gone.
        ([at(0.5, 0.5, 0.34)], [], None, None, False),
        ([MIDDLE], [at(0.5, 0.5, 0.34)], None, True, True),
        # IoU 0.143 with the old place, then 0.333.
        ([MIDDLE], [FAR], None, False, True),
        ([MIDDLE], [NEAR], None, False, False),
        # The best box after the edit is the one that counts, and it is far.
        ([MIDDLE], [at(0.2, 0.5, 0.95), at(0.5, 0.5, 0.5)], None, False, True),
        # A box as large as the image is no object for the code.
        ([HUGE], [], None, True, False),
        ([MIDDLE], [HUGE], None, False, True),
        # The word alone: "hat" finds nothing, then something.
        ([MIDDLE], [MIDDLE], {"hat": []}, True, True),
        ([MIDDLE], [MIDDLE], {"hat": [MIDDLE]}, False, False),
    ],
)
def test_remove(case: Any) -> None:
    before, after, again, paper, code = case
    compare(lambda by: rules.remove(before, after, again=again, rules=by), paper, code)


def test_words_are_looked_for_again_by_the_code_alone() -> None:
    assert rules.words_again("Straw Hat", CODE) == ["hat"] and rules.words_again("straw hat", PAPER) == []
    assert rules.words_again("cup", CODE) == []
    assert rules.words_again("cap", with_(remove_again="cap,hat")) == ["cap"]


@pytest.mark.parametrize(
    "case",
    [
        # A cup by a jar in its place.
        ([MIDDLE], [], [MIDDLE], True, True, True),
        ([MIDDLE], [], [MIDDLE], False, False, False),
        # Both are reported in one place (appendix E): gone is not true, overlap is.
        ([MIDDLE], [MIDDLE], [MIDDLE], True, False, True),
        # The old one is gone and the new one stands elsewhere: the boxes do not meet.
        ([LEFT], [], [RIGHT], True, True, False),
        # Boxes that touch share nothing: [0.1, 0.3] and [0.3, 0.5].
        ([LEFT], [], [at(0.4, 0.5)], True, True, False),
        ([MIDDLE], [], [], True, False, False),
        ([], [], [MIDDLE], True, None, False),
        ([], [], [], True, None, False),
        # Below the threshold after the edit is gone.
        ([MIDDLE], [at(0.5, 0.5, 0.3)], [NEAR], True, True, True),
        # Any pair is enough for the code.
        ([LEFT, RIGHT], [], [MIDDLE, at(0.85, 0.5)], True, True, True),
    ],
)
def test_replace(case: Any) -> None:
    old_before, old_after, new, said, paper, code = case
    compare(lambda by: rules.replace((old_before, old_after), new, said=said, rules=by), paper, code)


def test_the_code_strips_plurals_and_more() -> None:
    names = {"glasses": "glass", "bus": "bu", "cups": "cup", "cup": "cup", "benches": "bench", "es": ""}
    assert {name: rules.singular(name, CODE) for name in names} == names
    assert rules.singular("glasses", PAPER) == "glasses"


@pytest.mark.parametrize(
    "case",
    [
        # (before, after) of both. The cup goes from right to left of the jar.
        (([RIGHT], [LEFT]), ([MIDDLE], [MIDDLE]), "left", True, True),
        (([LEFT], [RIGHT]), ([MIDDLE], [MIDDLE]), "left", False, False),
        # Nothing moved: it was left of it before.
        (([LEFT], [LEFT]), ([MIDDLE], [MIDDLE]), "left", True, True),
        # A second cup appeared: more than before.
        (([RIGHT], [LEFT, RIGHT]), ([MIDDLE], [MIDDLE]), "left", False, False),
        # One of two jars is gone: fewer are no increase, and not equal.
        (([RIGHT], [LEFT]), ([MIDDLE, at(0.5, 0.9)], [MIDDLE]), "left", True, False),
        # A duplicate of IoU 0.852 is no second jar.
        (([RIGHT], [LEFT]), ([MIDDLE], [MIDDLE, TWIN]), "left", True, True),
        # Misses before: the code does not look there, but 0 and 1 differ where it counts (0.9 is above 0.4).
        (([], [LEFT]), ([MIDDLE], [MIDDLE]), "left", None, False),
        (([RIGHT], [LEFT]), ([], [MIDDLE]), "left", None, False),
        # At 0.35 nothing is counted above 0.4, before or after, and both are found above 0.3.
        (([at(0.8, 0.5, 0.35)], [at(0.2, 0.5, 0.35)]), ([MIDDLE], [MIDDLE]), "left", True, True),
        # Misses after.
        (([RIGHT], []), ([MIDDLE], [MIDDLE]), "left", False, False),
        (([RIGHT], [LEFT]), ([MIDDLE], []), "left", False, False),
        # [0.4, 0.6] lies in [0.1, 0.99], whose centre is 0.545.
        (([RIGHT], [MIDDLE]), ([at(0.545, 0.5, side=0.89)], [at(0.545, 0.5, side=0.89)]), "left", True, False),
        # The same centre is not left.
        (([RIGHT], [at(0.5, 0.2)]), ([MIDDLE], [MIDDLE]), "left", False, False),
        (([RIGHT], [at(0.5, 0.2)]), ([MIDDLE], [MIDDLE]), "above", True, True),
        (([RIGHT], [at(0.5, 0.2)]), ([MIDDLE], [MIDDLE]), "below", False, False),
    ],
)
def test_position(case: Any) -> None:
    target, reference, position, paper, code = case
    before, after = (SeenPair(target=target[i], reference=reference[i]) for i in (0, 1))

    def judged(by: Rules) -> Verdict:
        seen = before if rules.looks_before(by) else None
        return rules.position(seen, after, counted=(before, after), position=position, rules=by)

    compare(judged, paper, code)


def test_a_position_must_have_moved_where_that_is_asked() -> None:
    def judged(x: float, **options: Any) -> bool | None:
        before, after = (SeenPair(target=[at(one, 0.5)], reference=[RIGHT]) for one in (0.2, x))
        given = with_(**options)
        return rules.position(before, after, counted=None, position="left", rules=given).done

    # By 0.02, then by 0.04 of the width.
    assert [judged(x) for x in (0.2, 0.22, 0.24)] == [True, True, True]
    assert [judged(x, position_moved=True) for x in (0.2, 0.22, 0.24)] == [False, False, True]
    assert rules.looks_before(Rules.model_validate({"if": "official", "position_moved": True}))


@pytest.mark.parametrize(
    "case",
    [
        ([MIDDLE], [LEFT, MIDDLE, RIGHT], 3, True, True),
        # Four boxes, of which two have an IoU of 0.852: three.
        ([MIDDLE], [LEFT, MIDDLE, TWIN, RIGHT], 3, True, True),
        ([MIDDLE], [LEFT, MIDDLE, TWIN, RIGHT], 4, False, False),
        # IoU 0.333: two objects.
        ([MIDDLE], [MIDDLE, NEAR], 2, True, True),
        ([MIDDLE], [LEFT, RIGHT], 3, False, False),
        ([], [LEFT, MIDDLE, RIGHT], 3, None, False),
        ([MIDDLE], [], 3, False, False),
        # A box at 0.3 is not above it.
        ([MIDDLE], [LEFT, MIDDLE, at(0.8, 0.5, 0.3)], 3, False, False),
        ([at(0.5, 0.5, 0.29)], [LEFT, MIDDLE, RIGHT], 3, None, False),
    ],
)
def test_count(case: Any) -> None:
    before, after, due, paper, code = case
    compare(lambda by: rules.count(before, after, due=due, rules=by), paper, code)


def test_of_duplicates_the_best_box_counts() -> None:
    # TWIN meets both its neighbours by 0.852, they meet one another by d = 0.032: 0.0336 / 0.0464 = 0.724. Best first, the
    # two outer boxes stay; were TWIN the best, it alone would.
    outer = at(0.532, 0.5, 0.8)
    assert rules.count_of([MIDDLE, outer, TWIN], 0.3, PAPER) == 2
    assert rules.count_of([MIDDLE, outer, at(0.516, 0.5, 0.95)], 0.3, PAPER) == 1
    assert rules.count_of([MIDDLE, outer, TWIN], 0.3, with_(duplicate_overlap=0.9)) == 3


@pytest.mark.parametrize(
    "case",
    [
        ([MIDDLE], True, True, True),
        ([MIDDLE], False, False, False),
        ([], True, None, False),
        ([], False, None, False),
        ([at(0.5, 0.5, 0.3)], True, None, False),
        ([at(0.5, 0.5, 0.31)], True, True, True),
        # Whole images: nothing is looked for.
        (None, True, True, True),
        (None, False, False, False),
    ],
)
def test_attribute(case: Any) -> None:
    before, said, paper, failing = case
    check(rules.attribute(before, said=said, rules=PAPER), paper)
    check(rules.attribute(before, said=said, rules=with_(miss="failure")), failing)


@pytest.mark.parametrize(
    "case",
    [
        # Added to the image: no object is looked for.
        (None, None, "OPEN", "open", True, True, True),
        (None, None, "OPEN", "We are OPEN today", True, True, False),
        (None, None, "OPEN", "CLOSED", False, False, False),
        (None, None, "OPEN", "No text", False, False, False),
        # White space, width and quotes are no difference; the letters of Ｏ Ｐ are full width.
        (None, None, "wild  path", "“WILD\n Path”", True, True, True),
        (None, None, "OPEN", "ＯＰEN", True, True, True),
        (None, None, "咖啡", "咖啡", True, True, True),
        (None, None, "IT'S", "It’s", True, True, True),
        # Nothing is there to read, whatever words say so; quotes alone are no part of every text.
        (None, None, "TEXT", "NO TEXT.", False, False, False),
        (None, None, "NO", "No text.", False, False, False),
        (None, None, "NO TEXT", "no text", True, True, True),
        (None, None, '""', "hello", False, False, False),
        # Replaced on an object.
        ([MIDDLE], [MIDDLE], "OPEN", "OPEN", True, True, True),
        ([], [MIDDLE], "OPEN", "OPEN", None, False, None),
        # The object is not seen after the edit: the code wants it in both pictures.
        ([MIDDLE], [], "OPEN", "OPEN", True, False, True),
    ],
)
def test_text(case: Any) -> None:
    before, after, new, read, paper, code, equal = case

    def judged(by: Rules) -> Verdict:
        return rules.text(before, after if by.text_object == "both" else None, new=new, read=read, rules=by)

    compare(judged, paper, code)
    check(judged(with_(text_match="equal")), equal)


@pytest.mark.parametrize(
    "case",
    [
        ({"bear": [MIDDLE]}, True, True, True),
        ({"bear": [MIDDLE]}, False, False, False),
        ({"bear": []}, True, True, False),
        ({"bear": [at(0.5, 0.5, 0.25)]}, True, True, False),
        ({"bear": [at(0.5, 0.5, 0.26)]}, True, True, True),
        ({"bear": [MIDDLE], "cup": []}, True, True, False),
        # The best box fills the image: a false detection. A second box does not save it.
        ({"bear": [HUGE]}, True, True, False),
        ({"bear": [WIDE, at(0.5, 0.5, 0.5)]}, True, True, False),
        # As wide, and not as high.
        ({"bear": [at(0.5, 0.5, side=0.95, high=0.5)]}, True, True, True),
    ],
)
def test_background(case: Any) -> None:
    kept, said, paper, code = case
    compare(
        lambda by: rules.background(kept if by.background_objects == "needed" else None, said=said, rules=by), paper, code
    )


def test_a_model_is_needed_only_where_what_is_seen_does_not_decide() -> None:
    assert rules.add([LEFT], reference=None, position="", said=None, rules=PAPER).done is True
    assert rules.add([LEFT], reference=None, position="", said=None, rules=CODE) is OPEN
    assert rules.add([], reference=None, position="", said=None, rules=CODE).done is False
    for options in (PAPER, CODE):
        assert rules.replace(([MIDDLE], []), [MIDDLE], said=None, rules=options) is OPEN
        assert rules.replace(([MIDDLE], []), [], said=None, rules=options).done is False
        assert rules.attribute([MIDDLE], said=None, rules=options) is OPEN
        assert rules.attribute([], said=None, rules=options) is not OPEN
        assert rules.text(None, None, new="x", read=None, rules=options) is OPEN
        assert rules.background(None, said=None, rules=options) is OPEN
    assert rules.background({"bear": []}, said=None, rules=CODE).done is False
    plain = rules.replace(([MIDDLE], []), [MIDDLE], said=None, rules=with_(replace_gate=False))
    assert (plain.done, plain.reason) == (True, "the old object is gone and the new one is seen")


def test_each_difference_can_be_set_by_itself() -> None:
    for name, value in OFFICIAL.items():
        one = with_(**{name: value})
        assert getattr(one, name) == getattr(CODE, name) != getattr(PAPER, name), name
        paper = getattr(PAPER, name)
        back = Rules.model_validate({"if": "official", name: "none" if paper == () else paper})
        assert getattr(back, name) == paper, name


def test_options_are_written_so_that_another_preset_can_be_named() -> None:
    assert PAPER.model_dump(mode="json") == {"if": "paper"}
    own = Rules.model_validate({"if": "official", "miss": "status", "remove_threshold": 0.5})
    written = own.model_dump(mode="json")
    assert written == {"if": "official", "miss": "status", "remove_threshold": 0.5}
    assert Rules.model_validate(written) == own
    assert Rules.model_validate({**written, "if": "paper"}) == with_(remove_threshold=0.5)
    for wrong in ({"if": "code"}, {"preset": "paper"}, {"add_threshold": 0.2}, {"count_threshold": 1.5}, {"miss": "0"}):
        with pytest.raises(ValidationError):
            Rules.model_validate(wrong)


def test_the_page_lists_every_option_with_both_presets() -> None:
    page = (Path(__file__).parents[2] / "docs" / "edival.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| `([^`]+)` \|", page, re.MULTILINE)

    def written(value: Any) -> str:
        return (",".join(value) or "none") if isinstance(value, tuple) else str(value).lower()

    names = [name for name in Rules.model_fields if name != "preset"]
    assert rows == [(name, *(written(getattr(options, name)) for options in (PAPER, CODE))) for name in names]
