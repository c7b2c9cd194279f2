"""Tables and plots as files: a CSV a table, an SVG a plot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from editloupe import files
from editloupe.errors import StorageError
from editloupe.figures import plots, render
from editloupe.stats.table import Table


def table_files(tables: Iterable[Table], below: str = "", *, drawn: bool = True) -> Iterator[tuple[str, str]]:
    """Yield (path, text): a CSV a table that has figures, an SVG a plot.

    below: what stands before each name.   drawn: False for no plots, which take most of the time.
    """
    for table in tables:
        if records := table.records():
            yield f"{below}{table.name}.csv", render.records_csv(records)
        for plot in table.plots if drawn and plots.available() else ():
            yield f"{below}{plot.name}.svg", plots.draw(plot)


def write_files(texts: Iterable[tuple[str, str]], folder: Path, *, below: Path | None = None) -> list[Path]:
    """Write (path below the folder, text) each.

    below: no link is followed from this folder on, such as the run's; None for `folder`.   Raises StorageError.
    """
    try:
        return [
            files.write_whole(folder / name, text.encode("utf-8", "backslashreplace"), below=below or folder)
            for name, text in texts
        ]
    except OSError as error:
        raise StorageError(f"the files cannot be written to {folder}: {error.strerror or error}") from error
