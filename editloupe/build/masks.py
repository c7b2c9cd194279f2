"""Masks for data without them: from a phrase to a box to a mask, by a detector and a segmenter."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

from editloupe import files, models
from editloupe.build.base import LeftOut
from editloupe.build.direct import DoneJournal, WorkItem, work
from editloupe.build.places import MASKS, ImagePlace
from editloupe.build.shown import boxes_of, target_name
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.data.write import METADATA, metadata_row
from editloupe.errors import ConfigError, ImageError, ModelAbsent, ToolError
from editloupe.models.segment.search import MaskMaker, MaskRequest
from editloupe.values import Json, Sample, json_line

JOURNAL: Final = "masks.jsonl"
"""What was made and what was not found, a line each; the same command goes on from there."""

Entry: TypeAlias = Mapping[str, Any]
"""A line of the journal: "images", the file, "share" of the image, and how it was made; or "why" and "detail" for none."""


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Data with its masks."""

    loaded: Loaded
    found: Mapping[str, Entry | str]
    """By the sample's key: a line of the journal, "" for a mask of the data, or why there can be none."""

    @property
    def missing(self) -> dict[str, str]:
        """Samples without a mask, each with the reason."""
        return {key: reason for key, one in self.found.items() if (reason := _reason(one)) is not None}

    @property
    def made(self) -> list[Entry]:
        """The masks that were made."""
        return [one for one in self.found.values() if not isinstance(one, str) and _reason(one) is None]

    def to_json(self) -> dict[str, Json]:
        """Return how many there are, of what they were made, and what is missing."""
        made, missing = self.made, self.missing
        hows = Counter(str(one["how"]) for one in made)
        hows["data"] = len(self.found) - len(missing) - len(made)
        return {
            "samples": len(self.found),
            "masks": len(self.found) - len(missing),
            "how": {how: count for how, count in hows.items() if count},
            "median_share": median([float(one["share"]) for one in made]) if made else None,
            "missing": {**missing},
            "rejected": {row.key: row.message for row in self.loaded.rejected},
        }


def wanted(sample: Sample, *, phrase_field: str | None) -> MaskRequest | str:
    """Return what the sample's mask is made of, "" if it has one, or why it can have none.

    phrase_field: the column that names the target, in place of boxes.
    """
    if "edit" in sample.masks:
        return ""
    if (given := boxes_of(sample)) and phrase_field is None:
        return MaskRequest(source=sample.source, boxes=given)
    column = phrase_field or "target_name"
    phrase = target_name(sample) if column == "target_name" else sample.extra.get(column)
    if phrase is not None and not isinstance(phrase, str):
        return f"column {column!r}: expected the target's name, found {json.dumps(phrase)[:60]}"
    if phrase is None or not phrase.strip():
        return f"column {column!r} names no target" if phrase_field else "no box, and no phrase in the column 'target_name'"
    return MaskRequest(source=sample.source, phrase=phrase.strip())


def open_maker(requests: Sequence[MaskRequest], names: Mapping[str, str | None], device: str) -> MaskMaker:
    """Return the models that are needed, loaded.   names: kind of a model → its weights.

    Raises ConfigError where one cannot be had.
    """
    hows, found = Counter(request.how for request in requests), dict[str, Any]()
    for kind, count in (("detect", hows["detector"]), ("segment", hows["detector"] + hows["boxes"])):
        try:
            found[kind] = models.get(kind, names[kind], device=device) if count else None
        except ModelAbsent as reason:
            raise ConfigError(f"{count:,} masks cannot be made: {reason}") from reason
    for model in filter(None, found.values()):
        models.prepare(model)
    return MaskMaker(detector=found["detect"], segmenter=found["segment"])


def write_masks(
    loaded: Loaded,
    asked: Mapping[str, MaskRequest | str],
    maker: MaskMaker,
    out: Path,
    *,
    store: ImageStore,
    threads: int,
    stopped: Callable[[], bool],
    tell: Callable[[str], None],
) -> Masked | None:
    """Write the data with masks into an ImageFolder; None where it was stopped. The same call continues.

    asked: by the sample's key, as `wanted` returns it.   Raises OSError, and DataError for what the layout cannot hold.
    """
    samples = loaded.samples
    for sample in samples:
        metadata_row(sample, lambda ref: ref.sha256)  # what cannot be written is said before anything is
    requests = list(dict.fromkeys(one for one in asked.values() if isinstance(one, MaskRequest)))
    place = ImagePlace(folder=out, images=store)
    items = [
        WorkItem(about={}, key=maker.key(request), make=partial(_entry, request, maker, place)) for request in requests
    ]
    worked = work(items, DoneJournal(out, JOURNAL), unit="mask", threads=threads, stopped=stopped, tell=tell)
    if worked is None:
        return None
    made = dict(zip(requests, worked.made, strict=True))
    found = {key: made[one] if isinstance(one, MaskRequest) else one for key, one in asked.items()}
    rows = [_row(metadata_row(sample, place.image), found[sample.key]) for sample in samples]
    place.names.update(out / name for one in worked.written for name in one["images"])
    place.clean((MASKS,))
    files.write_whole(out / METADATA, b"".join(map(json_line, rows)), below=out)
    return Masked(loaded=loaded, found=found)


def _entry(request: MaskRequest, maker: MaskMaker, place: ImagePlace) -> Entry:
    """Make one mask and write it. Raises LeftOut where there is none, as a failure what may end otherwise another time."""
    said: dict[str, Json] = {"how": request.how, "phrase": request.phrase, **maker.versions(request)}
    try:
        found = maker(request, place.images.array(request.source))
    except (ToolError, ImageError) as error:
        raise LeftOut("failed", str(error), failed="tool_failed") from error
    if found.mask is None:
        raise LeftOut("not_found", found.reason, told={**said, **found.facts})
    share = round(float(found.mask.mean()), 6)
    return {**said, "images": [place.mask(found.mask)], "share": share, **found.facts}


def _reason(found: Entry | str) -> str | None:
    """Return why a sample has no mask; None if it has one. found: its line of the journal, or as `wanted` says it."""
    if isinstance(found, str):
        return found or None
    return str(found["detail"]) if "why" in found else None


def _row(row: dict[str, Json], found: Entry | str) -> dict[str, Json]:
    """Return a row with its mask, or with the reason why there is none."""
    row.pop("mask_missing", None)
    if (reason := _reason(found)) is not None:
        row["mask_missing"] = reason
    elif not isinstance(found, str):
        how = {name: value for name, value in found.items() if name not in ("key", "images")}
        row |= {"mask_file_name": found["images"][0], "mask_by": how}
    return row
