"""`editloupe masks`: masks for data without them, by a detector and a segmenter."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from statistics import median
from threading import Event
from typing import Annotated, Any, Final, TypeAlias

import cv2
import numpy as np
from typer import Argument, Option

from editloupe import files, models
from editloupe.cli.options import AsJson, editors, with_options
from editloupe.cli.output import many, note, print_json, say, say_first, status, stoppable
from editloupe.config import RunConfig
from editloupe.cores import usable_cores
from editloupe.data.hub import local_data
from editloupe.data.images import ImageStore
from editloupe.data.rows import RejectedRow
from editloupe.data.samples import load
from editloupe.data.write import METADATA, metadata_row, place_image
from editloupe.errors import ConfigError, ImageError, ModelAbsent, StorageError, ToolError
from editloupe.models.segment.search import MaskMaker, MaskRequest
from editloupe.runs.setup import weights_of
from editloupe.values import Json, Sample, parse_json

JOURNAL: Final = "masks.jsonl"
"""What was made and what was not found, a line each; the same command goes on from there."""
_LISTED: Final = 20

_Entry: TypeAlias = Mapping[str, Json]
"""A line of the journal: "key", "mask" (a file, or None with a "reason"), "share" of the image, and how it was made."""


@with_options("given", ("device", "detector", "format", "fields", "edited", "limit", "concurrency"))
def masks(
    given: dict[str, Any],
    path: Annotated[Path, Argument(metavar="PATH", help="Folder of edits, or a metadata file.")],
    out: Annotated[Path, Option(metavar="FOLDER", help="A new folder for the same data with masks, an imagefolder.")],
    phrase_field: Annotated[
        str | None, Option(metavar="FIELD", help="Column of the data that names the target; its boxes are not used.")
    ] = None,
    boxes: Annotated[bool, Option("--boxes", help="Use the data's boxes alone, and no detector.")] = False,
    segmenter: Annotated[str | None, Option(help="What makes masks of boxes: a folder or hub id of SAM or SAM 2.")] = None,
    as_json: AsJson = False,
) -> int:
    """Make the masks that data lacks: from a phrase to a box to a mask, white where change was allowed.

    The masks are of the source images. Boxes of the data come first, then its phrases (target_name). The same command again
    continues. Exit code 1 where no sample has a mask in the end.
    """
    if boxes and phrase_field is not None:
        raise ConfigError("--boxes and --phrase-field exclude each other; give one of them")
    run = RunConfig.make(**{**given, "edited": editors(given.get("edited", []))})
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / JOURNAL).is_file())):
        raise ConfigError(f"--out {out}: holds other files; name a new or an empty folder")
    store = ImageStore()
    loaded = load(local_data(path), store=store, format=run.format, edited=run.edited, fields=run.fields, outputs=False)
    samples = loaded.samples[: run.limit]
    asked = [_asked(sample, phrase_field=phrase_field, boxes=boxes) for sample in samples]
    requests = list(dict.fromkeys(one for one in asked if isinstance(one, MaskRequest)))
    if not requests and not any("edit" in sample.masks for sample in samples):
        raise ConfigError(
            f"{path}: no sample has what a mask is made of ({next(filter(None, asked), 'there is none')}); say which "
            f"column names the target with --phrase-field, or let editloupe targets {path} --write FILE.jsonl find boxes"
        )
    for sample in samples:
        metadata_row(sample, lambda ref: ref.sha256)  # what cannot be written is said before anything is
    maker = _maker(requests, run, segmenter)
    try:
        with stoppable() as stop, status("", hidden=as_json) as line:
            made = _make(requests, maker, out, store=store, threads=run.concurrency, stop=stop, tell=line.update)
        if stop.is_set():
            note(f"{len(made)} of {many(len(requests), 'mask')} made or ruled out; the same command continues.")
            return 130
        placed = partial(place_image, folder=out, store=store)
        found = [made[one] if isinstance(one, MaskRequest) else one for one in asked]
        rows = [_row(metadata_row(sample, placed), one) for sample, one in zip(samples, found, strict=True)]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        files.write_whole(out / METADATA, text.encode("utf-8", "replace"), below=out)
    except OSError as error:
        raise StorageError(f"{out} cannot be written: {error.strerror or error}") from error
    _tell(path, out, dict(zip((sample.key for sample in samples), found, strict=True)), loaded.rejected, as_json=as_json)
    return 0 if any(_reason(one) is None for one in found) else 1


def _asked(sample: Sample, *, phrase_field: str | None, boxes: bool) -> MaskRequest | str:
    """Return what the sample's mask is made of, "" if it has one, or why it can have none."""
    if "edit" in sample.masks:
        return ""
    given = tuple(target.boxes["source"] for target in sample.targets if "source" in target.boxes)
    if given and phrase_field is None:
        return MaskRequest(source=sample.source, boxes=given)
    if boxes:
        return "the data has no box"
    named = next((target.name for target in sample.targets if target.name), None)
    column = phrase_field or "target_name"
    phrase = named if column == "target_name" and named else sample.extra.get(column)
    if phrase is not None and not isinstance(phrase, str):
        return f"column {column!r}: expected the target's name, found {json.dumps(phrase)[:60]}"
    if phrase is None or not phrase.strip():
        if not phrase_field:
            return "no box, and no phrase in the column 'target_name'"
        other = ", ".join(sorted(name for name, value in sample.extra.items() if isinstance(value, str)))
        return f"column {column!r} names no target" + (f"; other columns of text: {other}" if other else "")
    return MaskRequest(source=sample.source, phrase=phrase.strip())


def _maker(requests: Sequence[MaskRequest], run: RunConfig, segmenter: str | None) -> MaskMaker:
    """Return the models that are needed, loaded. Raises ConfigError where one cannot be had."""
    weights, hows = weights_of(run), Counter(request.how for request in requests)
    names = {
        "detect": (weights.detector, hows["detector"]),
        "segment": (
            segmenter or weights.segmenter,
            hows["detector"] + hows["boxes"],
        ),
    }
    found: dict[str, Any] = {}
    for kind, (name, needed) in names.items():
        try:
            found[kind] = models.get(kind, name, device=weights.device) if needed else None
        except ModelAbsent as reason:
            raise ConfigError(f"{many(needed, 'mask')} cannot be made: {reason}") from reason
    for model in filter(None, found.values()):
        models.prepare(model)
    return MaskMaker(detector=found["detect"], segmenter=found["segment"])


def _make(
    requests: Sequence[MaskRequest],
    maker: MaskMaker,
    out: Path,
    *,
    store: ImageStore,
    threads: int | None,
    stop: Event,
    tell: Callable[[str], None],
) -> dict[MaskRequest, _Entry]:
    """Make what the journal does not hold yet. After `stop` some are missing. Raises OSError."""
    made: dict[MaskRequest, _Entry] = {}

    def one(request: MaskRequest) -> _Entry | None:
        return None if stop.is_set() else _entry(request, maker, out, store)

    with files.append(out / JOURNAL, below=out) as journal, ThreadPoolExecutor(threads or usable_cores()) as pool:
        journal.seek(0)
        before = journal.read()
        if before and not before.endswith(b"\n"):
            journal.write(b"\n")  # a line that was cut off
        known = _known(before, out)
        made |= {request: known[key] for request in requests if (key := maker.key(request)) in known}
        under_way = {pool.submit(one, request): request for request in requests if request not in made}
        for future in as_completed(under_way):
            entry = future.result()
            if entry is None:
                continue
            made[under_way[future]] = entry
            if "failed" not in entry:
                journal.write(json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
                journal.flush()
            tell(f"{len(made)} of {many(len(requests), 'mask')}")
    return made


def _entry(request: MaskRequest, maker: MaskMaker, out: Path, store: ImageStore) -> _Entry:
    """Make one mask and write it. What may end otherwise another time is marked "failed"."""
    key = maker.key(request)
    said: dict[str, Json] = {"key": key, "how": request.how, "phrase": request.phrase, **maker.versions(request)}
    try:
        found = maker(request, store.array(request.source))
    except (ToolError, ImageError) as error:
        return {**said, "mask": None, "reason": str(error), "failed": True}
    if found.mask is None:
        return {**said, "mask": None, "reason": found.reason, **found.facts}
    name = f"masks/{key}.png"
    _, data = cv2.imencode(".png", found.mask.astype(np.uint8) * 255)
    files.write_whole(out / name, data.tobytes(), below=out)
    return {**said, "mask": name, "share": round(float(found.mask.mean()), 6), **found.facts}


def _known(journal: bytes, out: Path) -> dict[str, _Entry]:
    """Return the journal's lines by key. A line that was cut off, or whose mask is gone, does not count."""
    found: dict[str, _Entry] = {}
    for line in journal.splitlines():
        try:
            entry = parse_json(line)
            key, name = str(entry["key"]), entry["mask"]
        except (ValueError, KeyError, TypeError):
            continue
        if name is None or (name == f"masks/{key}.png" and (out / name).is_file()):
            found[key] = entry
    return found


def _reason(found: _Entry | str) -> str | None:
    """Return why a sample has no mask; None if it has one. found: its line of the journal, or as `_asked` says it."""
    if isinstance(found, str):
        return found or None
    return str(found["reason"]) if found["mask"] is None else None


def _row(row: dict[str, Json], found: _Entry | str) -> dict[str, Json]:
    """Return a row with its mask, or with the reason why there is none."""
    row.pop("mask_missing", None)
    if (reason := _reason(found)) is not None:
        row["mask_missing"] = reason
    elif not isinstance(found, str):
        how = {name: value for name, value in found.items() if name not in ("key", "mask")}
        row |= {"mask_file_name": found["mask"], "mask_by": how}
    return row


def _tell(
    path: Path, out: Path, found: Mapping[str, _Entry | str], rejected: Sequence[RejectedRow], *, as_json: bool
) -> None:
    """Say what there is now and what is missing. found: by the sample's key."""
    missing = {key: reason for key, one in found.items() if (reason := _reason(one)) is not None}
    made = [one for key, one in found.items() if key not in missing and not isinstance(one, str)]
    hows = Counter(str(one["how"]) for one in made)
    if own := len(found) - len(missing) - len(made):
        hows["data"] = own
    share = median([float(str(one["share"])) for one in made]) if made else None
    if as_json:
        print_json(
            {
                "folder": str(out),
                "samples": len(found),
                "masks": len(found) - len(missing),
                "how": dict(hows),
                "median_share": share,
                "missing": missing,
                "rejected": {row.key: row.message for row in rejected},
            }
        )
        return
    more = f"; {out / METADATA} has all (mask_missing)"
    say_first([f"no mask: {key}: {reason}" for key, reason in missing.items()], _LISTED, more)
    say_first([f"left out: {row.key}: {row.message}" for row in rejected], _LISTED)
    parts = ", ".join(f"{count} from {_FROM[how]}" for how, count in hows.items())
    say(
        f"{out}: {len(found) - len(missing)} of {many(len(found), 'sample')} of {path} have a mask{parts and f': {parts}'}."
    )
    if share is not None:
        say(f"The median mask that was made takes {100 * share:.1f} % of its image.", "dim")
        note("Models drew these masks, and no person: look at them before you rely on them.")


_FROM: Final = {
    "boxes": "the data's boxes",
    "detector": "a detector's box",
    "whole image": "a phrase that means the whole image",
    "data": "the data itself",
}
