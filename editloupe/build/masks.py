"""`editloupe build masks`: masks for data without them, from a phrase to a box to a mask, by a detector and a segmenter.

The set is the same data as an ImageFolder, with a mask for each sample, or with the reason why it has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from editloupe import files
from editloupe.build.base import LeftOut, counted, leaving_out, need
from editloupe.build.direct import DirectRecipe, Worked, WorkItem
from editloupe.build.places import MASKS, ImagePlace
from editloupe.build.shown import boxes_of, target_name
from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.data.write import METADATA, metadata_row
from editloupe.errors import ConfigError, ImageError, ToolError
from editloupe.models.segment.search import MaskMaker, MaskRequest
from editloupe.protocols.base import Options
from editloupe.values import Json, Sample, json_line

Entry: TypeAlias = Mapping[str, Any]
"""What was made: "images", the file, "share" of the image, and how; or "why", "at" and "detail" for none."""


class MaskSetOptions(Options):
    """What `editloupe build masks` offers."""

    phrase_field: str | None = None
    """Column of the data that names the target; its boxes are not used then."""


_STAGES: Final = {
    "read": "the edit can be read",
    "wanted": "the data has a mask, a box, or a name of the target",
    "made": "the detector and the segmenter find it",
}


class MaskSet(DirectRecipe):
    """Data with a mask for each sample, or with the reason why it has none."""

    summary = (
        "Make the masks that data lacks: from a phrase to a box to a mask of the source image, white where change was "
        "allowed. Boxes of the data come first, then its phrases (target_name)."
    )
    reads = "A folder of edits, or a metadata file."
    weights = ("device", "detector", "segmenter")
    Options = MaskSetOptions
    noun, unit, keeps = "mask", "sample", True
    passes = _STAGES

    def open(self) -> None:
        """Read what the path holds."""
        path, self._store = self.path, ImageStore()
        self._loaded = load(path, store=self._store, outputs=False)
        self._wanted = {one.key: self._wish(one) for one in self._loaded.samples}
        requests = {one for one in self._wanted.values() if isinstance(one, MaskRequest)}
        if not requests and not any("edit" in sample.masks for sample in self._loaded.samples):
            why = next((f" ({text})" for text in self._wanted.values() if isinstance(text, str)), "")
            raise ConfigError(
                f"{path}: no sample has what a mask is made of{why}; name the column of phrases with --set phrase_field=…, "
                f"or let editloupe build targets {path} --write FILE.jsonl find boxes"
            )
        for sample in self._loaded.samples:
            metadata_row(sample, lambda ref: ref.sha256)  # what cannot be written is said before anything is
        hows = Counter(request.how for request in requests)
        counts = {"detect": hows["detector"], "segment": hows["detector"] + hows["boxes"]}
        found = {
            kind: need(self.models, kind, f"{count:,} masks cannot be made: {{reason}}") if count else None
            for kind, count in counts.items()
        }
        self._maker = MaskMaker(detector=found["detect"], segmenter=found["segment"])
        self._place = ImagePlace(folder=self.folder, images=self._store)

    def _wish(self, sample: Sample) -> MaskRequest | str | None:
        """Return what the sample's mask is made of, None if it has one, or why it can have none."""
        if "edit" in sample.masks:
            return None
        field = self.options.phrase_field
        if (given := boxes_of(sample)) and field is None:
            return MaskRequest(source=sample.source, boxes=given)
        phrase = target_name(sample) if field in (None, "target_name") else sample.extra.get(field)
        if isinstance(phrase, str) and phrase.strip():
            return MaskRequest(source=sample.source, phrase=phrase.strip())
        return f"column {field!r} names no target" if field else "no box, and no phrase in the column 'target_name'"

    def items(self, stopped: Callable[[], bool], tell: Callable[[str], None]) -> list[WorkItem]:
        """Return each sample, in the order of the data, then the rows that cannot be read."""
        items = []
        for key, wish in self._wanted.items():
            about: dict[str, Json] = {"sample": key}
            if isinstance(wish, MaskRequest):
                make = partial(_made, wish, self._maker, self._place)
                items.append(WorkItem(about=about, key=self._maker.key(wish), make=make))
            elif wish is None:
                items.append(WorkItem(about=about, make=lambda: {"how": "data"}))
            else:
                items.append(WorkItem.refused(about, "no_target", wish, at="wanted"))
        rejected = self._loaded.rejected
        return [*items, *(WorkItem.refused({"sample": one.key}, one.kind, one.message) for one in rejected)]

    def write(self, worked: Worked) -> dict[str, Json]:
        """Write the data with the masks."""
        self._place.keep((name for one in worked.written for name in one.get("images", ())), (MASKS,))
        of_samples = zip(self._loaded.samples, worked.made, strict=False)
        rows = [_row(metadata_row(sample, self._place.image), made) for sample, made in of_samples]
        files.write_whole(self.folder / METADATA, b"".join(map(json_line, rows)), below=self.folder)
        return {"how": counted(Counter(str(one["how"]) for one in worked.written))}


def _made(request: MaskRequest, maker: MaskMaker, place: ImagePlace) -> Entry:
    """Make one mask and write it. Raises LeftOut where there is none, as a failure what may end otherwise another time."""
    said: dict[str, Json] = {"how": request.how, "phrase": request.phrase, **maker.versions(request)}
    with leaving_out("failed", ToolError, ImageError, failed="tool_failed", at="made"):
        found = maker(request, place.images.array(request.source))
    if found.mask is None:
        raise LeftOut("not_found", found.reason, told={**said, **found.facts}, at="made")
    share = round(float(found.mask.mean()), 6)
    return {**said, "images": [place.mask(found.mask)], "share": share, **found.facts}


def _row(row: dict[str, Json], found: Entry) -> dict[str, Json]:
    """Return a row with its mask, or with the reason why there is none."""
    row.pop("mask_missing", None)
    if "why" in found:
        row["mask_missing"] = found["detail"]
    elif "images" in found:
        how = {name: value for name, value in found.items() if name not in ("key", "images")}
        row |= {"mask_file_name": found["images"][0], "mask_by": how}
    return row
