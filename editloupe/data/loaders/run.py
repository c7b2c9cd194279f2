"""The samples of a run folder, with the pictures that the run keeps. Nothing outside the folder is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from editloupe.data.folders import Folder, RowError
from editloupe.data.images import ImageStore
from editloupe.data.loaders.base import DataSet
from editloupe.data.rows import Loaded, RejectedRow
from editloupe.errors import DataError
from editloupe.files import read_bytes
from editloupe.values import ImageRef, Json, Sample, finite_json, with_images


def matches(data: DataSet) -> bool:
    """Return whether the folder is a run."""
    return data.metadata is None and all((data.root / name).is_file() for name in ("run.json", "samples.jsonl"))


def load(data: DataSet) -> Loaded:
    """Load the samples of a run, as they were last recorded.

    A sample whose pictures the run does not keep is rejected. Raises DataError for outputs given beside the run, and for a
    file of samples that cannot be read.
    """
    if data.edited or data.fields is not None:
        raise DataError(f"{data.root} is a run, whose samples have their outputs; leave --edited and --fields out")
    folder = Folder(data.root, data.store)
    file = folder.own("samples.jsonl")
    found: dict[str, Sample | RejectedRow] = {}
    try:
        lines = read_bytes(file).splitlines()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            row = _row(finite_json(line), number)
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            problem = " ".join(str(error).split())[:300]
            row = RejectedRow(id=f"line-{number}", line=number, file=file, message=f"{file}, line {number}: {problem}")
        if isinstance(row, Sample):
            row = _opened(row, folder)
        found[row.key] = row
    return Loaded(
        format="run",
        samples=tuple(row for row in found.values() if isinstance(row, Sample)),
        rejected=tuple(row for row in found.values() if isinstance(row, RejectedRow)),
    )


def _row(line: Json, number: int) -> Sample | RejectedRow:
    """Return a line of samples.jsonl. Raises ValueError, KeyError or TypeError for one of another shape."""
    if not isinstance(line, Mapping):
        raise ValueError("expected an object")
    rejected = line.get("rejected")
    if not isinstance(rejected, Mapping):
        return Sample.from_json(line)
    id_, editor, message = (str(rejected[name]) for name in ("id", "editor", "message"))
    return RejectedRow(id=id_, editor=editor, line=number, message=message)


def _opened(sample: Sample, folder: Folder) -> Sample | RejectedRow:
    """Return a sample with its pictures in the store.

    A mask or a reference that the run does not keep stays as it is: only a question that needs it cannot be asked.
    """
    blobs = ImageStore(folder.root / "blobs", writes=False)

    needed = {turn.edited: "edited" for turn in sample.turns if turn.edited is not None}
    # Without an output nothing is asked, and the source was not kept.
    needed |= dict.fromkeys(sample.sources, "source") if needed else {}

    def kept(ref: ImageRef) -> ImageRef:
        path = blobs.path(ref)
        if path is None and ref in needed:
            what = f"the run {folder.root} does not keep the {needed[ref]} image; name the folder of edits itself"
            raise RowError("missing_file", f"{sample.key}: {what}")
        if path is None:
            return ref
        image = folder.image(path.relative_to(folder.root).as_posix())
        if image.sha256 != ref.sha256:
            raise RowError("unreadable_image", f"{path}: its bytes are no longer those that its name tells", path=path)
        return image

    try:
        return with_images(sample, kept)
    except RowError as error:
        known = RejectedRow(id=sample.id, editor=sample.editor, edit_type=sample.edit_type, message=str(error))
        return replace(known, kind=error.kind, file=error.path)
