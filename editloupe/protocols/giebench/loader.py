"""GIE-Bench as it is downloaded: `gie_bench.json` beside its images, with the outputs of the editors to be judged.

What `giebench.toml` cannot say: each row's mask of 0 and 1 becomes a PNG of the sample, white where change was allowed. A
row's id is its place from 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import MIN_SIDE, ImageStore
from editloupe.data.loaders.base import DataSet
from editloupe.data.loaders.mapped import Mapped, Rows
from editloupe.data.rows import Loaded
from editloupe.data.tables import TableLine, shown
from editloupe.values import ImageRef, Json, parse_json

FILE: Final = "gie_bench.json"
MASK_PX: Final = 224
"""Side of the data set's own masks."""

_IMAGE, _MASK = "image", "object_mask"
_LISTS: Final = re.compile(rf'("{_MASK}"\s*:\s*)(\[\s*\[[01,\s\[\]]*\]\s*\])')


class GIEBenchData(Mapped):
    """The rows, with their masks."""

    def prepared(self, text: str) -> str:
        # A mask as text is read in a fraction of the time: the numbers of all rows are 54 million.
        return _LISTS.sub(lambda match: f'{match[1]}"{"".join(match[2].split())}"', text)

    def raw(self, line: TableLine, rows: Rows, language: str) -> dict[str, Json]:
        raw = super().raw(line, rows, language)
        # The slash that a path begins with means the folder of the images.
        return {**raw, _IMAGE: _name(raw[_IMAGE]) if isinstance(raw[_IMAGE], str) else raw[_IMAGE]}

    def values(self, raw: Mapping[str, Json], line: TableLine, rows: Rows, language: str) -> dict[str, Json]:
        return {**super().values(raw, line, rows, language), "id": str(line.number - 1)}

    def notes(self, tables: Sequence[Rows]) -> Iterable[str]:
        lines = [line for line in tables[0].table.lines if line.fault is None]
        yield f"{len(lines)} rows about {len({_name(line.values.get(_IMAGE)) for line in lines})} images"

    def completed(self, loaded: Loaded, tables: Sequence[Rows], data: DataSet) -> Loaded:
        found = {str(line.number - 1): _mask(line.values.get(_MASK), data.store) for line in tables[0].table.lines}
        samples = (
            replace(
                sample,
                masks={} if (mask := found[sample.id][0]) is None else {"edit": mask},
                warnings=(*sample.warnings, *found[sample.id][1]),
            )
            for sample in loaded.samples
        )
        return replace(loaded, samples=tuple(samples))


GIEBENCH: Final = GIEBenchData(Path(__file__).with_name("giebench.toml"))


def _name(path: Json) -> str:
    return path.lstrip("/\\") if isinstance(path, str) else ""


def _mask(value: Json, store: ImageStore) -> tuple[ImageRef | None, list[str]]:
    """Return a mask of numbers as an image, 255 where a number is above 0: there change was allowed. And what is odd."""
    if value is None:
        return None, ["there is no mask"]
    try:
        given = _array(value)
    except (ValueError, OverflowError):
        return None, ["the mask's rows differ in length, and it is not used"]
    if given.ndim != 2 or given.dtype.kind not in "buif" or not np.isfinite(given).all() or min(given.shape) < MIN_SIDE:
        return None, [f"the mask is {shown(value)}; expected at least {MIN_SIDE}×{MIN_SIDE} numbers, and it is not used"]
    inside, odd = given > 0, list[str]()
    if given.shape != (MASK_PX, MASK_PX):
        odd.append(f"the mask is {given.shape[1]}×{given.shape[0]}, and others are {MASK_PX}×{MASK_PX}")
    if not np.isin(given, (0, 1)).all():
        odd.append("the mask holds other numbers than 0 and 1; what is above 0 counts as edited")
    if inside.all() or not inside.any():
        odd.append("the mask is full: nothing lies outside it" if inside.all() else "the mask is empty")
    white = np.where(inside, np.uint8(255), np.uint8(0))
    return store.add_array(np.repeat(white[:, :, None], 3, axis=2)), odd


def _array(value: Json) -> NDArray[Any]:
    """Return lists of numbers, which may be written as text, as an array. Raises ValueError for ragged lists."""
    if not isinstance(value, str) or not value.startswith("[["):
        return np.array(value)
    lines = value[2:-2].split("],[")
    # Each digit is followed by a comma.
    digits, commas = zip(*((line[::2], line[1::2]) for line in lines), strict=True)
    if len({*map(len, lines)}) > 1 or "".join(commas).strip(",") or "".join(digits).strip("01"):
        return np.array(parse_json(value))
    return np.array([np.frombuffer(line.encode(), np.uint8) - ord("0") for line in digits])
