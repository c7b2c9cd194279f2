"""The engine of sets that ask nobody: each item is made once, kept in a journal, or left out with its reason."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Final

from editloupe import files
from editloupe.build.base import LEFT_OUT, Built, LeftOut
from editloupe.errors import ConfigError
from editloupe.measures.base import Models
from editloupe.protocols.base import Options
from editloupe.runs.jsonl import appended, values
from editloupe.values import Json, json_line

DONE: Final = "done.jsonl"
"""What was made of each item, by which the same command continues."""


class DoneJournal:
    """What was made so far, a line an item, with the files that it needs in `images`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._file, self._adding = folder, folder / DONE, Lock()
        with files.writing(folder):
            appended(self._file, below=folder).close()
            # What a damaged line says is made again.
            rows = values(DONE, files.open_plain(self._file), dict, [], growing=False)
            self._done: dict[str, Mapping[str, Any]] = {str(row.get("key")): row for row in rows}

    def done(self, key: str) -> Mapping[str, Any] | None:
        """Return what was made of an item before, if its images are still there; None where it has to be made."""
        found = self._done.get(key)
        return found if found and all((self.folder / name).is_file() for name in found.get("images", ())) else None

    def add(self, key: str, made: Mapping[str, Json]) -> Mapping[str, Any]:
        """Keep what was made of an item. Raises StorageError."""
        with self._adding, files.writing(self.folder), appended(self._file, below=self.folder) as file:
            file.write(json_line({"key": key, **made}))
            self._done[key] = made
        return made


@dataclass(frozen=True, kw_only=True)
class WorkItem:
    """One thing that may become rows."""

    about: Mapping[str, Json]
    """What left_out.jsonl calls it."""
    make: Callable[[], Mapping[str, Any]]
    """Returns the rows, and in `images` the files that they name. Raises LeftOut."""
    key: str = ""
    """What names it and all that it is made of; "" for one that is not kept."""

    @classmethod
    def refused(cls, about: Mapping[str, Json], why: str, detail: str = "", *, at: str = "read") -> WorkItem:
        """Return one that cannot be used."""

        def make() -> Mapping[str, Any]:
            raise LeftOut(why, detail, at=at)

        return cls(about=about, make=make)


@dataclass(kw_only=True)
class Worked:
    """What came of all items."""

    made: list[Mapping[str, Any]] = field(default_factory=list)
    """What is kept, with `why` where it is no row."""
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(stage, why) → how many."""
    left_out: list[dict[str, Json]] = field(default_factory=list)

    def add(self, item: WorkItem, made: Mapping[str, Any]) -> None:
        """Add what was made of an item."""
        self.made.append(made)
        self.left_out += made.get("faults", ())
        if made.get("why"):
            self.lost[made["at"], made["why"]] += 1
            told = {"stage": made["at"], "why": made["why"], "detail": made["detail"]}
            self.left_out.append({**item.about, **told})

    @property
    def written(self) -> list[Mapping[str, Any]]:
        """What becomes rows."""
        return [one for one in self.made if not one.get("why")]


class DirectRecipe(ABC):
    """A recipe that asks nobody: what may become rows, and what is written of those that do."""

    summary: ClassVar[str]
    """What the command does, for `--help`."""
    reads: ClassVar[str]
    """What the command's PATH is, for `--help`."""
    default: ClassVar[Path | None] = None
    """What is read without a PATH."""
    weights: ClassVar[Sequence[str]] = ()
    """Options of a run by which its models are found, such as "device" and "detector"."""
    Options: ClassVar[type[Options]] = Options
    """What the command offers beside these."""
    noun = unit = "row"
    """What a row is, and what may become one."""
    passes: Mapping[str, str]
    """Stages, in their order: name → what passes, in words."""
    keeps: ClassVar[bool] = False
    """Whether what was made is kept in a journal."""
    threads: int = 1

    def __init__(self, path: Path, options: Any, *, models: Models, folder: Path) -> None:
        """models: the door to models, with the weights that the command names.   folder: of the set."""
        self.path, self.options, self.models, self.folder = path, options, models, folder
        self.open()

    def open(self) -> None:  # noqa: B027 - nothing to read
        """Read what the path holds, and open the models.

        Raises DataError or ConfigError for what cannot be used as a whole: nothing is written by then.
        """

    @classmethod
    def opened(cls, path: Path, options: Any, *, models: Models, folder: Path) -> DirectRecipe:
        """Return the recipe for a path; one of several where the options choose. Raises as the constructor."""
        if lacking := sorted(cls.__abstractmethods__):
            raise ConfigError(f"recipe {cls.__name__} lacks {', '.join(lacking)}: every DirectRecipe has them")
        return cls(path, options, models=models, folder=folder)

    @abstractmethod
    def items(self, stopped: Callable[[], bool], tell: Callable[[str], None]) -> Sequence[WorkItem] | None:
        """Return what may become rows; None where it was stopped before that was known."""

    @abstractmethod
    def write(self, worked: Worked) -> dict[str, Json]:
        """Write the rows, each file whole, and return what funnel.json counts beside the stages.

        The same input and options give the same files.
        """

    def notes(self) -> Sequence[str]:
        """Return what a reader should know of a set that is written."""
        return ()

    def build(self, stopped: Callable[[], bool], tell: Callable[[str], None]) -> Built | None:
        """Make what is not made yet, write the set and return what it holds; None where it was stopped before.

        A further call continues. What may go otherwise another time (`LeftOut.failed`) is left out and not kept.
        stopped: whether to end now.   tell: shows how far it is, on one line.   Raises StorageError.
        """
        items = self.items(stopped, tell)
        if items is None:
            return None
        worked, journal = Worked(), DoneJournal(self.folder) if self.keeps else None
        with ThreadPoolExecutor(self.threads) as pool:
            several = pool.map(lambda item: None if stopped() else _made(item, journal), items)
            for number, (item, made) in enumerate(zip(items, several, strict=True), start=1):
                if made is None:
                    return None
                tell(f"{self.unit.capitalize()} {number:,} of {len(items):,}")
                worked.add(item, made)
        with files.writing(self.folder):
            counts = self.write(worked)
            files.write_whole(self.folder / LEFT_OUT, b"".join(map(json_line, worked.left_out)), below=self.folder)
        return Built(
            read=len(items),
            written=len(worked.written),
            noun=self.noun,
            unit=self.unit,
            passes=self.passes,
            lost=worked.lost,
            counts=counts,
            notes=(*self.notes(), *([] if worked.written else [f"{LEFT_OUT} says why nothing is written."])),
        )


def _made(item: WorkItem, journal: DoneJournal | None) -> Mapping[str, Any]:
    """Return what was made of an item before, or is made now."""
    keeps = journal if item.key else None
    if keeps is not None and (known := keeps.done(item.key)):
        return known
    try:
        made = item.make()
    except LeftOut as error:
        made = {"why": error.why, "at": error.at or "read", "detail": str(error), **error.told}
        keeps = None if error.failed else keeps
    return made if keeps is None else keeps.add(item.key, made)
