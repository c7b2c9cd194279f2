"""Edits of one source and instruction in order: by their scores, or by what was said of their pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Annotated, Final

from pydantic import Field

from editloupe.figures import render
from editloupe.figures.frame import score_frame
from editloupe.figures.summary import BY_EDITOR, OVERALL, counted
from editloupe.findings import Finding
from editloupe.protocols.base import groups
from editloupe.scores import Score
from editloupe.stats.bootstrap import Estimate, OrNull, aggregate
from editloupe.stats.table import NONE, Cell, Table, simple
from editloupe.tasks import About
from editloupe.values import Json, Sample, Serializable, is_empty, sample_key

_DECIMALS: Final = 9
"""Figures that are equal to so many decimals tie."""


@dataclass(frozen=True, kw_only=True)
class Tally(Serializable):
    """What an edit's pairs say by one criterion."""

    wins: int = 0
    ties: int = 0
    losses: int = 0
    inconsistent: int = 0
    """Of the ties, those whose two orders said different things."""
    open: int = 0
    """Pairs without two verdicts."""

    @property
    def points(self) -> float | None:
        """Copeland's points of those possible, 0..1: a win 1, a tie ½, of the pairs that were judged; None without any."""
        judged = self.wins + self.ties + self.losses
        return (self.wins + self.ties / 2) / judged if judged else None

    @property
    def text(self) -> str:
        """ "2–1–0": wins, ties, losses, and what has no verdict."""
        return f"{self.wins}–{self.ties}–{self.losses}" + (f", {self.open} open" if self.open else "")


@dataclass(frozen=True, kw_only=True)
class RankedEdit(Serializable):
    """One edit."""

    rank: int | None = None
    """From 1; None where it is not ranked and `missing` says why."""
    tied: bool = False
    """Whether others share the rank."""
    edit: str
    editor: OrNull
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """By criterion, what it is ranked by, in that order."""
    pairs: Annotated[Mapping[str, Tally], Field(exclude_if=is_empty)] = field(default_factory=dict)
    """By criterion, where pairs were asked."""
    missing: OrNull = ""


@dataclass(frozen=True, kw_only=True)
class Ranking(Serializable):
    """The edits of one source and instruction, ranked ones first."""

    instruction: str
    source: str
    """SHA-256 of the source image."""
    places: tuple[RankedEdit, ...]


def by_scores(samples: Sequence[Sample], scores: Iterable[Score], by: Sequence[str]) -> list[Ranking]:
    """Return each group in the order of its scores by the first of `by`, ties broken by the next.

    by: criteria, and "overall" for the mean of all that were asked, or the protocol's own metric of this name. A group is
    ranked by those of them that it was asked.
    """
    frame = counted(BY_EDITOR, score_frame(list(scores)))
    frame = frame.with_columns(shown=frame["normalized"].fill_null(frame["value"]))
    found: dict[str, dict[str, Estimate]] = {}
    means = aggregate(frame, ("editor", "sample", "metric"), value="shown", drawing=None)
    for (editor, id_, metric), mean in means.items():
        found.setdefault(sample_key(editor, id_), {})[metric] = mean
    lost: dict[str, dict[str, list[str]]] = {}
    for editor, id_, metric, why in frame.drop_nulls("missing").select("editor", "sample", "metric", "missing").rows():
        lost.setdefault(sample_key(editor, id_), {}).setdefault(metric, []).append(f"{metric}: {why}")

    def place(sample: Sample, by: Sequence[str]) -> RankedEdit:
        own = found.get(sample.key, {})
        # A sample with a turn or a part that is missing has no mean.
        values = {name: mean.value if mean.judged == mean.asked else None for name, mean in own.items()}
        known = [v for v in values.values() if v is not None]
        values.setdefault(OVERALL, sum(known) / len(known) if known and len(known) == len(own) else None)
        wanted = (why for name, whys in lost.get(sample.key, {}).items() if name in by or OVERALL in by for why in whys)
        return _placed(sample, {name: values.get(name) for name in by}, ", ".join(dict.fromkeys(wanted)))

    rankings = []
    for group in groups(samples):
        asked = {OVERALL, *(name for sample in group for name in found.get(sample.key, ()))}
        # Of none: each says that it was not judged.
        its = [name for name in by if name in asked] or by
        rankings.append(_ranking(group, [place(sample, its) for sample in group], its))
    return rankings


def by_pairs(samples: Sequence[Sample], findings: Iterable[Finding], by: Sequence[str]) -> list[Ranking]:
    """Return each group in the order of Copeland's points, ties broken by the next criterion.

    A pair is won where both orders say so; a tie where both say so, or where they contradict each other; else open.
    """
    said = {(f.metric, f.about): f for f in findings}
    rankings = []
    for group in groups(samples):
        there = [sample for sample in group if sample.edited is not None]
        tallies = {sample.key: {c: Counter[str]() for c in by} for sample in group}
        why = {sample.key: Counter[str]() for sample in group}
        for a, b in combinations(there, 2):
            for c in by:
                orders = said.get((c, About.pair(a, b))), said.get((c, About.pair(b, a)))
                outcome = _outcome(*orders)
                for own, win, loss in ((a, "a", "b"), (b, "b", "a")):
                    counts = {win: ["wins"], loss: ["losses"], "inconsistent": ["ties", "inconsistent"]}
                    tallies[own.key][c].update(counts.get(outcome, [outcome]))
                    if outcome == "open":
                        failed = (f for f in orders if f is None or f.status != "ok")
                        why[own.key].update(f.status if f else "not judged yet" for f in failed)
        places = []
        for sample in group:
            done = {c: Tally(**count) for c, count in tallies[sample.key].items()}
            reasons = ", ".join(f"{n} {status}" for status, n in why[sample.key].items())
            if sample.edited is None:
                reasons, done = "missing_output", {}
            elif len(there) == 1:
                reasons = "no other edit to compare it with"
            figures = {c: done[c].points if c in done else None for c in by}
            # A pair without verdicts is open; the other pairs rank the edit.
            places.append(replace(_placed(sample, figures, reasons if None in figures.values() else ""), pairs=done))
        rankings.append(_ranking(group, places, by))
    return rankings


def unreadable(editor: str, id: str, message: str) -> RankedEdit:
    """Return a row of the data that could not be read."""
    return RankedEdit(edit=sample_key(editor, id), editor=editor, missing=f"input_error: {message}")


def _placed(sample: Sample, figures: Mapping[str, float | None], why: str) -> RankedEdit:
    """An edit before it has a rank.   why: what is missing, in words."""
    unasked = ", ".join(f"{name}: not judged" for name, value in figures.items() if value is None)
    return RankedEdit(edit=sample.key, editor=sample.editor, figures=figures, missing=why or unasked)


def _outcome(ab: Finding | None, ba: Finding | None) -> str:
    """Of a pair asked as (a, b) and as (b, a): "a", "b", "ties", "inconsistent" or "open"."""
    if ab is None or ba is None or ab.value is None or ba.value is None:
        return "open"
    # 1: the edit that is shown first is better; −1: the other one; 0: a tie.
    first = {1.0: "a", -1.0: "b"}.get(ab.value, "ties")
    second = {1.0: "b", -1.0: "a"}.get(ba.value, "ties")
    return first if first == second else "inconsistent"


def _ranking(group: Sequence[Sample], places: Sequence[RankedEdit], by: Sequence[str]) -> Ranking:
    """Equal ones share the best rank of theirs: 1, 2, 2, 4."""

    def key(place: RankedEdit) -> tuple[float, ...]:
        return tuple(-round(place.figures[name] or 0.0, _DECIMALS) for name in by)

    good = sorted((p for p in places if not p.missing), key=key)
    keys = [key(p) for p in good]
    ranked = [replace(p, rank=keys.index(k) + 1, tied=keys.count(k) > 1) for p, k in zip(good, keys, strict=True)]
    rest = [p for p in places if p.missing]
    return Ranking(instruction=group[0].instruction, source=group[0].source.sha256, places=(*ranked, *rest))


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """All rankings of one judge."""

    judge: str
    """Who, in words."""
    notes: tuple[str, ...]
    by: tuple[str, ...]
    """What is ranked by, in order."""
    names: Mapping[str, str]
    """Criterion → heading."""
    pairwise: bool
    rankings: tuple[Ranking, ...]
    unread: tuple[RankedEdit, ...] = ()
    """Rows of the data that could not be read."""

    @property
    def caption(self) -> str:
        """How to read the tables."""
        order = ", then ".join(self.names.get(c, "Overall") for c in self.by)
        if not self.pairwise:
            return f"Ranked by {order}: scores 0 to 100, higher is better. = marks a tie: equal in all of these."
        tallies = [t for r in self.rankings for p in r.places for t in p.pairs.values()]
        # Each pair stands in two tallies.
        pairs = sum(t.wins + t.ties + t.losses + t.open for t in tallies) // 2
        inconsistent, still = sum(t.inconsistent for t in tallies) // 2, sum(t.open for t in tallies) // 2
        return (
            f"Ranked by {order}: share of Copeland's points (a win 1, a tie ½); in brackets wins–ties–losses. Each pair is "
            f"asked in both orders: of {pairs}, {inconsistent} contradicted themselves and count as ties, {still} have no "
            "verdict. = marks a tie."
        )

    def tables(self) -> Iterator[Table]:
        """Yield a table for each source that has several edits."""
        for number, ranking in enumerate((r for r in self.rankings if len(r.places) > 1), start=1):
            by, why = list(ranking.places[0].figures), any(place.missing for place in ranking.places)
            rows: list[Sequence[str | Cell]] = []
            for place in ranking.places:
                notes = {c: tally.text for c, tally in place.pairs.items()}
                digits = 2 if self.pairwise else 1
                figures = (Cell(value=place.figures.get(c), name=c, digits=digits, note=notes.get(c, "")) for c in by)
                rank = f"{place.rank}{' =' if place.tied else ''}" if place.rank else NONE
                rows.append((rank, place.edit, *figures, *([place.missing] if why else [])))
            head = ("Rank", "Edit", *(self.names.get(c, c) for c in by), *(["Not ranked because"] if why else []))
            yield simple(f"ranking-{number}", ranking.instruction, head, rows)

    def to_json(self) -> dict[str, Json]:
        """Return all rankings, with what could not be read."""
        return {
            "judge": self.judge,
            "notes": list(self.notes),
            "by": list(self.by),
            "pairwise": self.pairwise,
            "caption": self.caption,
            "rankings": [r.to_json() for r in self.rankings],
            "unreadable": [p.to_json() for p in self.unread],
        }

    def markdown(self) -> str:
        """Return all tables as one document."""
        parts = ["# Ranking\n", f"{self.judge}\n", *(f"> {note}\n" for note in self.notes)]
        parts += [*map(render.markdown, self.tables()), *(f"- not ranked: {p.edit}: {p.missing}" for p in self.unread)]
        return "\n".join([*parts, "", self.caption, ""])
