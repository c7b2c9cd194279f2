"""Stage 3: differences of which people said whether they were asked for (3.4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from editloupe.answers import Answer, answer_from_json
from editloupe.build.base import LeftOut, leaving_out
from editloupe.build.dice.rows import SplitSet, dialogue
from editloupe.build.direct import WorkItem
from editloupe.data.samples import load
from editloupe.errors import DataError, ImageError
from editloupe.findings import Finding
from editloupe.imaging.views import make_view
from editloupe.protocols.base import Known
from editloupe.protocols.dice.differences import DIFFERENCES, Difference, given
from editloupe.protocols.dice.protocol import COHERENCE, DICE, DICEOptions
from editloupe.replies import one_line
from editloupe.tasks import Ask, Measure
from editloupe.values import Json, Sample, digest

_OPTIONS = DICEOptions(detector="given", max_differences=2**31, confidence="none")

_STAGES: Final = {
    "read": "the edit and its differences can be read",
    "annotated": "people said whether it was asked for",
    "drawn": "its box can be drawn",
}


class Coherence(SplitSet):
    """Judged differences. Raises DataError for data without any."""

    noun = unit = "difference"
    tallied = ("yes", "no")
    passes = _STAGES

    def open(self) -> None:
        """Read what the path holds."""
        super().open()
        self._loaded = load(self.path, store=self.store)
        if not any(sample.extra.get(DIFFERENCES) is not None for sample in self._loaded.samples):
            first = self._loaded.rejected[0].message if self._loaded.rejected else "no sample has it"
            raise DataError(
                f"{self.path}: no edit with a column {DIFFERENCES!r}, a list of objects with op, object, box and coherent "
                f"({first})"
            )

    def items(self, stopped: Callable[[], bool], tell: Callable[[str], None]) -> list[WorkItem]:
        """Return each difference, and each edit whose differences cannot be read."""
        found = [WorkItem.refused({"sample": row.id}, row.kind, row.message) for row in self._loaded.rejected]
        for sample in self._loaded.samples:
            try:
                found += self._of(sample)
            except DataError as error:
                found.append(WorkItem.refused({"sample": sample.key}, "unreadable_differences", str(error)))
        return found

    def _of(self, sample: Sample) -> list[WorkItem]:
        """Return the differences of a sample. Raises DataError where they cannot be read."""
        found = given(sample)
        if found is None or sample.edited is None:
            why = "no_differences" if found is None else "missing_output"
            return [WorkItem.refused({"sample": sample.key}, why)]
        raw: Any = sample.extra[DIFFERENCES]
        return [
            WorkItem(
                about={"sample": sample.key, "difference": part},
                make=partial(self._record, sample, part, one, item.get("reason"), task),
                key=digest(["coherence", sample.key, sample.content, task.id, one.coherent, item.get("reason")]),
            )
            for part, (one, item, task) in enumerate(zip(found, raw, _questions(sample), strict=True), start=1)
        ]

    def _record(self, sample: Sample, part: int, one: Difference, reason: Json, task: Ask) -> dict[str, Json]:
        """Return the row of a difference. Raises LeftOut where people did not say, or its images cannot be read."""
        if one.coherent is None:
            missing = "it does not say whether the difference was asked for (coherent: true or false)"
            raise LeftOut("no_coherence", missing, at="annotated")
        split, store, names = self.split(sample.source.sha256), self.store, list[str]()
        with leaving_out("unreadable_image", ImageError, at="drawn", failed="input_error"):
            for view in task.views:
                # Without a box it is the file itself.
                image = view.origin if view.op == "whole" else store.array(make_view(view, store).image)
                names.append(self.place(image, split))
        said, answer = one_line(reason) if isinstance(reason, str) else "", "yes" if one.coherent else "no"
        lineage: Json = {"stage": 3, "sample": sample.id, "editor": sample.editor, "difference": part}
        sizes = [(view.origin.width, view.origin.height) for view in task.views]
        return {
            "split": split,
            "dialogue": dialogue(task, names, sizes, answer, lineage, reason=said),
            "images": [f"{split}/{name}" for name in names],
            "tally": {answer: 1},
            "counts": {"with_reason": int(bool(said))},
        }


def _questions(sample: Sample) -> list[Ask]:
    """Return what the protocol asks about the given differences of a sample, in their order."""
    protocol = DICE(_OPTIONS)
    first = next(iter(protocol.plan([sample], Known())))
    assert isinstance(first, Measure)
    answer: Answer = answer_from_json(first.args["answer"])
    known = Known([Finding.of(first, judge_id="given", repeat=0, status="ok", ending="measure", answer=answer)])
    return [task for task in protocol.plan([sample], known) if isinstance(task, Ask) and task.metric == COHERENCE]
