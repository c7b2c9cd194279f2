"""`editloupe view`: the pages of runs, served on this machine."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from editloupe.backends.prices import read_prices
from editloupe.cli.arguments import HumanColumns, PricesFile, opt
from editloupe.cli.output import note, say
from editloupe.data.run_file import no_run
from editloupe.errors import ConfigError
from editloupe.figures.labels import column_names
from editloupe.runs.folders import runs_below
from editloupe.viewer.numbers import Numbers
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
    human: Annotated[Path | None, opt("--human", "FILE", "People's labels, shown beside the judges'.")] = None,
    columns: HumanColumns = None,
    prices: PricesFile = None,
    open_browser: Annotated[bool, opt("--open", None, "Open the pages in a browser.")] = False,
) -> int:
    """Look at runs in a browser; a run under way is followed."""
    named = runs or [Path("runs")]
    if columns is not None and human is None:
        raise ConfigError("--columns says what the columns of --human hold; name a table with --human FILE")
    people = {"human": human, "columns": column_names(columns, "--columns")}
    site = replace(_site(named, people=people), numbers=Numbers(prices=read_prices(prices)))
    with bound(site, host, port, allow_host or (), renew=partial(_renewed, named, people)) as server:
        if server.open_to_others:
            note(f"{host} is not loopback: whoever reaches this machine there can read these runs.")
        places = ", ".join(map(str, named))
        what = f"{len(site.runs)} runs of {places}" if site.listed and any(map(_no_run, named)) else places
        say(f"Serving {what} at {server.url} (Ctrl-C ends it)")
        if open_browser:
            webbrowser.open(server.url)
        serve_until_stopped(server)
    return 0


def _site(named: Iterable[Path], known: Sequence[RunReader] = (), *, people: Mapping[str, Any]) -> Site:
    """A site of the runs that are there now. known: readers that are open already; their runs keep their places.

    people: arguments of `RunReader` on a table of people's labels.
    Raises ConfigError for a folder without a run, and for a run that was named and cannot be read.
    """
    found, broken, listed = _found(named)
    readers = [reader for reader in known if reader.folder in found]
    for run in (run for run in found if all(run != reader.folder for reader in readers)):
        try:
            readers.append(RunReader(run, live=True, **people))
        except ConfigError as error:
            if not listed:
                raise
            broken.append((str(run), str(error)))
    return Site.of(readers, live=True, listed=listed, broken=broken)


def _renewed(named: Iterable[Path], people: Mapping[str, Any], site: Site) -> Site:
    """The site with the runs that have come since, and without those that are gone."""
    try:
        now = _site(named, [run.reader for run in site.runs], people=people)
    except ConfigError:
        return site  # the last run is gone, and its pages say so
    if (now.broken, [run.reader for run in now.runs]) == (site.broken, [run.reader for run in site.runs]):
        return site
    return replace(now, numbers=site.numbers)


def _no_run(path: Path) -> bool:
    return not (path / "run.json").exists() and not (path / "findings.jsonl").exists()


def _found(named: Iterable[Path]) -> tuple[list[Path], list[tuple[str, str]], bool]:
    """The runs, (folder, why) of those that cannot be read, and whether a folder of runs was named.

    Raises ConfigError for a folder without a run.
    """
    found, broken, listed = list[Path](), list[tuple[str, str]](), False
    for path in named:
        try:
            is_run = not _no_run(path)
            below = list(runs_below(path)) if path.is_dir() and not is_run else []
        except OSError as error:  # such as a name that no file can have
            raise ConfigError(f"{path} is no run folder: {error.strerror or error}") from error
        if is_run:
            found.append(path)
            continue
        if not path.is_dir():
            raise ConfigError(no_run(path))
        if not below:
            raise ConfigError(
                f"{path} is no run folder, and no run is below it; judge something first: editloupe judge PATH"
            )
        listed = True
        found += [one.folder for one in below if not one.problem]
        broken += [(str(one.folder), one.problem) for one in below if one.problem]
    return list(dict.fromkeys(found)), broken, listed
