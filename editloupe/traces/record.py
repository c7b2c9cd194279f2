"""Write a trace: append one event per line and flush it. A killed process loses at most the line being written."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from editloupe import files
from editloupe.findings import Finding
from editloupe.traces.events import End, Event, FindingEvent
from editloupe.traces.read import complete_lines, lines_digest, parse_lines
from editloupe.values import compact_bytes, digest


class TraceWriter:
    """Appends events to one file, or to memory alone if `path` is None.

    below: the run folder; from there on no link is followed. None stands for the file's own folder.

    Opening an existing file cuts off a torn last line and reads the others into `events`. `problems` says what cannot be
    read, `tampering` what was changed after it was recorded; `name` is the path below the run folder.
    Raises TraceError for a file of a newer schema.
    """

    def __init__(self, path: Path | None, *, below: Path | None = None) -> None:
        self.path = path
        self.name = None if path is None or below is None else str(path.relative_to(below))
        self.events: list[Event] = []
        self.problems: list[str] = []
        self.tampering: list[str] = []
        self._file: BinaryIO | None = None
        self._lines: list[bytes] = []
        if path is None:
            return
        file = files.append(path, below=below or path.parent)
        try:
            file.seek(0)
            self._lines, end = complete_lines(file.read())
            self.events, self.problems, self.tampering = parse_lines(self._lines, name=path.name)
            file.truncate(end)
        except BaseException:
            file.close()
            raise
        self._file = file

    def append(self, event: Event) -> None:
        """Append one event."""
        self.events.append(event)
        if self._file is not None:
            # Events hold JSON and nothing else, so that there is nothing to convert.
            line = compact_bytes({name: getattr(event, name) for name in type(event).model_fields})
            self._file.write(line + b"\n")
            self._file.flush()
            self._lines.append(line)

    def finish(self, finding: Finding) -> None:
        """Append the finding, and the end with the digests of the finding and of all that is written."""
        data = finding.to_json()
        self.append(FindingEvent(finding=data))
        lines = None if self.path is None else lines_digest(self._lines)
        self.append(End(finding_digest=digest(data), lines_digest=lines))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
