"""Answers that are known: the key of a multiple-choice question, the truth of a probe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from editloupe.answers import Answer
from editloupe.data.images import RGB
from editloupe.findings import JudgeKind
from editloupe.measures import base


class Key(base.BaseMeasure):
    """The known answer to a question. A judge is right where it says the same."""

    name = "key"
    kind: ClassVar[JudgeKind] = "key"

    class Args(base.Args):
        """What is known."""

        answer: Answer
        """The right answer, as `Answer.to_json` writes it."""

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Answer:
        """Return the known answer. No image is looked at."""
        answer: Answer = args.answer
        return answer
