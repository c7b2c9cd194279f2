"""Stage 3: differences of which people said whether they were asked for (3.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from editloupe.answers import Answer, answer_from_json
from editloupe.build.base import LeftOut
from editloupe.build.dice.options import DifferenceSetOptions
from editloupe.build.dice.rows import SPLITS, SplitFolder, coherence_dialogue, split_of
from editloupe.build.direct import Worked, WorkItem
from editloupe.build.engine import SetTold
from editloupe.data.samples import load
from editloupe.errors import DataError, ImageError
from editloupe.findings import Finding
from editloupe.imaging.views import make_view
from editloupe.measures.base import Models
from editloupe.protocols.base import Known
from editloupe.protocols.dice.differences import DIFFERENCES, OPS, Difference, given
from editloupe.protocols.dice.protocol import COHERENCE, DICE, DICEOptions
from editloupe.replies import one_line
from editloupe.tasks import Ask, Measure
from editloupe.values import Json, Sample, digest


class Coherence:
    """Judged differences. Raises DataError for data without any."""

    noun, unit = "difference", "difference"
    stages: ClassVar[Mapping[str, str]] = {
        "read": "the edit and its differences can be read",
        "annotated": "people said whether it was asked for",
        "drawn": "its box can be drawn",
    }

    def __init__(self, path: Path, options: DifferenceSetOptions, out: SplitFolder, models_: Models) -> None:
        self.options, self.out = options, out
        self.left_out: list[dict[str, Json]] = []
        self._loaded = load(path, store=out.store)
        if not any(sample.extra.get(DIFFERENCES) is not None for sample in self._loaded.samples):
            first = self._loaded.rejected[0].message if self._loaded.rejected else "no sample has it"
            raise DataError(
                f"{path}: no edit with a column {DIFFERENCES!r}, a list of objects with op, object, box and coherent "
                f"({first})"
            )

    def items(self, stopped: Callable[[], bool], tell: Callable[[str], None]) -> list[WorkItem]:
        """Return each difference, and each edit whose differences cannot be read."""
        found = [WorkItem.refused({"sample": row.id}, row.kind, row.message) for row in self._loaded.rejected]
        for sample in self._loaded.samples:
            try:
                found += self._of(sample)
            except (LeftOut, DataError) as error:
                why = error.why if isinstance(error, LeftOut) else "unreadable_differences"
                found.append(WorkItem.refused({"sample": sample.key}, why, str(error)))
        return found

    def _of(self, sample: Sample) -> list[WorkItem]:
        """Return the differences of a sample. Raises LeftOut and DataError where they cannot be read."""
        found = given(sample, self.options.given_boxes)
        if found is None:
            raise LeftOut("no_differences", f"its column {DIFFERENCES!r} is empty")
        if sample.edited is None:
            raise LeftOut("missing_output", "there is no edited image")
        raw: Any = sample.extra[DIFFERENCES]
        items = []
        for part, (one, item, task) in enumerate(zip(found, raw, self._questions(sample), strict=True), start=1):
            reason = item.get("reason")
            items.append(
                WorkItem(
                    about={"sample": sample.key, "difference": part},
                    make=partial(self._record, sample, part, one, reason, task),
                    key=digest(["coherence", sample.key, sample.content, task.id, one.coherent, reason]),
                )
            )
        return items

    def _questions(self, sample: Sample) -> list[Ask]:
        """Return what the protocol asks about the given differences of a sample, in their order."""
        own = DICEOptions(
            detector="given",
            given_boxes=self.options.given_boxes,
            marks=self.options.marks,
            max_differences=2**31,
            confidence="none",
        )
        protocol = DICE(own)
        first = next(iter(protocol.plan([sample], Known())))
        assert isinstance(first, Measure)
        answer: Answer = answer_from_json(first.args["answer"])
        known = Known([Finding.of(first, judge_id="given", repeat=0, status="ok", ending="measure", answer=answer)])
        return [task for task in protocol.plan([sample], known) if isinstance(task, Ask) and task.metric == COHERENCE]

    def _record(self, sample: Sample, part: int, one: Difference, reason: Json, task: Ask) -> dict[str, Json]:
        """Return the row of a difference. Raises LeftOut where people did not say, or its images cannot be read."""
        if one.coherent is None:
            missing = "it does not say whether the difference was asked for (coherent: true or false)"
            raise LeftOut("no_coherence", missing, at="annotated")
        split, store = split_of(sample.source.sha256, self.options), self.out.store
        names: list[str] = []
        try:
            for view in task.views:
                # Without a box it is the file itself.
                image = view.origin if view.op == "whole" else store.array(make_view(view, store).image)
                names.append(self.out.place(image, split))
        except ImageError as error:
            raise LeftOut("unreadable_image", str(error), at="drawn", failed="input_error") from error
        said = one_line(reason) if isinstance(reason, str) else ""
        lineage: dict[str, Json] = {"stage": 3, "sample": sample.id, "editor": sample.editor, "difference": part}
        sizes = [(view.origin.width, view.origin.height) for view in task.views]
        images = names[0], names[1]
        row = coherence_dialogue(task, images, sizes, one.coherent, said, lineage, self.options.reply)
        return {
            "split": split,
            "dialogues": [row],
            "images": [f"{split}/{name}" for name in images],
            "op": one.op,
            "coherent": one.coherent,
            "reasoned": bool(said),
        }

    def told(self, worked: Worked) -> SetTold:
        """Return how many were asked for and how many not."""
        made: Sequence[Mapping[str, Any]] = worked.written

        def count(**by: Any) -> int:
            return sum(all(one[name] == value for name, value in by.items()) for one in made)

        rows = [
            [split, op, *(f"{count(split=split, op=op, coherent=said):,}" for said in (True, False))]
            for split in SPLITS
            for op in OPS
        ]
        both: Json = {s: {"yes": count(split=s, coherent=True), "no": count(split=s, coherent=False)} for s in SPLITS}
        reasoned = count(reasoned=True)
        return SetTold(
            counts={"rows": both, "with_reason": reasoned, "marks": self.options.marks},
            tables=[[["Split", "Command", "YES", "NO"], *rows]],
            notes=[
                f"With a reason: {reasoned:,} of {len(made):,}. The others teach the decision alone; an item of the column "
                "may have `reason`."
            ],
        )
