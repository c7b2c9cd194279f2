"""`editloupe import`: a benchmark's own result files as a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from editloupe import plugins
from editloupe.cli.options import AsJson, editors
from editloupe.cli.output import command, many, note, print_json, say, status, table
from editloupe.errors import ConfigError
from editloupe.runs.imported import ImportedRun, MovedMean, import_results
from editloupe.tables import NONE


def import_(
    name: Annotated[str, Argument(help="Whose result files they are: unicbench.")],
    folder: Annotated[Path, Argument(metavar="DIR", help="Folder with the result files, of one or several models.")],
    data: Annotated[Path | None, Option(help="The data that was judged, with its source images.")] = None,
    out_dir: Annotated[Path | None, Option("--out", help="Run folder.")] = None,
    edited: Annotated[
        list[str] | None,
        Option(help="NAME=DIR: an editor's outputs, if they do not lie beside its results; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Read a benchmark's own result files into a run, which report, compare, align, show and view read.

    No model is asked. What the files count as 0 although nothing was read becomes a status, and a table says how each mean
    moves by that.
    """
    if name not in plugins.names("importers"):
        raise ConfigError(f"no result files {name!r} are known; expected one of {', '.join(plugins.names('importers'))}")
    if data is None or out_dir is None:
        raise ConfigError(
            "--data is missing: result files hold no source images, and a finding is about a sample; name the data that "
            "was judged"
            if data is None
            else "--out is missing: name the run folder to write"
        )
    with status("reading results", hidden=as_json):
        done = import_results(name, folder, out_dir, data=data, edited=editors(edited or []))
    if as_json:
        print_json(
            {
                "run": str(out_dir),
                "findings": done.findings,
                "known": done.known,
                "means": [mean.to_json() for mean in done.means],
                "notes": list(done.notes),
            }
        )
        return 0
    for text in done.notes:
        note(text)
    _show(done)
    known = f"; {done.known:,} were there already" if done.known else ""
    say(f"\n{many(done.findings, 'finding')} in {out_dir}{known}.")
    note(f"Next: {command('report', out_dir)}")
    return 0


def _show(done: ImportedRun) -> None:
    numbers = ("Published", "n", "Judged", "n judged", "Change")
    rows = [(one.editor, one.judge, *one.dims.values(), one.metric.replace("_", " "), *_figures(one)) for one in done.means]
    dims = [dim.capitalize() for dim in (done.means[0].dims if done.means else ())]
    title = "Means as published, zeros of unread replies included, and means of what was judged"
    table("Editor", "Judge", *dims, "Metric", *numbers, rows=rows, title=title, right=numbers)


def _figures(mean: MovedMean) -> tuple[str, ...]:
    published, judged, change = (
        NONE if value is None else f"{value:{sign}.4f}"
        for value, sign in ((mean.published, ""), (mean.judged, ""), (mean.change, "+z"))
    )
    return published, f"{mean.published_count:,}", judged, f"{mean.judged_count:,}", change
