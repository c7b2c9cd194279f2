"""`editloupe annotate`: people answer a run's questions in a browser, one key a label."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument

from editloupe.annotate.labels import write_labels
from editloupe.annotate.questions import Annotation, begin
from editloupe.annotate.replies import writable
from editloupe.cli import options
from editloupe.cli.judge import asked_name, data_name, run_folder
from editloupe.cli.options import OUTPUT, given, one_run, opt, words
from editloupe.cli.output import many, note, say, status, warn
from editloupe.cli.serve import listen
from editloupe.errors import ConfigError


def annotate(
    context: typer.Context,
    path: Annotated[Path, Argument(metavar="PATH|RUN", help="A run, or data as judge takes them.", show_default=False)],
    raters: Annotated[str | None, opt("--raters", "A,B,…", "Who may answer. Default: anyone who gives a name.")] = None,
    criteria: options.Criteria = None,
    only_status: Annotated[bool, opt("--status", None, "Say how far each rater is, and end.")] = False,
    labels: Annotated[Path | None, opt("--labels", "FILE", "Write labels as CSV for compare --human, and end.")] = None,
    port: Annotated[int, opt("--port", "N", "0 takes a free one and says which.", min=0, max=65535)] = 8420,
    protocol: options.ProtocolName = None,
    rubric: options.Rubric = None,
    out_dir: Annotated[Path | None, opt("--out", "RUN", "For PATH. Default: runs/NAME-people-PROTOCOL.", OUTPUT)] = None,
    sets: options.Sets = None,
) -> int:
    """Let people answer a run's questions in a browser: one key a label. No model is asked.

    Of data, as `judge` takes them, a run without judges is made, with the questions of --protocol. The same command again
    continues. What people say is in the run's people.jsonl, which compare reads.

    \b
    editloupe annotate runs/first --raters anna,ben
    editloupe annotate my-edits --criteria if --raters anna,ben
    """
    line = {name: value for name, value in given(context).items() if value and name != "path"}
    folder = _folder(path, line, out_dir)
    if labels is not None:
        say(f"{many(write_labels(folder, labels), 'label')} in {labels}")
        return 0
    annotation = Annotation(folder, raters=words(raters) or (), metrics=words(criteria) or ())
    _tell(annotation)
    if only_status:
        return 0
    if not writable(folder):
        raise ConfigError(f"{folder} cannot be written, so that no label can be kept in it")
    with listen("127.0.0.1", port) as listening:
        whom = ", ".join(annotation.named) or "anyone who gives a name"
        say(f"Serving {folder} for {whom} at http://127.0.0.1:{listening.getsockname()[1]}/ (Ctrl-C ends it)")
        serve(annotation, listening)
    _tell_raters(annotation)
    return 0


def serve(annotation: Annotation, listening: socket.socket) -> None:
    """Serve the pages until the process is stopped."""
    import uvicorn

    from editloupe.annotate.page import make_app

    config = uvicorn.Config(make_app(annotation), http="h11", ws="none", log_level="warning", timeout_graceful_shutdown=2)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        note("Stopped.")


def _folder(path: Path, line: Mapping[str, Any], out_dir: Path | None) -> Path:
    """Return the run that is asked about, made of data if PATH is not a run. Raises as `begin`."""
    if (path / "run.json").exists():
        own = [f"--{name.replace('_', '-')}" for name in line if name != "criteria"]
        if out_dir is not None or own:
            raise ConfigError(f"{path} is a run, which knows its data and its questions; leave {(own or ['--out'])[0]} out")
        return path
    run = one_run({**line, "path": path}, "annotate")
    folder = out_dir or run_folder(data_name(path.resolve()), "people", *asked_name(run))
    with status("reading the data") as shown:
        begin(run, folder, tell=lambda done, total: shown.update(f"keeping pictures, {done:,} of {many(total, 'sample')}"))
    return folder


def _tell(annotation: Annotation) -> None:
    """Say how far raters are, and what is not asked. Raises ConfigError if there is nothing to ask."""
    _tell_raters(annotation)
    warn(annotation.problems)
    say(f"{many(annotation.total, 'question')} on {many(len(annotation.samples), 'sample')}")
    if not annotation.total:
        raise ConfigError(
            f"{annotation.folder}: there is no question for people; its protocol {annotation.protocol.name!r} asks none of "
            "these samples, or --criteria names none of its questions"
        )
    if unread := annotation.unread:
        further = f"; and {len(unread) - 1:,} more" if len(unread) > 1 else ""
        note(f"{many(len(unread), 'row')} of the data could not be read and are not asked: {unread[0]}{further}")
    for why, count in annotation.blocked.items():
        note(f"{many(count, 'question')} cannot be asked: {why}")


def _tell_raters(annotation: Annotation) -> None:
    for rater in annotation.raters:
        counts = annotation.progress(rater)
        answered = f"{counts['answered']:,} of {many(counts.total(), 'question')} answered"
        say(f"{rater}: {answered}, {counts['skipped']:,} skipped, {counts['open']:,} open")
