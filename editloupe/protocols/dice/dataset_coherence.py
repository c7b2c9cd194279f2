"""Stage 3: differences of which people said whether they were asked for (3.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from editloupe.answers import Answer, answer_from_json
from editloupe.data.samples import load
from editloupe.errors import DataError, ImageError
from editloupe.findings import Finding
from editloupe.imaging.views import make_view
from editloupe.protocols.base import Known
from editloupe.build.base import Built
from editloupe.protocols.dice.dataset_options import DifferenceSetOptions
from editloupe.protocols.dice.dataset_rows import SPLITS, LeftOut, SetFolder, coherence_dialogue, split_of, stage_of
from editloupe.protocols.dice.differences import DIFFERENCES, OPS, Difference, given
from editloupe.protocols.dice.protocol import COHERENCE, DICE, DICEOptions
from editloupe.replies import one_line
from editloupe.tasks import Ask, Measure
from editloupe.values import Json, Sample, digest


def build_coherence(
    path: Path,
    options: DifferenceSetOptions,
    out: SetFolder,
    *,
    stopped: Callable[[], bool],
    tell: Callable[[str], None],
) -> Built | None:
    """Build stage 3. Raises as `DirectBuilder.build`."""
    loaded = load(path, store=out.store)
    if not any(sample.extra.get(DIFFERENCES) is not None for sample in loaded.samples):
        first = loaded.rejected[0].message if loaded.rejected else "no sample has it"
        raise DataError(
            f"{path}: no edit with a column {DIFFERENCES!r}, a list of objects with op, object, box and coherent ({first})"
        )
    left_out: list[dict[str, Json]] = [
        {"sample": row.id, "stage": "read", "why": row.kind, "detail": row.message} for row in loaded.rejected
    ]
    lost = Counter[tuple[str, str]](("read", row.kind) for row in loaded.rejected)
    read, made = len(loaded.rejected), list[Mapping[str, Any]]()
    for number, sample in enumerate(loaded.samples, start=1):
        if stopped():
            return None
        tell(f"Edit {number:,} of {len(loaded.samples):,}")
        try:
            found = given(sample, options.given_boxes)
            if found is None:
                raise LeftOut("no_differences", f"its column {DIFFERENCES!r} is empty")
            if sample.edited is None:
                raise LeftOut("missing_output", "there is no edited image")
            asked = _questions(sample, options)
        except (LeftOut, DataError) as error:
            why = error.why if isinstance(error, LeftOut) else "unreadable_differences"
            read += 1
            lost["read", why] += 1
            left_out.append({"sample": sample.key, "stage": "read", "why": why, "detail": str(error)})
            continue
        raw: Any = sample.extra[DIFFERENCES]
        for part, (difference, item, task) in enumerate(zip(found, raw, asked, strict=True), start=1):
            read += 1
            where: dict[str, Json] = {"sample": sample.key, "difference": part}
            try:
                made.append(_record(sample, part, difference, item.get("reason"), task, options, out))
            except (LeftOut, ImageError) as error:
                stage, why = ("annotated", error.why) if isinstance(error, LeftOut) else ("drawn", "unreadable_image")
                lost[stage, why] += 1
                left_out.append({**where, "stage": stage, "why": why, "detail": str(error)})
    out.write(made, left_out)
    return _built(read, made, lost, options)


def _questions(sample: Sample, options: DifferenceSetOptions) -> list[Ask]:
    """Return what the protocol asks about the given differences of a sample, in their order."""
    own = DICEOptions(
        detector="given", given_boxes=options.given_boxes, marks=options.marks, max_differences=2**31, confidence="none"
    )
    protocol = DICE(own)
    first = next(iter(protocol.plan([sample], Known())))
    assert isinstance(first, Measure)
    listed: Answer = answer_from_json(first.args["answer"])
    known = Known([Finding.of(first, judge_id="given", repeat=0, status="ok", ending="measure", answer=listed)])
    return [task for task in protocol.plan([sample], known) if isinstance(task, Ask) and task.metric == COHERENCE]


def _record(
    sample: Sample,
    part: int,
    difference: Difference,
    reason: Json,
    task: Ask,
    options: DifferenceSetOptions,
    out: SetFolder,
) -> Mapping[str, Any]:
    """Return the row of a difference. Raises LeftOut where people did not say, ImageError for a damaged image."""
    if difference.coherent is None:
        raise LeftOut("no_coherence", "it does not say whether the difference was asked for (coherent: true or false)")
    key = digest(["coherence", sample.key, sample.content, task.id, difference.coherent, reason])
    if (done := out.done(key)) is not None:
        return done
    split = split_of(sample.source.sha256, seed=options.seed, test_share=options.test_share)
    names: list[str] = []
    for view in task.views:
        # Without a box it is the file itself.
        image = view.origin if view.op == "whole" else out.store.array(make_view(view, out.store).image)
        names.append(out.place(image, split))
    images = names[0], names[1]
    said = one_line(reason) if isinstance(reason, str) else ""
    lineage: dict[str, Json] = {"stage": 3, "sample": sample.id, "editor": sample.editor, "difference": part}
    sizes = [(view.origin.width, view.origin.height) for view in task.views]
    row = coherence_dialogue(task, images, sizes, difference.coherent, said, lineage, options.reply)
    return out.add(
        key,
        {
            "split": split,
            "dialogues": [row],
            "images": [f"{split}/{name}" for name in images],
            "op": difference.op,
            "coherent": difference.coherent,
            "reasoned": bool(said),
        },
    )


def _built(read: int, made: Sequence[Mapping[str, Any]], lost: Counter[tuple[str, str]], options: Any) -> Built:
    stage = partial(stage_of, lost)

    def count(**by: Any) -> int:
        return sum(all(one[name] == value for name, value in by.items()) for one in made)

    reasoned = count(reasoned=True)
    rows = [
        [split, op, f"{count(split=split, op=op, coherent=True):,}", f"{count(split=split, op=op, coherent=False):,}"]
        for split in SPLITS
        for op in OPS
    ]
    both: Json = {s: {"yes": count(split=s, coherent=True), "no": count(split=s, coherent=False)} for s in SPLITS}
    return Built(
        read=read,
        written=len(made),
        noun="difference",
        unit="difference",
        stages=(
            stage("read", "the edit and its differences can be read"),
            stage("annotated", "people said whether it was asked for"),
            stage("drawn", "its box can be drawn"),
        ),
        counts={"stage": 3, "rows": both, "with_reason": reasoned, "marks": options.marks, "seed": options.seed},
        tables=[[["Split", "Command", "YES", "NO"], *rows]],
        notes=[
            f"With a reason: {reasoned:,} of {len(made):,}. The others teach the decision alone; an item of the column "
            "may have `reason`."
        ],
    )
