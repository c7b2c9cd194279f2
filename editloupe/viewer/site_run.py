"""One run on a site: its reader, its pictures, and where its pages lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from editloupe.errors import ConfigError
from editloupe.scores import Metric
from editloupe.viewer.pictures import Pictures
from editloupe.viewer.reader import RunReader


@dataclass(frozen=True, kw_only=True)
class SiteRun:
    """One run on a site."""

    reader: RunReader
    folder: str = ""
    """Its part of every address: "" or "NAME/"."""

    @cached_property
    def pictures(self) -> Pictures:
        return Pictures(self.reader.folder, self.reader.inside)

    @property
    def metrics(self) -> dict[str, Metric]:
        """As the run wrote them down; empty if they cannot be read, which its tables then say."""
        try:
            return self.reader.info.metrics()
        except ConfigError:
            return {}

    @property
    def judges(self) -> dict[str, str]:
        """Short names by id of those who have the role "judge", else of everybody."""
        names, mains = self.reader.judge_names(), self.reader.info.judges()
        return {id_: name for id_, name in names.items() if id_ in mains} or names

    @property
    def asked(self) -> str:
        """The protocol, its rubric if that has another name, and its mode."""
        info = self.reader.info
        try:
            rubric = info.metric_set().id
        except ConfigError:
            rubric = ""
        named = "" if rubric in ("", info.protocol) else f"rubric {rubric}"
        return ", ".join(filter(None, (info.protocol, named, f"mode {info.mode}" if info.mode else "")))
