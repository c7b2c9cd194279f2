"""Runs as folders: which there are, and how their files are brought together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from editloupe import files
from editloupe.data.run_file import NAME
from editloupe.errors import ConfigError, EditLoupeError
from editloupe.runs.contents import RunContents
from editloupe.runs.index import FINDINGS, RunIndex
from editloupe.runs.judges import names_of
from editloupe.values import Json


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One run."""

    folder: Path
    judges: Mapping[str, str] = field(default_factory=dict)
    """Judge id → name (`names_of`)."""
    mode: str = ""
    """The protocol's option of this name; "" if it has none."""
    samples: int = 0
    asked: int = 0
    """Samples about which every judge was asked."""
    statuses: Mapping[str, int]
    """Status → current findings."""
    written: float = 0.0
    """Seconds since 1970."""
    problem: str = ""
    """The reason why nothing more is known of it; "" for a sound run."""

    def to_json(self) -> dict[str, Json]:
        """Return JSON for programs."""
        own: dict[str, Json] = {name: value for name, value in vars(self).items() if name != "folder"}
        judges, statuses = list(self.judges.values()), dict(self.statuses)
        return {"run": str(self.folder), **own, "judges": judges, "statuses": statuses}


def runs_below(folder: Path) -> Iterator[Listed]:
    """Yield every run at or below `folder`, by name, without searching inside runs. Raises ConfigError: no folder."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; name the one that your runs are in")
    for where, folders, names in os.walk(folder):
        folders.sort()
        if NAME in names:
            folders.clear()
            yield _listed(Path(where))


def _listed(folder: Path) -> Listed:
    try:
        run, index, findings = RunContents.read_info(folder), RunIndex(folder), folder / FINDINGS
        return Listed(
            folder=folder,
            judges=names_of(run.info.get("judges")),
            mode=run.mode,
            samples=index.samples(),
            asked=index.asked(run.judges()),
            statuses=index.statuses(),
            written=(findings if findings.exists() else folder / NAME).stat().st_mtime,
        )
    except (EditLoupeError, OSError) as error:
        return Listed(folder=folder, statuses={}, problem=str(error))


def bring(source: Path, target: Path, *, link: bool) -> int:
    """Copy every file below `source` to `target`, a folder of a run; what is there already stays. Return how many are new.

    link: as hard links where the disk allows it, for files that nobody ever writes to again, such as pictures.
    Raises StorageError.
    """
    new = 0
    with files.writing(target):
        # Folder by folder: there may be a million files.
        for where, folders, names in os.walk(source):
            folders.sort()
            into = target / Path(where).relative_to(source)
            there = {path.name for path in into.iterdir()} if into.is_dir() else set()
            for name in sorted(set(names) - there):
                path = Path(where, name)
                if path.is_symlink() or not path.is_file():
                    continue
                if link:
                    files.link_or_copy(path, into / name, below=target.parent)
                else:
                    files.write_whole(into / name, files.read_bytes(path), below=target.parent)
                new += 1
    return new
