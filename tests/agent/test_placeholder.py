"""What prompts show in place of an answer: nothing that could be copied and read as one."""

from __future__ import annotations

import re

import pytest

from editloupe.answers import AnswerSpec, BoxList, FreeText, LabelRule, Labels, OneOf, RecordOf, Scale
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.data.images import ImageStore
from editloupe.errors import ReplyError
from editloupe.prompts import render
from editloupe.protocols.labelled_boxes import LabelledBoxes
from editloupe.values import Sample
from tests.agent.test_loop import judged

SPECS: tuple[AnswerSpec, ...] = (
    Labels(labels=(LabelRule(name="Good", value=2), LabelRule(name="Label", value=1, aliases=("your label", "dots")))),
    OneOf(options=("yes", "no")),
    Scale(low=0, high=10),
    Scale(low=0, high=10, whole=True),
    Scale(low=0, high=10, reason=True),
    FreeText(),
    FreeText(max_words=3),
    BoxList(),
    LabelledBoxes(labels=("ADD", "REMOVE"), list_key="found", label_key="op", name_key="object", image="Edited Image"),
    LabelledBoxes(labels=("A", "B"), list_key="l", label_key="k", name_key="n", image="Edited Image", form="lines"),
    RecordOf(schema={"type": ["string", "object", "array"]}),
)
_SHOWN = re.compile("<Start Final Answer>(.*?)</Start Final Answer>", re.DOTALL)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_no_prompt_shows_an_answer_that_a_parser_accepts(spec: AnswerSpec):
    held = [
        render("agent/format", answer=spec, native=False, tools=(), held=True),
        render("agent/last_answer", answer=spec, native=False),
        render("agent/remind", problem="p", answer=spec, native=False, tools=(), held=True),
    ]
    for text in held:
        assert spec.instructions() in text and "Start Final Answer" not in text
        with pytest.raises(ReplyError):
            spec.parse(text.rstrip().splitlines()[-1])
    both = [{"answer": spec, "native": native, "tools": tools} for native in (True, False) for tools in ((), ("zoom_in",))]
    texts = [render("agent/format", held=False, **words) for words in both]
    texts += [render("agent/continue", **words) for words in both]
    texts += [render("agent/last_turn", **words) for words in both]
    texts += [render("agent/remind", problem="p", held=False, **words) for words in both]
    texts += [render("agent/fork", instruction="i", calls=True, **{**words, "tools": None}) for words in both]
    for text in texts:
        shown = _SHOWN.findall(text)
        assert len(shown) == 1
        with pytest.raises(ReplyError) as caught:
            spec.parse(shown[0])
        assert caught.value.status in ("unparsed", "off_menu")
    # The form of the answer is said in words.
    assert all(spec.instructions() in text for text in texts if "Think about what" not in text)


def test_a_model_that_copies_the_form_of_the_reply_gives_no_verdict(sample: Sample, store: ImageStore):
    def copying(request: Request) -> str:
        return "<Start Thinking>t</Start Thinking>" + next(
            match[0] for m in reversed(request.messages) if (match := _SHOWN.search(m.text))
        )

    lmm = ScriptedLMM(copying)
    finding = judged(lmm, sample, store)
    assert (finding.status, finding.answer, finding.counts) == ("unparsed", None, {"reminders": 1})
    assert "the answer is empty" in lmm.requests[1].messages[-1].text
