"""Forms of replies: prompts show nothing that could be copied and read as an answer, and models that were trained to answer
alone are asked for no tags and reminded of none."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from editloupe.answers import AnswerSpec, BoxList, FreeText, LabelRule, Labels, OneOf, RecordOf, Scale
from editloupe.backends.base import open_backend
from editloupe.backends.scripted import ScriptedLMM
from editloupe.errors import ConfigError, ReplyError
from editloupe.prompts import render
from editloupe.protocols.labeled_boxes import LabeledBoxes
from editloupe.runs.rescore import protocol_with, rescore
from editloupe.runs.store import RunStore
from tests.setups import open_with, run_over

SPECS: tuple[AnswerSpec, ...] = (
    Labels(labels=(LabelRule(name="Good", value=2), LabelRule(name="Label", value=1, aliases=("your label", "dots")))),
    OneOf(options=("yes", "no")),
    Scale(low=0, high=10),
    Scale(low=0, high=10, whole=True),
    Scale(low=0, high=10, reason=True),
    FreeText(),
    FreeText(max_words=3),
    BoxList(),
    LabeledBoxes(labels=("ADD", "REMOVE"), list_key="found", label_key="op", name_key="object", image="Edited Image"),
    LabeledBoxes(labels=("A", "B"), list_key="l", label_key="k", name_key="n", image="Edited Image", form="lines"),
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
    templates: tuple[tuple[str, dict[str, object]], ...] = (
        ("format", {"held": False}), ("continue", {}), ("last_turn", {}), ("remind", {"problem": "p", "held": False}),
        ("fork", {"instruction": "i", "calls": True, "tools": None}),
    )  # fmt: skip
    ways = [{"answer": spec, "native": native, "tools": tools} for native in (True, False) for tools in ((), ("zoom_in",))]
    texts = [render(f"agent/{name}", **{**way, **words}) for name, words in templates for way in ways]
    for text in texts:
        (shown,) = _SHOWN.findall(text)
        with pytest.raises(ReplyError) as caught:
            spec.parse(shown)
        assert caught.value.status in ("unparsed", "off_menu")
    # The form of the answer is said in words.
    assert all(spec.instructions() in text for text in texts if "Think about what" not in text)


class Bare(ScriptedLMM):
    def __init__(self, *lines: str) -> None:
        super().__init__(list(lines))
        self.traits = replace(self.traits, bare_replies=True)


def test_a_trained_detector_and_a_trained_judge_answer_alone(tmp_path: Path, edits: Callable[..., Path]) -> None:
    detector = Bare("['EDIT: mug, [0.1, 0.2, 0.3, 0.4]', 'MOVE: cat, [0, 0, 1, 1]']")
    judge = Bare("The mug was red and is blue.\nDecision: YES")
    roles = {"detector": {"backend": detector}, "coherence": {"backend": judge}}
    setup = open_with(protocol="dice", role=roles, options={"form": "lines"})
    outcome = run_over(setup, edits(1), tmp_path / "run", concurrency=1)
    scores = {(s.metric, s.part): s.value for s in outcome.scores if s.metric in ("correct", "coherence")}
    assert scores == {("correct", ""): 1, ("coherence", "difference 1"): 1}
    for asked in (detector, judge):
        (request,) = asked.requests
        assert "<" not in request.messages[0].text and "tags" not in request.messages[0].text
    by_metric = {finding.metric: finding for finding in outcome.findings}
    assert by_metric["coherence"].reason == "The mug was red and is blue."
    # The run is read again as it was read.
    store = RunStore.read(tmp_path / "run")
    again = list(rescore(store, protocol_with(store, {})))
    assert {(one.changed, one.reason) for one in again} == {(False, "")}


def test_the_uri_says_so_and_keeps_it_and_another_word_is_refused() -> None:
    for uri in ("openai/m?base_url=http://127.0.0.1:9/v1&replies=bare", "vllm/m?replies=bare"):
        backend = open_backend(uri)
        assert backend.traits.bare_replies and "replies=bare" in backend.uri
    with pytest.raises(ConfigError, match="replies='none': expected tags, or bare"):
        open_backend("vllm/m?replies=none")
