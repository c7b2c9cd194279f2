"""The text protocol: what counts as a thought, a call, an answer, and what never does."""

from __future__ import annotations

import pytest

from editloupe.chat import Reply
from editloupe.replies import parse_reply


def parsed(text: str, **fields: object):
    return parse_reply(Reply(text=text, **fields), turn=1)  # type: ignore[arg-type]


def test_a_thought_and_two_calls_in_one_block_are_read():
    reply = parsed(
        '<Start Thinking> look </Start Thinking> <tool_call> {"name": "a", "parameters": {"x": 1}}\n'
        '{"name": "b", "parameters": {}} </tool_call>'
    )
    assert reply.thought == "look"
    assert [(c.id, c.name, dict(c.arguments)) for c in reply.calls] == [("call_1_1", "a", {"x": 1}), ("call_1_2", "b", {})]
    assert reply.answer is None
    assert reply.malformed == ()


@pytest.mark.parametrize(
    "text",
    [
        "<Start Thinking>t</Start Thinking><Start Final Answer>Single Anomaly</Start Final Answer>",
        "<Start Thinking>t<Start Thinking><br/><Start Final Answer> Single Anomaly<Start Final Answer>",
        "<Start Thinking>t<Start Final Answer>Single Anomaly</Start Final Answer>",
        "<start thinking>t</start thinking>\n<START FINAL ANSWER>Single Anomaly</Final Answer> Done.",
        "<Start Thinking>t</Start Thinking><Start Final Answer>Single Anomaly",
        "<Start Thinking>t</Start Thinking><Start Final Answer>```\nSingle Anomaly\n```</Start Final Answer>",
    ],
)
def test_the_tags_of_the_paper_and_their_usual_slips_give_the_same_answer(text: str):
    reply = parsed(text)
    assert (reply.thought, reply.answer) == ("t", "Single Anomaly")


def test_an_answer_that_a_closed_thought_only_mentions_is_no_answer():
    reply = parsed(
        "<Start Thinking>later I write <Start Final Answer>Flawless Execution</Start Final Answer> or "
        '<tool_call>{"name": "a"}</tool_call></Start Thinking><Start Final Answer>Wrong Action</Start Final Answer>'
    )
    assert reply.answer == "Wrong Action"
    assert reply.calls == ()


def test_two_answers_are_both_handed_on_so_that_they_can_contradict():
    reply = parsed("<Start Final Answer>A</Start Final Answer><Start Final Answer>B</Start Final Answer>")
    assert reply.answer == "A\nB"


@pytest.mark.parametrize(
    "block",
    [
        "```json\n{'name': 'zoom_in', 'parameters': {'bbox': [1, 2, 3, 4]}}\n```",
        "{“name”: “zoom_in”, “parameters”: {“bbox”: [1, 2, 3, 4]}}",
        '{"name": "zoom_in", "arguments": {"bbox": [1, 2, 3, 4],},}',
        '[{"name": "zoom_in", "parameters": {"bbox": [1, 2, 3, 4]}}]',
        'Here is my call: {"name": "zoom_in", "parameters": {"bbox": [1, 2, 3, 4]}} thank you',
    ],
)
def test_fences_quotes_and_stray_words_around_a_call_are_tolerated(block: str):
    reply = parsed(f"<tool_call>{block}</tool_call>")
    assert [(c.name, dict(c.arguments)) for c in reply.calls] == [("zoom_in", {"bbox": [1, 2, 3, 4]})]


def test_a_call_that_is_cut_off_is_never_repaired():
    reply = parsed('<tool_call>{"name": "zoom_in", "parameters": {"bbox": [10, 20, 3', finish="length")
    assert reply.calls == ()
    assert "cut off" in reply.malformed[0].error


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ("", "empty"),
        ("please zoom", "no JSON object"),
        ('{"parameters": {}}', '"name"'),
        ('{"name": "a", "parameters": [1]}', "must be a JSON object"),
        ('{"name": "a", "parameters": {"x": NaN}}', "not finite"),
        ('{"name": "a", "parameters": {"x": 1e999}}', "not finite"),
    ],
)
def test_what_is_no_call_is_told_with_the_reason(block: str, complaint: str):
    reply = parsed(f"<tool_call>{block}</tool_call>")
    assert reply.calls == ()
    assert complaint in reply.malformed[0].error


def test_a_good_call_beside_a_broken_one_is_kept():
    reply = parsed('<tool_call>{"name": "a", "parameters": {}} {"parameters": {}}</tool_call>')
    assert [c.name for c in reply.calls] == ["a"]
    assert len(reply.malformed) == 1


@pytest.mark.parametrize("text", ["", "Flawless Execution", "<Start Final Answer></Start Final Answer>", "</tool_call>"])
def test_text_without_tags_is_no_answer_even_when_it_is_a_label(text: str):
    reply = parsed(text)
    assert (reply.calls, reply.malformed, reply.answer) == ((), (), None)


def test_reasoning_that_the_provider_keeps_apart_is_part_of_the_thought():
    assert parsed("<Start Final Answer>A</Start Final Answer>", reasoning="hm").thought == "hm"
