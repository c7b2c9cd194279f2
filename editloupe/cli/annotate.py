"""`editloupe annotate`: people answer a run's questions in a browser, one key a label."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Argument, Option

from editloupe.cli.judge import asked_name, data_name
from editloupe.cli.options import OUTPUT, PANELS, finite, settled, with_options, words
from editloupe.cli.options import runs as runs_of
from editloupe.cli.output import many, note, say, slug, status, warn
from editloupe.config import pairs
from editloupe.data.human import ADJUDICATED
from editloupe.errors import ConfigError
from editloupe.runs.annotation import Annotation, Assignment, Progress, begin, wanted_questions
from editloupe.runs.people import writable
from editloupe.runs.store import RunStore
from editloupe.viewer.annotate import AnnotationSite
from editloupe.viewer.serve import PORT, bound, serve_until_stopped

_PANEL: Final = "People"
_ASKED: Final = (
    *PANELS["Data"], "protocol", "mode", "asks", "rubric", "criteria", "prompt", "option", "tools",
)  # fmt: skip


@with_options("given", _ASKED)
def annotate(
    given: dict[str, Any],
    *,
    path: Annotated[
        Path | None,
        Argument(metavar="PATH|RUN", help="A run folder; or a folder of edits, or a metadata file.", show_default=False),
    ] = None,
    out_dir: Annotated[
        Path | None,
        Option("--out", help="Run folder, for PATH. Default: runs/NAME-people-PROTOCOL.", rich_help_panel=OUTPUT),
    ] = None,
    raters: Annotated[
        str | None,
        Option(metavar="A,B,…", help="Names. Default: whoever gives a name on the first page.", rich_help_panel=_PANEL),
    ] = None,
    overlap: Annotated[
        float | None,
        Option(
            metavar="SHARE",
            min=0,
            max=1,
            callback=finite,
            help="Share of the data that all raters get; each further sample goes to one. Default: all raters get all.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    share: Annotated[
        str | None,
        Option(
            metavar="A=N,B=N,…",
            help="With --overlap: weights by which the rest is divided. Default: equal ones.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        Option(min=0, help="Decides which data are shared and how pairs are shown. Default: 0.", rich_help_panel=_PANEL),
    ] = None,
    adjudicate: Annotated[
        bool,
        Option("--adjudicate", help="Ask only what raters disagree on; the label settles it.", rich_help_panel=_PANEL),
    ] = False,
    names: Annotated[
        bool,
        Option("--names", help="With --adjudicate: show who said what. Default: Rater 1, 2, …", rich_help_panel=_PANEL),
    ] = False,
    only_status: Annotated[
        bool, Option("--status", help="Say how far each rater is, and end. Nothing is served.", rich_help_panel=_PANEL)
    ] = False,
    port: Annotated[
        int | None,
        Option(min=0, max=65535, help=f"0 takes a free one. Default: {PORT}, or the next one that is free."),
    ] = None,
    open_browser: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
) -> int:
    """Let people answer a run's questions in a browser: one key a label. No model is asked.

    Of data, as `judge` takes them, a run without judges is made, with the questions of --protocol. The same command again
    goes on. What people say is in the run's people.jsonl, which compare reads.

    Examples:

    \b
    editloupe annotate runs/first --raters anna,ben
    editloupe annotate my-edits --criteria if --raters anna,ben --overlap 0.2
    editloupe annotate runs/first --adjudicate
    """
    if names and not adjudicate:
        raise ConfigError("--names goes with --adjudicate; raters never see what others said")
    said = _said(raters, overlap, share, seed)
    folder = _folder(path, given, out_dir, said)
    assignment = _assignment(folder, given, said)
    annotation = Annotation(folder, assignment)
    warn(annotation.problems)
    if not only_status and not writable(folder):
        raise ConfigError(f"{folder} cannot be written, so that no label can be kept in it")
    if adjudicate:
        _tell_disagreements(annotation)
    else:
        _tell_questions(annotation)
        if assignment != (Assignment.of(folder) or Assignment()):
            assignment.keep(folder)
    if only_status:
        return 0
    site = AnnotationSite(annotation=annotation, adjudicates=adjudicate, names_shown=names)
    with bound(site, "127.0.0.1", port, ()) as server:
        say(f"Serving {folder} for {_whom(annotation, adjudicate)} at {server.url} (Ctrl-C ends it)")
        if open_browser:
            webbrowser.open(server.url)
        serve_until_stopped(server)
    for rater in annotation.raters if not adjudicate else ():
        say(_progress(annotation.progress(rater)))
    if adjudicate:
        _tell_disagreements(annotation)
    return 0


def _folder(path: Path | None, given: Mapping[str, Any], out_dir: Path | None, said: Mapping[str, Any]) -> Path:
    """The run that is asked about, made of data where PATH is none.

    said: of the raters; what cannot be meant is refused before a run is made. Raises as `begin`.
    """
    if path is None:
        raise ConfigError("PATH is missing: name a run folder, or a folder of edits")
    if (path / "run.json").exists():
        own = [name for name in given if name != "criteria"]
        if own or out_dir is not None:
            name = f"--{own[0].replace('_', '-')}" if own else "--out"
            raise ConfigError(f"{path} is a run, which knows its data and its questions; leave {name} out")
        return path
    run = settled(runs_of({**given, "path": path})[0])
    folder = out_dir or Path("runs") / "-".join(map(slug, [data_name(path.resolve()), "people", *asked_name(run)]))
    replace(Assignment.of(folder) or Assignment(), **said)
    with status("reading the data") as line:
        begin(run, folder, tell=lambda done, total: line.update(f"keeping pictures, {done:,} of {many(total, 'sample')}"))
    return folder


def _said(raters: str | None, overlap: float | None, share: str | None, seed: int | None) -> dict[str, Any]:
    """What the command says of the raters: fields of an `Assignment`."""
    said: dict[str, Any] = {}
    if raters is not None:
        said["raters"] = words(raters)
    if overlap is not None:
        said["overlap"] = overlap
    if share is not None:
        weights = pairs(words(share) or (), "--share", "RATER=WEIGHT, such as anna=2")
        try:
            said["shares"] = {name: float(weight) for name, weight in weights.items()}
        except ValueError as error:
            raise ConfigError(f"--share {share}: expected a number for each rater ({error})") from error
    elif raters is not None:
        said["shares"] = None
    if seed is not None:
        said["seed"] = seed
    return said


def _assignment(folder: Path, given: Mapping[str, Any], said: Mapping[str, Any]) -> Assignment:
    """Who is asked what; what the command does not say is as the run keeps it."""
    kept = Assignment.of(folder)
    found = replace(kept or Assignment(), **said)
    if "criteria" in given:
        asked = wanted_questions(RunStore.read_info(folder), words(given["criteria"]) or ())
        found = replace(found, questions=asked)
    if kept is not None and found != kept:
        before, now = kept.to_json(), found.to_json()
        changes = [f"{name} was {before[name]!r} and is {now[name]!r}" for name in now if before[name] != now[name]]
        note(f"Who is asked what has changed: {'; '.join(changes)}. Labels that were given stay.")
    return found


def _tell_questions(annotation: Annotation) -> None:
    """Raises ConfigError where there is nothing to ask."""
    assigned = [annotation.progress(rater) for rater in annotation.assignment.raters or annotation.raters]
    total = annotation.total
    for progress in assigned:
        say(_progress(progress))
    say(f"{many(total, 'question')} on {many(len(annotation.samples), 'sample')}")
    if not total:
        raise ConfigError(
            f"{annotation.folder}: there is no question for people; its protocol {annotation.protocol.name!r} asks none of "
            "these samples, or --criteria names none of its questions"
        )
    if unread := annotation.unread:
        further = f"; and {len(unread) - 1:,} more" if len(unread) > 1 else ""
        note(
            f"{many(len(unread), 'row')} of the data could not be read, and nothing is asked of them: {unread[0]}{further}"
        )
    for why, count in annotation.blocked.items():
        note(f"{many(count, 'question')} cannot be asked: {why}")
    if annotation.uncomputed:
        note(
            f"{many(annotation.uncomputed, 'measure')} of the protocol have no finding in this run: questions that rest on "
            "them are not asked. `editloupe judge` computes them"
        )


def _progress(one: Progress) -> str:
    answered = f"{one.answered:,} of {many(one.total, 'question')} answered"
    return f"{one.rater}: {answered}, {one.skipped:,} skipped, {one.open:,} open"


def _tell_disagreements(annotation: Annotation) -> None:
    """Raises ConfigError where there is nothing to settle."""
    found, shared = annotation.progress(ADJUDICATED), annotation.shared()
    if not found.total:
        raise ConfigError(
            f"{annotation.folder}: there is nothing to settle; raters disagree on none of the {many(shared, 'question')} "
            "that two of them or more have answered"
        )
    settled_ones = found.answered + found.skipped
    say(
        f"Raters disagree on {found.total:,} of the {many(shared, 'question')} that two of them or more have answered; "
        f"{settled_ones:,} of these {'is' if settled_ones == 1 else 'are'} settled"
    )


def _whom(annotation: Annotation, adjudicates: bool) -> str:
    if adjudicates:
        return "adjudication"
    return ", ".join(annotation.assignment.raters) or "whoever gives a name"
