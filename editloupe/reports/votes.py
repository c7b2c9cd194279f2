"""Votes on pairs of edits: which of two is better. Read from tables in the usual spellings, and set beside a judge's."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import numpy as np
from pydantic import Field

from editloupe.errors import ConfigError
from editloupe.reports.align import TITLES, Confusion, confusion_table, figure_record, figure_table
from editloupe.reports.label_tables import find_roles, lines_named, read_labels, text_of
from editloupe.reports.pages import Agreement, TableSection
from editloupe.stats.agreement import Figure, LabelScale, Paired, confusion, label_figures
from editloupe.stats.bootstrap import DRAWING, Drawing, ends
from editloupe.stats.bradley_terry import EditorRanking, Match, rank
from editloupe.stats.table import Cell, Row, Table, numbers, words
from editloupe.values import Json, Serialisable

Preference: TypeAlias = Literal["A", "B", "good", "bad", "tie"]
"""A or B is better; both good; both bad; equal, without saying how good."""

ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "item": ("item", "item_id", "sample_id", "sample", "id", "image_id", "image", "key", "uid", "idx"),
    "a": ("editor_a", "model_a", "a", "left", "left_model", "model_1"),
    "b": ("editor_b", "model_b", "b", "right", "right_model", "model_2"),
    "vote": ("vote", "human_vote", "human", "preference", "winner", "choice", "label"),
    "verdict": ("verdict", "judge_vote", "judge", "predicted"),
    "source": ("source", "source_id", "source_image", "source_file_name"),
}
"""What a column of votes may be. verdict: a judge's own vote, if the table has it beside people's."""

FOUR: Final = LabelScale(values=(0, 1, 2, 3), names=("A better", "B better", "both good", "both bad"), ordered=False)
THREE: Final = LabelScale(values=(0, 1, 2), names=("A better", "B better", "tie"), ordered=False)

_CODES: Final[Mapping[Preference, int]] = {"A": 0, "B": 1, "good": 2, "bad": 3, "tie": 2}
_WINS: Final[Mapping[Preference, float]] = {"A": 1.0, "B": 0.0, "good": 0.5, "bad": 0.5, "tie": 0.5}
_SETS: Final = {"four": "A, B, both good, both bad", "three": "A, B, tie", "decided": "where people chose A or B"}
_SPELLINGS: Final[Mapping[Preference, tuple[str, ...]]] = {
    "A": ("a", "a>b", "a better", "a is better", "left", "model a", "leftvote"),
    "B": ("b", "b>a", "a<b", "b better", "b is better", "right", "model b", "rightvote"),
    "good": ("a=b=good", "both good", "both are good", "tie good"),
    "bad": ("a=b=bad", "both bad", "both are bad", "tie bad", "tie bothbad", "bothbad", "bothbad vote"),
    "tie": ("tie", "a=b", "equal", "same", "draw", "tievote", "tie vote"),
}
_PREFERENCES: Final = {spelling: vote for vote, spellings in _SPELLINGS.items() for spelling in spellings}


@dataclass(frozen=True, kw_only=True)
class Vote:
    """One person's vote on one pair."""

    item: str
    source: Hashable
    a: str
    """The first editor; "" if the editors are not named."""
    b: str
    """The second editor."""
    preference: Preference
    verdict: Preference | None = None
    """A judge's own vote; None if it has none that can be read."""


@dataclass(frozen=True, kw_only=True)
class VoteTable:
    """A table of votes."""

    file: Path
    votes: tuple[Vote, ...]
    verdicts: str | None
    """The column of a judge's own votes; None if there is none."""
    notes: tuple[str, ...] = ()
    """What could not be used."""


@dataclass(frozen=True, kw_only=True)
class PairAgreement(Serialisable):
    """People's votes beside one reading of the judge: a metric, or its own votes."""

    title: str
    tie: float | None
    """Difference of scores up to which two edits tie; None if the judge votes itself."""
    tie_fitted: bool
    """Whether that difference was chosen on these very votes."""
    figures: Mapping[str, Figure]
    """four_*: of four answers; three_*: with both kinds of tie as one; decided_*: of the votes for A or B alone."""
    confusion: Confusion
    ranking: Mapping[Literal["people", "people_judged", "judge"], EditorRanking]
    """Editors ranked by people; by people on the pairs that the judge judged too, which is what the judge's compares with;
    and by the judge.
    """
    notes: tuple[str, ...]
    scale: Annotated[LabelScale, Field(exclude=True)]

    @property
    def unjudged(self) -> bool:
        """Whether the judge has no word on some pairs."""
        return bool(self.notes)


@dataclass(frozen=True, kw_only=True)
class VoteAgreement(Agreement):
    """People's votes beside one judge."""

    pairs: tuple[PairAgreement, ...]
    """One a metric, or one for the judge's own votes."""

    def sections(self) -> Iterator[TableSection]:
        """Yield the tables of each reading."""
        for pair in self.pairs:
            yield TableSection(title=_title(pair), notes=_notes(pair), tables=tuple(_tables(pair, self.bootstrap.level)))

    def records(self) -> Iterator[dict[str, Json]]:
        """Yield one record a figure, and one an editor's strength."""
        for pair in self.pairs:
            head: dict[str, Json] = {"judge": self.judge, "criterion": pair.title}
            for name, figure in pair.figures.items():
                yield {**head, "figure": name, "editor": None, **figure_record(figure)}
            for who, found in pair.ranking.items():
                for s in found.strengths:
                    low, high = ends(s.interval)
                    place: dict[str, Json] = {"figure": f"strength_{who}", "editor": s.editor, "value": s.strength}
                    yield {**head, **place, "low": low, "high": high, "judged": found.votes}
                if found.why:
                    yield {**head, "figure": f"strength_{who}", "editor": None, "judged": found.votes, "why": found.why}


def read_votes(file: Path, columns: Mapping[str, str], option: str) -> VoteTable:
    """Read a table of votes, a row each; several raters are several rows.

    Raises ConfigError and SampleError if nothing in it can be used; rows that cannot be used are in its notes.
    """
    table = read_labels(file)
    unknown = next((role for role in columns if role not in ROLES), None)
    if unknown is not None:
        raise ConfigError(f"{option} {unknown}=…: no role of a table of votes; expected {', '.join(ROLES)}")
    roles, _ = find_roles(table, columns, option, ROLES, "item", "vote")
    if ("a" in roles) != ("b" in roles):
        raise ConfigError(f"{file}: names one editor of each pair only; expected columns editor_a and editor_b, or neither")
    left_out: dict[str, list[int]] = {}
    unread: dict[str, list[int]] = {}
    votes = []
    for line in table.lines:
        named = {role: text_of(line.values.get(column)) for role, column in roles.items()}
        item, a, b = named["item"], named.get("a"), named.get("b")
        preference = read_preference(named["vote"], a, b)
        why = line.fault
        if why is None:
            if item is None:
                why = "names no item"
            elif "a" in roles and (a is None or b is None):
                why = "names one editor only"
            elif a is not None and a == b:
                why = "sets an editor against itself"
            elif preference is None:
                why = f"{named['vote']!r} is no vote (A>B, B>A, A=B=Good, A=B=Bad, tie)"
        if why is not None or item is None or preference is None:
            left_out.setdefault(why or "", []).append(line.number)
            continue
        given = named.get("verdict")
        verdict = read_preference(given, a, b)
        if verdict is None and given:
            unread.setdefault(given, []).append(line.number)
        source = named.get("source") or item
        votes.append(Vote(item=item, source=source, a=a or "", b=b or "", preference=preference, verdict=verdict))
    notes = [f"{file.name}: {lines_named(lines)} left out: {why}" for why, lines in left_out.items()]
    notes += [
        f"{file.name}: {lines_named(n)}: the verdict {v!r} is no vote, counted as not judged" for v, n in unread.items()
    ]
    if not votes:
        raise ConfigError(f"{file}: no vote can be used; {'; '.join(notes)}")
    return VoteTable(file=file, votes=tuple(votes), verdicts=roles.get("verdict"), notes=tuple(notes))


def read_preference(text: str | None, a: str | None = None, b: str | None = None) -> Preference | None:
    """Return what a cell says; the name of one of the two editors is a vote for it. None if it says none of these."""
    if text is None:
        return None
    if a != b and text in (a, b):
        return "A" if text == a else "B"
    folded = " ".join(text.casefold().replace("_", " ").replace("(", " ").replace(")", " ").split())
    return _PREFERENCES.get(folded.replace(" > ", ">").replace(" = ", "=").replace(" < ", "<"))


def agree_on_pairs(
    votes: Sequence[Vote],
    title: str,
    *,
    score: Callable[[str, str], float | None] | None = None,
    tie: float | None = 0.0,
    good: float | None = None,
    drawing: Drawing = DRAWING,
) -> PairAgreement:
    """Set one judge beside people's votes.

    score: (editor, item) → the judge's score; None takes the votes' own verdicts.
    tie: None chooses the threshold with the most right answers of three.
    good: a tie whose mean score is at least this is "both good", else "both bad"; None leaves the judge's ties undivided,
    and the four answers are compared as three.
    """
    fitted = score is not None and tie is None
    if score is None:
        verdicts, tie = [vote.verdict for vote in votes], None
    else:
        scores = [(score(vote.a, vote.item), score(vote.b, vote.item)) for vote in votes]
        tie = _best_tie(votes, scores) if tie is None else tie
        verdicts = [_verdict(a, b, tie, good) for a, b in scores]
    unjudged = sum(v is None for v in verdicts)
    people = [vote.preference for vote in votes]
    figures: dict[str, Figure] = {}
    three = table = _paired(verdicts, votes, merge=True)
    scale = THREE
    if "tie" not in (*verdicts, *people):
        table, scale = _paired(verdicts, votes, merge=False), FOUR
        figures |= {f"four_{name}": f for name, f in label_figures(table, FOUR, drawing).items()}
    figures |= {f"three_{name}": f for name, f in label_figures(three, THREE, drawing).items()}
    decided = three.at([i for i, preference in enumerate(people) if preference in ("A", "B")])
    figures["decided_exact"] = label_figures(decided, THREE, drawing)["exact"]
    whole = ranking(votes, people, drawing)
    judged = [None if v is None else preference for preference, v in zip(people, verdicts, strict=True)]
    return PairAgreement(
        title=title,
        tie=tie,
        tie_fitted=fitted,
        scale=scale,
        figures=figures,
        confusion=Confusion(columns=(*scale.names, None), rows=tuple(map(tuple, confusion(table, scale)))),
        ranking={
            "people": whole,
            "people_judged": ranking(votes, judged, drawing) if unjudged else whole,
            "judge": ranking(votes, verdicts, drawing),
        },
        notes=(f"{unjudged} of {len(votes)} votes are on pairs without the judge's word",) if unjudged else (),
    )


def ranking(votes: Sequence[Vote], preferences: Sequence[Preference | None], drawing: Drawing = DRAWING) -> EditorRanking:
    """Return a Bradley–Terry ranking of the editors; a tie counts as half a win for each."""
    matches: list[Match] = [
        (vote.a, vote.b, _WINS[p], vote.source)
        for vote, p in zip(votes, preferences, strict=True)
        if p is not None and vote.a
    ]
    if not matches:
        why = "the votes name no editors" if votes and not votes[0].a else "no pair was judged"
        return EditorRanking(strengths=(), votes=0, why=why)
    return rank(matches, drawing)


def _verdict(a: float | None, b: float | None, tie: float, good: float | None) -> Preference | None:
    if a is None or b is None:
        return None
    if abs(a - b) > tie + 1e-9:
        return "A" if a > b else "B"
    if good is None:
        return "tie"
    return "good" if (a + b) / 2 >= good - 1e-9 else "bad"


def _best_tie(votes: Sequence[Vote], scores: Sequence[tuple[float | None, float | None]]) -> float:
    """The difference, among those that occur, with the most right answers of three; the smallest of equals."""
    apart = np.array([abs(a - b) for a, b in scores if a is not None and b is not None])
    if not len(apart):
        return 0.0

    def right(tie: float) -> int:
        verdicts = [_verdict(a, b, tie, None) for a, b in scores]
        return sum(v is not None and _three(v) == _three(vote.preference) for v, vote in zip(verdicts, votes, strict=True))

    tried = [0.0, *(float(t) for t in np.unique(np.round(apart, 9)))]
    if len(tried) > 200:
        tried = [float(t) for t in np.quantile(apart, np.linspace(0, 1, 200))]
    return max(tried, key=lambda t: (right(t), -t))


def _three(preference: Preference) -> int:
    return min(_CODES[preference], 2)


def _paired(verdicts: Sequence[Preference | None], votes: Sequence[Vote], *, merge: bool) -> Paired:
    def code(preference: Preference | None) -> float | None:
        return None if preference is None else float(_three(preference) if merge else _CODES[preference])

    people = [code(vote.preference) for vote in votes]
    return Paired.of([code(v) for v in verdicts], people, [vote.source for vote in votes])


# ---- Tables ----------------------------------------------------------------------------------------------------------


def _tables(pair: PairAgreement, level: float) -> Iterator[Table]:
    for prefix, answers in _SETS.items():
        named = {n.removeprefix(f"{prefix}_"): f for n, f in pair.figures.items() if n.startswith(f"{prefix}_")}
        if named:
            titled = {"Accuracy" if name == "exact" else TITLES[name]: figure for name, figure in named.items()}
            yield figure_table(prefix, f"Answers: {answers}", titled, level)
    yield confusion_table(pair.scale, pair.confusion.rows, "Votes: people's in rows, the judge's in columns")
    if pair.ranking["people"].strengths or pair.ranking["judge"].strengths:
        yield _rankings(pair)


def _notes(pair: PairAgreement) -> tuple[str, ...]:
    found = pair.ranking
    why = {"people": found["people"].why, "the judge": found["judge"].why}
    if pair.unjudged and found["judge"].strengths:
        why["people on the pairs that the judge judged"] = found["people_judged"].why
    return (*pair.notes, *(f"No ranking of the editors by {who}: {reason}" for who, reason in why.items() if reason))


def _rankings(pair: PairAgreement) -> Table:
    """Editors in people's order; people's also on the pairs that the judge judged, if these are not all."""
    titles = {"people": "People", "people_judged": "People, judged pairs", "judge": "Judge"}
    both = {titles[who]: one for who, one in pair.ranking.items() if pair.unjudged or who != "people_judged"}
    rows = []
    for strength in pair.ranking["people"].strengths or pair.ranking["judge"].strengths:
        cells = [words(strength.editor)]
        for one in both.values():
            at = next((i for i, s in enumerate(one.strengths) if s.editor == strength.editor), None)
            if at is None:
                cells += [Cell(), words("")]
                continue
            low, high = ends(one.strengths[at].interval)
            figure = Cell(value=one.strengths[at].strength, digits=2, low=low, high=high, interval_digits=2)
            cells += [figure, Cell(value=at + 1)]
        rows.append(Row(cells=tuple(cells)))
    heads = (head for who, one in both.items() for head in (f"{who} (n = {one.votes})", "Rank"))
    title = "Editors: Bradley–Terry strength (log, mean 0), by people and by the judge; n: votes"
    return numbers("ranking", title, ("Editor", *heads), rows)


def _title(pair: PairAgreement) -> str:
    if pair.tie is None:
        return pair.title
    fitted = ", chosen on these votes: its accuracy is flattered" if pair.tie_fitted else ""
    return f"{pair.title}: scores up to {pair.tie:g} apart tie{fitted}"
