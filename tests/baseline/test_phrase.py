"""Which object an instruction is about, by rules."""

from __future__ import annotations

import pytest

from editloupe.backends.base import open_backend
from editloupe.baseline.phrase import target_phrase
from editloupe.chat import Message, Request
from editloupe.data.images import ImageStore

# The five examples of DLEBench's Table 6, then what the rules must tell apart.
RULES = [
    ("Change the building's exterior color to a light beige.", "building"),
    ("Remove the person standing on the left.", "person"),
    ("Replace the cat with a dog.", "cat"),
    ("Make the red car look like a vintage car.", "red car"),
    ("Add a smile to the woman's face.", "woman's face"),
    ("Make it look cinematic", "image"),
    ("Make it cinematic.", "image"),
    ("Fix old photo", "image"),
    ("Move the lemon to the right of the table", "lemon"),
    ("make the bird wear a cowboy hat", "bird"),
    ("add 1 toy sheep to the platform", "platform"),
    ("add 2 saucers to the scene", None),
    ("Turn her into a robot", None),
    ("把“月满中秋”改成“千里团圆”", None),
    ("Make it red.", None),
    ("Make the photo brighter.", "image"),
    ("Remove the picture frame on the wall.", "picture frame"),
    ("Turn the photo into a watercolor painting.", "image"),
    ("Change attribute of blue dustpan to red.", "blue dustpan"),
    ("Reduce the number of orange apples from 3 to 2.", "orange apples"),
    ("Remove two of the apples.", "apples"),
    ("Put a red box in place of the mug.", "mug"),
    ("Swap the bottle of water for a can.", "bottle of water"),
    ("Change the text on the yellow sign from 'CAFE 12' to 'BOOKS 7'.", "text on yellow sign"),
    ("Change 'OPEN' to 'CLOSED'.", "text"),
    ("Paint the fence white.", "fence"),
    ("The mug should be blue.", "mug"),
    ("Add a cat.", None),
    ("把红色杯子变成蓝色", None),
    ("", None),
]


@pytest.mark.parametrize(("instruction", "phrase"), RULES)
def test_rules_name_the_object_or_nothing(instruction: str, phrase: str | None) -> None:
    assert target_phrase(instruction) == phrase


def test_the_baseline_answers_the_question_for_a_name_and_abstains_where_no_rule_fits() -> None:
    def said(instruction: str) -> str:
        line = f"Name the object of this instruction: {instruction}"
        request = Request(messages=(Message.of_text("user", f"How to name it:\n{line}"),))
        return open_backend("baseline").complete(request, ImageStore()).text

    assert "<Start Final Answer>red car</Start Final Answer>" in said("Make the red car look like a vintage car.")
    assert "<Start Final Answer>Cannot Judge</Start Final Answer>" in said("Add a cat.")
