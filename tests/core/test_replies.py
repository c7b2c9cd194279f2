"""How a reply is read: what counts as thought, call and answer, and that no label is read that nobody gave."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editloupe.answers import YES_NO, AnswerSpec, BoxList, FreeText, OneOf, RecordOf, Scale, reason_in
from editloupe.chat import Reply
from editloupe.errors import ReplyError
from editloupe.protocols.labeled_boxes import LabeledBoxes
from editloupe.replies import Parsed, neutralise, one_line, parse_bare, parse_reply, tags_in
from editloupe.rubrics import load_rubric

read_answer = AnswerSpec.parse

METRIC = "instruction_following"
LABELS = load_rubric("dlebench").criterion(METRIC).answer()
NAMES = tuple(rule.name for rule in LABELS.labels)
READINGS = {*NAMES, "unparsed", "off_menu", "contradictory", "abstained"}
THOUGHT = "<Start Thinking>I look.</Start Thinking>"
CORPUS = json.loads(Path(__file__).with_name("replies.json").read_text(encoding="utf-8"))
"""Replies and what is to be read in them, for DLEBench's Instruction Following.

`answers` and `refused` are texts between answer tags, `replies` whole messages, each under its label or status.
`relabeled`: replies whose label of old, by which text beside an answer could take it back, is not that of today."""


def tagged(answer: str, opening: str = "<Start Final Answer>", closing: str = "</Start Final Answer>") -> str:
    return f"{opening}{answer}{closing}"


def parsed(text: str, **fields: object) -> Parsed:
    return parse_reply(Reply(text=text, **fields), turn=1)  # type: ignore[arg-type]


def read(text: str) -> str:
    """The label of a reply, or its status."""
    reply = parsed(text)
    if reply.contradictory:
        return "contradictory"
    try:
        return "unparsed" if reply.answer is None else str(read_answer(LABELS, reply.answer, METRIC))
    except ReplyError as error:
        return error.status


def cases() -> Iterator[tuple[str, str]]:
    """Yield each reply of the corpus with its label of old."""
    for table in ("answers", "refused"):
        for wanted, some in CORPUS[table].items():
            yield from ((THOUGHT + tagged(answer), wanted) for answer in some)
    for wanted, some in CORPUS["replies"].items():
        yield from ((reply, wanted) for reply in some)


# The corpus


def test_no_reply_of_the_corpus_is_read_as_a_label_that_it_does_not_give():
    new = {one["reply"]: one["new"] for one in CORPUS["relabelled"]}
    found = {reply: read(reply) for reply, _ in cases()}
    assert len(found) > 1_000
    assert {r: said for r, said in found.items() if said not in READINGS} == {}
    wrong = [(r, old, found[r]) for r, old in cases() if found[r] in NAMES and found[r] != new.get(r, old)]
    assert wrong == []
    # By the labels of old only those are false that are listed, each with its reason.
    false = {r for r, old in cases() if found[r] in NAMES and found[r] != old}
    assert false == new.keys() and all(one["why"] for one in CORPUS["relabelled"])


def test_of_379_clear_answers_at_least_150_are_read_at_once():
    clear = [(name, THOUGHT + tagged(answer)) for name in NAMES for answer in CORPUS["answers"][name]]
    assert len(clear) == 379
    assert sum(read(reply) == name for name, reply in clear) >= 150


SHARED = Path(__file__).resolve().parents[3] / "shared/data/human-ratings/genaibench_gpt4o_raw_responses.jsonl"


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared")
def test_the_last_lines_of_150_real_answers_are_read_as_their_authors_read_them():
    # The options as the benchmark's prompt lists them: "1. Model A is better: [[A>B]]".
    said = {"A>B": "Model A is better", "B>A": "Model B is better", "A=B=Bad": "Both are bad"}
    said["A=B=Good"] = "Tie, relatively the same acceptable quality"
    options = ("A>B", "B>A", "A=B=Good", "A=B=Bad")
    verdict = OneOf(options=options, marks=("1", "2", "3", "4"), aliases={name: (words,) for name, words in said.items()})
    right, wrong = 0, []
    for row in map(json.loads, SHARED.read_text(encoding="utf-8").splitlines()):
        last = [line for line in row["response"].splitlines() if line.strip()][-1]
        try:
            found = str(read_answer(verdict, str(parsed(tagged(last)).answer), "verdict"))
        except ReplyError:
            continue
        right += found == row["parsed_vote"]
        wrong += [last] if found != row["parsed_vote"] else []
    assert wrong == [] and right >= 140


# Tags and thoughts


def test_the_tags_of_the_paper_and_their_usual_slips_give_the_same_answer():
    for text in (
        "<Start Thinking>t</Start Thinking><Start Final Answer>Single Anomaly</Start Final Answer>",
        "<Start Thinking>t<Start Thinking><br/><Start Final Answer> Single Anomaly<Start Final Answer>",
        "<Start Thinking>t<Start Final Answer>Single Anomaly</Start Final Answer>",
        "<start thinking>t</start thinking>\n<START FINAL ANSWER>Single Anomaly</Final Answer> Done.",
        "<Start Thinking>t</Start Thinking>< Start_Final Answer >Single Anomaly<\\Start Final Answer>",
        "<Start Thinking>t</Start Thinking><Start Final Answer>Single Anomaly",
        "<Start Thinking>t</Start Thinking><Start Final Answer>```\nSingle Anomaly\n```<End Final Answer>",
        "<think>t</think><Start Final Answer>```text\nSingle Anomaly\n```</Start Final Answer>",
    ):
        reply = parsed(text)
        assert (reply.thought, reply.answer, reply.tagged) == ("t", "Single Anomaly", True), text


def test_marked_thought_is_thought_whatever_stands_in_it():
    wrong, right = tagged("Wrong Action"), tagged("Flawless Execution")
    for text in (
        f"<think>So far {wrong}</think>{right}",
        f"<THINKING>So far {wrong}</THINKING>\n{THOUGHT}{right}",
        f"So far {wrong}</think>{right}",
        f"<think>I open <think> again: {wrong}</think>{right}",
        f"<think>a</think>{wrong}</think>{right}",
        f"[THINK]So far {wrong}[/THINK]{right}",
        f"◁think▷So far {wrong}◁/think▷{right}",
        f"<|begin_of_thought|>So far {wrong}<|end_of_thought|>{right}",
        f"<seed:think>So far {wrong}</seed:think>{right}",
        f"<Start Thinking>In <think> tags: {wrong}</Start Thinking>{right}",
        f"<|channel|>analysis<|message|>So far {wrong}<|end|><|start|>assistant<|channel|>final<|message|>{right}",
        f"<|channel|>analysis to=x code<|message|>{wrong}<|end|><|start|>assistant<|channel|>final <|constrain|>json"
        f"<|message|>{right}<|return|>",
        f"<|start|>assistant<|channel|>commentary to=functions.look<|message|>{wrong}<|call|>{right}",
    ):
        assert read(text) == "Flawless Execution", text
        assert "Wrong Action" in parsed(text).thought, text
    for text in (f"<think>{right}", f"{right}</think>", f"{THOUGHT}<think>{right}", f"<Start Thinking>{right}</think>"):
        assert parsed(text).answer is None, text
    assert read(f"{wrong}<think>or") == "Wrong Action", "a thought that nobody closes takes no answer away before it"
    assert parsed(right, reasoning=f"hm {wrong}").answer == "Flawless Execution"
    assert parsed(right, reasoning="hm").thought == "hm"


def test_two_pairs_with_different_answers_contradict_each_other_and_equal_ones_do_not():
    one, other = tagged("Wrong Action"), tagged("Over Modification")
    for text in (one + other, f"{one} or rather {other}", f"<Start Final Answer>Wrong Action {other}"):
        assert read(text) == "contradictory", text
    reply = parsed(one + tagged("**wrong  action**."))
    assert (reply.answer, reply.contradictory) == ("**wrong  action**.", False)
    assert read(one + tagged("") + "<Start Final Answer>") == "Wrong Action"


def test_without_tags_and_calls_the_whole_reply_is_the_answer():
    for text in ("Wrong Action", " **Wrong Action**\n", "```\nWrong Action\n```", f"{THOUGHT}\nFinal Answer: wrong action"):
        reply = parsed(text)
        assert read(text) == "Wrong Action" and not reply.tagged, text
        # Cut at the token limit it may be the beginning of another one, unless its tags are closed.
        assert parsed(text, finish="length").answer is None, text
    assert parsed(f"{THOUGHT}<Start Final Answer>Good", finish="length").answer is None
    assert parsed(tagged("Good"), finish="length").answer == "Good"
    assert parsed('{"reason": "red", "answer": "Wrong Action"}').answer == '{"reason": "red", "answer": "Wrong Action"}'
    assert parsed('Wrong Action <tool_call>{"name": "a"}</tool_call>').answer is None
    assert parsed("Wrong Action <tool_call>{}</tool_call>").answer is None
    assert parsed("Wrong Action", malformed_calls=()).thought == ""
    for text in ("", " ", THOUGHT, "<Start Final Answer></Start Final Answer>", "<think>Wrong Action"):
        assert parsed(text).answer is None, text


def test_tags_in_the_strings_of_a_json_reply_are_text():
    for reason in ("it shows <tool_call>x</tool_call>", "a <thought> here", "it says </think>", "<Start Final Answer>"):
        text = json.dumps({"reason": reason, "answer": "Wrong Action"})
        for reply in (text, f"```json\n{text}\n```"):
            found = parsed(reply)
            assert (found.answer, found.calls, found.malformed) == (text, (), ()), reply


def test_a_model_that_answers_alone_gives_its_last_line_or_all():
    for text, answer, thought in (
        ("Reasoning: the vase is blue now.\nDecision: YES", "Decision: YES", "Reasoning: the vase is blue now."),
        ("Yes, the sky was asked for.\n\nno", "no", "Yes, the sky was asked for."),
        ("<think>yes?</think>\nAnswer: no", "Answer: no", "yes?"),
        ("", None, ""),
    ):
        reply = parse_bare(Reply(text=text), last_line=True)
        assert (reply.answer, reply.thought) == (answer, thought), text
    assert parse_bare(Reply(text="It was asked for, so\nYES", finish="length"), last_line=True).answer is None
    cut = Reply(text="EDIT: vase, [0.1, 0.2, 0.3, 0.4]\nADD: do", finish="length")
    assert parse_bare(cut, last_line=False).answer == cut.text


# Calls


def test_two_calls_in_one_block_and_fences_quotes_and_stray_words_around_a_call_are_read():
    one = "{'name': 'zoom_in', 'parameters': {'bbox': [1, 2, 3, 4]}}"
    for block in (
        f"```json\n{one}\n```",
        "{“name”: “zoom_in”, “parameters”: {“bbox”: [1, 2, 3, 4]}}",
        '{"name": "zoom_in", "arguments": {"bbox": [1, 2, 3, 4],},}',
        '[{"name": "zoom_in", "parameters": {"bbox": [1, 2, 3, 4]}}]',
        'Here is my call: {"name": "zoom_in", "parameters": {"bbox": [1, 2, 3, 4]}} thank you',
        f"{one}\n{{'parameters': {{}}}} {{'name': 'b'}}",
    ):
        reply = parsed(f"I look. <tool_call>{block}</tool_call>")
        first, *rest = [(call.id, call.name, dict(call.arguments)) for call in reply.calls]
        assert first == ("call_1_1", "zoom_in", {"bbox": [1, 2, 3, 4]}), block
        assert (reply.thought, reply.answer, len(reply.malformed)) == ("I look.", None, len(rest)), block
    assert [(id, name) for id, name, _ in rest] == [("call_1_2", "b")]


def test_what_is_no_call_is_told_with_the_reason():
    for block, complaint in (
        ("", "empty"),
        ("please zoom", "no JSON object"),
        ('{"parameters": {}}', '"name"'),
        ('{"name": "a", "parameters": [1]}', "must be a JSON object"),
        ('{"name": "a", "parameters": {"x": NaN}}', "not finite"),
        ('{"name": "a", "parameters": {"x": 1e999}}', "not finite"),
        ('{"a":' * 500, "nested deeper"),
        ("3 " * 20_000, "too many to read"),
    ):
        reply = parsed(f"<tool_call>{block}</tool_call>")
        assert reply.calls == () and complaint in reply.malformed[0].error, block[:80]
    cut = parsed('<tool_call>{"name": "zoom_in", "parameters": {"bbox": [10, 20, 3', finish="length")
    assert cut.calls == () and "cut off" in cut.malformed[0].error
    native = parse_reply(Reply(text='<tool_call>{"name": "a"}</tool_call>'), turn=1, native=True)
    assert native.calls == () and "tool calling interface" in native.malformed[0].error


# What holds of every reply


PIECES = (
    "<Start Final Answer>", "</Start Final Answer>", "<End Final Answer>", "<Final Answer>", "<Start Thinking>",
    "</Start Thinking>", "<think>", "</think>", "[THINK]", "[/THINK]", "◁think▷", "<tool_call>", "</tool_call>",
    "<|channel|>", "<|message|>", "<|end|>", "final", "analysis", "<", ">", "[", "not", "or", "no", "Label:", "Score:",
    '{"name": "zoom_in", "parameters": {"bbox": [0, 0, 9, 9]}}', "Cannot Judge", "4", "3", "4/4", "?", "!", ".", "-", "—",
    "**", "~~", "```", "\n", "{", '{"answer": "', '"}', '", "reason": "', "</s>", "不是", "\u200b", "\x00", "\ud800",
    *NAMES,
)  # fmt: skip
pieces = st.sampled_from(PIECES) | st.text(max_size=6)
mixed = st.lists(pieces, max_size=14).map("".join) | st.lists(pieces, max_size=14).map(" ".join)
quick = settings(derandomize=True, deadline=None, max_examples=150)


@quick
@given(mixed)
def test_every_reply_is_a_label_or_a_status(text: str):
    assert read(text) in READINGS
    for finish in ("stop", "length", "tools"):
        reply = parse_reply(Reply(text=text, reasoning=text, finish=finish), turn=1, native=True)  # type: ignore[arg-type]
        assert reply.answer is None or reply.answer.strip()
        assert parse_bare(Reply(text=text, finish=finish), last_line=False).calls == ()  # type: ignore[arg-type]


@quick
@given(mixed)
def test_text_from_outside_holds_no_tag_once_it_is_neutralised(text: str):
    safe = neutralise(text)
    assert list(tags_in(safe)) == [] and neutralise(safe) == safe and len(safe) == len(text)
    reply = parsed(f"{THOUGHT}{safe}")
    assert (reply.calls, reply.malformed, reply.tagged) == ((), (), False)
    assert "\n" not in one_line(text)


@quick
@given(st.sampled_from(NAMES), st.sampled_from(NAMES), mixed.filter(lambda text: next(tags_in(text), None) is None))
def test_only_what_stands_in_the_last_pair_of_tags_counts(name: str, other: str, beside: str):
    assert read(f"{beside}{tagged(name)}{beside}") == name
    assert read(f"<think>{beside}{tagged(other)}</think>{tagged(name)}") == name
    if name != other:
        assert read(tagged(other) + beside + tagged(name)) == "contradictory"
        assert read(tagged(f"{name} {other}")) == "contradictory"
        assert read(tagged(f"{name} {beside} {other}")) not in NAMES
    assert read(tagged(f"{name} {beside}")) not in {*NAMES} - {name}


# Time


UNITS = (
    " ", "\n", "\t", "<", "[", "[[", "{", "(", "]", "}", '"', "'", "`", "```\n", "*", "- ", "---\n", "3 ", "9", ".", "+",
    "!", "²", "一", "?", "Over Modification ", "confidence ", "label: ", "\\boxed{", "<Start Final Answer>", "<x>", "< / ",
    "</Start Final Answer>", "<Start Final Answer>x</Start Final Answer>", "<think>", "</think>", "[THINK]", "<tool_call>",
    "<|channel|>", "<|channel|>final<|message|>", "</s>", "<|x|>", "ADD: a, [", "ADD: a, [0,0,1,1]\n", "[0,0,1,1]", '{"a":',
    "Assistant: ",
)  # fmt: skip
FRAMES = ("{}", "<|channel|>{}", "<Start Final Answer>Over Modification{}x</Start Final Answer>", "<think>a</think>{}z")
BOXES = {"labels": ("ADD", "EDIT"), "list_key": "l", "label_key": "op", "name_key": "n", "image": "i"}
LISTS = [LabeledBoxes(**BOXES, form=form) for form in ("json", "lines")]  # type: ignore[arg-type]
SPECS = (
    LABELS,
    YES_NO,
    Scale(low=0, high=10, reason=True),
    FreeText(),
    BoxList(),
    RecordOf(schema={"type": "object"}),
    *LISTS,
)


def seconds(text: str) -> float:
    """The time that the slowest spec needs for a reply, from the reply to its reading."""
    begun = time.process_time()
    reply = parsed(text)
    parsing, reading = time.process_time() - begun, 0.0
    for spec in SPECS:
        begun = time.process_time()
        try:
            read_answer(spec, reply.answer or "", METRIC)
        except ReplyError:
            reason_in(spec, reply.answer or "")
        reading = max(reading, time.process_time() - begun)
    return parsing + reading


def test_a_reply_that_repeats_itself_is_read_in_linear_time():
    # 0.01 s for 100 kB, and three times that for three times the length, and some for a busy machine. Where each byte
    # costs some for each byte before it, 100 kB take ten seconds.
    slow = {}
    for number, unit in enumerate(UNITS):
        for frame in FRAMES:
            length, most = (300_000, 0.15) if frame == FRAMES[number % len(FRAMES)] else (99_000, 0.1)
            text = frame.format("{}").replace("{}", unit * (length // len(unit)))
            # Twice, since the garbage of the whole process may be collected meanwhile.
            if (took := seconds(text)) > most and (took := seconds(text)) > most:
                slow[unit, frame, length] = took
    assert slow == {}


def test_a_reply_of_five_megabytes_is_unparsed_in_a_second():
    for text in ("word " * 1_000_000, tagged("Wrong Action " * 400_000), "{" * 5_000_000):
        begun = time.process_time()
        assert read(text) == "unparsed"
        assert time.process_time() - begun < 1
