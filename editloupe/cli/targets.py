"""`editloupe build targets`: how large the objects are that edits are about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument

from editloupe import files, models
from editloupe.build import targets as made
from editloupe.cli import options
from editloupe.cli.judge import ask_first, default_out, exit_code
from editloupe.cli.options import OUTPUT, given, one_run, opt
from editloupe.cli.output import Form, as_json, many, note, print_json, say
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.data.loaders.base import BoxFile
from editloupe.data.samples import GENERAL, box_file, load
from editloupe.errors import ConfigError, DataError, ModelAbsent
from editloupe.runs.outcome import Outcome
from editloupe.runs.setup import Setup, open_setup


def targets(
    context: typer.Context,
    path: Annotated[Path, Argument(metavar="PATH", help="A folder of edits, or a metadata file.", show_default=False)],
    backend: options.Backend = None,
    detector: options.Detector = None,
    limit: options.Limit = None,
    max_cost: options.MaxCost = None,
    boxes: Annotated[Path | None, opt("--write", "FILE.jsonl", "Write boxes next to the data.", OUTPUT)] = None,
    form: Form = "table",
    sets: options.Sets = None,
) -> int:
    """Name each edit's target object, find it in the source image, and say what share of the image it takes.

    Boxes in the data are used as they are. The run is in runs/NAME-BACKEND-targets, where `show` and `report` find every
    target; the same command again continues it. Exit code 1 if nothing could be found out, 5 stopped by --max-cost.
    """
    run = one_run({**given(context), "path": path, "protocol": "targets"}, "build targets")
    setup = open_setup(run)
    absent = _absent(setup)
    keys = None if boxes is None else _checked(boxes, path, run)
    outcome = ask_first(setup, default_out(run), f"Finding the targets of {path}", config=run.to_options())
    found, notes = made.summary(outcome), list(_notes(outcome, absent))
    if as_json():
        print_json({**found, "run": str(outcome.store.folder), "notes": [*notes]})
    else:
        for text in notes:
            say(text, "yellow")
        say(_words(found))
    if boxes is not None:
        _write(boxes, path, keys, outcome)
    if outcome.interrupted or outcome.waiting:
        return exit_code(outcome, tolerated=1)
    known = any(score.value is not None or score.dims.get("phrase") for score in outcome.scores)
    return 0 if known and not outcome.ledger.refused else 1


def _words(found: Mapping[str, Any]) -> str:
    """Return what is known of the targets."""
    known = [
        f"{n} from {'the ' * (how == 'detector')}{how.replace('boxes', 'the data')}" for how, n in found["how"].items()
    ]
    unknown = [f"{n} unknown: {status.replace('_', ' ')}" for status, n in found["unknown"].items()]
    share = "" if found["median_share"] is None else f", in the median {100 * found['median_share']:.2g} % of the image"
    return f"{many(found['targets'], 'target')}{share}: {'; '.join(known + unknown) or 'none'}."


def _absent(setup: Setup) -> str:
    """Return why there is no detector; "" for one that is loaded now. Raises ConfigError if a named one is not here."""
    try:
        models.prepare(setup.models.get("detect"))
    except ModelAbsent as reason:
        return str(reason)
    return ""


def _notes(outcome: Outcome, absent: str) -> Iterator[str]:
    """Yield what a reader must know before the numbers."""
    hows = {score.dims.get("how") for score in outcome.scores}
    if made.by_rules(outcome.setup) and hows != {"boxes"}:
        yield "Objects are named by rules on the instruction's words, not by an LMM; name one with --backend."
    if absent and hows != {"boxes"}:
        yield f"Areas are unknown: no detector ({absent})."
    if "detector" in hows:
        yield "Areas are of the detector's best box, which may hold something else; it misses small objects more often."


def _checked(boxes: Path, path: Path, run: RunConfig) -> BoxFile | None:
    """Return the file from which the layout reads boxes; None if the metadata itself has them.

    Raises ConfigError and DataError if what is written would not be read again.
    """
    root = path.parent if path.is_file() else path
    if boxes.suffix.lower() != ".jsonl" or boxes.resolve().parent != root.resolve():
        raise ConfigError(
            f"--write {boxes}: expected a .jsonl file in {root}, to which its image names refer; for example "
            f"{root / 'metadata-boxes.jsonl'}, or {root / 'boxes.jsonl'} for the layout dlebench"
        )
    if boxes.exists():
        raise ConfigError(f"--write {boxes}: the file exists already and is not overwritten; choose another name")
    layout = load(
        path, store=ImageStore(cache_bytes=0), format=run.format, fields=run.fields, columns=run.columns, outputs=False
    ).format
    keys = box_file(layout, run.fields)
    if keys is not None and boxes.name != keys.name:
        raise ConfigError(f"--write {boxes}: the layout {layout} reads boxes from {root / keys.name}; name that file")
    if keys is None and (layout != GENERAL or run.columns):
        raise DataError(f"--write: {path} has the layout {layout}, or columns of other names; take boxes by --format json")
    if keys is None and path.is_dir() and not any(path.glob("metadata.*")):
        raise DataError(f"--write: {path} has a table of another name than metadata; give the path of the table itself")
    return keys


def _write(boxes: Path, path: Path, keys: BoxFile | None, outcome: Outcome) -> None:
    """Write the boxes that a detector found."""
    found = made.found_boxes(outcome)
    text, count = made.metadata_with(path, found) if keys is None else made.sidecar(outcome, found, keys)
    if not text:
        note(f"no box was found, and {boxes} is not written")
        return
    files.write_whole(boxes, text.encode())
    added = "1 box" if count == 1 else f"{count} boxes"
    note(f"{added} added in {boxes}, found by a detector: look at them before you rely on them.")
