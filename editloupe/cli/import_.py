"""`editloupe import`: a benchmark's own result files as a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument

from editloupe import plugins
from editloupe.cli.options import editors, opt
from editloupe.cli.output import Form, command, many, note, say, status
from editloupe.cli.tables import show_tables
from editloupe.errors import ConfigError
from editloupe.figures.judged import read_judged
from editloupe.figures.report import published_table
from editloupe.runs.imported import import_results


def import_(
    name: Annotated[
        str, Argument(metavar="NAME", help="Whose files: edival, gedit, imgedit, kris or unicbench.", show_default=False)
    ],
    folder: Annotated[Path, Argument(metavar="DIR", help="The folder with the result files.", show_default=False)],
    data: Annotated[Path, opt("--data", "PATH", "The data that was judged, with its source images.")],
    out_dir: Annotated[Path, opt("--out", "DIR", "The run folder to write.")],
    edited: Annotated[list[str] | None, opt("--edited", "NAME=DIR", "An editor's outputs, if they are elsewhere.")] = None,
    form: Form = "table",
) -> int:
    """Read a benchmark's own result files into a run, which report, compare, show and view read.

    No model is asked. What the files count as 0 although nothing was read becomes a status, and a table says how each mean
    moves by that.
    """
    if name not in plugins.names("importers"):
        raise ConfigError(f"no result files {name!r} are known; expected one of {', '.join(plugins.names('importers'))}")
    with status("reading results", hidden=form != "table"):
        done = import_results(name, folder, out_dir, data=data, edited=editors(edited or []))
    tables = [made for judged in read_judged([out_dir]) if (made := published_table(judged)) is not None]
    for text in done.notes:
        note(text)
    show_tables([replace(made, title=f"{made.title}: {made.keys['judge']}") for made in tables])
    known = f"; {done.known:,} were there already" if done.known else ""
    say(f"\n{many(done.findings, 'finding')} in {out_dir}{known}.")
    say(f"All tables: {command('report', out_dir)}")
    return 0
