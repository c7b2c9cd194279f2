"""Runs as folders: which there are, and the pictures that nothing in them names any more."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from editloupe import files
from editloupe.data.run_file import NAME
from editloupe.errors import ConfigError, EditLoupeError
from editloupe.runs.contents import RunContents
from editloupe.runs.index import FINDINGS, RunIndex
from editloupe.runs.judges import names_of
from editloupe.values import Json

_SHA = re.compile(rb"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One run."""

    folder: Path
    judges: Mapping[str, str] = field(default_factory=dict)
    """Judge id → name (`names_of`)."""
    mode: str = ""
    """The protocol's option of this name; "" if it has none."""
    tags: tuple[str, ...] = ()
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
        return {
            "run": str(self.folder),
            "judges": list(self.judges.values()),
            "mode": self.mode,
            "tags": list(self.tags),
            "samples": self.samples,
            "asked": self.asked,
            "statuses": dict(self.statuses),
            "written": self.written,
            "problem": self.problem,
        }


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
            tags=run.tags,
            samples=index.samples(),
            asked=index.asked(run.judges()),
            statuses=index.statuses(),
            written=(findings if findings.exists() else folder / NAME).stat().st_mtime,
        )
    except (EditLoupeError, OSError) as error:
        return Listed(folder=folder, statuses={}, problem=str(error))


def orphans(folder: Path) -> dict[Path, int]:
    """Return pictures that nothing in the run names, and what a killed process left half written: path → bytes.

    Any 64 hex digits in the run's files count as a name, in those set aside too: a picture too many is kept rather than
    one too few. Files of other names are left alone.
    """
    # Before any text is read: a picture that is written meanwhile is not among them.
    unnamed = {sha for sha, _ in _pictures(folder)}
    found = []
    for where, _, names in os.walk(folder):
        found += [Path(where, name) for name in names if name.startswith(files.PART)]
        for path in (Path(where, name) for name in names if ".json" in name):
            with files.open_plain(path) as file:
                for line in file:
                    unnamed.difference_update(_SHA.findall(line))
    found += [path for sha, path in _pictures(folder) if sha in unnamed]
    return {path: seen.st_size for path in sorted(found) if stat.S_ISREG((seen := path.lstat()).st_mode)}


def _pictures(folder: Path) -> Iterator[tuple[bytes, Path]]:
    """Yield the SHA-256 in the name of each picture of a run, and its path. There may be a million."""
    for path in folder.glob("blobs/*/*"):
        if _SHA.fullmatch(sha := path.stem.encode("utf-8", "replace")):
            yield sha, path


def remove(found: Iterable[Path], folder: Path) -> None:
    """Delete files of a run folder. Raises StorageError."""
    with files.writing(folder):
        for path in found:
            files.unlink(path, below=folder)


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
