"""`editloupe view`: the pages of runs, served on this machine."""

from __future__ import annotations

import signal
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from editloupe.backends.prices import read_prices
from editloupe.cli.options import PricesFile
from editloupe.cli.output import note, say
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from editloupe.viewer.serve import Viewer


def view(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run folders; several are shown side by side.")],
    host: Annotated[str, Option(help="Where to listen. Anything but loopback shows the runs to others.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0 takes a free one.")] = 8321,
    allow_host: Annotated[
        list[str] | None, Option(help="A further name under which browsers may come; may be repeated.")
    ] = None,
    prices: PricesFile = None,
    open_browser: Annotated[bool, Option("--open", help="Open the pages in a browser.")] = False,
) -> int:
    """Look at runs in a browser; a run under way is followed."""
    with ExitStack() as opened:
        readers = [opened.enter_context(RunReader(run, live=True)) for run in runs]
        site = Site.of(readers, live=True, prices=read_prices(prices))
        server = opened.enter_context(Viewer(site, host=host, port=port, names=allow_host or ()))
        if server.open_to_others:
            note(f"{host} is not loopback: whoever reaches this machine there can read these runs.")
        say(f"Serving {', '.join(map(str, runs))} at {server.url} (Ctrl-C ends it)")
        if open_browser:
            webbrowser.open(server.url)
        # Ctrl-C and a plain kill end it alike, also where it was started in the background of a script.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0
