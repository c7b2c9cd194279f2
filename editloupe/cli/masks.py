"""`editloupe build masks`: masks for data without them, by a detector and a segmenter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from typer import Argument

from editloupe import files
from editloupe.build.masks import JOURNAL, open_maker, wanted, write_masks
from editloupe.cli import options
from editloupe.cli.options import OUTPUT, given, one_run, opt
from editloupe.cli.output import Form, as_json, many, note, print_json, say, say_first, status, stoppable
from editloupe.cores import usable_cores
from editloupe.data.hub import local_data
from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.data.write import METADATA
from editloupe.errors import ConfigError
from editloupe.models.segment.search import MaskRequest
from editloupe.runs.setup import weights_of

_LISTED: Final = 20


def masks(
    context: typer.Context,
    path: Annotated[Path, Argument(metavar="PATH", help="Folder of edits, or a metadata file.", show_default=False)],
    out: Annotated[Path, opt("--out", "FOLDER", "A new folder for the data with masks.", OUTPUT)],
    phrase_field: Annotated[str | None, opt("--phrase-field", "FIELD", "Column of targets, instead of boxes.")] = None,
    edited: options.Edited = None,
    limit: options.Limit = None,
    detector: options.Detector = None,
    form: Form = "table",
    sets: options.Sets = None,
) -> int:
    """Make the masks that data lacks: from a phrase to a box to a mask, white where change was allowed.

    The masks are of the source images. Boxes of the data come first, then its phrases (target_name). The same command again
    continues. Exit code 1 if no sample has a mask in the end.
    """
    run = one_run(given(context), "build masks")
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / JOURNAL).is_file())):
        raise ConfigError(f"--out {out}: holds other files; name a new or an empty folder")
    store = ImageStore()
    loaded = load(
        local_data(path), store=store, format=run.format, edited=run.edited, fields=run.fields, columns=run.columns,
        outputs=False,
    )  # fmt: skip
    loaded = replace(loaded, samples=loaded.samples[: run.limit])
    asked = {one.key: wanted(one, phrase_field=phrase_field) for one in loaded.samples}
    requests = [one for one in asked.values() if isinstance(one, MaskRequest)]
    if not requests and not any("edit" in sample.masks for sample in loaded.samples):
        raise ConfigError(
            f"{path}: no sample has what a mask is made of ({next(filter(None, asked.values()), 'there is none')}); say "
            "which column names the target with --phrase-field, or let "
            f"editloupe build targets {path} --write FILE.jsonl find boxes"
        )
    weights, threads = weights_of(run), run.concurrency or usable_cores()
    maker = open_maker(
        list(dict.fromkeys(requests)), {"detect": weights.detector, "segment": weights.segmenter}, weights.device
    )
    with files.writing(out), stoppable() as stop, status("", hidden=as_json()) as line:
        masked = write_masks(loaded, asked, maker, out, store=store, threads=threads, stopped=stop.is_set, tell=line.update)
    if masked is None:
        note("Stopped before all masks were made or ruled out; the same command continues.")
        return 130
    told = masked.to_json()
    if as_json():
        print_json({"folder": str(out), **told})
    else:
        more = f"; {out / METADATA} has all (mask_missing)"
        say_first([f"no mask: {key}: {reason}" for key, reason in masked.missing.items()], _LISTED, more)
        say_first([f"rejected: {row.key}: {row.message}" for row in masked.loaded.rejected], _LISTED)
        how = told["how"]
        parts = ", ".join(f"{count} by {by}" for by, count in how.items()) if isinstance(how, dict) else ""
        say(f"{out}: {told['masks']} of {many(len(masked.found), 'sample')} of {path} have a mask{parts and f': {parts}'}.")
        if masked.made:
            note("Models drew these masks: look at them before you rely on them.")
    return 0 if len(masked.missing) < len(masked.found) else 1
