"""The boxes that a page draws on an image, and the place that a sample's page is about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from editloupe.answers import Boxes, Record
from editloupe.findings import Finding
from editloupe.tasks import Recipe, Task
from editloupe.values import Box, ImageRef, Json, Sample, finite
from editloupe.viewer.rows import DROPPED

SMALL: Final = 0.01
"""Share of the image below which a page opens zoomed to its place."""

_NAMES: Final = ("op", "label", "name", "object", "phrase", "confidence")
"""Words of an item of an answer that say what is at its place."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A box in px of one image: a target, a crop's place, evidence, or a place that an answer gives."""

    kind: str
    image: ImageRef
    box: Box
    name: str
    id: str = ""
    verdict: str = ""
    """Id of the verdict that it belongs to; "" for a target."""
    step: str = ""
    """Id of the step that it belongs to."""


def targets(edit: Sample | None) -> list[Mark]:
    """Return the targets' boxes on source and edited image. A box not given for the edited image is scaled."""
    found: list[Mark] = []
    for number, target in enumerate(() if edit is None else edit.targets, start=1):
        assert edit is not None
        name = target.name or ("Target" if len(edit.targets) == 1 else f"Target {number}")
        source = target.boxes.get("source")
        if source is not None:
            found.append(Mark(kind="target", image=edit.source, box=source, name=name))
        if edit.edited is None or edit.edited == edit.source:
            continue
        edited = target.boxes.get("edited")
        if edited is None and source is not None:
            sx, sy = edit.edited.width / edit.source.width, edit.edited.height / edit.source.height
            edited, name = source.scaled(sx, sy), f"{name} (box of the source)"
        if edited is not None:
            found.append(Mark(kind="target", image=edit.edited, box=edited, name=name))
    return found


def home(edit: Sample | None) -> tuple[float, float, float, float] | None:
    """Return where the targets are, in shares of the source: x0, y0, x1, y1; None where that is not known."""
    found = [m.box.scaled(1 / m.image.width, 1 / m.image.height) for m in targets(edit) if edit and m.image == edit.source]
    if not found:
        return None
    return min(b.x0 for b in found), min(b.y0 for b in found), max(b.x1 for b in found), max(b.y1 for b in found)


def evidence(finding: Finding, inputs: Mapping[str, ImageRef], verdict: str) -> Iterator[Mark]:
    """Yield the places that a verdict names as evidence. inputs: the images by alias."""
    for number, one in enumerate(finding.evidence, start=1):
        if (image := inputs.get(one.image)) is not None:
            name, id_ = f"Evidence {number} in {one.image}", f"{verdict}-e{number}"
            yield Mark(kind="evidence", image=image, box=one.box, name=name, id=id_, verdict=verdict)


def places(finding: Finding, task: Task | None, sample: Sample | None, verdict: str) -> Iterator[Mark]:
    """Yield the places that an answer gives, on the picture that was asked about."""
    answer = finding.answer
    if task is None or not isinstance(answer, Boxes | Record):
        return
    views = {view.alias: view for view in task.views}
    if not views and sample is not None:
        # What is known of a turn, and was not looked for in a picture.
        turn = task.about.turn
        image = sample.source if turn == 0 else sample.turns[turn - 1].edited if turn <= len(sample.turns) else None
        views = {} if image is None else {"image": Recipe(alias="image", origin=image)}
    if not views:
        return
    last = views[list(views)[-1]]
    boxes = [] if isinstance(answer, Record) else [(str(n), list(box), "") for n, box in enumerate(answer.boxes, 1)]
    items = list(_items(answer.data)) if isinstance(answer, Record) else boxes
    for number, (name, box, alias) in enumerate(items, start=1):
        view = views.get(alias, last)
        shown = view.region or Box.whole(width=view.origin.width, height=view.origin.height)
        try:
            place = Box.from_thousandths(box, width=shown.width, height=shown.height).shifted(shown.x0, shown.y0)
        except ValueError:
            continue
        yield Mark(kind="found", image=view.origin, box=place, name=name, id=f"{verdict}-f{number}", verdict=verdict)


def _items(data: Json) -> Iterator[tuple[str, list[float], str]]:
    """The items with a box in the lists of a JSON answer: their words, the box in thousandths, the picture if named."""
    lists = [v for k, v in data.items() if k != DROPPED] if isinstance(data, Mapping) else [data]
    for number, item in enumerate((item for one in lists if isinstance(one, list) for item in one), start=1):
        box = item.get("box") if isinstance(item, Mapping) else None
        numbers = [v for one in box if (v := finite(one)) is not None] if isinstance(box, list) else []
        if isinstance(item, Mapping) and len(numbers) == 4:
            words = " ".join(str(item[key]) for key in _NAMES if item.get(key))
            yield words or str(number), numbers, str(item.get("image") or "")
