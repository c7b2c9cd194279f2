"""`editloupe rank`: several edits of one source and instruction in order, by one judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from editloupe.cli import options
from editloupe.cli.judge import ask_first, asked_name, data_name, exit_code, run_folder
from editloupe.cli.judge_report import heading_of
from editloupe.cli.options import OUTPUT, check_company, given, one_run, opt, words
from editloupe.cli.output import Form, as_json, many, note, print_json, say
from editloupe.cli.recorded import one_judge
from editloupe.cli.tables import show_table
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, RejectedRow, load_sample
from editloupe.errors import ConfigError, DataError, ImageError
from editloupe.figures import render
from editloupe.figures.ranking import RankedEdit, RankReport, by_pairs, by_scores, unreadable
from editloupe.figures.summary import OVERALL
from editloupe.protocols.base import groups
from editloupe.runs.selection import selected
from editloupe.runs.setup import Setup, open_setup
from editloupe.runs.store import RunStore
from editloupe.scores import MetricSet
from editloupe.values import Sample, digest

PAIRWISE = "pairwise"
"""Name of the protocol that compares two edits at a time."""
SHOWN = 5
"""Tables in the terminal; all of them are in the run's report."""


def rank(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        Argument(metavar="PATH", help="A folder of edits or a run folder; with --source, edits.", show_default=False),
    ],
    source: Annotated[Path | None, opt("--source", "IMAGE", "The image before; PATH… are then edits of it.")] = None,
    instruction: Annotated[str | None, opt("--instruction", "TEXT", "With --source: what the edits were to do.")] = None,
    pairwise: Annotated[bool, opt("--pairwise", None, "Compare every two edits, in both orders; score none.")] = False,
    by: Annotated[str | None, opt("--by", "A,B,…", "Criteria, the next breaking ties; or overall. Default: all.")] = None,
    judge: options.JudgeName = None,
    edited: options.Edited = None,
    mode: options.Mode = None,
    backend: options.Backend = None,
    out_dir: Annotated[Path | None, opt("--out", "RUN", "Default: runs/rank-NAME-BACKEND-MODE.", OUTPUT)] = None,
    form: Form = "table",
    sets: options.Sets = None,
) -> int:
    """Rank several edits of one source and instruction. The same command again continues the run."""
    if (source is None) != (instruction is None):
        raise ConfigError("--source IMAGE and --instruction TEXT go together, with the edits after them")
    if source is None and len(paths) > 1:
        raise ConfigError(f"{len(paths)} paths are given; name one folder, or --source IMAGE --instruction TEXT for edits")
    of_run = source is None and (paths[0] / "run.json").exists()
    of_data: dict[str, object] = {"--mode": mode, "--out": out_dir, "--set": sets}
    of_data |= {"--pairwise": pairwise, "--backend": backend}
    check_company(
        ("a run", of_run, {"--judge": judge}),
        ("edits, not a run, whose scores are ranked", not of_run, of_data),
        ("a folder of edits", not of_run and source is None, {"--edited": edited}),
    )
    if of_run:
        return _of_run(paths[0], judge, words(by))
    line = {**given(context), **({"protocol": PAIRWISE} if pairwise else {})}
    run = one_run(line, "rank").model_copy(update={"path": paths[0].resolve(), "repeats": 1})
    setup = _setup(run, words(by), pairwise=pairwise)
    loaded = selected(run, ImageStore(cache_bytes=0)) if source is None else _edits(source, instruction or "", paths)
    _check_several(loaded.samples, [unreadable(row.editor, row.id, row.message) for row in loaded.rejected])
    # Another instruction for the same image is another run.
    asked = None if source is None else digest([str(source.resolve()), instruction])[:6]
    name = data_name(paths[0]) if source is None else f"{source.stem}-{asked}"
    folder = out_dir or run_folder("rank", name, setup.backend.uri, *asked_name(run))
    outcome = ask_first(setup, folder, f"Ranking with {setup.backend.uri}", loaded=loaded)
    for text in heading_of(setup).notes:
        note(text)
    if outcome.findings:
        _of_run(folder, setup.judge.id, words(by))
    return exit_code(outcome, tolerated=run.fail_on_error)


def _setup(run: RunConfig, by: tuple[str, ...] | None, *, pairwise: bool) -> Setup:
    """Return what answers by the metrics that are named. Raises ConfigError."""
    option = {name: value for name, value in run.option.items() if name != "criteria"}
    setup = open_setup(run.model_copy(update={"option": option}))
    if by is not None and OVERALL not in by and "criteria" in setup.options:
        # No question that is not ranked by.
        setup = open_setup(run.model_copy(update={"option": {**option, "criteria": by}}))
    if pairwise and setup.backend.uri == "baseline":
        raise ConfigError("the pixel baseline cannot compare two edits; name an LMM with --backend")
    _ids(by, MetricSet(id=setup.protocol.name, metrics=tuple(setup.protocol.metrics)), pairwise=pairwise)
    return setup


def _ids(by: Sequence[str] | None, metrics: MetricSet, *, pairwise: bool) -> tuple[str, ...]:
    """Return the metrics that are named, or all. Raises ConfigError: an unknown criterion, or one that pairs lack."""
    found = dict.fromkeys(OVERALL if name.casefold() == OVERALL else metrics.metric(name).id for name in by or ())
    if pairwise and OVERALL in found:
        raise ConfigError("--by overall is a mean of scores, and pairs of edits have none; name criteria")
    return tuple(found) or tuple(metric.id for metric in metrics.metrics)


def _edits(source: Path, instruction: str, edits: Sequence[Path]) -> Loaded:
    """Return edits of one source, each under its file's name; one that cannot be opened is rejected.

    Raises ImageError (the source), SampleError (the instruction).
    """
    ImageStore(cache_bytes=0).add_file(source)
    names = [path.stem for path in edits]
    names = names if len(set(names)) == len(names) else [str(path) for path in edits]
    samples, rejected = [], []
    for name, path in dict(zip(names, edits, strict=True)).items():
        try:
            samples.append(load_sample(source, path, instruction, id=name))
        except ImageError as error:
            rejected.append(RejectedRow(id=name, editor="", edit_type=None, message=str(error), file=path, line=None))
    return Loaded(format="files", samples=tuple(samples), rejected=tuple(rejected))


def _check_several(samples: Sequence[Sample], unread: Sequence[RankedEdit]) -> None:
    """Raise DataError if there is nothing to rank: before anything is asked."""
    if not any(len(group) > 1 for group in groups(samples)):
        first = f"; {len(unread)} cannot be read, first {unread[0].edit}: {unread[0].missing}" if unread else ""
        raise DataError(
            "no two edits share source image and instruction, so that there is nothing to rank; give several editors' "
            f"outputs with --edited NAME=DIR, or edits of one image with --source and --instruction{first}"
        )


def _of_run(folder: Path, judge: str | None, by: Sequence[str] | None) -> int:
    """Rank what a run holds, print the tables, and write them into the run; nothing is asked.

    Raises ConfigError: several judges, a criterion that was not asked.
    """
    store = RunStore.read(folder)
    judged, pairwise = one_judge(store, judge), store.protocol == PAIRWISE
    chosen = tuple(judged.criteria) if by is None else _ids(by, judged.metrics, pairwise=pairwise)
    for criterion in chosen:
        if criterion not in (*judged.criteria, OVERALL):
            raise ConfigError(f"--by {criterion}: was not asked in {folder}; it has {', '.join(judged.criteria)}")
    samples = [s for key, s in judged.samples.items() if key not in store.rejected]
    unread = [unreadable(str(r["editor"]), str(r["id"]), str(r.get("message"))) for r in store.rejected.values()]
    _check_several(samples, unread)
    made = by_pairs(samples, judged.findings, chosen) if pairwise else by_scores(samples, judged.scores, chosen)
    report = RankReport(
        judge=judged.describe(),
        notes=judged.notes,
        by=chosen,
        names={metric.id: metric.short for metric in judged.metrics.metrics},
        pairwise=pairwise,
        rankings=tuple(made),
        unread=tuple(unread),
    )
    written = [
        store.write_report("ranking.json", render.json_text(report.to_json())),
        store.write_report("ranking.md", report.markdown()),
    ]
    _tell(report, written)
    return 0


def _tell(report: RankReport, written: Sequence[Path]) -> None:
    if as_json():
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
    ranked, edits = sum(place.rank is not None for place in places), len(places) + len(report.unread)
    if ranked < edits:
        say(f"\n{ranked} of {many(edits, 'edit')} ranked.", "yellow")
    for place in report.unread:
        say(f"not ranked: {place.edit}: {place.missing}")
    say(f"\n{report.caption}\nWritten: {', '.join(map(str, written))}", "dim")
