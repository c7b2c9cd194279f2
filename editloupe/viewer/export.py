"""Write the pages as files: a folder that opens in a browser without a server, and that can be sent to somebody."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from editloupe.errors import ConfigError, StorageError
from editloupe.viewer.pages import Run, Site, asset, asset_names
from editloupe.viewer.reader import RunSample
from editloupe.viewer.rows import thumbs

MARKER: Final = ".editloupe-pages"
"""Lies in every folder that we wrote, and lets us write there again."""

_PICTURE: Final = re.compile(r'"\.\./blobs/([0-9a-f]{2}/[0-9a-f]{64}\.[a-z]+)"')


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
    writer = _Writer(out)
    try:
        writer.write(MARKER, b"editloupe wrote these pages; it may write them again.\n")
        for name in asset_names():
            writer.write(f"static/{name}", asset(name))
        total, done = sum(run.reader.counts()[0] for run in site.runs), 0
        for run in site.runs:
            # What was written here before may be of another run; a page that is not linked any more would mislead.
            for old in (out / run.folder / "samples").glob("*.html"):
                old.unlink()
            writer.text(f"{run.folder}rows.js", site.rows_script(run))
            for sample in run.reader.samples():
                _sample(writer, site, run, sample)
                done += 1
                progress(done, total)
            writer.text(f"{run.folder}report.html", site.report_page(run))
            for name, svg in site.numbers.plots(run.reader).items():
                writer.text(f"{run.folder}plots/{name}.svg", svg)
            # Last, so that a page that opens is a page that is whole.
            writer.text(f"{run.folder}index.html", site.run_page(run))
        compared = site.compare_page()
        if compared is not None:
            writer.text("compare.html", compared)
        if len(site.runs) > 1:
            writer.text("index.html", site.runs_page())
    except OSError as error:
        raise StorageError(f"{out} cannot be written: {error.strerror or error}") from error
    return Exported(index=out / "index.html", pages=writer.pages, pictures=writer.pictures, size_bytes=writer.size)


def _sample(writer: _Writer, site: Site, run: Run, sample: RunSample) -> None:
    page = site.sample_page(run, sample)
    writer.text(f"{run.folder}samples/{sample.slug}.html", page)
    # The page's own links say which pictures it shows; text cannot look like one, since its quotes are escaped.
    for address in dict.fromkeys(_PICTURE.findall(page)):
        if writer.missing(where := f"{run.folder}blobs/{address}") and (found := run.pictures.shown(address)):
            writer.write(where, found[0], picture=True)
    for name in filter(None, thumbs(sample.sample, run.pictures) if sample.sample else ()):
        if writer.missing(where := f"{run.folder}thumbs/{name[:2]}/{name}") and (thumb := run.pictures.thumb(name)):
            writer.write(where, thumb, picture=True)
    named = [f.trace for f in sample.findings if f.trace]
    for trace in (*named, *(fork for name in named for fork in run.reader.forks(name)), *sample.open):
        path = run.reader.inside(trace)
        if path is not None:
            writer.write(f"{run.folder}{path.relative_to(run.reader.folder).as_posix()}", path.read_bytes())


class _Writer:
    """Files below one folder, each whole or not at all, and what they add up to."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.pages = self.pictures = self.size = 0

    def missing(self, name: str) -> bool:
        return not (self._out / name).exists()

    def text(self, name: str, text: str) -> None:
        self.pages += name.endswith(".html")
        self.write(name, text.encode("utf-8", "backslashreplace"))

    def write(self, name: str, data: bytes, *, picture: bool = False) -> None:
        path = self._out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.part")
        temporary.write_bytes(data)
        temporary.replace(path)
        self.pictures += picture
        self.size += len(data)
