"""EdiVal's protocol in a test, wave by wave as in a run, without a run folder: what is seen and said is scripted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from editloupe.answers import Record
from editloupe.data.images import RGB, ImageStore
from editloupe.findings import Finding
from editloupe.protocols.base import make_protocol, scored
from editloupe.protocols.edival.chain import Chain, Mode, Pools, columns
from editloupe.protocols.edival.instructions import Edit
from editloupe.scores import Score
from editloupe.tasks import Ask, Measure, Task
from editloupe.values import Json, Sample, Turn
from tests.protocols.said import computed, found, played

STORE = ImageStore()
PICTURES = [STORE.add_array(np.full((100, 200, 3), 30 * n, np.uint8)) for n in range(4)]
"""200×100 px: the base image, then one a turn."""
LEFT, MIDDLE, RIGHT = ([[x, 20, x + 40, 60]] for x in (10, 80, 150))
"""Boxes in px, with a center of 30, 100 and 170 of 200 px."""
VERDICTS_ALONE: Json = {"cc": "none", "quality": "none"}
"""Options with which nothing is measured beside the verdicts."""

REMOVE = Edit(edit_type="subject_remove", target="red cup")
ADD = Edit(edit_type="subject_add", new="lamp", position="left", reference="jar")
REPLACE = Edit(edit_type="subject_replace", target="cups", new="jar")
COUNT = Edit(edit_type="count_change", target="cup", count=3)


def chain_of(*edits: Edit, mode: Mode = "multipass", outputs: str = "", id: str = "7", **extra: Json) -> Sample:
    """A sample with these edits. outputs: "." for an output, "-" for a gap; "" for no gap."""
    pools = Pools(ever=(), unchanged=(), available=(), background_kept=True)
    chain = Chain(mode=mode, edits=edits, pools=(pools,) * len(edits))
    sentences = [e.sentence() for e in edits] if mode == "multipass" else [". ".join(e.sentence() for e in edits)]
    there = outputs or "." * len(sentences)
    turns = [
        Turn(instruction=text, edited=PICTURES[n] if there[n - 1] == "." else None)
        for n, text in enumerate(sentences, start=1)
    ]
    return Sample(id=id, source=PICTURES[0], turns=tuple(turns), extra={**columns(chain), **extra})


def drawn(chain: Chain, base: RGB, *edited: RGB | None, **extra: Json) -> Sample:
    """A sample of these pictures: the base image, then one for each turn."""
    turns = tuple(
        Turn(instruction=f"edit {i + 1}", edited=None if rgb is None else STORE.add_array(rgb))
        for i, rgb in enumerate(edited)
    )
    return Sample(id="0", source=STORE.add_array(base), turns=turns, extra={**columns(chain), **extra})


@dataclass
class Play:
    """One sample on its way to scores."""

    options: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[tuple[int, str], Any] = field(default_factory=dict)
    """(turn, phrase) → boxes in px with a score of 0.9, or as (box, score); or a status. Of other phrases nothing."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """Question → a reply, or a status as ("refused",)."""
    door: Any = None
    """What measures open models by. Then nothing is scripted but what is said."""
    asked: list[Task] = field(default_factory=list)

    def scores(self, sample: Sample) -> dict[tuple[str, int, str], Score]:
        """Return (metric, turn, part) → score."""
        protocol = make_protocol("edival", {**VERDICTS_ALONE, **self.options})
        protocol.check([sample])
        self.asked, findings = played(protocol, sample, self._finding)
        scores = scored(protocol, [sample], findings)
        assert {score.metric for score in scores} == {metric.id for metric in protocol.metrics}
        return {(s.metric, s.turn, s.part): s for s in scores}

    def verdict(self, sample: Sample) -> tuple[float | None, str | None]:
        """Return value and status of the one edit of a sample."""
        (score,) = (s for s in self.scores(sample).values() if s.metric == "instruction_following")
        return score.value, score.missing

    @property
    def looked(self) -> list[tuple[int, str]]:
        """(turn, phrase) of what was looked for, in order."""
        return [(t.about.turn, t.about.part.partition(": ")[2]) for t in self.asked if t.metric == "detections"]

    @property
    def questions(self) -> list[Ask]:
        return [task for task in self.asked if isinstance(task, Ask)]

    def measures(self, metric: str) -> list[Measure]:
        """The tasks of one measure, by turn."""
        return [task for task in self.asked if isinstance(task, Measure) and task.metric == metric]

    def _finding(self, task: Task) -> Finding:
        if isinstance(task, Ask) and task.blocked is None:
            reply = self.said.get(task.metric, ("abstained",))
            if isinstance(reply, tuple):
                return found(task, reply[0], reason="because")
            return found(task, "ok", answer=task.answer.parse(reply), reason="because")
        if task.blocked is not None or self.door is not None or task.measure == "key":
            ended = computed(task, STORE, self.door)
            assert ended is not None
            return ended
        boxes = self.seen.get((task.about.turn, str(task.args["phrase"])), [])
        if isinstance(boxes, str):
            return found(task, boxes, ending="measure", reason="because")
        listed = [one if isinstance(one, tuple) else (one, 0.9) for one in boxes]
        sights: list[Json] = [
            {"box": [b[0] * 5, b[1] * 10, b[2] * 5, b[3] * 10], "score": score, "label": ""} for b, score in listed
        ]
        answer = Record(data={"phrase": str(task.args["phrase"]), "detections": sights})
        return found(task, "ok", ending="measure", answer=answer)
