"""`editloupe view`: the pages of runs, served on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from editloupe.backends.prices import read_prices
from editloupe.cli.options import HumanColumns, opt, people_columns
from editloupe.cli.output import note, say
from editloupe.cli.show import is_run, runs_in
from editloupe.errors import ConfigError
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from editloupe.viewer.serve import PORT, bound, serve_until_stopped


def view(
    runs: Annotated[
        list[Path] | None, Argument(metavar="RUN|FOLDER", help="Runs or folders of runs. Default: runs")
    ] = None,
    host: Annotated[str, opt("--host", "NAME", "Where to listen. All but loopback is open to others.")] = "127.0.0.1",
    port: Annotated[int | None, opt("--port", "N", f"Default: {PORT}, or the next free one.", min=0, max=65535)] = None,
    allow_host: Annotated[list[str] | None, opt("--allow-host", "NAME", "A further name of this server.")] = None,
    human: Annotated[Path | None, opt("--human", "FILE", "People's labels, shown next to the judges'.")] = None,
    columns: HumanColumns = None,
) -> int:
    """Look at runs in a browser; a run under way is followed."""
    named = runs or [Path("runs")]
    people = {"human": human, "columns": people_columns(human, columns)}
    site = _site(named, people=people)
    with bound(site, host, port, allow_host or (), renew=partial(_renewed, named, people)) as server:
        if server.open_to_others:
            note(f"{host} is not loopback: anyone who reaches this machine there can read these runs.")
        say(f"Serving {', '.join(map(str, named))} at {server.url} (Ctrl-C ends it)")
        serve_until_stopped(server)
    return 0


def _site(named: Iterable[Path], known: Sequence[RunReader] = (), *, people: Mapping[str, Any]) -> Site:
    """Return a site of the runs that are there now.   known: readers that are open already; their runs keep their places.

    people: arguments of `RunReader` on a table of people's labels.
    Raises ConfigError for a folder without a run, and for a run that was named and cannot be read.
    """
    broken: list[tuple[str, str]] = []
    found: dict[Path, bool] = {}
    for path in named:
        below = [] if is_run(path) else runs_in(path)
        found |= {one.folder.resolve(): False for one in below if not one.problem} if below else {path.resolve(): True}
        broken += [(str(one.folder), one.problem) for one in below if one.problem]
    readers = [reader for reader in known if reader.folder in found]
    for run in [run for run in found if all(run != reader.folder for reader in readers)]:
        try:
            readers.append(RunReader(run, live=True, **people))
        except ConfigError as error:
            if found[run]:
                raise
            broken.append((str(run), str(error)))
    return Site.of(readers, live=True, prices=read_prices(None), listed=not all(found.values()), broken=broken)


def _renewed(named: Iterable[Path], people: Mapping[str, Any], site: Site) -> Site:
    """Return the site with the runs that have come since, and without those that are gone."""
    try:
        now = _site(named, [run.reader for run in site.runs], people=people)
    except ConfigError:
        return site  # the last run is gone, and its pages say so
    same = (now.broken, [run.reader for run in now.runs]) == (site.broken, [run.reader for run in site.runs])
    return site if same else replace(now, numbers=site.numbers)
