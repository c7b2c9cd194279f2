"""Runs as folders: which there are, and the pictures that nothing in them names any more."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editloupe import files
from editloupe.data.run_file import NAME, read_run_file
from editloupe.errors import ConfigError, EditLoupeError, StorageError
from editloupe.runs.index import FINDINGS, RunIndex
from editloupe.runs.judges import names_of
from editloupe.values import Json

_FILES = frozenset((".json", ".jsonl", ".yaml"))
"""Endings of the files at the top of a run folder."""
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


def check_contents(folder: Path) -> None:
    """Raise ConfigError for a link, a pipe or a device in a run folder: what it leads to is not the run's.

    A run may come from anybody. Only the entries are looked at, no file is opened.
    """
    pending = [str(folder)]
    while pending:
        current = pending.pop()
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if current == str(folder) and Path(entry.name).suffix in _FILES:
                            raise ConfigError(f"{entry.path} is a folder; expected a file of the run")
                        pending.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        kind = "a link" if entry.is_symlink() else "no plain file"
                        raise ConfigError(
                            f"{entry.path} is {kind}; a run folder holds only its own files and folders. If you trust it, "
                            "put a copy of what it stands for in its place"
                        )
        except (FileNotFoundError, NotADirectoryError):
            continue  # a run that is being written, or none
        except OSError as error:
            raise ConfigError(f"{current} cannot be read: {error.strerror or error}") from error


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
        check_contents(folder)
        info = read_run_file(folder)
        listed: Any = info.get("judges")
        judges = {id_: judge for id_, judge in (listed or {}).items() if isinstance(judge, Mapping)}
        asked = [id_ for id_, judge in judges.items() if judge.get("role", "judge") == "judge"]
        index, findings = RunIndex(folder), folder / FINDINGS
        return Listed(
            folder=folder,
            judges=names_of(judges),
            mode=_mode(info),
            tags=tags_of(info.get("record")),
            samples=index.samples(),
            asked=index.asked(asked),
            statuses=index.statuses(),
            written=(findings if findings.exists() else folder / NAME).stat().st_mtime,
        )
    except EditLoupeError as error:
        problem = str(error)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"run.json cannot be read as a run: {error!r}"
    return Listed(folder=folder, statuses={}, problem=problem)


def tags_of(record: object) -> tuple[str, ...]:
    """Return the words that the user gave a run, of what run.json records."""
    listed = record.get("tags") if isinstance(record, Mapping) else None
    return tuple(str(tag) for tag in listed) if isinstance(listed, list) else ()


def _mode(info: Mapping[str, Any]) -> str:
    options = (info.get("record") or {}).get("options") or {}
    return str(options.get("mode") or "")


@dataclass(frozen=True, kw_only=True)
class Orphan:
    """A picture that no trace, sample or finding names, or a file that is half written."""

    path: Path
    bytes: int
    """Its size."""


def orphans(folder: Path) -> list[Orphan]:
    """Return pictures that nothing in the run names, and what a killed process left half written, by path.

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
    return [Orphan(path=path, bytes=seen.st_size) for path in sorted(found) if stat.S_ISREG((seen := path.lstat()).st_mode)]


def _pictures(folder: Path) -> Iterator[tuple[bytes, Path]]:
    """Yield the SHA-256 in the name of each picture of a run, and its path. There may be a million."""
    for path in folder.glob("blobs/*/*"):
        if _SHA.fullmatch(sha := path.stem.encode("utf-8", "replace")):
            yield sha, path


def remove(found: Sequence[Orphan], folder: Path) -> None:
    """Delete files of a run folder. Raises StorageError."""
    for orphan in found:
        try:
            files.unlink(orphan.path, below=folder)
        except OSError as error:
            raise StorageError(f"{orphan.path} cannot be deleted: {error.strerror or error}") from error


def bring(source: Path, target: Path, *, link: bool) -> int:
    """Copy every file below `source` to `target`, a folder of a run; what is there already stays. Return how many are new.

    link: as hard links where the disk allows it, for files that nobody ever writes to again, such as pictures.
    Raises StorageError.
    """
    new = 0
    try:
        # Folder by folder: there may be a million files.
        for where, folders, names in os.walk(source):
            folders.sort()
            into = target / Path(where).relative_to(source)
            there = {path.name for path in into.iterdir()} if into.is_dir() else set()
            for name in sorted(set(names) - there):
                path = Path(where, name)
                if path.is_symlink() or not path.is_file():
                    continue
                place(path, into / name, link=link, below=target.parent)
                new += 1
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror or error}") from error
    return new


def same_file(one: Path, other: Path) -> bool:
    """Return whether both files exist with the same bytes."""
    return other.exists() and files.read_bytes(one) == files.read_bytes(other)


def place(source: Path, target: Path, *, below: Path, link: bool = False) -> None:
    """Copy one file, whole or not at all. link: as in `bring`.   below: the run folder of `target`. Raises OSError."""
    if link:
        files.link_or_copy(source, target, below=below)
    else:
        files.write_whole(target, files.read_bytes(source), below=below)
