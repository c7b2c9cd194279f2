"""What `LabeledBoxes` reads of a paper's detector, and the confidence of each entry; every case worked by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from editloupe.answers import AnswerSpec
from editloupe.chat import Token
from editloupe.errors import ReplyError
from editloupe.protocols.labeled_boxes import LabeledBoxes
from tests.core.test_answers import JSON, LINES, METRIC, asked, entry, said

CASES = json.loads(Path(__file__).with_name("labeled_cases.json").read_text(encoding="utf-8"))


def differences(*entries: str) -> str:
    return f'{{"differences": [{", ".join(entries)}]}}'


def listed(spec: LabeledBoxes, text: str) -> tuple[list[list[Any]], list[str]]:
    data: Any = spec.parse(text).data
    return [[item["op"], item["object"], item["box"]] for item in data["differences"]], [
        item["why"] for item in data.get("dropped", ())
    ]


def test_what_the_papers_detector_writes_is_read_as_it_is_meant():
    for case in CASES:
        status, text = isinstance(case["wanted"], str), case["text"]
        wanted = case["wanted"] if status else (case["wanted"], case.get("dropped", []))
        assert (said if status else listed)(LINES, text) == wanted, case
    two = [["EDIT", "cup", [100, 200, 300, 400]], ["ADD", "dog", [0, 0, 1000, 1000]]]
    for text in (
        "EDIT: cup, [0.1, 0.2, 0.3, 0.4]\nADD: dog, [0, 0, 1, 1]",
        "- EDIT: cup [0.1,0.2,0.3,0.4]\n- **ADD**: dog [0,0,1,1]",
        "```\nEDIT: cup, [0.1, .2, 0.3, 0.40]\nADD: dog, [0, 0, 1, 1]\n```",
        '["EDIT: cup, [0.1, 0.2, 0.3, 0.4]", "ADD: dog, [0, 0, 1, 1]"]',
        '{"reason": "x", "answer": ["EDIT: cup, [0.1, 0.2, 0.3, 0.4]", "ADD: dog, [0, 0, 1, 1]"]}',
    ):
        assert listed(LINES, text) == (two, []), text
    empty = ('{"differences": []}', '{"reason": "x", "answer": []}')
    for text in ("no change", "**No change.**", "NoChange", "[]", *empty):
        assert listed(LINES, text) == ([], []), text
    assert [listed(JSON, text) for text in empty] == [([], [])] * 2


def test_one_bad_entry_loses_no_other_and_says_why():
    label, numbers = "its label is none of ADD, EDIT, REMOVE", "its box is not four finite numbers"
    swapped = "its box is empty, or its corners are swapped"
    outside, beyond = (f"its box holds a number outside of 0 to {most}" for most in (1, 1000))
    lines = (
        ("BEARBEITEN: cup, [0.1, 0.2, 0.3, 0.4]", label), ("EDIT: cup, [0.1, 0.2, 0.3, 0.4, 0.5]", numbers),
        ("EDIT: cup, [-0.1, 0.2, 0.3, 0.4]", outside), ("EDIT: cup, [0.1, 0.2, 0.3, 0.4]", None), ("EDIT: cup", numbers),
        ("ADD: cup, [100, 200, 300, 400]", outside), ("ADD: cup, [0.1, 0.1, 0.1000001, nan]", numbers),
        ("ADD: cup, [0.1, 0.1, 0.1000001, 0.2]", swapped),
    )  # fmt: skip
    dropped = [why for _, why in lines if why]
    text = "\n".join(line for line, _ in lines)
    assert listed(LINES, text) == ([["EDIT", "cup", [100, 200, 300, 400]]], dropped)
    boxes = {
        "[0, 0, 1, 1]": "its box is written in fractions", "[1, 2, 3, 1001]": beyond, "[3, 2, 1, 4]": swapped,
        "[1, 2, true, 4]": numbers, '[1, 2, "3", 4]': numbers, "null": numbers, '"x"': numbers,
    }  # fmt: skip
    text = differences(entry("MOVE"), *(entry(box=box) for box in (*boxes, "[1.5, 2, 3, 4]")), "1")
    assert listed(JSON, text) == ([["EDIT", "cup", [1.5, 2, 3, 4]]], [label, *boxes.values(), "it is no JSON object"])
    with pytest.raises(ReplyError, match="none of the 2 entries can be read; of one, its box is not four finite"):
        LINES.parse("EDIT: cup, [nan, 0.2, 0.3, 0.4]\nADD: dog, [0.3, 0.1, 0.1, 0.2]")


WANTS = asked(form="lines", wants_logprobs=True)
NORM = math.log(math.e**2 + math.e + 1)
THREE = (("ADD", 2 - NORM), ("EDIT", 1 - NORM), ("REMOVE", -NORM))
"""The logarithms of the probabilities of logits 2, 1 and 0."""


def at(text: str, *top: tuple[str, float]) -> Token:
    return Token(text=text, logprob=dict(top).get(text, -3.0), top=top)


def shares(text: str, *tokens: str | Token, spec: LabeledBoxes = WANTS) -> list[float | None]:
    return spec.shares(text, [t if isinstance(t, Token) else Token(text=t, logprob=-0.1) for t in tokens])


def test_a_confidence_is_the_labels_share_at_its_token():
    for op, share in (("ADD", 0.6652), ("EDIT", 0.2447), ("REMOVE", 0.0900)):
        text = f"{op}: cup, [0.1, 0.2, 0.3, 0.4]"
        found = shares(text, "<Start Final Answer>", at(op, *THREE), text.removeprefix(op), "</Start Final Answer>")
        assert found == [pytest.approx(share, abs=5e-5)]
        data: Any = AnswerSpec.parse(WANTS, text, METRIC, confidences=found).data
        assert (data["differences"][0]["confidence"], data["confidence_source"]) == (found[0], "logprob")
    # ADD .3 + .1 + .1 = .5 of .5 + .2 + .1 = .8; "E" begins EDIT alone, "" and "the" nothing, "R" begins REMOVE.
    top = [(" ADD", 0.3), ('"Add', 0.1), ("A", 0.1), ("E", 0.2), ("R", 0.1), (" ", 0.1), ("the", 0.1)]
    text = "ADD: cup, [0.1, 0.2, 0.3, 0.4]"
    assert shares(text, at(" ADD", *((w, math.log(p)) for w, p in top)), text[3:]) == [pytest.approx(0.625)]
    # The chosen token counts where it is not among the most probable: .1 of .5.
    assert shares(text, Token(text="ADD", logprob=math.log(0.1), top=(("EDIT", math.log(0.4)),)), text[3:]) == [
        pytest.approx(0.2)
    ]
    assert shares(text, Token(text="ADD", logprob=-0.1), text[3:]) == [None]
    # A beginning that two labels share tells nothing.
    alike = asked(form="lines", labels=("REMOVE", "REPLACE"), wants_logprobs=True)
    assert shares("REMOVE: cup, [0, 0, 1, 1]", at("RE", ("RE", -0.1)), "MOVE: cup, [0, 0, 1, 1]", spec=alike) == [None]
    for tokens in ((), ("another text",), ("ADD: cu",)):
        assert shares(text, *tokens) == []
    assert shares(text, at("ADD", *THREE), text[3:], spec=LINES) == []
