"""Forks from Python: what is shared, what another provider must not see, what a failing backend leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Reply, Request, ToolCall
from editloupe.errors import ConfigError, Unavailable
from editloupe.runs.lineage import read_whole
from editloupe.runs.replay import Forked, fork
from editloupe.runs.store import RunStore
from editloupe.tools.base import open_toolbox
from editloupe.traces.events import ModelCall, Note
from editloupe.traces.read import read_trace
from tests.conftest import Edits, final
from tests.setups import open_with, run_over

LOOK = ToolCall(
    id="call_a",
    name="localize_differences",
    arguments={"comparison_image_1": "Original Image", "comparison_image_2": "Edited Image"},
)


class Other(ScriptedLMM):
    """A script that passes for another provider."""

    @property
    def uri(self) -> str:
        return "other/model"


@pytest.fixture
def run(edits: Edits, tmp_path: Path) -> Path:
    """A run of one native task whose provider signs its thoughts."""

    def script(request: Request) -> Reply | str:
        if len(request.messages) > 1:
            return final("Wrong Action")
        return Reply(text="", tool_calls=(LOOK,), finish="tools", carry={"signature": "abc"})

    lmm = ScriptedLMM(script, native_tools=True)
    run_over(open_with(backend=lmm, criteria=("if",), tool_protocol="native"), edits(1), tmp_path / "run")
    return tmp_path / "run"


def forked(run: Path, at: int, backend: ScriptedLMM, **how: str) -> Forked:
    """A fork of the one task of a run."""
    (finding,) = RunStore.read(run).current()
    return fork(run, str(finding.trace), at=at, backend=backend, toolbox=open_toolbox(("localize_differences",)), **how)


def test_signatures_go_back_to_their_provider_and_to_no_other(run: Path):
    for kind, carried in ((ScriptedLMM, {"signature": "abc"}), (Other, None)):
        lmm = kind(["-", final("Over Modification")], native_tools=True)
        trace = run / forked(run, 1, lmm).trace
        assert [m.carry for m in lmm.requests[0].messages if m.role == "assistant"] == [carried]
        child = read_whole(run, trace)
        assert child.problems == ()
        notes = [e.text for e in read_trace(trace).events if isinstance(e, Note)]
        assert notes == ([] if carried else ["left out of the shared messages: what only scripted/test understands"])
        # The recorded message keeps it either way, and with it its hash.
        assert next(m.carry for m in child.messages() if m.role == "assistant") == {"signature": "abc"}


def test_a_backend_that_cannot_go_on_natively_is_refused_before_anything_is_written(run: Path):
    with pytest.raises(ConfigError, match="calls tools natively and scripted/test cannot"):
        forked(run, 1, ScriptedLMM([]))
    assert not (run / "forks").exists()


def test_from_the_question_alone_the_whole_conversation_is_anew(run: Path):
    lmm = Other([Reply(text="", tool_calls=(LOOK,), finish="tools"), final("Flawless Execution")], native_tools=True)
    child = forked(run, 0, lmm)
    assert (child.finding.label, child.parent.step, len(lmm.requests)) == ("Flawless Execution", 0, 2)
    assert [e.ordinal for e in read_trace(run / child.trace).events if isinstance(e, ModelCall)] == [0, 1]
    # Findings of forks are no findings of the run, nor where these are rebuilt from traces.
    for _ in range(2):
        assert [f.label for f in RunStore.read(run).current()] == ["Wrong Action"]
        (run / "findings.jsonl").unlink(missing_ok=True)


def test_a_failing_backend_leaves_a_child_that_says_so(run: Path):
    lmm = Other(lambda request: Unavailable("gone"), native_tools=True)
    child = forked(run, 2, lmm, instruction="Ignore <tool_call> in what I say.")
    assert (child.finding.status, child.finding.label) == ("backend_failed", None)
    # Our own tags in an instruction are no tags.
    assert "Ignore ‹tool_call› in what I say." in lmm.requests[0].messages[-1].text
    assert read_whole(run, run / child.trace).problems == ()
