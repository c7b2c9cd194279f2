"""People's votes on pairs of edits beside a judge's: accuracy, ties, and a ranking of the editors from either."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from editloupe.reports.votes import Ballot, Vote
from editloupe.stats.agreement import Figure, Paired, Scale, confusion, label_figures
from editloupe.stats.bootstrap import DRAWING, ConfidenceInterval, Drawing, Floats, draws, interval, numbered
from editloupe.values import Json

FOUR: Final = Scale(values=(0, 1, 2, 3), names=("A better", "B better", "both good", "both bad"), ordered=False)
THREE: Final = Scale(values=(0, 1, 2), names=("A better", "B better", "tie"), ordered=False)

_CODES: Final[Mapping[Vote, int]] = {"A": 0, "B": 1, "good": 2, "bad": 3, "tie": 2}
_STEPS: Final = 10_000
_CLOSE: Final = 1e-9

Score = Callable[[str, str], float | None]
"""(editor, item) → the judge's score; None where it has none."""


@dataclass(frozen=True, kw_only=True)
class Strength:
    """One editor in a Bradley–Terry model: log strength, the mean of all editors being 0.

    An editor that is d stronger than another is preferred with probability 1 / (1 + exp(−d)).
    """

    editor: str
    value: float
    interval: ConfidenceInterval | None

    def to_json(self) -> dict[str, Json]:
        inside = None if self.interval is None else self.interval.to_json()
        return {"editor": self.editor, "strength": self.value, "interval": inside}


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Editors from the strongest to the weakest; empty where there is no ranking, and `why` says so."""

    strengths: tuple[Strength, ...]
    votes: int
    why: str = ""

    def to_json(self) -> dict[str, Json]:
        return {"strengths": [s.to_json() for s in self.strengths], "votes": self.votes, "why": self.why or None}


@dataclass(frozen=True, kw_only=True)
class Duel:
    """One reading of the judge (a criterion, or its own votes) beside people's votes.

    tie: difference of scores up to which two edits tie; None where the judge votes itself.
    fitted: that difference was chosen on these very votes.
    figures: four_*: of four answers; three_*: with both kinds of tie as one; decided: of the votes for A or B alone.
    confusion: people's votes in rows, the judge's in columns, then those not judged; on `scale`.
    people, judge: rankings by all that either voted on.   people_judged: people's on the pairs that the judge judged too,
    which is what the judge's compares with; None where these are all pairs.
    """

    title: str
    tie: float | None
    fitted: bool
    scale: Scale
    figures: Mapping[str, Figure]
    confusion: tuple[tuple[int, ...], ...]
    people: Ranking
    judge: Ranking
    people_judged: Ranking | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Json]:
        return {
            "title": self.title,
            "tie": self.tie,
            "tie_fitted": self.fitted,
            "figures": {name: figure.to_json() for name, figure in self.figures.items()},
            "confusion": {"columns": [*self.scale.names, None], "rows": [list(row) for row in self.confusion]},
            "ranking": {
                "people": self.people.to_json(),
                "people_judged": (self.people if self.people_judged is None else self.people_judged).to_json(),
                "judge": self.judge.to_json(),
            },
            "notes": list(self.notes),
        }


def duel(
    ballots: Sequence[Ballot],
    title: str,
    *,
    score: Score | None = None,
    tie: float | None = 0.0,
    good: float | None = None,
    drawing: Drawing = DRAWING,
) -> Duel:
    """One judge against people's votes.

    score: None takes the ballots' own verdicts.   tie: None chooses the threshold with the most right answers of three.
    good: a tie whose mean score is at least this is "both good", else "both bad"; None leaves the judge's ties undivided,
    and the four answers are compared as three.
    """
    notes: list[str] = []
    fitted = score is not None and tie is None
    if score is None:
        verdicts = [ballot.verdict for ballot in ballots]
        tie = None
    else:
        pairs = [(score(b.a, b.item), score(b.b, b.item)) for b in ballots]
        if tie is None:
            tie = _best_tie(ballots, pairs)
        verdicts = [_verdict(a, b, tie, good) for a, b in pairs]
    unjudged = sum(v is None for v in verdicts)
    if unjudged:
        notes.append(f"{unjudged} of {len(ballots)} votes are on pairs without the judge's word")
    sources = [ballot.source for ballot in ballots]
    divided = not any(v == "tie" for v in (*verdicts, *(b.vote for b in ballots)))
    figures: dict[str, Figure] = {}
    three = _paired(verdicts, [b.vote for b in ballots], sources, merge=True)
    if divided:
        four = _paired(verdicts, [b.vote for b in ballots], sources, merge=False)
        figures |= {f"four_{name}": f for name, f in label_figures(four, FOUR, drawing).items()}
    figures |= {f"three_{name}": f for name, f in label_figures(three, THREE, drawing).items()}
    decided = np.array([b.vote in ("A", "B") for b in ballots])
    figures["decided_exact"] = label_figures(three.where(decided), THREE, drawing)["exact"]
    scale, table = (FOUR, four) if divided else (THREE, three)
    judged = [None if v is None else b.vote for b, v in zip(ballots, verdicts, strict=True)]
    return Duel(
        title=title,
        tie=tie,
        fitted=fitted,
        scale=scale,
        figures=figures,
        confusion=tuple(map(tuple, confusion(table, scale))),
        people=ranking(ballots, [b.vote for b in ballots], drawing),
        judge=ranking(ballots, verdicts, drawing),
        people_judged=ranking(ballots, judged, drawing) if unjudged else None,
        notes=tuple(notes),
    )


def ranking(ballots: Sequence[Ballot], votes: Sequence[Vote | None], drawing: Drawing = DRAWING) -> Ranking:
    """A Bradley–Terry ranking of the editors; a tie counts as half a win for each. Resampled by source image."""
    cast = [(b, v) for b, v in zip(ballots, votes, strict=True) if v is not None and b.a]
    if not cast:
        why = "the votes name no editors" if ballots and not ballots[0].a else "no pair was judged"
        return Ranking(strengths=(), votes=0, why=why)
    editors = sorted({e for b, _ in cast for e in (b.a, b.b)})
    place = {editor: i for i, editor in enumerate(editors)}
    cluster, many = numbered([b.source for b, _ in cast])
    wins = np.zeros((many, len(editors), len(editors)))
    for c, (ballot, vote) in zip(cluster, cast, strict=True):
        a, b = place[ballot.a], place[ballot.b]
        wins[c, a, b] += {"A": 1.0, "B": 0.0}.get(vote, 0.5)
        wins[c, b, a] += {"A": 0.0, "B": 1.0}.get(vote, 0.5)
    whole = wins.sum(axis=0)
    found = strengths(whole[None])[0]
    if np.isnan(found).any():
        return Ranking(strengths=(), votes=len(cast), why=_unlinked(whole, editors))
    resampled = None
    if many > 1:
        drawn = draws(many, resamples=drawing.resamples, seed=drawing.seed)
        resampled = strengths(np.tensordot(drawn, wins, axes=1))
    listed = [
        Strength(
            editor=editor,
            value=float(found[i]),
            interval=None if resampled is None else interval(resampled[:, i], level=drawing.level),
        )
        for editor, i in place.items()
    ]
    return Ranking(strengths=tuple(sorted(listed, key=lambda s: -s.value)), votes=len(cast))


def strengths(wins: Floats) -> Floats:
    """B×k log strengths (mean 0) from B×k×k wins of row over column; NaN where they do not exist.

    Hunter's minorisation (Annals of Statistics 32, 2004): p_i ← wins_i / Σ_j n_ij / (p_i + p_j), until it stands still. A
    maximum exists where every editor can be reached from every other along wins (his Assumption 1).
    """
    many, k, _ = wins.shape
    exists = _linked(wins)
    found = np.full((many, k), np.nan)
    left = np.flatnonzero(exists)
    log = np.zeros((many, k))
    won, met = wins.sum(axis=2), wins + wins.transpose(0, 2, 1)
    for _ in range(_STEPS):
        if not len(left):
            break
        p = np.exp(log[left])
        new = np.log(won[left] / (met[left] / (p[:, :, None] + p[:, None, :])).sum(axis=2))
        new -= new.mean(axis=1, keepdims=True)
        moved = np.abs(new - log[left]).max(axis=1) > _CLOSE
        log[left] = new
        found[left[~moved]] = new[~moved]
        left = left[moved]
    return found


def _linked(wins: Floats) -> npt.NDArray[np.bool_]:
    """B: whether each of k editors reaches each other along wins."""
    k = wins.shape[1]
    reach = ((wins > 0) | np.eye(k, dtype=bool)).astype(np.float64)
    for _ in range(max(1, math.ceil(math.log2(k)))):
        reach = np.minimum(reach @ reach, 1)
    linked: npt.NDArray[np.bool_] = np.all(reach > 0, axis=(1, 2))
    return linked


def _unlinked(wins: Floats, editors: Sequence[str]) -> str:
    never = [e for i, e in enumerate(editors) if not wins[i].any()]
    always = [e for i, e in enumerate(editors) if not wins[:, i].any()]
    if never or always:
        told = [f"{', '.join(never)} never won"] if never else []
        told += [f"{', '.join(always)} never lost"] if always else []
        return f"{' and '.join(told)}, so that no finite strength fits"
    return "the editors fall into groups that wins do not link both ways"


def _verdict(a: float | None, b: float | None, tie: float, good: float | None) -> Vote | None:
    if a is None or b is None:
        return None
    if abs(a - b) > tie + 1e-9:
        return "A" if a > b else "B"
    if good is None:
        return "tie"
    return "good" if (a + b) / 2 >= good - 1e-9 else "bad"


def _best_tie(ballots: Sequence[Ballot], pairs: Sequence[tuple[float | None, float | None]]) -> float:
    """The difference, among those that occur, with the most right answers of three; the smallest of equals."""
    apart = np.array([abs(a - b) for a, b in pairs if a is not None and b is not None])
    if not len(apart):
        return 0.0

    def right(tie: float) -> int:
        verdicts = [_verdict(a, b, tie, None) for a, b in pairs]
        return sum(v is not None and _three(v) == _three(b.vote) for v, b in zip(verdicts, ballots, strict=True))

    tried = [0.0, *(float(t) for t in np.unique(np.round(apart, 9)))]
    if len(tried) > 200:
        tried = [float(t) for t in np.quantile(apart, np.linspace(0, 1, 200))]
    return max(tried, key=lambda t: (right(t), -t))


def _three(vote: Vote) -> int:
    return min(_CODES[vote], 2)


def _paired(verdicts: Sequence[Vote | None], votes: Sequence[Vote], sources: Sequence[Hashable], *, merge: bool) -> Paired:
    def code(vote: Vote | None) -> float | None:
        return None if vote is None else float(_three(vote) if merge else _CODES[vote])

    return Paired.of([code(v) for v in verdicts], [code(v) for v in votes], sources)
