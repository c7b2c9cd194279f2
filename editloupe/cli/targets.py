"""`editloupe targets`: how large the objects are that edits are about, in one data set or several."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from editloupe.cli.judge_report import spent_told
from editloupe.cli.output import err, note, out, plain
from editloupe.cli.progress import stoppable
from editloupe.config import RunConfig
from editloupe.errors import ConfigError, DataError, ImageError, ModelAbsent, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editloupe.data.images import ImageStore
    from editloupe.data.samples import Loaded
    from editloupe.models.detect.base import Detector
    from editloupe.reports.targets import TargetTable
    from editloupe.runs.target_phrase import PhraseFinder
    from editloupe.runs.targets import TargetArea
    from editloupe.values import Json

_FORMATS: Final = (".json", ".csv")


def targets(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Folders of edits, or metadata files.")],
    backend: Annotated[
        str | None, typer.Option(help="Who names the objects: provider/model. Default: the baseline's rules.")
    ] = None,
    detector: Annotated[str | None, typer.Option(help="What finds them: a folder, file or hub id.")] = None,
    device: Annotated[str | None, typer.Option(help="For the detector: auto, cpu, cuda:0, … (default auto).")] = None,
    format: Annotated[str, typer.Option(help="auto, imagefolder, pairs or dlebench.")] = "auto",
    fields: Annotated[Path | None, typer.Option(help="Field mapping (TOML) for the DLEBench importer.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most N samples of each PATH.")] = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="FILE.json or FILE.csv: every target.")] = None,
    plot: Annotated[Path | None, typer.Option(help="FILE.svg: cumulative distributions, a line for each PATH.")] = None,
    write: Annotated[
        Path | None, typer.Option(help="FILE.jsonl beside the data: metadata, or boxes.jsonl (dlebench).")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, max=1024, help="LMM calls at once.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="Money budget, USD.")] = None,
    prices: Annotated[Path | None, typer.Option(help="Prices (TOML) of models that no list has.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Summaries and every target as JSON.")] = False,
) -> int:
    """Name each edit's target object, find it in the source image, and say what share of the image it takes.

    Boxes in the data are used as they are. Exit code 1 where nothing could be found out, 5 stopped by --max-cost.
    """
    from editloupe.backends.base import open_backend
    from editloupe.backends.prices import read_prices
    from editloupe.data.images import ImageStore
    from editloupe.data.samples import load
    from editloupe.reports import targets as report
    from editloupe.reports.plots import cumulative
    from editloupe.runs.budget import Ledger, Metered, RunBudget
    from editloupe.runs.execute import concurrency_of
    from editloupe.runs.target_phrase import PhraseFinder
    from editloupe.runs.targets import Kept, TargetSearch

    _check_files(paths, out_file=out_file, plot=plot, write=write)
    lmm = open_backend(backend or "baseline")
    looker, absent = _detector(detector, device)
    images = ImageStore()
    loaded = [_limited(load(p, store=images, format=format, fields=fields, outputs=False), limit) for p in paths]
    if write is not None:
        _check_layout(write, paths[0], loaded[0].format, fields)
    kept = Kept(None if out_file is None else out_file.with_name(f"{out_file.name}.kept.jsonl"))
    with stoppable() as stop, _progress(hidden=as_json) as tell:
        ledger = Ledger(budget=RunBudget(max_cost=max_cost), prices=read_prices(prices), stop=stop)
        ledger.check(lmm)
        search = TargetSearch(
            phrases=PhraseFinder(Metered(lmm, ledger)),
            detector=looker,
            no_detector=absent,
            asking=concurrency or concurrency_of(lmm),
            looking=max(1, os.cpu_count() or 1),
            images=images,
            kept=kept,
            stop=stop,
            tell=tell,
        )
        names = _names(paths)
        tables = [
            report.TargetTable(name=name, rows=tuple(search.find(one))) for name, one in zip(names, loaded, strict=True)
        ]
    notes = _notes(tables, search.phrases, absent)
    if out_file is not None:
        data = report.as_json(tables, notes=notes)
        text = report.as_csv(tables) if out_file.suffix.lower() == ".csv" else f"{json.dumps(data, indent=1)}\n"
        _write(out_file, text)
    if plot is not None:
        _write(plot, cumulative([one.shares for one in tables]))
    if write is not None:
        version = "" if looker is None else looker.version
        if loaded[0].format == "dlebench":
            text, count = _sidecar(loaded[0], tables[0].rows, fields, version)
        else:
            text, count = report.with_boxes(_lines(paths[0], loaded[0], images), tables[0].rows, detector=version)
        told = "1 box" if count == 1 else f"{count} boxes"
        if text:
            _write(write, text)
            note(
                f"{told} added in {write}, found by a detector and drawn by no person: look at them before you rely on "
                "them."
            )
        else:
            note(f"no box was found, and {write} is not written")
    if as_json:
        typer.echo(json.dumps(report.as_json(tables, notes=notes), ensure_ascii=False))
    else:
        out().print(report.terminal(tables, notes=notes))
        if out_file is None:
            out().print("Objects, boxes and reasons, target by target: --out FILE.csv or FILE.json", style="dim")
        if ledger.usage.total or ledger.untold:
            out().print(plain(spent_told(ledger, lmm)))
    if stop.is_set():
        return 5 if ledger.reason else 130
    return 0 if any(row.phrase is not None or row.box is not None for one in tables for row in one.rows) else 1


def _check_files(paths: Sequence[Path], *, out_file: Path | None, plot: Path | None, write: Path | None) -> None:
    """What is wrong with the files to be written is said before anything is spent."""
    if out_file is not None and out_file.suffix.lower() not in _FORMATS:
        raise ConfigError(f"--out {out_file}: expected a name that ends in {' or '.join(_FORMATS)}")
    if plot is not None and plot.suffix.lower() != ".svg":
        raise ConfigError(f"--plot {plot}: expected a name that ends in .svg")
    for file in (out_file, plot, write):
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


def _detector(name: str | None, device: str | None) -> tuple[Detector | None, str]:
    """The detector, or why there is none. Raises ConfigError where one is named and cannot be had."""
    from editloupe import models
    from editloupe.runs.setup import weights_of

    settings = weights_of(RunConfig(detector=name, device=device))
    try:
        found = models.get("detect", settings.detector, device=settings.device)
    except ModelAbsent as reason:
        return None, str(reason)
    models.prepare(found)
    return found, ""


def _limited(loaded: Loaded, limit: int | None) -> Loaded:
    from dataclasses import replace

    if limit is None:
        return loaded
    return replace(loaded, samples=loaded.samples[:limit], rejected=loaded.rejected[: max(0, limit - len(loaded.samples))])


def _names(paths: Sequence[Path]) -> list[str]:
    """Each PATH by its folder's or file's name; by the whole of it where two would be called the same."""
    short = [p.resolve().parent.name if p.is_file() else p.resolve().name for p in paths]
    return [name if short.count(name) == 1 else str(path) for name, path in zip(short, paths, strict=True)]


def _notes(tables: Sequence[TargetTable], phrases: PhraseFinder, absent: str) -> list[str]:
    """What a reader must know before the numbers."""
    rows = [row for one in tables for row in one.rows]
    notes = []
    if phrases.by_rules and any(row.phrase_by == phrases.by for row in rows):
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


def _lines(path: Path, loaded: Loaded, images: ImageStore) -> list[tuple[Mapping[str, Json], tuple[str, str]]]:
    """The metadata's rows with (source, instruction) as the samples have them."""
    from editloupe.data.tables import read_table

    root = path.parent if path.is_file() else path
    file = path if path.is_file() else next(f for f in sorted(root.glob("metadata.*")) if f.suffix != ".md")
    lines: list[tuple[Mapping[str, Json], tuple[str, str]]] = []
    for line in read_table(file).lines:
        if line.fault is not None:
            raise DataError(f"{file}, line {line.number}: {line.fault}; a file with boxes needs all lines in order")
        source, instruction = line.values.get("source_file_name"), line.values.get("instruction")
        try:
            sha = images.add_file(root / str(source)).sha256
        except ImageError:
            sha = ""  # counted as input_error above, and written as it is
        lines.append((line.values, (sha, str(instruction).strip())))
    return lines


def _check_layout(write: Path, path: Path, format: str, fields: Path | None) -> None:
    """Whether the boxes will be read from there again."""
    from editloupe.data.loaders.dlebench import read_mapping

    if format == "dlebench":
        sidecar = read_mapping(fields).sidecar
        if write.name != sidecar:
            root = path.parent if path.is_file() else path
            raise ConfigError(
                f"--write {write}: {path} has the layout dlebench, whose boxes are read from {root / sidecar}; "
                f"expected --write {root / sidecar}"
            )
    elif format != "imagefolder":
        raise DataError(
            f"--write needs the layout imagefolder or dlebench, {path} is {format}; take the boxes from --out FILE.json"
        )


def _sidecar(loaded: Loaded, rows: Sequence[TargetArea], fields: Path | None, detector: str) -> tuple[str, int]:
    """The file of boxes that the DLEBench layout reads beside its data, under the keys that it is read by."""
    from editloupe.data.loaders.dlebench import read_mapping
    from editloupe.reports import targets as report

    keys = read_mapping(fields).fields
    return report.sidecar(loaded.samples, rows, id_key=keys["id"][0], boxes_key=keys["boxes"][0], detector=detector)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error.strerror or error}") from error


@contextmanager
def _progress(*, hidden: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A live line on standard error: what is done, and how far."""
    if hidden:
        yield lambda what, done, total: None
        return
    with err().status("reading") as status:
        yield lambda what, done, total: status.update(f"{what}: {done:,} of {total:,}")
