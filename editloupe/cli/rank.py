"""`editloupe rank`: several edits of one source and instruction in order, by one judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from editloupe.cli import arguments, options
from editloupe.cli.judge import asked_name, data_name, exit_code
from editloupe.cli.judge_report import heading_of, stopped_message
from editloupe.cli.options import OUTPUT, given, one_run, words
from editloupe.cli.output import Form, many, note, print_json, say, show_table, slug, stoppable, tell_traces
from editloupe.cli.progress import progress
from editloupe.cli.recorded import one_judge
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, RejectedRow, load_sample
from editloupe.errors import BackendError, ConfigError, DataError, ImageError
from editloupe.figures import render
from editloupe.figures.judged import Judged
from editloupe.figures.ranking import RankedEdit, RankReport, by_pairs, by_scores, unreadable
from editloupe.figures.summary import OVERALL
from editloupe.protocols.base import groups
from editloupe.runs.outcome import Outcome
from editloupe.runs.run import drive
from editloupe.runs.selection import selected
from editloupe.runs.setup import Setup, open_setup
from editloupe.runs.store import RunStore
from editloupe.scores import Metric, MetricSet
from editloupe.values import Sample, digest

PAIRWISE = "pairwise"
"""Name of the protocol that compares two edits at a time."""

SHOWN = 5
"""Tables in the terminal; all of them are in the run's report."""
_NAMED = 5
"""Edits that a message names."""


def rank(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        Argument(metavar="PATH", help="A folder of edits or a run folder; with --source, edits.", show_default=False),
    ],
    source: Annotated[Path | None, Option(metavar="IMAGE", help="The image before; PATH… are then edits of it.")] = None,
    instruction: Annotated[str | None, Option(help="With --source: what the edits were to do.")] = None,
    pairwise: Annotated[bool, Option("--pairwise", help="Compare every two edits, in both orders; score none.")] = False,
    by: Annotated[
        str | None, Option(metavar="A,B,…", help="Criteria to rank by, the next breaking ties; or overall. Default: all.")
    ] = None,
    judge: arguments.JudgeName = None,
    edited: options.Edited = None,
    protocol: options.ProtocolName = None,
    mode: options.Mode = None,
    rubric: options.Rubric = None,
    backend: options.Backends = None,
    out_dir: Annotated[
        Path | None,
        Option("--out", metavar="RUN", help="Default: runs/rank-NAME-BACKEND-MODE.", rich_help_panel=OUTPUT),
    ] = None,
    format: Form = "table",
    sets: options.Sets = None,
) -> int:
    """Rank several edits of one source and instruction. The same command again continues the run."""
    as_json = format == "json"
    if (source is None) != (instruction is None):
        raise ConfigError("--source IMAGE and --instruction TEXT go together, with the edits after them")
    if source is None and len(paths) > 1:
        raise ConfigError(f"{len(paths)} paths are given; name one folder, or --source IMAGE --instruction TEXT for edits")
    if source is None and (paths[0] / "run.json").exists():
        if pairwise or backend or edited:
            raise ConfigError(
                f"{paths[0]} is a run: its scores are ranked as they are; --pairwise, --backend and --edited ask anew"
            )
        return _of_run(paths[0], judge, words(by), as_json=as_json)
    line = {**given(context), **({"protocol": PAIRWISE} if pairwise else {})}
    run = one_run(line, "rank").model_copy(update={"path": paths[0].resolve(), "repeats": 1})
    chosen, setup = _setup(run, words(by), pairwise=pairwise)
    loaded = selected(run, ImageStore(cache_bytes=0)) if source is None else _edits(source, instruction or "", paths)
    unread = [unreadable(row.editor, row.id, row.message) for row in loaded.rejected]
    _check_several(loaded.samples, unread)
    tell_traces(run.langsmith)
    # Another instruction for the same image is another run.
    asked = None if source is None else digest([str(source.resolve()), instruction])[:6]
    name = data_name(paths[0]) if source is None else f"{source.stem}-{asked}"
    parts = ["rank", name, setup.backend.uri, *asked_name(run)]
    folder = out_dir or Path("runs") / "-".join(map(slug, parts))
    if not as_json:
        note(f"Ranking with {setup.backend.uri} into {folder}")
    with stoppable() as stop, progress(hidden=as_json) as listener:
        outcome = drive(setup, folder, loaded=loaded, listener=listener, stop=stop)
    for text in outcome.notes:
        note(text)
    if (stopped := stopped_message(outcome)) and not any(f.status == "ok" for f in outcome.findings):
        raise BackendError(stopped)
    heading = heading_of(setup)
    _show(
        outcome.store,
        outcome,
        outcome.loaded.samples,
        judge=heading.text,
        notes=heading.notes,
        by=chosen,
        metrics=setup.protocol.metrics,
        unread=unread,
        as_json=as_json,
    )
    if outcome.interrupted:
        note("Stopped before all was judged. The same command continues the run.")
    elif stopped:
        note(stopped)
    return exit_code(outcome, tolerated=run.fail_on_error)


def _setup(run: RunConfig, by: tuple[str, ...] | None, *, pairwise: bool) -> tuple[tuple[str, ...], Setup]:
    """Return the metrics to rank by, in order, and what answers. Raises ConfigError."""
    if pairwise:
        if by is not None and OVERALL in by:
            raise ConfigError("--by overall is a mean of scores, and --pairwise gives none; name criteria")
        if run.option.get("mode") == "oracle":
            raise ConfigError("--pairwise shows whole images; use --mode tool or plain")
    option = {name: value for name, value in run.option.items() if name != "criteria"}
    setup = open_setup(run.model_copy(update={"option": option}))
    if by is not None and OVERALL not in by and "criteria" in setup.options:
        # No question that is not ranked by.
        setup = open_setup(run.model_copy(update={"option": {**option, "criteria": by}}))
    if pairwise and setup.backend.uri == "baseline":
        raise ConfigError(
            "the pixel baseline judges single edits and cannot compare two; name an LMM with --backend, "
            "or leave --pairwise out"
        )
    return _ids(by, MetricSet(id=setup.protocol.name, metrics=tuple(setup.protocol.metrics))), setup


def _ids(by: Sequence[str] | None, metrics: MetricSet) -> tuple[str, ...]:
    """The metrics that are named, or all. Raises ConfigError: an unknown criterion, one named twice."""
    found = tuple(OVERALL if name.casefold() == OVERALL else metrics.metric(name).id for name in by or ())
    if len(set(found)) < len(found):
        raise ConfigError(f"--by {','.join(by or ())}: names a criterion twice")
    return found or tuple(metric.id for metric in metrics.metrics)


def _edits(source: Path, instruction: str, edits: Sequence[Path]) -> Loaded:
    """Edits of one source, each under its file's name; one that cannot be opened is listed below the others.

    Raises ImageError (the source), SampleError (the instruction).
    """
    ImageStore(cache_bytes=0).add_file(source)
    stems = [path.stem for path in edits]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in edits]
    if len(set(names)) < len(names):
        raise ConfigError("an edit is named twice; name each once")
    samples, rejected = [], []
    for name, path in zip(names, edits, strict=True):
        try:
            samples.append(load_sample(source, path, instruction, id=name))
        except ImageError as error:
            rejected.append(RejectedRow(id=name, editor="", edit_type=None, message=str(error), file=path, line=None))
    return Loaded(format="files", samples=tuple(samples), rejected=tuple(rejected))


def _check_several(samples: Sequence[Sample], unread: Sequence[RankedEdit]) -> None:
    """Raise DataError, which names what could not be read, where there is nothing to rank: before anything is asked."""
    if any(len(group) > 1 for group in groups(samples)):
        return
    if not unread:
        raise DataError(
            "no two edits share source image and instruction, so that there is nothing to rank; give several editors' "
            "outputs with --edited NAME=DIR, or edits of one image with --source and --instruction"
        )
    named = "; ".join(f"{one.edit}: {one.missing.removeprefix('input_error: ')}" for one in unread[:_NAMED])
    more = f"; and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
    raise DataError(
        f"{len(unread)} of {len(samples) + len(unread)} edits cannot be read, and no two others share source image and "
        f"instruction, so that there is nothing to rank. {named}{more}"
    )


def _of_run(folder: Path, judge: str | None, by: Sequence[str] | None, *, as_json: bool) -> int:
    """Rank what a run holds; nothing is asked. Raises ConfigError: several judges, a criterion that was not asked."""
    store = RunStore.read(folder)
    judged = one_judge(store, judge)
    chosen = judged.criteria if by is None else _ids(by, judged.metrics)
    for criterion in chosen:
        if criterion not in (*judged.criteria, OVERALL):
            raise ConfigError(f"--by {criterion}: was not asked in {folder}; it has {', '.join(judged.criteria)}")
    samples = [s for key, s in judged.samples.items() if key not in store.rejected]
    unread = [unreadable(str(r["editor"]), str(r["id"]), str(r.get("message"))) for r in store.rejected.values()]
    _check_several(samples, unread)
    if store.protocol == PAIRWISE and OVERALL in chosen:
        raise ConfigError(f"--by overall is a mean of scores, and {folder} compares pairs of edits; name criteria")
    _show(
        store,
        judged,
        samples,
        judge=judged.describe(),
        notes=judged.notes,
        by=chosen,
        metrics=judged.metrics.metrics,
        unread=unread,
        as_json=as_json,
    )
    return 0


def _show(
    store: RunStore,
    judged: Outcome | Judged,
    samples: Sequence[Sample],
    *,
    judge: str,
    notes: Sequence[str],
    by: tuple[str, ...],
    metrics: Iterable[Metric],
    unread: Sequence[RankedEdit],
    as_json: bool,
) -> None:
    """The tables, and the files in the run. Raises DataError where no two edits can be set beside each other."""
    pairwise = store.protocol == PAIRWISE
    report = RankReport(
        judge=judge,
        notes=tuple(notes),
        by=by,
        names={metric.id: metric.short for metric in metrics},
        pairwise=pairwise,
        rankings=tuple(by_pairs(samples, judged.findings, by) if pairwise else by_scores(samples, judged.scores, by)),
        unread=tuple(unread),
    )
    written = [
        store.write_report("ranking.json", render.json_text(report.to_json())),
        store.write_report("ranking.md", report.markdown()),
    ]
    if as_json:
        print_json(report.to_json())
        return
    say(report.judge, "bold")
    for text in report.notes:
        say(text, "yellow")
    tables = list(report.tables())
    for table in tables[:SHOWN]:
        show_table(table)
    if len(tables) > SHOWN:
        say(f"\n… and {len(tables) - SHOWN} more sources")
    places = [place for ranking in report.rankings for place in ranking.places]
    ranked = sum(place.rank is not None for place in places)
    if ranked < len(places) + len(report.unread):
        say(f"\n{ranked} of {many(len(places) + len(report.unread), 'edit')} ranked.", "yellow")
    for place in report.unread:
        say(f"not ranked: {place.edit}: {place.missing}")
    say(f"\n{report.caption}", "dim")
    say(f"Written: {', '.join(map(str, written))}")
