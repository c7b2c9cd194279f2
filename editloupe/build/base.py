"""What a builder offers: a data set that is made from images, for `editloupe build NAME`.

A builder is an object, or a class without arguments, behind the entry point group `editloupe.builders`. Of one kind, a
protocol asks what has to be asked, into a run, and the builder writes the set from the run's findings (`Builder`;
`made.SetBuilder` makes one of a recipe). The other asks nobody (`DirectBuilder`, with `protocol = None`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

from pydantic import BaseModel

from editloupe import models, plugins
from editloupe.data.images import ImageStore
from editloupe.data.rows import RejectedRow
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, ModelAbsent
from editloupe.findings import Finding
from editloupe.measures.base import Models
from editloupe.protocols.base import EvalProtocol, Known, known_of
from editloupe.values import Json, Sample


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A run that has ended, as a builder reads it."""

    identity: str
    """Digest of what makes the run the same run."""
    protocol: EvalProtocol
    samples: Sequence[Sample]
    rejected: Sequence[RejectedRow]
    """Images that cannot be read."""
    findings: Sequence[Finding]
    images: ImageStore

    def known(self) -> Iterator[tuple[Sample, Known]]:
        """Yield each sample with its findings, in the order of the samples."""
        found: dict[str, list[Finding]] = {}
        for finding in self.findings:
            found.setdefault(finding.sample_key, []).append(finding)
        for sample in self.samples:
            yield sample, known_of(found.get(sample.key, ()))


class LeftOut(Exception):
    """Says why something becomes no row: raised at the stage where it ends, and kept for left_out.jsonl.

    why: for programs, such as "not_found", or the status of a finding.
    failed: the status of a failure, which leaves open whether there is a row: it may go otherwise another time.
    at: the stage, by the name that the funnel has for it.   told: what else is known of it.
    """

    def __init__(
        self, why: str, detail: str = "", *, failed: str = "", at: str = "", told: Mapping[str, Json] | None = None
    ) -> None:
        self.why, self.failed, self.at, self.told = why.replace(" ", "_"), failed, at, dict(told or {})
        super().__init__(detail)

    def kept(self, stage: str) -> LeftOut:
        """Return it with its stage, and without the frames that it came through."""
        self.at = stage
        return self.with_traceback(None)

    def to_json(self) -> dict[str, Json]:
        """Return it as a line of left_out.jsonl has it."""
        return {"stage": self.at, "why": self.why, "detail": str(self)}


@dataclass(kw_only=True)
class SetTold:
    """What is said of a set beside its stages."""

    counts: dict[str, Json] = field(default_factory=dict)
    """For funnel.json."""
    tables: list[Sequence[Sequence[str]]] = field(default_factory=list)
    """What else is printed: each a head and lines of cells."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know of the set."""


@dataclass(kw_only=True)
class Built(SetTold):
    """A set that has been written."""

    read: int
    """Images, or what `unit` says."""
    written: int
    """Rows of the set."""
    noun: str
    """What a row is, for example "chain"."""
    unit: str = "image"
    """What is read, one by one, for example "pair"."""
    passes: Mapping[str, str]
    """Stages, in their order: name → what passes, in words."""
    lost: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(stage, why) → how many do not pass."""

    def funnel(self) -> dict[str, Json]:
        """Return the counts as JSON. What enters a stage is what the one before let pass."""
        left, stages = self.read, list[Json]()
        for name, passes in self.passes.items():
            lost = {why: n for (at, why), n in sorted(self.lost.items()) if at == name}
            out = left - sum(lost.values())
            stages.append({"stage": name, "passes": passes, "in": left, "out": out, "left_out": {**lost}})
            left = out
        return {"read": self.read, "stages": stages, "written": self.written, "dropped": self.read - left, **self.counts}


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """What one person said of a row of a set, as a builder reads it from a run in which people looked through the set."""

    sample: Sample
    """The row as it was shown."""
    rater: str
    said: Mapping[str, Finding]
    """By question, the latest of each."""


class Builder(Protocol):
    """The contract of a builder that asks.

    One whose sets people look through has `review: ClassVar[str]` too, the protocol by which they do, and
    `reviewed(loaded: Loaded, reviews: Sequence[Reviewed]) -> Loaded`, which returns the images with what people said of
    their rows. Its command has the option --review RUN.
    """

    summary: ClassVar[str]
    """What the command does, for `--help`."""
    protocol: ClassVar[str]
    """The protocol that asks. A builder with `weights = ("editor",)` is given an editor by --set editor=…."""
    Options: ClassVar[type[BaseModel]]
    """What the command offers beside the options of a run. Those that the protocol's options have too are passed on."""

    def check(self, options: Any, models: Models) -> None:
        """Raise ConfigError for options that cannot be met. Called before anything is spent."""

    def load(self, path: Path, options: Any, *, store: ImageStore, folder: Path) -> Loaded:
        """Return the images of a path as samples. folder: of the set. Raises DataError or ConfigError."""

    def write(self, run: Answered, options: Any, *, folder: Path) -> Built:
        """Write the set into its folder, each file whole. The same findings give the same files. Raises StorageError."""


class DirectBuilder(Protocol):
    """The contract of a builder that asks nobody."""

    summary: ClassVar[str]
    protocol: ClassVar[None]
    """None: nobody is asked."""
    reads: ClassVar[str]
    """What the command's PATH is, for `--help`."""
    weights: ClassVar[Sequence[str]]
    """Options of a run by which its models are found, such as "device" and "detector"; () for none."""
    Options: ClassVar[type[BaseModel]]
    """What the command offers beside these."""

    def build(
        self, path: Path, options: Any, *, models: Models, folder: Path, stopped: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> Built | None:  # fmt: skip
        """Write the set into its folder, each file whole, and return what it holds. None where it was stopped before.

        A further call continues. The same input and options give the same files.
        models: the door to models, with the weights that the command names.   stopped: whether to end now.
        tell: shows how far it is, on one line.
        Raises DataError or ConfigError for what cannot be used as a whole, before it writes; StorageError.
        """


def open_builder(name: str) -> Builder | DirectBuilder:
    """Return a builder by name. Raises UnknownPlugin, and ConfigError for an object that lacks a part."""
    found: Any = plugins.load("builders", name)
    parts = ["summary", "protocol", "Options", "check", "load", "write"]
    if getattr(found, "protocol", "") is None:
        parts = ["summary", "protocol", "reads", "weights", "Options", "build"]
    if hasattr(found, "review"):
        parts.append("reviewed")
    if missing := [part for part in parts if not hasattr(found, part)]:
        raise ConfigError(f"{plugins.described('builders', name)} lacks {', '.join(missing)}; see docs/protocols.md")
    return cast("Builder | DirectBuilder", found() if isinstance(found, type) else found)


def need(models_: Models, kind: str, advice: str) -> Any:
    """Return a model, ready to be used. Raises ConfigError where it cannot be had.

    advice: the message; {reason} stands for why there is none.
    """
    try:
        model = models_.get(kind)
        models.prepare(model)
    except ModelAbsent as reason:
        raise ConfigError(advice.format(reason=reason)) from reason
    return model


def counted(count: Mapping[str, int]) -> dict[str, Json]:
    """Return counts as JSON, in the order of their names."""
    return dict(sorted(count.items()))


def json_text(value: Json) -> bytes:
    """Return a file of JSON that a person reads too. Half a surrogate pair becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1).encode("utf-8", "replace") + b"\n"
