"""A run that grows by several invocations: what the user is told before anything is asked."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ANSWERED, Cli, Edits, final, scripted


@pytest.fixture
def invoke(editloupe: Cli, edits: Edits, tmp_path: Path) -> Callable[..., tuple[dict[str, Any], str]]:
    """Judges four edits in one run folder; returns config.yaml and what was said on standard error."""
    folder = edits(4, instruction=ANSWERED)

    def judge(*words: str) -> tuple[dict[str, Any], str]:
        code, _, told = editloupe("judge", folder, "--mode", "plain", *words, "--out", tmp_path / "run")
        assert code == 0, told
        return yaml.safe_load((tmp_path / "run" / "config.yaml").read_text()), told

    return judge


def test_a_judge_that_joins_with_more_questions_is_told_before_anything_is_asked(
    invoke: Any, editloupe: Cli, tmp_path: Path
):
    invoke("--criteria", "if", "--limit", "1")
    second = f"second={scripted(tmp_path / 'replies.jsonl', final('Perfect Consistency'))}"
    config, told = invoke("--criteria", "vc", "--limit", "2", "--backend", second)
    run = tmp_path / "run"
    beside = "second is another judge (by model or settings), added beside. Nothing there is replaced."
    assert told.index("reading the data") < told.index(f"{run} already holds findings of baseline; {beside}")
    assert told.index(beside) < told.index("judging")
    assert (config["limit"], config["option"]["criteria"], list(config["judges"])) == (2, "vc", ["baseline", "second"])
    # Of what each judge was asked for: the first has one sample of two, the second both.
    code, said, _ = editloupe("gate", run, "--require", "unjudged<=0", "--judge", "baseline")
    assert code == 100 and "1 not judged yet of 2" in said
    code, said, _ = editloupe("gate", run, "--require", "unjudged<=0", "--judge", "second")
    assert code == 0 and "2 of 2 judged" in said
    # One that goes on with the same adds nothing, and is told nothing.
    assert "added" not in invoke("--criteria", "vc", "--limit", "2", "--backend", second)[1]


@pytest.mark.usefixtures("toys")
def test_questions_that_are_asked_again_in_other_words_are_counted_before_any_is_asked(
    editloupe: Cli, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    aspects = importlib.import_module("editloupe_toys.stars").ASPECTS
    uri = scripted(tmp_path / "replies.jsonl", final("8"))
    words = ("judge", edits(3), "--protocol", "stars", "--backend", uri, "--out", "run")
    again = "Asked again: 3 of the questions that run holds answers to, since the prompt, or what"
    assert "Asked again" not in editloupe(*words)[2]
    monkeypatch.setitem(aspects, "keeps", "How well is everything else kept?")
    told = editloupe(*words)[2]
    assert told.count(again) == 1 and told.index(again) < told.index("judging")
    # Nothing is left to ask.
    assert "Asked again" not in editloupe(*words)[2]
