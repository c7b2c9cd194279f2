"""What holds of every reply, whatever stands around its labels: drawn from fragments that models' replies are made of.

Examples that once failed stay as `@example`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Reply
from editloupe.data.images import ImageStore
from editloupe.replies import TAGS, parse_reply
from editloupe.tasks import STATUSES, Budget
from editloupe.values import Sample
from tests.agent.test_loop import judged
from tests.agent.test_replies import LABELS, read

NAMES = [rule.name for rule in LABELS.labels]
READINGS = {*NAMES, "unparsed", "off_menu", "contradictory", "abstained"}
quick = settings(derandomize=True, deadline=None, max_examples=150)

OPENING = ("<Start Final Answer>", "<start final answer>", "<Final Answer>", "< Start  Final Answer >")
CLOSING = (
    "</Start Final Answer>",
    "<End Final Answer>",
    "</final answer>",
    "</ Start Final Answer >",
    "<Start Final Answer>",
)
TAGGED = (
    *OPENING, *CLOSING, "<Start Thinking>", "</Start Thinking>", "<End Thinking>", "<think>", "</think>", "<thinking>",
    "</thinking>", "<tool_call>", "</tool_call>", '{"name": "zoom_in", "parameters": {"bbox": [0, 0, 9, 9]}}',
    "Final Answer:",
)  # fmt: skip
WORDS = (
    "not", "no", "never", "rather than", "or", "and", "but", "maybe", "isn't", "I choose", "the label is", "Label:",
    "Score:", "Cannot Judge", "4", "3", "2", "4/4", "?", "!", ".", ":", ",", "-", "—", "(", ")", "**", "`", "```", "\n",
    "> ", "1. ", "A. ", "✅", "~~", "$", "\\boxed{", "}", "{", '{"label": "', '"}', '", "reason": "', "</s>", "<b>", "</b>",
    "<|im_end|>", "…", "it keeps its shape", "The boat is orange", "不是", "标签：", "\u200b", "\u00a0", "\x00", "\ud800",
)  # fmt: skip
labels = st.sampled_from([*NAMES, *(alias for rule in LABELS.labels for alias in rule.aliases)])
names = st.sampled_from(NAMES)
words = labels | st.sampled_from(WORDS) | st.text(max_size=6)
pieces = words | st.sampled_from(TAGGED)
joins = st.sampled_from(["", " ", "\n"])


@st.composite
def mixed(draw: st.DrawFn, of: st.SearchStrategy[str] = pieces, most: int = 14) -> str:
    """Fragments side by side, parted by nothing, a blank or a line's end."""
    return "".join(draw(piece) + draw(joins) for piece in draw(st.lists(st.just(of), max_size=most)))


answers = mixed(words, most=8).filter(lambda text: TAGS.search(text) is None)
"""What may stand between the answer tags: no tag of ours."""

ASSERTED = (
    "{}", "**{}**", "Label: {}", "The label is {}.", "I choose {}.", "✅ {}", "{}.", '"{}"', "1. {}", "Final Answer: {}",
    "{}: the boat is orange now.", "{} (the boat is orange now)", "<b>{}</b>", "\\boxed{{{}}}", "IF: {}", "{}</s>",
)  # fmt: skip
asserted = st.sampled_from(ASSERTED)
tags = st.tuples(st.sampled_from(OPENING), st.sampled_from(CLOSING))
NEGATIONS = ("not", "Not", "never", "It is not", "This is no", "It isn't", "neither", "不是", "并非", "nicht", "pas", "не")


def block(answer: str, opening: str = OPENING[0], closing: str = CLOSING[0]) -> str:
    return f"{opening}{answer}{closing}"


@quick
@given(mixed())
@example("<tool_call>" * 3 + '{"a":' * 2000)
@example("<Start Final Answer>\ud800")
def test_a_reply_is_a_label_of_the_rubric_or_a_status(text: str) -> None:
    assert read(text) in READINGS
    for finish in ("stop", "length", "tools"):
        for native in (False, True):
            parsed = parse_reply(
                Reply(text=text, reasoning=text, finish=finish), turn=1, native=native, choices=tuple(NAMES)
            )  # type: ignore[arg-type]
            assert parsed.answer is None or parsed.answer.strip()


@quick
@given(names, asserted, answers, answers)
@example("Flawless Execution", "{}", "", "不是Flawless Execution")
@example("Flawless Execution", "{}", "", "Flawless Execution```")
def test_noise_around_an_asserted_label_gives_that_label_or_none(name: str, form: str, before: str, after: str) -> None:
    answer = f"{before}\n{form.format(name)}\n{after}"
    assert read(block(answer)) in READINGS - ({*NAMES} - {name})
    # With any other label behind it, it is none.
    for other in NAMES:
        if other != name:
            assert read(block(f"{answer}\n{other}")) not in NAMES


@quick
@given(names, names, asserted, asserted, joins, answers, tags, tags)
def test_a_reply_that_asserts_two_labels_is_no_verdict(
    one: str, other: str, first: str, second: str, join: str, noise: str, around: tuple[str, str], also: tuple[str, str]
) -> None:
    assume(one != other)
    said, beside = first.format(one), second.format(other)
    assert read(block(f"{said}{join or ' '}{beside}", *around)) == "contradictory"
    assert read(f"<think>I look.</think>{block(said, *around)}{noise}{block(beside, *also)}") == "contradictory"
    assert read(f"Final Answer: {one}\nFinal Answer: {other}") == "contradictory"


@quick
@given(names, asserted, st.sampled_from(NEGATIONS), st.booleans(), st.sampled_from(["{} {}", "{1} {0}", "{}“{}”"]))
@example("Flawless Execution", "{}", "不是", False, "{} {}")
@example("Flawless Execution", "{}", "不是", False, "{}{}")
@example("Flawless Execution", "{}", "ではない", False, "{1}{0}")
@example("Flawless Execution", "{}", "nicht", False, "{} {}")
def test_a_label_that_is_asserted_and_negated_is_no_verdict(
    name: str, form: str, negation: str, first: bool, order: str
) -> None:
    lines = [form.format(name), order.format(negation, name)]
    assert read(block("\n".join(lines if not first else lines[::-1]))) == "off_menu"


@quick
@given(names, asserted)
def test_each_asserting_form_alone_is_the_label(name: str, form: str) -> None:
    assert read(block(form.format(name))) == name


@quick
@given(
    answers,
    tags,
    st.sampled_from(["", " ", "\n\n", "\t"]),
    st.sampled_from(["", "\n", "</s>", "<|im_end|>", "<|eot_id|>\n", "The boat is orange now."]),
)
def test_how_the_tags_are_written_and_what_stands_around_them_changes_nothing(
    answer: str, around: tuple[str, str], blank: str, rest: str
) -> None:
    plain = read(block(answer))
    assert read(f"I look first.\n{block(f'{blank}{answer}{blank}', *around)}{rest}") == plain


@quick
@given(answers, mixed(), st.sampled_from(["think", "thinking", "THINK"]))
def test_no_thought_changes_the_verdict(answer: str, thought: str, tag: str) -> None:
    plain = read(block(answer))
    own = thought.replace("</think", "").replace("</thinking", "")
    assert read(f"<{tag}>{own}</{tag}>{block(answer)}") == plain
    assert read(f"<{tag}>{own}</{tag}>\n<Start Thinking>I look.</Start Thinking>\n{block(answer)}") == plain
    # As a field of its own, beside the text.
    answered = parse_reply(Reply(text=block(answer), reasoning=thought), turn=1).answer
    assert answered == parse_reply(Reply(text=block(answer)), turn=1).answer


@quick
@given(answers)
def test_an_answer_inside_a_thought_alone_is_no_verdict(answer: str) -> None:
    for text in (f"<think>{block(answer)}</think>", f"<think>I would say {block(answer)}", f"{block(answer)}</think>"):
        assert parse_reply(Reply(text=text), turn=1).answer is None


@settings(quick, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(mixed(), min_size=1, max_size=4))
def test_whatever_a_model_says_its_task_ends_with_a_label_or_a_status(
    sample: Sample, store: ImageStore, replies: list[str]
) -> None:
    lmm = ScriptedLMM(lambda request: replies[len(request.messages) // 2 % len(replies)])
    finding = judged(lmm, sample, store, mode="plain", budget=Budget(max_turns=1))
    assert finding.status in STATUSES
    assert (finding.status == "ok") == (finding.label in NAMES) == (finding.value is not None)
    assert len(lmm.requests) <= 3
    assert finding.counts.get("reminders", 0) == len(lmm.requests) - 1
