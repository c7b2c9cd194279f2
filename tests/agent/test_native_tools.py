"""The loop with tools called natively: the same conversation, carried by tool calls and tool messages."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import MalformedCall, Reply, ToolCall
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError
from editloupe.tasks import Budget
from editloupe.values import Sample
from tests.agent.test_loop import judged
from tests.conftest import LOOK, final
from tests.setups import open_with

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
    thought = "As Crop 1 shows, the handle has changed as well."
    lmm = native(replace(said, carry=carry), final("Over Modification", thought))
    finding = judged(lmm, sample, store, tool_protocol="native")
    assert (finding.status, finding.label, finding.turns) == ("ok", "Over Modification", 1)
    first, second = lmm.requests
    names = ["zoom_in", "localize_differences", "enhancer"]
    assert [t.name for t in first.tools] == [t.name for t in second.tools] == names
    assert "<tool_call>" not in first.messages[0].text
    assert "JSON Schema" not in first.messages[0].text
    assert [m.role for m in second.messages] == ["user", "assistant", "tool", "tool", "user"]
    assert [c.id for c in second.messages[1].tool_calls] == [m.tool_call_id for m in second.messages[2:4]] == ["a", "b"]
    assert second.messages[1].carry == carry, "what a provider wants back goes back"
    assert "3 regions differ" in second.messages[2].text
    assert [p.alias for p in second.messages[3].images] == ["Crop 3"]
    assert {e.image for e in finding.evidence} == {"Original Image", "Edited Image"}


def test_in_the_last_turn_tools_are_still_named_and_not_to_be_called(sample: Sample, store: ImageStore):
    lmm = native(calls(("zoom_in", ZOOM)), final("Wrong Action"))
    judged(lmm, sample, store, tool_protocol="native", budget=Budget(max_turns=1))
    assert [r.calls_allowed for r in lmm.requests] == [True, False]
    assert lmm.requests[1].tools == lmm.requests[0].tools
    assert "Tools are no longer available" in lmm.requests[1].messages[-1].text


def test_history_is_append_only_and_calls_keep_ids_of_their_own(sample: Sample, store: ImageStore):
    once = calls(("zoom_in", ZOOM), ids=("call_1",))
    lmm = native(once, "nothing", once, final("Wrong Action"))
    judged(lmm, sample, store, tool_protocol="native")
    texts = [[json.dumps(m.to_json()) for m in request.messages] for request in lmm.requests]
    for earlier, later in itertools.pairwise(texts):
        assert later[: len(earlier)] == earlier
    told = [m.tool_call_id for m in lmm.requests[-1].messages if m.role == "tool"]
    assert told == ["call_1", "call_1_2"]


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
    assert finding.counts == {"tool_errors": 2}
    told = [m.text for m in lmm.requests[1].messages if m.role == "tool"]
    assert "there is no tool 'look'" in told[0]
    assert "'bbox' is a required property" in told[1]


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
