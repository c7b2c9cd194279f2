"""A backend of one's own that is none, or that answers with no Reply: one message says how to do it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from editloupe import Judge, load_sample
from editloupe.backends.base import Traits
from editloupe.chat import Reply
from editloupe.config import JudgeConfig, RunConfig
from editloupe.errors import ConfigError
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.values import Sample
from tests.conftest import draw_edits, final


class Mine:
    """A backend that answers with whatever it was given."""

    uri, endpoint, version, traits = "mine/first", "in process", "1", Traits(describes="mine")

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    def complete(self, request: Any, images: Any) -> Any:
        self.asked += 1
        return self.answer


def a_sample(folder: Path) -> Sample:
    edits = draw_edits(folder / "one", 1)
    return load_sample(edits / "source/s00.png", edits / "edited/s00.png", "Make it red.")


class Bare:
    """Has the method alone."""

    def complete(self, request: Any, images: Any) -> Reply:
        return Reply(text="x")


class Described(Mine):
    traits: Any = "sees everything"


def test_what_is_no_backend_is_refused_with_the_way_to_make_one() -> None:
    for given, told in (
        (lambda request, images: "Wrong Action", "nothing else; missing a required argument: 'images'"),
        (42, r"openai/gpt-4\.1, or a function .*, or an object with .*complete\(request, images\) -> Reply.*found 42"),
        (b"openai/m", "expected provider/model"), ("", "expected provider/model"), (object(), r"docs/backends\.md"),
        (None, r"Judge\(None\): expected provider/model.* leave it out for the baseline"),
        (Mine, r"found a class; make one: Mine\("),
        (Bare(), "class Bare has no uri, endpoint, version, traits; expected a function .*, or an object with"),
        (Described("x"), r"backend mine/first: traits is a str; expected .*Traits\(describes="),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=told):
            Judge(given)  # type: ignore[arg-type]
    assert Judge().id == Judge("baseline").id


@pytest.mark.parametrize(("answer", "found"), [("Wrong Action", "str"), (Reply(text=None), "a Reply whose")])  # type: ignore[arg-type]
def test_an_answer_that_is_no_reply_is_a_failure_that_says_what_to_return(answer: Any, found: str, tmp_path: Path):
    told = rf"backend mine/first: complete\(request, images\) returned {found}.*; expected .*Reply\(text="
    findings = Judge(Mine(answer)).judge(a_sample(tmp_path))
    assert {finding.status for finding in findings} == {"backend_failed"}
    assert all(re.search(told, finding.reason) for finding in findings)
    lmm = Mine(answer)
    config = RunConfig(path=draw_edits(tmp_path / "edits", 3), judge=JudgeConfig(backend=lmm), concurrency=1)
    outcome = drive(open_setup(config), tmp_path / "run")
    # The next question would have no answer either.
    assert lmm.asked == 1 and re.search(told, outcome.ledger.refused)
    assert "ok" not in {finding.status for finding in outcome.findings}
    # And a backend that answers goes on in the same folder.
    right = Mine(Reply(text=final("Wrong Action")))
    drive(open_setup(config.with_judge(JudgeConfig(backend=right))), tmp_path / "run")
    # Three edits. For visual consistency that is no label; one reminder is spent on each, since the reply repeats itself.
    assert right.asked == 3 + 3 * 2
