"""Write the pages as files: a folder that opens in a browser without a server, and that can be sent to somebody."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from editloupe import files
from editloupe.errors import ConfigError, StorageError
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunSample, SiteRun
from editloupe.viewer.render import assets
from editloupe.viewer.rows import thumbs

MARKER: Final = ".editloupe-pages"
"""Names every file that was written here, a line each; the next export deletes these, and nothing else."""

_PICTURE: Final = re.compile(r'"\.\./(blobs/[0-9a-f]{2}/[0-9a-f]{64}\.[a-z]+)"')


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written."""

    index: Path
    """The page to open."""
    pages: int
    pictures: int
    size_bytes: int


def export(site: Site, out: Path, *, progress: Callable[[int, int], None] = lambda done, total: None) -> Exported:
    """Write every page of a site below `out`, with the pictures and traces that they show, in the place of older pages.

    progress: called with (samples done, of all). Raises ConfigError where the folder holds other things, StorageError.
    """
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARKER).is_file())):
        raise ConfigError(f"{out} holds other files; name an empty or a new folder with --html")
    writer = _Writer(site, out)
    try:
        writer.clear()
        for name in assets():
            writer.put(f"static/{name}")
        total, done = sum(run.reader.counts()[0] for run in site.runs), 0
        for run in site.runs:
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
    finally:
        with suppress(OSError):
            writer.mark()
    pictures = sum("/blobs/" in f"/{name}" or "/thumbs/" in f"/{name}" for name in writer.written)
    pages = sum(name.endswith(".html") for name in writer.written)
    return Exported(index=out / "index.html", pages=pages, pictures=pictures, size_bytes=sum(writer.written.values()))


def _sample(writer: _Writer, run: SiteRun, sample: RunSample) -> None:
    page = writer.put(f"{run.folder}samples/{sample.slug}.html").decode()
    # The page's own links say which pictures it shows; text cannot look like one, since its quotes are escaped.
    for address in _PICTURE.findall(page):
        writer.put(f"{run.folder}{address}")
    for name in filter(None, thumbs(sample, run.pictures)):
        writer.put(f"{run.folder}thumbs/{name[:2]}/{name}")
    named = [f.trace for f in sample.findings if f.trace]
    for trace in (*named, *(fork for name in named for fork in run.reader.forks(name))):
        data = run.reader.trace(trace)
        if data is not None:
            writer.write(f"{run.folder}{trace}", data)


class _Writer:
    """Files below one folder, each whole or not at all."""

    def __init__(self, site: Site, out: Path) -> None:
        self._site, self._out = site, out
        self.written: dict[str, int] = {}
        """Name → bytes."""

    def clear(self) -> None:
        """Delete what an earlier export wrote. Raises OSError, also where a link would lead out of the folder."""
        if (self._out / MARKER).exists():
            for name in files.read_bytes(self._out / MARKER).decode("utf-8", "replace").splitlines():
                with suppress(FileNotFoundError):
                    files.unlink(self._out / name, below=self._out)
        self.mark()

    def mark(self) -> None:
        """Write down what was written."""
        files.write_whole(self._out / MARKER, "".join(f"{name}\n" for name in self.written).encode(), below=self._out)

    def put(self, address: str) -> bytes:
        """Write what the site has at an address, once, and return it; b"" if there is nothing, or it is written."""
        found = None if address in self.written else self._site.at(address)
        if found is None:
            return b""
        self.write(address, found.body)
        return found.body

    def write(self, name: str, data: bytes) -> None:
        files.write_whole(self._out / name, data, below=self._out)
        self.written[name] = len(data)
