"""Write samples as an ImageFolder, which its loader reads back as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, get_args

from editloupe import files
from editloupe.data.folders import IMAGE_ENDINGS
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.errors import DataError
from editloupe.values import ImageRef, Json, Role, Sample, digest

METADATA: Final = "metadata.jsonl"
IMAGES: Final = "images"
"""Sub-folder of the images."""

_NO_ENDING: Final = ".img"
_AS_IS: Final = ImagePolicy(formats=("image/png", "image/jpeg"))
_STEM: Final = re.compile(r"[\w-][\w.-]{0,99}")


def place_image(ref: ImageRef, folder: Path, *, store: ImageStore) -> str:
    """Put an image into a data set's folder, once, and return its name there: "images/DIGEST.png".

    It is a hard link to the file that it was read from, or a copy. Raises OSError and ImageError.
    """
    ending = "" if ref.path is None else ref.path.suffix.lower()
    name = f"{IMAGES}/{ref.sha256[:24]}{ending if ending in IMAGE_ENDINGS else _NO_ENDING}"
    target = folder / name
    if not target.exists():
        if ref.path is None:
            files.write_whole(target, store.data(ref), below=folder)
        else:
            files.link_or_copy(ref.path, target, below=folder)
    return name


def write_as_is(ref: ImageRef, folder: Path, stem: str, *, store: ImageStore) -> str:
    """Write an image as STEM.jpg or STEM.png, and return that name: its own bytes, or a PNG of what is of another kind.

    An image that is shown turned becomes a PNG too. Raises OSError and ImageError.
    """
    made = store.encoded(ref, _AS_IS)
    name = f"{stem}.{'jpg' if made.media_type == 'image/jpeg' else 'png'}"
    files.write_whole(folder / name, made.data, below=folder.parent)
    return name


def file_stem(id_: str) -> str:
    """Return an id as the stem of a file: itself, or its digest where a file cannot bear it."""
    return id_ if _STEM.fullmatch(id_) else digest(id_)[:24]


def remove_others(folder: Path, names: Collection[str]) -> None:
    """Remove the images of a folder but those of these names: what was written for rows that are gone. A link is let be."""
    if folder.is_symlink():
        return
    for path in folder.glob("*"):
        if path.suffix.lower() in (*IMAGE_ENDINGS, _NO_ENDING) and path.name not in names:
            path.unlink()


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

    edits, asked = [name(turn.edited) for turn in sample.turns], [turn.instruction for turn in sample.turns]
    turns: dict[str, Json] = {"edited_file_name": edits[0], "instruction": asked[0]}
    if len(edits) > 1:
        turns = {"edited_file_names": [*edits], "instructions": [*asked]}
    sources = [name(ref) for ref in sample.sources]
    ratings = {f"human_{metric}__{who}": one for metric, by in sample.human.items() for who, one in by.items()}
    return {
        # First, so that the columns of the layout have precedence. A row with one of two columns has a single turn.
        **{k: v for k, v in sample.extra.items() if len(edits) == 1 or k not in ("instruction", "edited_file_name")},
        "id": sample.id,
        "editor": sample.editor,
        **({"source_file_names": [*sources]} if sample.further else {"source_file_name": sources[0]}),
        **turns,
        "reference_file_name": name(sample.reference),
        "mask_file_name": name(sample.masks.get("edit")),
        "edit_type": sample.edit_type,
        **_targets(sample),
        **ratings,
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
