"""Findings made by hand."""

from __future__ import annotations

from editloupe.answers import Answer
from editloupe.findings import Finding
from editloupe.tasks import Task


def answered(task: Task, answer: Answer) -> Finding:
    """The finding of a task that was answered."""
    return Finding.of(task, judge_id="j", repeat=0, status="ok", ending="answer", answer=answer)
