"""A leaderboard: a file with one line a judge, set of probes and mode, to which every trial adds or replaces its lines.

Markdown is for people: one table, between any other text. JSON holds the same lines for programs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from editloupe import files
from editloupe.errors import ConfigError, StorageError
from editloupe.reports.escape import markdown_row
from editloupe.reports.render import json_text
from editloupe.reports.trial import JudgeTrial, Trial
from editloupe.reports.trial_tables import each, rate_text, threshold_text
from editloupe.stats.bootstrap import Estimate
from editloupe.stats.threshold import Threshold
from editloupe.tables import NONE
from editloupe.values import Serialisable, parse_json

SCHEMA: Final = 1
_KEY: Final = ("judge", "mode", "set")
"""What a later trial replaces."""

_HEAD: Final = (
    "Judge", "Mode", "Set", "Probes", "Accuracy", "Threshold", "Leniency", "Nuisances", "Order", "Injection", "Repeats",
    "Not judged", "USD a probe",
)  # fmt: skip
_READING: Final = (
    "In percent with intervals (judged/asked). Accuracy and threshold by metric. Leniency: verdicts kinder than the truth "
    "less harsher ones. Nuisances, order: verdicts that they change. Injection: verdicts that a text in the image buys. "
    "Repeats: probes with one verdict in all. A line is the judge's last trial in this mode on this set of probes."
)


@dataclass(frozen=True, kw_only=True)
class MetricLine(Serialisable):
    """One metric of a line."""

    name: str
    """Short."""
    accuracy: Estimate
    threshold: Threshold


@dataclass(frozen=True, kw_only=True)
class Line(Serialisable):
    """One judge in one mode on one set of probes."""

    judge: str
    backend: str
    judge_id: str
    mode: str
    set: str
    """Digest of the probes."""
    probes: int
    plain: int
    rejected: int
    """Rows that were refused."""
    metrics: Mapping[str, MetricLine]
    """By the metric's id."""
    figures: Mapping[str, Estimate]
    """As in `trial.OVERALL`: leniency, nuisance, order, injection and others."""
    asked: int
    unjudged: Mapping[str, int]
    """Status → how many verdicts are missing for it."""
    usd_a_probe: float | None
    tokens_a_probe: float | None
    seconds_a_probe: float | None

    @property
    def key(self) -> tuple[str, str, str]:
        """As Markdown has it."""
        return self.judge, self.mode or NONE, self.set

    @property
    def cells(self) -> tuple[str, ...]:
        """The line as Markdown has it."""
        figures = self.figures
        missing = sum(self.unjudged.values())
        share = f"{100 * missing / self.asked:.1f} % ({missing}/{self.asked})" if self.asked else NONE
        return (
            *self.key,
            f"{self.probes} ({self.plain} plain{f', {self.rejected} refused' if self.rejected else ''})",
            "; ".join(f"{m.name} {rate_text(m.accuracy)}" for m in self.metrics.values()),
            "; ".join(f"{m.name} {threshold_text(m.threshold)}" for m in self.metrics.values()),
            rate_text(figures["leniency"], signed=True),
            rate_text(figures["nuisance"]),
            rate_text(figures["order"]),
            rate_text(figures["injection"], signed=True),
            rate_text(figures["consistency"]),
            share,
            NONE if self.usd_a_probe is None else f"{self.usd_a_probe:.3g}",
        )


@dataclass(frozen=True, kw_only=True)
class _Written(Serialisable):
    """What of a JSON file is read again."""

    schema: int
    lines: tuple[dict[str, Any], ...]


def lines_of(found: Trial) -> list[Line]:
    """Return a line for each judge of a trial."""
    titles = Counter((judge.title, judge.mode) for judge in found.judges)
    # Two that their runs call alike would replace each other.
    return [_line(found, j, j.title if titles[j.title, j.mode] == 1 else j.judge) for j in found.judges]


def _line(found: Trial, judge: JudgeTrial, name: str) -> Line:
    spent = judge.spent
    return Line(
        judge=name,
        backend=judge.backend,
        judge_id=judge.judge_id,
        mode=judge.mode,
        set=found.set,
        probes=judge.probes,
        plain=judge.plain,
        rejected=judge.rejected,
        metrics={
            m.metric: MetricLine(name=found.titles[m.metric][1], accuracy=m.accuracy, threshold=m.threshold)
            for m in judge.metrics
        },
        figures=judge.figures,
        asked=judge.asked,
        unjudged=judge.unjudged,
        usd_a_probe=each(spent.usd, spent.probes),
        tokens_a_probe=each(spent.tokens, spent.probes),
        seconds_a_probe=each(spent.seconds, spent.probes),
    )


def write_leaderboard(path: Path, lines: Sequence[Line]) -> str:
    """Add lines to a file, or replace those of the same judge, mode and set; return what was done, in words.

    Raises ConfigError for a file of another shape, which is left as it is; StorageError.
    """
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        make = _as_json if path.suffix == ".json" else _as_markdown
        text, replaced = make(path, before, lines)
        files.write_whole(path, text.encode("utf-8", "backslashreplace"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text in UTF-8; name a new file with --leaderboard") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    return f"{path}: {len(lines) - replaced} lines added, {replaced} replaced"


def _as_json(path: Path, before: str, lines: Sequence[Line]) -> tuple[str, int]:
    own = {}
    if before.strip():
        try:
            found = _Written.from_json(parse_json(before))
        except ValueError as error:
            raise ConfigError(f"{path} is no leaderboard that editloupe wrote: {error}; name a new file") from error
        if found.schema != SCHEMA:
            raise ConfigError(f"{path}: expected schema {SCHEMA}, found {found.schema}; name a new file")
        # Lines of other judges stay as they are, whatever they hold.
        own = {tuple(str(line.get(name) or "") for name in _KEY): line for line in found.lines}
    made = {(line.judge, line.mode, line.set): line.to_json() for line in lines}
    replaced = sum(key in own for key in made)
    return json_text({"schema": SCHEMA, "lines": list((own | made).values())}), replaced


def _as_markdown(path: Path, before: str, lines: Sequence[Line]) -> tuple[str, int]:
    head, given = markdown_row(_HEAD), before.splitlines()
    rows = {tuple(_split(row)[:3]): row for row in (markdown_row(line.cells) for line in lines)}
    if head not in given:
        if any(line.startswith("| Judge | Mode | Set |") for line in given):
            raise ConfigError(f"{path} has a leaderboard with other columns; name a new file with --leaderboard")
        start = [*given, ""] if given else ["# Judges on trial", "", _READING, ""]
        text = [*start, head, "|" + "---|" * len(_HEAD), *rows.values()]
        return "\n".join(text) + "\n", 0
    first = given.index(head) + 2
    last = next((i for i in range(first, len(given)) if not given[i].startswith("|")), len(given))
    own = {tuple(_split(row)[:3]): row for row in given[first:last]}
    replaced = sum(key in own for key in rows)
    return "\n".join([*given[:first], *(own | rows).values(), *given[last:]]) + "\n", replaced


def _split(row: str) -> list[str]:
    """The cells of a row of Markdown, bars still escaped."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
