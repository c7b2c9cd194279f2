"""`editloupe export`: a run in another form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.output import err, out, plain


def export(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; several are shown side by side.")],
    html: Annotated[Path, typer.Option(metavar="DIR", help="Write pages that open without a server.")],
    prices: Annotated[Path | None, typer.Option(help="Prices (TOML) of models that no list has.")] = None,
) -> int:
    """Write a run as pages that can be kept and sent."""
    from editloupe.backends.prices import read_prices
    from editloupe.viewer.export import export as write
    from editloupe.viewer.index import RunIndex
    from editloupe.viewer.pages import Site

    site = Site.of([RunIndex(run) for run in runs], prices=read_prices(prices))
    with err().status("writing pages", spinner="line") as status:
        done = write(site, html, progress=lambda n, total: status.update(f"writing pages, {n:,} of {total:,} samples"))
    out().print(
        plain(f"{done.pages:,} pages and {done.pictures:,} pictures, {done.size_bytes / 1e6:.1f} MB; open {done.index}"),
        soft_wrap=True,
    )
    return 0
