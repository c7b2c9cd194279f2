"""A leaderboard: a file to which every trial adds a line a judge, mode, set of probes and questions, or replaces it.

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
from editloupe.reports.trial import JudgeTrial, Trial, each
from editloupe.reports.trial_tables import rate_text, threshold_text
from editloupe.stats.bootstrap import Estimate
from editloupe.stats.table import NONE
from editloupe.stats.threshold import Threshold
from editloupe.values import Serialisable, parse_json

SCHEMA: Final = 1
ENDINGS: Final = (".md", ".json")
_KEY: Final = ("judge", "mode", "set", "questions")
"""What a later trial replaces."""

_HEAD: Final = (
    "Judge", "Mode", "Set", "Questions", "Probes", "Accuracy", "Threshold", "Leniency", "Nuisances", "Order", "Injection",
    "Repeats", "Not judged", "USD a probe",
)  # fmt: skip
_READING: Final = (
    "In percent with intervals (judged/asked). Accuracy, threshold and leniency by metric. Leniency: verdicts kinder than "
    "the truth less harsher ones. Nuisances, order: verdicts that they change. Injection: verdicts that a text in the "
    "image buys. Repeats: probes with one verdict in all. A line is the judge's last trial in this mode, on this set of "
    "probes, by these questions."
)


@dataclass(frozen=True, kw_only=True)
class MetricLine(Serialisable):
    """One metric of a line."""

    name: str
    """Short."""
    accuracy: Estimate
    threshold: Threshold
    leniency: Estimate


@dataclass(frozen=True, kw_only=True)
class Line(Serialisable):
    """One judge in one mode on one set of probes."""

    judge: str
    backend: str
    judge_id: str
    mode: str
    set: str
    """Digest of the probes."""
    questions: str
    """Whose questions, and the metrics: "dlebench (IF, VC)"."""
    probes: int
    plain: int
    rejected: int
    """Rows that were refused."""
    metrics: Mapping[str, MetricLine]
    """By the metric's id."""
    figures: Mapping[str, Estimate]
    """As in `trial.OVERALL`: nuisance, order, injection and others."""
    asked: int
    unjudged: Mapping[str, int]
    """Status → how many verdicts are missing for it."""
    usd_a_probe: float | None
    tokens_a_probe: float | None
    seconds_a_probe: float | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """As Markdown has it."""
        return self.judge, self.mode or NONE, self.set, self.questions

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
            "; ".join(f"{m.name} {rate_text(m.leniency, signed=True)}" for m in self.metrics.values()),
            rate_text(figures["nuisance"]),
            rate_text(figures["order"]),
            rate_text(figures["injection"], signed=True),
            rate_text(figures["consistency"]),
            share,
            NONE if self.usd_a_probe is None else f"{self.usd_a_probe:.3g}",
        )


def lines_of(found: Trial) -> list[Line]:
    """Return a line for each judge of a trial."""
    titles = Counter((judge.title, judge.mode, judge.questions) for judge in found.judges)
    # Two that their runs call alike would replace each other.
    return [_line(found, j, j.title if titles[j.title, j.mode, j.questions] == 1 else j.judge) for j in found.judges]


def _line(found: Trial, judge: JudgeTrial, name: str) -> Line:
    spent = judge.spent
    return Line(
        judge=name,
        backend=judge.backend,
        judge_id=judge.judge_id,
        mode=judge.mode,
        set=found.set,
        questions=f"{judge.questions} ({', '.join(found.titles[m.metric][1] for m in judge.metrics)})",
        probes=judge.probes,
        plain=judge.plain,
        rejected=judge.rejected,
        metrics={
            m.metric: MetricLine(
                name=found.titles[m.metric][1], accuracy=m.accuracy, threshold=m.threshold, leniency=m.leniency
            )
            for m in judge.metrics
        },
        figures=judge.figures,
        asked=judge.asked,
        unjudged=judge.unjudged,
        usd_a_probe=each(spent.usd, spent.probes),
        tokens_a_probe=each(spent.tokens, spent.probes),
        seconds_a_probe=each(spent.seconds, spent.probes),
    )


def check_leaderboard(path: Path) -> None:
    """Raise ConfigError for a file that `write_leaderboard` would refuse. Nothing is written."""
    if path.suffix not in ENDINGS:
        raise ConfigError(f"--leaderboard {path}: expected a file that ends with .md or .json")
    _with_lines(path, ())


def write_leaderboard(path: Path, lines: Sequence[Line]) -> str:
    """Add lines to a file, or replace those of the same judge, mode, set and questions; return what was done, in words.

    All else in the file stays as it is. Raises ConfigError for a file of another shape, which is not touched; StorageError.
    """
    text, replaced = _with_lines(path, lines)
    try:
        files.write_whole(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    return f"{path}: lines added: {len(lines) - replaced}, replaced: {replaced}"


def _with_lines(path: Path, lines: Sequence[Line]) -> tuple[str, int]:
    """Return the text of a file with these lines, and how many it had before."""
    try:
        before = path.read_bytes().decode("utf-8") if path.exists() else ""
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text in UTF-8; name a new file with --leaderboard") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
    return (_as_json if path.suffix == ".json" else _as_markdown)(path, before, lines)


def _as_json(path: Path, before: str, lines: Sequence[Line]) -> tuple[str, int]:
    try:
        found: Any = parse_json(before) if before.strip() else {"schema": SCHEMA, "lines": []}
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON ({error}); name a new file with --leaderboard") from error
    known = found.get("lines") if isinstance(found, dict) else None
    if not isinstance(known, list) or not all(isinstance(line, dict) for line in known):
        raise ConfigError(
            f"{path} is no leaderboard that editloupe wrote: expected an object with a list of lines; name a new file with "
            "--leaderboard"
        )
    if found.get("schema") != SCHEMA:
        raise ConfigError(
            f"{path}: expected schema {SCHEMA}, found {found.get('schema')!r}; name a new file with --leaderboard"
        )
    # Lines of other judges stay as they are, whatever they hold.
    own = {tuple(str(line.get(name) or "") for name in _KEY): line for line in known}
    made = {(line.judge, line.mode, line.set, line.questions): line.to_json() for line in lines}
    replaced = sum(key in own for key in made)
    return json_text({**found, "lines": list((own | made).values())}), replaced


def _as_markdown(path: Path, before: str, lines: Sequence[Line]) -> tuple[str, int]:
    # What is not ours keeps its line ends, and a table that was laid out anew is still ours.
    end = "\r\n" if "\r\n" in before else "\n"
    given = before.split("\n")
    rows = {tuple(_split(row)[: len(_KEY)]): row + end for row in (markdown_row(line.cells) for line in lines)}
    first = next((i for i, line in enumerate(given) if _split(line) == list(_HEAD)), None)
    if first is None:
        if any(_split(line)[:3] == list(_HEAD[:3]) for line in given):
            raise ConfigError(f"{path} has a leaderboard with other columns; name a new file with --leaderboard")
        start = before if before.endswith("\n") or not before else before + end
        start += end if start else end.join(["# Judges on trial", "", _READING, "", ""])
        return start + end.join([markdown_row(_HEAD), "|" + "---|" * len(_HEAD), ""]) + "".join(rows.values()), 0
    first += 2
    last = next((i for i in range(first, len(given)) if not given[i].startswith("|")), len(given))
    own = {tuple(_split(row)[: len(_KEY)]): row + "\n" for row in given[first:last]}
    replaced = sum(key in own for key in rows)
    head = "".join(line + "\n" for line in given[:first])
    return head + "".join((own | rows).values()) + "\n".join(given[last:]), replaced


def _split(row: str) -> list[str]:
    """The cells of a row of Markdown, bars still escaped."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
