"""Models that were trained to answer alone: no tags in the question, none in the reply, no reminder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from editloupe.backends.base import open_backend
from editloupe.backends.scripted import ScriptedLMM
from editloupe.errors import ConfigError
from editloupe.reports.run import Run
from editloupe.runs.rescore import protocol_with, rescore
from editloupe.runs.store import RunStore
from tests.setups import open_with, run_over


class Bare(ScriptedLMM):
    def __init__(self, *lines: str) -> None:
        super().__init__(list(lines))
        self.traits = replace(self.traits, bare_replies=True)


def test_a_trained_detector_and_a_trained_judge_answer_alone(tmp_path: Path, edits: Callable[..., Path]) -> None:
    detector = Bare("['EDIT: mug, [0.1, 0.2, 0.3, 0.4]', 'MOVE: cat, [0, 0, 1, 1]']")
    judge = Bare("The mug was red and is blue.\nDecision: YES")
    setup = open_with(
        protocol="dice",
        role={"detector": {"backend": detector}, "coherence": {"backend": judge}},
        options={"form": "lines"},
    )
    outcome = run_over(setup, edits(1), tmp_path / "run", concurrency=1)
    assert {(s.metric, s.part): s.value for s in outcome.scores if s.metric in ("correct", "coherence")} == {
        ("correct", ""): 1,
        ("coherence", "difference 1"): 1,
    }
    for asked in (detector, judge):
        (request,) = asked.requests
        assert "<" not in request.messages[0].text and "tags" not in request.messages[0].text
    by_metric = {finding.metric: finding for finding in outcome.findings}
    assert by_metric["coherence"].reason == "The mug was red and is blue."
    # The run is read again as it was read.
    run = Run(tmp_path / "run")
    assert run.trace(by_metric["differences"]).header.judge["bare_replies"] is True
    store = RunStore.read(tmp_path / "run")
    again = list(rescore(store, protocol_with(store, {})))
    assert [one.changed for one in again] == [False] * len(again)


def test_an_unusable_reply_is_not_reminded_of(tmp_path: Path, edits: Callable[..., Path]) -> None:
    detector = Bare("I cannot see anything.")
    setup = open_with(
        protocol="dice", role={"detector": {"backend": detector}}, options={"coherence": "mask", "form": "lines"}
    )
    outcome = run_over(setup, edits(1), tmp_path / "run")
    (finding,) = outcome.findings
    assert (finding.status, len(detector.requests)) == ("unparsed", 1)


def test_the_uri_says_so_and_keeps_it_and_another_word_is_refused() -> None:
    for uri in ("openai/m?base_url=http://127.0.0.1:9/v1&replies=bare", "vllm/m?replies=bare"):
        backend = open_backend(uri)
        assert backend.traits.bare_replies and "replies=bare" in backend.uri
    with pytest.raises(ConfigError, match="replies='none': expected tags, or bare"):
        open_backend("vllm/m?replies=none")
