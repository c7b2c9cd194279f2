"""The mapping file of a benchmark's result files: how they say each metric, and which numbers are no verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from editloupe.answers import Answer, Number, Record
from editloupe.data.outputs import Texts
from editloupe.data.tables import shown
from editloupe.tasks import Status
from editloupe.values import Json, Sample, finite


class _ResultPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_ResultPart):
    """How files say one metric, or several that one question answers."""

    value: str = ""
    reason: str = ""
    low: float = 0
    high: float = 1
    whole: bool = False
    """Whether only whole numbers are on the scale."""
    lines: str = ""
    """Of a value that is a reply: the lines with a number, as a regular expression; the score is their mean."""
    count: int = 0
    """How many such lines there are."""
    record: dict[str, tuple[str, float, float]] = Field(default_factory=dict)
    """In place of a value: metric → its field, and its lowest and highest number."""
    none: tuple[Status, str] = ("unparsed", "")
    """What a value that is absent says, and why."""
    zeros: tuple[tuple[str, Status, str], ...] = ()
    """What a 0 with a reason like this is in truth."""
    only: dict[str, str] = Field(default_factory=dict)
    """Column of the sample → what it holds where the metric applies."""
    asked_with: str = ""
    """A field that is empty where the script asked without it, so that the score is no verdict."""
    optional: bool = False
    """Whether an entry need not have it."""
    of_some: bool = False
    """Whether only some edits have it, and nobody knows which."""
    shown: dict[str, Any] = Field(default_factory=dict)
    """Name, short name and concern of the metric, where the protocol `published` has it."""

    def applies(self, sample: Sample) -> bool:
        return all(sample.extra.get(name) == value for name, value in self.only.items())

    def stands_in(self, row: Mapping[str, Json]) -> bool:
        return not self.optional or any(name in row for name in self.names)

    @property
    def names(self) -> list[str]:
        """The fields that hold the numbers."""
        return [name for name, *_ in self.record.values()] or [self.value]

    def numbers(self, row: Mapping[str, Json]) -> list[Json]:
        """Return the numbers that a row has for a value: several of a reply in lines, else one, whatever it is."""
        value = row.get(self.value)
        if not self.lines:
            return [value]
        lines = value.splitlines() if isinstance(value, str) else ()
        return [int(found[1]) for line in lines if (found := re.fullmatch(self.lines, line.strip(), re.ASCII))]

    def as_written(self, row: Mapping[str, Json]) -> float | None:
        """Return the number that the script counts."""
        numbers = [one for one in map(written, self.numbers(row)) if one is not None]
        return None if not numbers else round(fmean(numbers), 2) if self.lines else numbers[0]


class Means(_ResultPart):
    """The means as the script computes them."""

    dims: dict[str, str] = Field(default_factory=dict)
    digits: int | None = None
    overall: str = ""
    """The field of the overall score; "geometric" where it is the geometric mean of the others."""


class ResultMapping(_ResultPart):
    """A mapping file of result files. Its names are columns, `key`, groups of `path`, and texts with these in braces."""

    layout: str
    """Of the data that was judged."""
    protocol: str = "published"
    options: dict[str, Any] = Field(default_factory=dict)
    rules: dict[str, Any] = Field(default_factory=dict)
    """How the script judged: recorded with the run, and no option of the protocol."""
    where: str
    """What is looked for, in words."""
    files: str
    path: str
    """A regular expression for the path of a file, with the groups `editor` and, where there are several, `judge`."""
    group: Texts = ()
    """Groups of `path` by which notes are kept apart, and samples chosen: a sample has them as columns."""
    sample: str = ""
    instruction: str = ""
    needs: Texts = ()
    doubts: tuple[tuple[str, str], ...] = ()
    """Scores of which nobody can tell if they are verdicts: a pattern of "VALUE REASON", and what a note says of them."""
    metrics: dict[str, Rule] = Field(default_factory=dict)
    published: Means | None = None


@dataclass(frozen=True, kw_only=True)
class ResultSaid:
    """What an entry says of one metric."""

    metric: str
    status: Status
    answer: Answer | None = None
    """None unless the status is ok."""
    reason: str = ""
    kind: str = ""
    """What is wrong with it, in words that many entries share; "" for nothing."""
    turn: int = 0
    part: str = ""


def read_said(metric: str, rule: Rule, row: Mapping[str, Json]) -> ResultSaid:
    """Return what a row says of a metric: a finite number on its scale, or a status that says why it is none."""
    value, said = row.get(rule.value), row.get(rule.reason)
    reason = said if isinstance(said, str) else ""

    def no(status: Status, kind: str, more: str = "") -> ResultSaid:
        text = "; ".join(filter(None, (kind + (f": {more}" if more else ""), reason)))
        return ResultSaid(metric=metric, status=status, reason=text, kind=kind)

    if rule.record:
        return _record(metric, rule, row)
    if rule.asked_with and row.get(rule.asked_with) == "":
        return no("input_error", f"asked without the {rule.asked_with}", f"the script wrote {value!r}")
    if isinstance(value, Mapping) and "error" in value:
        return no("backend_failed", "an error in place of the reply", str(value["error"]))
    numbers = rule.numbers(row)
    if rule.lines and len(numbers) != rule.count:
        return no("unparsed", f"{len(numbers)} of {rule.count} aspects have a number")
    if value is None:
        return no(rule.none[0], rule.none[1] or f"the row has no {rule.value}")
    given = [one for one in map(finite, numbers) if one is not None]
    if len(given) < len(numbers):
        return no("unparsed", f"{rule.value} is no number", shown(value))
    if not all(rule.low <= one <= rule.high and (one.is_integer() or not rule.whole) for one in given):
        more = "" if rule.lines else str(value)
        return no("off_menu", f"{rule.value} is off the scale of {rule.low:g} to {rule.high:g}", more)
    for pattern, status, what in rule.zeros if given == [0] else ():
        if re.search(pattern, reason):
            text = f"{what}; the official script counts it as 0; {reason}"
            return ResultSaid(metric=metric, status=status, reason=text, kind=what)
    return ResultSaid(metric=metric, status="ok", answer=Number(value=sum(given) / len(given)), reason=reason)


def _record(question: str, rule: Rule, row: Mapping[str, Json]) -> ResultSaid:
    """Return one number, or a record of several; one that is off its scale takes no other along."""
    given = {metric: finite(row.get(name)) for metric, (name, *_) in rule.record.items()}
    found = {
        metric: number if number is not None and low <= number <= high else None
        for (metric, number), (_, low, high) in zip(given.items(), rule.record.values(), strict=True)
    }
    wrong = [one for one, (name, *_) in rule.record.items() if found[one] is None and row.get(name) is not None]
    kind = ", ".join(f"{metric} that is no number on its scale" for metric in wrong)
    numbers = [number for number in found.values() if number is not None]
    if not numbers:
        status: Status = "unparsed" if wrong else "not_defined"
        return ResultSaid(metric=question, status=status, reason=kind or f"the file has no {', '.join(found)}", kind=kind)
    answer = Number(value=numbers[0]) if len(found) == 1 else Record(data=dict(found))
    return ResultSaid(metric=question, status="ok", answer=answer, kind=kind)


def written(value: Json) -> float | None:
    """Return a number, which need not be finite; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def geometric(numbers: Sequence[float | None]) -> float | None:
    """Return a geometric mean, zeros included; None where it is no number, or a part of it is absent."""
    given = [number for number in numbers if number is not None]
    product = math.prod(given) if given and len(given) == len(numbers) else math.nan
    return float(product ** (1 / len(given))) if math.isfinite(product) and product >= 0 else None
