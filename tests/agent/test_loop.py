"""The loop through its public door, driven by a scripted model: Eq. 2, reminders, schemas, budgets, the last turn; and the
same conversation carried by native tool calls and tool messages."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from editloupe import tool
from editloupe.backends.base import LMM
from editloupe.backends.scripted import Line, ScriptedLMM
from editloupe.chat import MalformedCall, Reply, Request, ToolCall, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ContextTooLong, RateLimited
from editloupe.findings import Finding, JudgeSpec
from editloupe.runs.worker import Worker
from editloupe.tasks import Budget
from editloupe.tools.base import Toolbox
from editloupe.values import Sample
from tests.conftest import LOOK, final
from tests.setups import open_with

LABELS = ["Flawless Execution", "Over Modification", "Wrong Action", "Localization Failure"]


def judged(lmm: LMM, sample: Sample, store: ImageStore, criterion: str = "if", **settings: object) -> Finding:
    setup = open_with(backend=lmm, criteria=(criterion,), **settings)  # type: ignore[arg-type]
    (task,) = setup.protocol.plan([sample], {})
    return Worker(setup=setup, images=store).run_task(task)


def in_json(label: str, reason: str = "I see it.") -> str:
    return json.dumps({"reason": reason, "answer": label})


def held(lmm: ScriptedLMM) -> list[bool]:
    """Which requests were held to the answer's schema."""
    return [request.answer_schema is not None for request in lmm.requests]


def test_the_papers_dialogue_of_table_8_runs_thought_call_crops_label(sample: Sample, store: ImageStore):
    thought = "<Start Thinking>The target is small; I look closer.</Start Thinking>"
    lmm = ScriptedLMM([thought + LOOK, final("Over Modification", "As Crop 1 shows, the handle has changed as well.")])
    finding = judged(lmm, sample, store)
    assert (finding.status, finding.label, finding.value, finding.turns) == ("ok", "Over Modification", 3.0, 1)
    question, observation = lmm.requests[0].messages[0], lmm.requests[1].messages[2]
    assert [p.alias for p in question.images] == ["Original Image", "Edited Image"]
    assert (observation.role, [p.alias for p in observation.images]) == ("user", ["Crop 1", "Crop 2"])
    # Half of what 320×240 px cost twice pays for two of the three.
    assert "3 regions differ; the 2 strongest are shown" in observation.text
    # The verdict rests on Crop 1: the strongest square, seen in both images.
    assert {e.image for e in finding.evidence} == {"Original Image", "Edited Image"}


def test_the_papers_dialogue_of_table_12_has_two_calls_in_one_block_and_no_detector(sample: Sample, store: ImageStore):
    detect = "{“name”: “detect_object”, “parameters”: {“target_image”: “Original Image”, “detect_object_name”: “bicycle”}}"
    lmm = ScriptedLMM([LOOK.replace("</tool_call>", f"\n{detect}</tool_call>"), final("Multiple Anomalies")])
    finding = judged(lmm, sample, store, "vc")
    assert (finding.label, finding.value, finding.counts) == ("Multiple Anomalies", 2.0, {"tool_errors": 1})
    observation = lmm.requests[1].messages[2].text
    assert "Observation of localize_differences:" in observation
    assert "Observation of detect_object:\nError: the tool 'detect_object' is absent here" in observation


def test_an_answer_is_read_at_once_with_and_without_tags_in_either_form(sample: Sample, store: ImageStore):
    told = in_json("Wrong Action")
    alone = ("**Wrong Action.**", "Label: Wrong Action", told, f"```json\n{told}\n```", final(told))
    beside = ("The sign reads '{}'.", "For example:\n{}", "{}\nWait, the handle is bent.")
    for reply in (*alone, *(text.format(final("Wrong Action")) for text in beside)):
        for settings in ({}, {"mode": "plain", "answers": "auto"}, {"mode": "plain", "answers": "tags"}):
            lmm = ScriptedLMM([reply], constrains_schema=True)
            finding = judged(lmm, sample, store, **settings)
            assert (finding.status, finding.label, len(lmm.requests)) == ("ok", "Wrong Action", 1), (reply, settings)


def test_a_reply_of_prose_is_reminded_with_its_own_words_the_labels_and_the_form(sample: Sample, store: ImageStore):
    lmm = ScriptedLMM(["I think it is fine <End Thinking>.", "Really.", "Nothing else."])
    finding = judged(lmm, sample, store)
    assert (finding.status, finding.answer, finding.counts) == ("off_menu", None, {"reminders": 2})
    reminder = lmm.requests[1].messages[-1]
    assert reminder.role == "user" and reminder.text.rstrip().endswith("in <Start Final Answer>…</Start Final Answer>.")
    labels = f"The labels: {', '.join(LABELS)}."
    for told in ("Your last reply could not be used", "I think it is fine ‹End Thinking›.", labels):
        assert told in reminder.text
    # All replies were paid for: words are the script's tokens.
    assert finding.usage.output_tokens == 7 + 1 + 2


def test_a_reply_that_repeats_itself_word_for_word_is_not_reminded_again(sample: Sample, store: ImageStore):
    for reply, reminders in ((final("Superb"), 1), ("I think it is fine.", 1), (LOOK.replace("{", "["), 1)):
        lmm = ScriptedLMM([reply, reply, final("Wrong Action")])
        finding = judged(lmm, sample, store)
        assert (finding.status, finding.ending, len(lmm.requests)) == ("unparsed", "reminders", 2), reply
        assert finding.counts["reminders"] == reminders and "word for word" in finding.reason


def test_two_pairs_of_tags_with_different_answers_contradict_each_other(sample: Sample, store: ImageStore):
    both = final("Wrong Action") + final("Over Modification")
    finding = judged(ScriptedLMM([both, final("Over Modification")]), sample, store)
    assert (finding.label, finding.counts) == ("Over Modification", {"reminders": 1})
    assert judged(ScriptedLMM([both]), sample, store, remind_answers=False).status == "contradictory"


def test_an_answer_off_the_menu_is_a_status_and_never_a_number(sample: Sample, store: ImageStore):
    for answers, status in (
        (["Superb", "Splendid", "Grand"], "off_menu"),
        (["9", "8", "7"], "off_menu"),
        (["Superb", "Grand", "Flawless Execution or Wrong Action"], "contradictory"),
        (["Wrong Action?", "not Wrong Action", "~~Wrong Action~~"], "off_menu"),
        (["Cannot Judge"], "abstained"),
    ):
        finding = judged(ScriptedLMM([final(answer) for answer in answers]), sample, store)
        assert (finding.status, finding.answer, finding.value, finding.ending) == (status, None, None, "answer"), answers
        # What says nothing usable was asked for twice more; "Cannot Judge" is an answer.
        assert finding.counts == ({} if status == "abstained" else {"reminders": 2})


class TestSchema:
    """Where only an answer is expected and the backend can be held to a JSON schema."""

    def test_plain_mode_asks_by_schema_from_the_first_request_on(self, sample: Sample, store: ImageStore):
        lmm = ScriptedLMM([in_json("Wrong Action", "The cup is red.")], constrains_schema=True)
        finding = judged(lmm, sample, store, mode="plain")
        assert (finding.label, finding.reason, finding.counts) == ("Wrong Action", "The cup is red.", {"schema_answers": 1})
        (request,) = lmm.requests
        assert request.answer_schema is not None
        assert request.answer_schema["properties"]["answer"]["enum"] == LABELS  # type: ignore[index,call-overload]
        asked = request.messages[0].text
        assert "JSON object" in asked and "Start Final Answer" not in asked
        # The list first, the form last: a weak model copies the end of its prompt.
        assert asked.index("The labels:") < asked.index('{"reason"')

    def test_the_loop_with_tools_speaks_tags_until_only_an_answer_is_expected(self, sample: Sample, store: ImageStore):
        lmm = ScriptedLMM([LOOK, in_json("Wrong Action")], constrains_schema=True)
        finding = judged(lmm, sample, store, budget=Budget(max_turns=1))
        assert (finding.label, held(lmm), finding.counts) == ("Wrong Action", [False, True], {"schema_answers": 1})
        first, last = lmm.requests[0].messages[0].text, lmm.requests[1].messages[-1].text
        assert "Start Final Answer" in first and "JSON object and nothing else" not in first
        assert "Tools are no longer available" in last and "JSON object and nothing else" in last

    def test_a_reminder_is_held_to_the_schema_unless_a_call_was_malformed(self, sample: Sample, store: ImageStore):
        lmm = ScriptedLMM(["I wonder.", in_json("Wrong Action")], constrains_schema=True)
        assert judged(lmm, sample, store).label == "Wrong Action"
        assert held(lmm) == [False, True]
        assert "Start Final Answer" not in lmm.requests[1].messages[-1].text
        lmm = ScriptedLMM(["<tool_call>{}</tool_call>", LOOK, final("Wrong Action")], constrains_schema=True)
        finding = judged(lmm, sample, store)
        assert (finding.label, finding.turns, held(lmm)) == ("Wrong Action", 1, [False, False, False])
        assert finding.counts == {"malformed_calls": 1, "reminders": 1}
        assert '"name"' in lmm.requests[1].messages[-1].text, "it is told what was wrong"

    def test_tags_ask_for_no_schema_and_a_schema_needs_a_backend_that_has_one(self, sample: Sample, store: ImageStore):
        lmm = ScriptedLMM([final("Wrong Action")], constrains_schema=True)
        assert judged(lmm, sample, store, mode="plain", answers="tags").label == "Wrong Action"
        assert held(lmm) == [False]
        with pytest.raises(ConfigError, match="cannot hold an answer to a JSON schema; use auto"):
            open_with(backend=ScriptedLMM([]), answers="schema")


def test_how_answers_are_asked_for_and_reminded_of_is_part_of_the_identity_and_older_judges_did_neither():
    old = open_with(answers="tags", remind_answers=False).judge
    for change in ({"answers": "auto"}, {"remind_answers": True}):
        judge = open_with(**{"answers": "tags", "remind_answers": False, **change}).judge
        assert (judge.to_json(), judge.id != old.id) == ({**old.to_json(), **change}, True)
    assert JudgeSpec.from_json(old.to_json()) == old


def test_a_last_turn_without_a_label_is_over_budget(sample: Sample, store: ImageStore):
    def looks(request: Request) -> str:
        return f"<Start Thinking>{len(request.messages)}</Start Thinking>{LOOK}"

    # A call that comes again word for word is not reminded of twice.
    for script, remind, calls in ((looks, True, 4), ([LOOK] * 4, True, 3), (looks, False, 2)):
        lmm = ScriptedLMM(script)
        finding = judged(lmm, sample, store, budget=Budget(max_turns=1), remind_answers=remind)
        # Reminders are no turns with calls: the last turn has them too.
        assert (finding.status, finding.ending, finding.turns, len(lmm.requests)) == ("over_budget", "turns", 1, calls)
        assert "turns" in finding.reason


def test_tools_are_withdrawn_in_the_last_turn_which_is_reminded_without_a_word_of_them(sample: Sample, store: ImageStore):
    lmm = ScriptedLMM([LOOK, LOOK, final("Superb"), "Hm.", final("Wrong Action")])
    finding = judged(lmm, sample, store, budget=Budget(max_turns=2))
    assert (finding.status, finding.label, finding.turns, finding.counts) == ("ok", "Wrong Action", 2, {"reminders": 2})
    told = [request.messages[-1].text for request in lmm.requests]
    assert ["Tools are no longer available" in text for text in told] == [False, False, True, False, False]
    assert all("could not be used" in text and "tool_call" not in text for text in told[3:])


def test_reminders_of_replies_and_answers_have_one_bound(sample: Sample, store: ImageStore):
    script: list[Line] = ["hm", final("Superb"), final("Fine"), final("Wrong Action")]
    for most, requests in ((2, 3), (1, 2), (0, 1)):
        lmm = ScriptedLMM(script)
        finding = judged(lmm, sample, store, budget=Budget(max_reminders=most))
        assert (finding.status, len(lmm.requests)) == ("off_menu", requests)
    lmm = ScriptedLMM(script)
    assert (judged(lmm, sample, store, remind_answers=False).status, len(lmm.requests)) == ("off_menu", 1)


def test_the_budgets_of_tokens_and_time_end_a_task(sample: Sample, store: ImageStore):
    lmm = ScriptedLMM([Reply(text=LOOK, usage=Usage(input_tokens=900, output_tokens=200)), final("Wrong Action")])
    finding = judged(lmm, sample, store, budget=Budget(max_tokens=1000))
    # 900 + 200 tokens are over the 1,000 before the second call is made.
    assert (finding.status, "1,100 of 1,000" in finding.reason, len(lmm.requests)) == ("over_budget", True, 1)
    setup = open_with(backend=ScriptedLMM([LOOK]), criteria=("if",), budget=Budget(max_seconds=5))
    (task,) = setup.protocol.plan([sample], {})
    ticks = iter([0.0, 1.0, 6.0, 6.0])
    finding = Worker(setup=setup, images=store, clock=lambda: next(ticks)).run_task(task)
    assert (finding.status, "time" in finding.reason) == ("over_budget", True)


def test_every_way_in_which_a_model_fails_is_its_own_status(sample: Sample, store: ImageStore):
    lines: list[tuple[Any, str]] = [
        (Reply(text="I will not.", finish="refusal"), "refused"),
        (Reply(text="", finish="filter"), "filtered"),
        (ContextTooLong("8,192 tokens"), "over_budget"),
        (RateLimited("slow down"), "backend_failed"),
        (ZeroDivisionError("plug-in bug"), "backend_failed"),
        (Reply(text=""), "unparsed"),
        (Reply(text="<Start Thinking>so long", finish="length"), "unparsed"),
    ]
    for line, status in lines:
        finding = judged(ScriptedLMM(lambda request, line=line: line), sample, store)  # type: ignore[misc]
        assert (finding.status, finding.answer) == (status, None), line


def test_the_plain_mode_has_no_word_of_tools_until_one_is_called(sample: Sample, store: ImageStore):
    plain, tool = ScriptedLMM([LOOK, final("Wrong Action")]), ScriptedLMM([final("Wrong Action")])
    assert [judged(plain, sample, store, mode="plain").status, judged(tool, sample, store).status] == ["ok", "ok"]
    said = [lmm.requests[0].messages[0].text for lmm in (plain, tool)]
    assert "tool" not in said[0].casefold()
    assert said[1].startswith(said[0].split("## How to reply")[0])
    assert "localize_differences" in said[1] and "Not available here: `grounding`" in said[1]
    assert "no tools" in plain.requests[1].messages[-1].text


def test_a_call_nested_without_end_is_the_models_fault(sample: Sample, store: ImageStore):
    for depth in (101, 5000, 60_000):
        arguments: Any = 1
        for _ in range(depth):
            arguments = {"a": arguments}
        text = '<tool_call>{"name": "zoom_in", "parameters": ' + '{"a":' * depth
        for deep in (
            Reply(text=text + "</tool_call>"),
            Reply(text=text + "1" + "}" * depth + "}</tool_call>"),
            Reply(text="", tool_calls=(ToolCall(id="c", name="zoom_in", arguments=arguments),)),
        ):
            finding = judged(ScriptedLMM([deep, final("Wrong Action")]), sample, store)
            assert (finding.status, finding.counts.get("malformed_calls")) == ("ok", 1), (depth, finding.reason)


@tool
def broken(image: np.ndarray) -> str:
    """Fail as no tool should."""
    raise RuntimeError("secret detail")


def test_a_crashing_tool_is_an_observation_and_three_crashes_end_the_task(sample: Sample, store: ImageStore):
    call = '<tool_call>{"name": "broken", "parameters": {"image": "Edited Image"}}</tool_call>'
    lmm = ScriptedLMM([call] * 5)
    setup = replace(open_with(backend=lmm, criteria=("if",)), toolbox=Toolbox(tools={"broken": broken}))
    (task,) = setup.protocol.plan([sample], {})
    finding = Worker(setup=setup, images=store).run_task(task)
    assert (finding.status, finding.counts["tool_crashes"]) == ("tool_failed", 3)
    assert "secret detail" not in lmm.requests[1].messages[2].text


COMPARE = {"comparison_image_1": "Original Image", "comparison_image_2": "Edited Image"}
ZOOM = {"target_image": "Edited Image", "bbox": [100, 100, 400, 400]}


def calls(*named: tuple[str, dict[str, object]], text: str = "", ids: tuple[str, ...] = ("a", "b", "c")) -> Reply:
    made = tuple(ToolCall(id=i, name=n, arguments=a) for i, (n, a) in zip(ids, named, strict=False))  # type: ignore[arg-type]
    return Reply(text=text, tool_calls=made, finish="tools")


def native(*script: str | Reply) -> ScriptedLMM:
    return ScriptedLMM(list(script), native_tools=True)


def test_calls_are_answered_one_tool_message_each_and_the_label_stays_text(sample: Sample, store: ImageStore):
    said = calls(("localize_differences", COMPARE), ("zoom_in", ZOOM), text="<Start Thinking>Look.</Start Thinking>")
    carry = {"google": {"signatures": ["c2ln"]}}
    lmm = native(replace(said, carry=carry), final("Over Modification", "As Crop 1 shows, the handle has changed."))
    finding = judged(lmm, sample, store, tool_protocol="native")
    assert (finding.status, finding.label, finding.turns) == ("ok", "Over Modification", 1)
    first, second = lmm.requests
    names = ["zoom_in", "localize_differences", "enhancer"]
    assert [t.name for t in first.tools] == [t.name for t in second.tools] == names
    assert not any(word in first.messages[0].text for word in ("<tool_call>", "JSON Schema"))
    assert [m.role for m in second.messages] == ["user", "assistant", "tool", "tool", "user"]
    assert [c.id for c in second.messages[1].tool_calls] == [m.tool_call_id for m in second.messages[2:4]] == ["a", "b"]
    assert second.messages[1].carry == carry, "what a provider wants back goes back"
    assert "3 regions differ" in second.messages[2].text
    assert [p.alias for p in second.messages[3].images] == ["Crop 3"]
    assert {e.image for e in finding.evidence} == {"Original Image", "Edited Image"}


def test_history_is_append_only_and_calls_keep_ids_of_their_own(sample: Sample, store: ImageStore):
    once = calls(("zoom_in", ZOOM), ids=("call_1",))
    for protocol, look in (("text", LOOK), ("native", once)):
        lmm = native(look, "nothing", look, final("Wrong Action"))
        judged(lmm, sample, store, tool_protocol=protocol)
        texts = [[json.dumps(m.to_json()) for m in request.messages] for request in lmm.requests]
        for earlier, later in itertools.pairwise(texts):
            assert later[: len(earlier)] == earlier
    assert [m.tool_call_id for m in lmm.requests[-1].messages if m.role == "tool"] == ["call_1", "call_1_2"]


def test_a_call_in_the_text_and_a_broken_one_are_told_and_counted_and_not_run(sample: Sample, store: ImageStore):
    broken = MalformedCall(raw='{"target', error="the arguments are not JSON")
    beside = replace(calls(("zoom_in", ZOOM)), malformed_calls=(broken,))
    for said, turns, counts, told in (
        (LOOK, 0, {"malformed_calls": 1, "reminders": 1}, "through your tool calling interface"),
        (beside, 1, {"malformed_calls": 1}, "Not run, since it could not be read: the arguments are not JSON"),
    ):
        lmm = native(said, final("Wrong Action"))
        finding = judged(lmm, sample, store, tool_protocol="native")
        assert (finding.label, finding.turns, finding.counts) == ("Wrong Action", turns, counts)
        assert told in lmm.requests[1].messages[-1].text


def test_an_unknown_tool_and_wrong_arguments_are_observations(sample: Sample, store: ImageStore):
    lmm = native(calls(("look", {}), ("zoom_in", {"target_image": "Edited Image"})), final("Wrong Action"))
    finding = judged(lmm, sample, store, tool_protocol="native")
    told = [m.text for m in lmm.requests[1].messages if m.role == "tool"]
    assert "there is no tool 'look'" in told[0] and "'bbox' is a required property" in told[1]
    assert finding.counts == {"tool_errors": 2}


def test_text_is_the_default_and_auto_takes_what_the_backend_can() -> None:
    def protocol(lmm: ScriptedLMM, **settings: object) -> str:
        return open_with(backend=lmm, **settings).judge.tool_protocol  # type: ignore[arg-type]

    assert protocol(native()) == "text"
    assert protocol(native(), tool_protocol="auto") == "native"
    assert protocol(ScriptedLMM([]), tool_protocol="auto") == "text"
    with pytest.raises(ConfigError, match="cannot call tools natively"):
        protocol(ScriptedLMM([]), tool_protocol="native")
    with pytest.raises(ConfigError, match="tool_protocol: Input should be 'text', 'native' or 'auto'; found 'both'"):
        protocol(native(), tool_protocol="both")
