"""Write the pages as files: a folder that opens in a browser without a server, and that can be sent to somebody."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from editloupe import files
from editloupe.errors import ConfigError, StorageError
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunSample
from editloupe.viewer.render import assets
from editloupe.viewer.rows import thumbs
from editloupe.viewer.site_run import SiteRun

MARKER: Final = ".editloupe-pages"
"""Lies in every folder that we wrote, and lets us write there again."""

_PICTURE: Final = re.compile(r'"\.\./((?:blobs/[0-9a-f]{2}|overlays)/[0-9a-f]{64}\.[a-z]+)"')


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written."""

    index: Path
    """The page to open."""
    pages: int
    pictures: int
    size_bytes: int


def export(site: Site, out: Path, *, progress: Callable[[int, int], None] = lambda done, total: None) -> Exported:
    """Write every page of a site below `out`, with the pictures and traces that they show.

    progress: called with (samples done, of all). Raises ConfigError where the folder holds other things, StorageError.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARKER).exists())):
        raise ConfigError(f"{out} holds other files; name an empty or a new folder with --html")
    writer = _Writer(site, out)
    try:
        writer.write(MARKER, b"editloupe wrote these pages; it may write them again.\n")
        for name in assets():
            writer.put(f"static/{name}")
        total, done = sum(run.reader.counts()[0] for run in site.runs), 0
        for run in site.runs:
            # What was written here before may be of another run; a page that is not linked any more would mislead.
            for old in (out / run.folder / "samples").glob("*.html"):
                files.unlink(old, below=out)
            writer.put(f"{run.folder}rows.js")
            for sample in run.reader.samples():
                _sample(writer, run, sample)
                done += 1
                progress(done, total)
            writer.put(f"{run.folder}report.html")
            for name in site.numbers.plots(run.reader):
                writer.put(f"{run.folder}plots/{name}.svg")
            # Last, so that a page that opens is a page that is whole.
            writer.put(f"{run.folder}index.html")
        for name in ("compare.js", "compared.html", "compare.html", *(("index.html",) if site.listed else ())):
            writer.put(name)
    except OSError as error:
        raise StorageError(f"{out} cannot be written: {error.strerror or error}") from error
    return Exported(index=out / "index.html", pages=writer.pages, pictures=writer.pictures, size_bytes=writer.size)


def _sample(writer: _Writer, run: SiteRun, sample: RunSample) -> None:
    page = writer.put(f"{run.folder}samples/{sample.slug}.html").decode()
    # The page's own links say which pictures it shows; text cannot look like one, since its quotes are escaped.
    for address in dict.fromkeys(_PICTURE.findall(page)):
        writer.put_picture(f"{run.folder}{address}")
    for name in filter(None, thumbs(sample, run.pictures)):
        writer.put_picture(f"{run.folder}thumbs/{name[:2]}/{name}")
    named = [f.trace for f in sample.findings if f.trace]
    for trace in (*named, *(fork for name in named for fork in run.reader.forks(name))):
        data = run.reader.trace(trace)
        if data is not None:
            writer.write(f"{run.folder}{trace}", data)


class _Writer:
    """Files below one folder, each whole or not at all, and what they add up to."""

    def __init__(self, site: Site, out: Path) -> None:
        self._site, self._out = site, out
        self._pictures: set[str] = set()
        self.pages = self.pictures = self.size = 0

    def put(self, address: str) -> bytes:
        """Write what the site has at an address, and return it; b"" if there is nothing."""
        found = self._site.at(address)
        if found is None:
            return b""
        self.pages += address.endswith(".html")
        self.write(address, found.body)
        return found.body

    def put_picture(self, address: str) -> None:
        """Write a picture once."""
        if address not in self._pictures:
            self._pictures.add(address)
            self.pictures += bool(self.put(address))

    def write(self, name: str, data: bytes) -> None:
        files.write_whole(self._out / name, data, below=self._out)
        self.size += len(data)
