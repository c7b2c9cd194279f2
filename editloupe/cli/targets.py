"""`editloupe build targets`: how large the objects are that edits are about, in one data set or several."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from editloupe import models
from editloupe.build import targets as made
from editloupe.build.targets import LIMITS, TargetTable, by_rules, quantiles, under
from editloupe.cli import options
from editloupe.cli.judge import default_out
from editloupe.cli.judge_report import spent_message, stopped_message
from editloupe.cli.options import OUTPUT, given, one_run
from editloupe.cli.output import Form, note, out, print_json, say, stoppable, tell_traces
from editloupe.cli.progress import progress
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.data.loaders.base import BoxFile
from editloupe.data.samples import GENERAL, box_file, load
from editloupe.errors import ConfigError, DataError, ModelAbsent
from editloupe.exports.write import whole
from editloupe.figures.escape import plain
from editloupe.figures.plots import cumulative, histogram
from editloupe.runs.budget import RunBudget
from editloupe.runs.outcome import Outcome
from editloupe.runs.run import drive
from editloupe.runs.setup import Setup, open_setup


def targets(
    context: typer.Context,
    paths: Annotated[list[Path], Argument(metavar="PATH", help="Folders of edits, or metadata files.")],
    backend: Annotated[
        list[str] | None, Option(metavar="URI", help="Who names the objects. Default: the baseline's rules.")
    ] = None,
    detector: options.Detector = None,
    limit: options.Limit = None,
    max_cost: options.MaxCost = None,
    out_file: Annotated[
        Path | None, Option("--out", metavar="FILE", help="FILE.json or FILE.csv: every target.", rich_help_panel=OUTPUT)
    ] = None,
    plot: Annotated[
        Path | None, Option(metavar="FILE.svg", help="Cumulative distributions, a line a PATH.", rich_help_panel=OUTPUT)
    ] = None,
    bars: Annotated[
        Path | None,
        Option("--histogram", metavar="FILE.svg", help="How many targets have which area.", rich_help_panel=OUTPUT),
    ] = None,
    write: Annotated[
        Path | None,
        Option(metavar="FILE.jsonl", help="Beside the data: metadata, or boxes.jsonl (dlebench).", rich_help_panel=OUTPUT),
    ] = None,
    format: Form = "table",
    sets: options.Sets = None,
) -> int:
    """Name each edit's target object, find it in the source image, and say what share of the image it takes.

    Boxes in the data are used as they are. The run of each PATH is in runs/NAME-BACKEND-targets; the same command again
    continues it. Exit code 1 where nothing could be found out, 5 stopped by --max-cost.
    """
    _check_files(paths, out_file=out_file, plot=plot, histogram=bars, write=write)
    as_json, line = format == "json", given(context)
    runs = [one_run({**line, "path": path, "protocol": "targets"}, "build targets") for path in paths]
    setups = [open_setup(run) for run in runs]
    absent = _absent(setups[0])
    keys = None if write is None else _check_layout(write, runs[0])
    tell_traces(runs[0].langsmith)
    budget = RunBudget.of(runs[0])
    outcomes: list[Outcome] = []
    refused: list[str] = []
    with stoppable() as stop:
        for path, run, setup in zip(paths, runs, setups, strict=True):
            folder = default_out(run)
            if not as_json:
                note(f"Naming and finding the targets of {path} into {folder}")
            with progress(hidden=as_json) as listener:
                options = run.to_options()
                found = drive(setup, folder, config=options, budget=budget, listener=listener, stop=stop)
            outcomes.append(found)
            refused.append(stopped_message(found))
            if refused[-1]:
                note(refused[-1])
            budget = budget.after(found.ledger, found.seconds)
    tables = [made.TargetTable.of(name, one) for name, one in zip(_names(paths), outcomes, strict=True)]
    notes = _notes(tables, setups[0], absent)
    # Before the files: where one cannot be written, what was asked for is seen.
    if as_json:
        print_json(made.as_json(tables, notes=notes))
    else:
        out().print(_terminal(tables, notes=notes))
        if out_file is None:
            say("Objects, boxes and reasons, target by target: --out FILE.csv or FILE.json", "dim")
        for one in outcomes:
            if one.ledger.calls and not made.by_rules(one.setup):
                say(spent_message(one.ledger, one.setup.backend))
    if out_file is not None:
        data = made.as_json(tables, notes=notes)
        text = made.as_csv(tables) if out_file.suffix.lower() == ".csv" else f"{json.dumps(data, indent=1)}\n"
        _write(out_file, text)
    if plot is not None:
        _write(plot, cumulative([one.shares for one in tables]))
    if bars is not None:
        _write(bars, histogram([one.shares for one in tables], title="Target objects by area"))
    if write is not None:
        version = setups[0].models.versions(("detect",))["detect"]
        if keys is not None:
            text, count = made.sidecar(outcomes[0].loaded.samples, tables[0].rows, keys=keys, detector=version)
        else:
            text, count = made.with_boxes(made.metadata_lines(paths[0]), tables[0].rows, detector=version)
        if text:
            _write(write, text)
            boxes = "1 box" if count == 1 else f"{count} boxes"
            by = "found by a detector and drawn by no person: look at them before you rely on them."
            note(f"{boxes} added in {write}, {by}")
        else:
            note(f"no box was found, and {write} is not written")
    stopped = [one for one in outcomes if one.interrupted]
    if stopped:
        return 5 if stopped[0].ledger.reason else 130
    if any(refused):
        return 1
    return 0 if any(row.phrase is not None or row.box is not None for one in tables for row in one.rows) else 1


_WHY: Final[Mapping[str, str]] = {
    "no_detector": "no detector",
    "not_found": "not found by the detector",
    "no_phrase": "no rule fits the instruction",
    "abstained": "the LMM could not name the object",
    "unparsed": "the LMM's answer cannot be read",
    "off_menu": "the LMM's answer is no name",
    "contradictory": "the LMM named several objects",
    "refused": "the LMM refused",
    "filtered": "the LMM's answer was filtered",
    "over_budget": "the instruction is too long for the LMM",
    "backend_failed": "the LMM's endpoint failed",
    "tool_failed": "the detector failed",
    "input_error": "the row or its image cannot be read",
    "not_reached": "not reached before the search was stopped",
}


def _terminal(tables: Sequence[TargetTable], *, notes: Sequence[str] = ()) -> RenderableType:
    """One row a data set; below it where the areas come from and why others are unknown."""
    table = Table(title="Target objects by their share of the image", title_justify="left")
    table.add_column("Data set", overflow="fold")
    for name in ("Targets", "Known", "Q1", "Median", "Q3", *(f"<{100 * v:g} %" for v in LIMITS)):
        table.add_column(name, justify="right", no_wrap=True)
    for one in tables:
        cells = [_percent(v) for v in quantiles(one.known)] + [_whole(under(one.known, v)) for v in LIMITS]
        table.add_row(plain(one.name), str(len(one.rows)), str(len(one.known)), *cells)
    parts: list[RenderableType] = [*(plain(note, "yellow") for note in notes), table]
    parts.append(
        Text("Q1, Q3: quartiles; then the part of the known targets that is under so much of its image.", style="dim")
    )
    for one in tables:
        phrases = [f"{n} from {_source(how)}" for how, n in one.how.items()]
        phrases += [f"{n} unknown: {_WHY.get(status, status)}" for status, n in one.unknown.items()]
        parts.append(plain(f"{one.name}: {'; '.join(phrases) or 'no targets'}."))
    return Group(*parts)


def _percent(share: float | None) -> str:
    """ "0.035 %", "12 %"; a dash where there is none."""
    if share is None:
        return "–"
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %" if value >= 1 else f"{value:.2g} %"


def _whole(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _source(how: str) -> str:
    return {"boxes": "the data's boxes", "detector": "the detector", "whole image": "instructions about the whole image"}[
        how
    ]


def _absent(setup: Setup) -> str:
    """Return why there is no detector; "" for one that is loaded now. Raises ConfigError if a named one is not here."""
    try:
        models.prepare(setup.models.get("detect"))
    except ModelAbsent as reason:
        return str(reason)
    return ""


def _check_files(
    paths: Sequence[Path], *, out_file: Path | None, plot: Path | None, histogram: Path | None, write: Path | None
) -> None:
    """What is wrong with the files to be written is said before anything is spent."""
    if out_file is not None and out_file.suffix.lower() not in (".json", ".csv"):
        raise ConfigError(f"--out {out_file}: expected a name that ends in .json or .csv")
    for option, file in (("--plot", plot), ("--histogram", histogram)):
        if file is not None and file.suffix.lower() != ".svg":
            raise ConfigError(f"{option} {file}: expected a name that ends in .svg")
    for file in (out_file, plot, histogram, write):
        if file is not None and not file.resolve().parent.is_dir():
            raise ConfigError(f"{file}: there is no folder {file.resolve().parent}; make it first")
    if write is None:
        return
    if len(paths) != 1:
        raise ConfigError(f"--write {write}: the boxes of one PATH are written, found {len(paths)}; give one")
    root = paths[0].parent if paths[0].is_file() else paths[0]
    if write.suffix.lower() != ".jsonl" or write.resolve().parent != root.resolve():
        raise ConfigError(
            f"--write {write}: expected a .jsonl file in {root}, where its image names hold; for example "
            f"{root / 'metadata-boxes.jsonl'}, to be judged as editloupe judge {root / 'metadata-boxes.jsonl'}; "
            f"{root / 'boxes.jsonl'} for the layout dlebench, which reads it by itself"
        )
    if write.exists():
        raise ConfigError(f"--write {write}: the file is there already and is not overwritten; choose another name")


def _names(paths: Sequence[Path]) -> list[str]:
    """Each PATH by its folder's or file's name; by the whole of it where two would be called the same."""
    short = [p.resolve().parent.name if p.is_file() else p.resolve().name for p in paths]
    return [name if short.count(name) == 1 else str(path) for name, path in zip(short, paths, strict=True)]


def _notes(tables: Sequence[TargetTable], setup: Setup, absent: str) -> list[str]:
    """Return what a reader must know before the numbers."""
    rows = [row for one in tables for row in one.rows]
    notes = []
    if by_rules(setup) and any(row.how != "boxes" and row.instruction for row in rows):
        notes.append(
            "Objects are named by rules on the instruction's words, not by an LMM; name one with --backend provider/model."
        )
    if any(row.status == "no_detector" for row in rows):
        notes.append(f"Areas are unknown: no detector ({absent}).")
    if any(row.how == "detector" for row in rows):
        notes.append(
            "Areas by a detector are of the best box that it found; it may hold something else, and what it missed is left "
            "out, small objects more often than large ones."
        )
    return notes


def _check_layout(write: Path, run: RunConfig) -> BoxFile | None:
    """Return the file from which the layout reads boxes beside its data; None where the metadata itself has them.

    Raises ConfigError and DataError where what is written would not be read again.
    """
    assert run.path is not None
    format = load(
        run.path, store=ImageStore(cache_bytes=0), format=run.format, fields=run.fields, columns=run.columns, outputs=False
    ).format
    keys, root = box_file(format, run.fields), run.path.parent if run.path.is_file() else run.path
    if keys is not None and write.name != keys.name:
        raise ConfigError(
            f"--write {write}: {run.path} has the layout {format}, whose boxes are read from {root / keys.name}; "
            f"expected --write {root / keys.name}"
        )
    if format == GENERAL and run.path.is_dir() and not any(run.path.glob("metadata.*")):
        raise DataError(f"--write: {run.path} has a table of another name than metadata; give the path of the table itself")
    if keys is None and run.columns:
        raise ConfigError(
            "--write and --columns exclude each other: the columns are written as they are; take the boxes from "
            "--out FILE.json, or rename the columns"
        )
    if keys is None and format != GENERAL:
        raise DataError(
            f"--write needs the layout imagefolder or dlebench, {run.path} is {format}; take the boxes from --out FILE.json"
        )
    return keys


def _write(file: Path, text: str) -> None:
    with whole(file) as stream:
        stream.write(text.encode())
