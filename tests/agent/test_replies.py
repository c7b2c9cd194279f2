"""What is read in replies as models write them: no label where none was given, and as few replies lost as can be."""

from __future__ import annotations

import pytest

from editloupe.answers import read_answer
from editloupe.chat import Reply
from editloupe.errors import ReplyError
from editloupe.replies import parse_reply
from editloupe.rubrics import load_rubric
from tests.agent.replies import ANSWERS, REFUSED, REPLIES

METRIC = "instruction_following"
LABELS = load_rubric("dlebench").criterion(METRIC).answer()


def read(text: str) -> str:
    """The label of a reply, or its status."""
    answer = parse_reply(Reply(text=text), turn=1).answer
    try:
        return "unparsed" if answer is None else str(read_answer(LABELS, answer, METRIC))
    except ReplyError as error:
        return error.status


@pytest.mark.parametrize(("wanted", "answer"), [(wanted, answer) for wanted, some in ANSWERS.items() for answer in some])
def test_an_answer_is_read_as_wanted(wanted: str, answer: str) -> None:
    assert read(f"<Start Thinking>I look.</Start Thinking><Start Final Answer>{answer}</Start Final Answer>") == wanted


@pytest.mark.parametrize("answer", [answer for some in REFUSED.values() for answer in some])
def test_an_answer_that_is_turned_away_is_no_label_at_all(answer: str) -> None:
    assert read(f"<Start Thinking>I look.</Start Thinking><Start Final Answer>{answer}</Start Final Answer>") == "off_menu"


@pytest.mark.parametrize(("wanted", "reply"), [(wanted, reply) for wanted, some in REPLIES.items() for reply in some])
def test_a_reply_is_read_as_wanted(wanted: str, reply: str) -> None:
    assert read(reply) == wanted
