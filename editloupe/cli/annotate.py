"""`editloupe annotate`: people answer a run's questions in a browser, one key a label."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from editloupe.annotate.labels import write_labels
from editloupe.annotate.questions import Annotation, begin
from editloupe.annotate.replies import writable
from editloupe.cli import options
from editloupe.cli.judge import asked_name, data_name
from editloupe.cli.options import OUTPUT, given, one_run, words
from editloupe.cli.output import many, note, say, slug, status, warn
from editloupe.errors import ConfigError


def annotate(
    context: typer.Context,
    path: Annotated[
        Path | None,
        Argument(metavar="PATH|RUN", help="A run folder; or a folder of edits, or a metadata file.", show_default=False),
    ] = None,
    raters: Annotated[
        str | None, Option(metavar="A,B,…", help="Names. Default: anyone who gives one on the first page.")
    ] = None,
    criteria: options.Criteria = None,
    only_status: Annotated[bool, Option("--status", help="Say how far each rater is, and end.")] = False,
    labels: Annotated[
        Path | None, Option(metavar="FILE", help="Write what people said as CSV for compare --human.")
    ] = None,
    port: Annotated[int, Option(metavar="N", min=0, max=65535, help="0 takes a free one and says which.")] = 8420,
    open_browser: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
    protocol: options.ProtocolName = None,
    rubric: options.Rubric = None,
    edited: options.Edited = None,
    out_dir: Annotated[
        Path | None,
        Option("--out", metavar="RUN", help="For PATH. Default: runs/NAME-people-PROTOCOL.", rich_help_panel=OUTPUT),
    ] = None,
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
    names, metrics = words(raters) or (), words(criteria) or ()
    annotation = Annotation(folder, raters=names, metrics=metrics)
    _tell(annotation)
    if only_status:
        return 0
    if not writable(folder):
        raise ConfigError(f"{folder} cannot be written, so that no label can be kept in it")
    listening = _listen(port)
    try:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        whom = ", ".join(annotation.named) or "whoever gives a name"
        say(f"Serving {folder} for {whom} at {address} (Ctrl-C ends it)")
        if open_browser:
            webbrowser.open(address)
        serve(annotation, listening)
    finally:
        listening.close()
    for rater in annotation.raters:
        say(_progress(annotation, rater))
    return 0


def serve(annotation: Annotation, listening: socket.socket) -> None:
    """Serve the pages until the process is told to stop."""
    import uvicorn

    from editloupe.annotate.page import make_app

    config = uvicorn.Config(make_app(annotation), http="h11", ws="none", log_level="warning", timeout_graceful_shutdown=2)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        note("Stopped.")


def _folder(path: Path | None, line: Mapping[str, Any], out_dir: Path | None) -> Path:
    """The run that is asked about, made of data where PATH is none. Raises as `begin`."""
    if path is None:
        raise ConfigError("PATH is missing: name a run folder, or a folder of edits")
    if (path / "run.json").exists():
        own = [name for name in line if name != "criteria"]
        if own or out_dir is not None:
            name = f"--{own[0].replace('_', '-')}" if own else "--out"
            raise ConfigError(f"{path} is a run, which knows its data and its questions; leave {name} out")
        return path
    run = one_run({**line, "path": path}, "annotate")
    folder = out_dir or Path("runs") / "-".join(map(slug, [data_name(path.resolve()), "people", *asked_name(run)]))
    with status("reading the data") as shown:
        begin(run, folder, tell=lambda done, total: shown.update(f"keeping pictures, {done:,} of {many(total, 'sample')}"))
    return folder


def _tell(annotation: Annotation) -> None:
    """Say how far raters are, and what is not asked. Raises ConfigError where there is nothing to ask."""
    for rater in annotation.raters:
        say(_progress(annotation, rater))
    warn(annotation.problems)
    total = annotation.total
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


def _progress(annotation: Annotation, rater: str) -> str:
    counts = annotation.progress(rater)
    answered = f"{counts['answered']:,} of {many(counts.total(), 'question')} answered"
    return f"{rater}: {answered}, {counts['skipped']:,} skipped, {counts['open']:,} open"


def _listen(port: int) -> socket.socket:
    """Raises ConfigError where the port cannot be had."""
    try:
        return socket.create_server(("127.0.0.1", port), backlog=128)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"--port {port} cannot be served: {reason}; choose another, or --port 0") from error
