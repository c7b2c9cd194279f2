"""Write samples as an ImageFolder, which its loader reads back as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, get_args

from editloupe import files
from editloupe.data.folders import IMAGE_ENDINGS
from editloupe.data.images import ImageStore
from editloupe.errors import DataError
from editloupe.values import ImageRef, Json, Role, Sample

METADATA: Final = "metadata.jsonl"
IMAGES: Final = "images"
"""Sub-folder of the images."""


def place_image(ref: ImageRef, folder: Path, *, store: ImageStore) -> str:
    """Put an image into a data set's folder, once, and return its name there: "images/DIGEST.png".

    It is a hard link to the file that it was read from, or a copy. Raises OSError and ImageError.
    """
    ending = "" if ref.path is None else ref.path.suffix.lower()
    name = f"{IMAGES}/{ref.sha256[:24]}{ending if ending in IMAGE_ENDINGS else '.img'}"
    target = folder / name
    if not target.exists():
        if ref.path is None:
            files.write_whole(target, store.data(ref), below=folder)
        else:
            files.link_or_copy(ref.path, target, below=folder)
    return name


def metadata_row(sample: Sample, placed: Callable[[ImageRef], str]) -> dict[str, Json]:
    """Return a sample as a line of metadata.jsonl.

    placed: returns an image's name in the folder.
    Raises DataError for what the layout cannot hold: masks beside "edit", targets of several names, or a box that one
    target has and another lacks.
    """
    if masks := sorted(set(sample.masks) - {"edit"}):
        raise DataError(f"sample {sample.key!r} has the mask {masks[0]!r}; the layout imagefolder holds 'edit' alone")

    def name(ref: ImageRef | None) -> str | None:
        return None if ref is None else placed(ref)

    several = len(sample.turns) > 1
    # A row with one of these has a single turn.
    hidden = ("instruction", "edited_file_name") if several else ()
    edits = [name(turn.edited) for turn in sample.turns]
    asked = [turn.instruction for turn in sample.turns]
    return {
        # First, so that the columns of the layout have precedence.
        **{column: value for column, value in sample.extra.items() if column not in hidden},
        "id": sample.id,
        "editor": sample.editor,
        "source_file_name": name(sample.source),
        **({"edited_file_names": edits} if several else {"edited_file_name": edits[0]}),
        "reference_file_name": name(sample.reference),
        "mask_file_name": name(sample.masks.get("edit")),
        **({"instructions": asked} if several else {"instruction": asked[0]}),
        "edit_type": sample.edit_type,
        **_targets(sample),
        **{
            f"human_{metric}__{rater}": rating
            for metric, ratings in sample.human.items()
            for rater, rating in ratings.items()
        },
    }


def _targets(sample: Sample) -> dict[str, Json]:
    """Return the columns of the targets: {} without any."""
    names = {target.name for target in sample.targets}
    roles = [role for role in get_args(Role) if any(role in target.boxes for target in sample.targets)]
    partly = [role for role in roles if not all(role in target.boxes for target in sample.targets)]
    if len(names) > 1 or partly:
        what = f"boxes in the {partly[0]} image for some of its targets" if partly else "targets of several names"
        raise DataError(f"sample {sample.key!r} has {what}; the layout imagefolder cannot hold them")
    if not roles:
        return {}
    prefixes = {role: "" if role == "source" else f"{role}_" for role in roles}
    boxes: dict[str, Json] = {
        f"{prefix}bboxes": [list(target.boxes[role]) for target in sample.targets] for role, prefix in prefixes.items()
    }
    return {**boxes, "bbox_format": "xyxy", "target_name": names.pop()}
