"""Votes on pairs of edits: which of two is better, read from tables in the spellings that are about."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from editloupe.errors import ConfigError
from editloupe.reports.ratings import find_roles, lines_named, read_labels, text_of
from editloupe.values import Json

Vote: TypeAlias = Literal["A", "B", "good", "bad", "tie"]
"""A or B is better; both good; both bad; equal, without saying how good."""

ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "item": ("item", "item_id", "sample_id", "sample", "id", "image_id", "image", "key", "uid", "idx"),
    "a": ("editor_a", "model_a", "a", "left", "left_model", "model_1"),
    "b": ("editor_b", "model_b", "b", "right", "right_model", "model_2"),
    "vote": ("vote", "human_vote", "human", "preference", "winner", "choice", "label"),
    "verdict": ("verdict", "judge_vote", "judge", "predicted"),
    "source": ("source", "source_id", "source_image", "source_file_name"),
}
"""What a column of votes may be. verdict: a judge's own vote, where the table has it beside people's."""

_SPELLINGS: Final[Mapping[Vote, tuple[str, ...]]] = {
    "A": ("a", "a>b", "a better", "a is better", "left", "model a", "leftvote"),
    "B": ("b", "b>a", "a<b", "b better", "b is better", "right", "model b", "rightvote"),
    "good": ("a=b=good", "both good", "both are good", "tie good"),
    "bad": ("a=b=bad", "both bad", "both are bad", "tie bad", "tie bothbad", "bothbad", "bothbad vote"),
    "tie": ("tie", "a=b", "equal", "same", "draw", "tievote", "tie vote"),
}
_VOTES: Final = {spelling: vote for vote, spellings in _SPELLINGS.items() for spelling in spellings}


@dataclass(frozen=True, kw_only=True)
class Ballot:
    """One vote on one pair.

    a, b: the editors; "" where they are not named.   verdict: a judge's own vote; None where it has none that can be read.
    """

    item: str
    source: Hashable
    a: str
    b: str
    vote: Vote
    verdict: Vote | None = None


@dataclass(frozen=True, kw_only=True)
class Ballots:
    """verdicts: the column of a judge's own votes; None where there is none.   notes: what could not be used."""

    file: Path
    ballots: tuple[Ballot, ...]
    verdicts: str | None
    notes: tuple[str, ...] = ()

    @property
    def editors(self) -> tuple[str, ...]:
        return tuple(sorted({e for ballot in self.ballots for e in (ballot.a, ballot.b) if e}))


def read_votes(file: Path, columns: Mapping[str, str], option: str) -> Ballots:
    """A table of votes, a row each; several raters are several rows.

    Raises ConfigError and SampleError where nothing in it can be used; rows that cannot be used are in its notes.
    """
    table = read_labels(file)
    roles, unknown = find_roles(table, columns, option, ROLES)
    if unknown:
        raise ConfigError(f"{option} {next(iter(unknown))}=…: no role of a table of votes; expected {', '.join(ROLES)}")
    for role, what in (("item", "the item"), ("vote", "the vote")):
        if role not in roles:
            raise ConfigError(
                f"{file}: no column names {what}; expected one of {', '.join(ROLES[role])}, found "
                f"{', '.join(table.columns)}; or say which: {option} {role}=COLUMN"
            )
    if ("a" in roles) != ("b" in roles):
        raise ConfigError(f"{file}: names one editor of each pair only; expected columns editor_a and editor_b, or neither")
    left_out: dict[str, list[int]] = {}
    unread: dict[str, list[int]] = {}
    ballots = []
    for line in table.lines:
        named = {role: text_of(line.values.get(column)) for role, column in roles.items()}
        item, a, b = named["item"], named.get("a"), named.get("b")
        vote = read_vote(line.values.get(roles["vote"]), a, b)
        why = line.fault
        if why is None:
            if item is None:
                why = "names no item"
            elif "a" in roles and (a is None or b is None):
                why = "names one editor only"
            elif a is not None and a == b:
                why = "sets an editor against itself"
            elif vote is None:
                why = f"{named['vote']!r} is no vote (A>B, B>A, A=B=Good, A=B=Bad, tie)"
        if why is not None or item is None or vote is None:
            left_out.setdefault(why or "", []).append(line.number)
            continue
        verdict = None
        if "verdict" in roles:
            verdict = read_vote(line.values.get(roles["verdict"]), a, b)
            if verdict is None and named["verdict"]:
                unread.setdefault(named["verdict"], []).append(line.number)
        source = named.get("source") or item
        ballots.append(Ballot(item=item, source=source, a=a or "", b=b or "", vote=vote, verdict=verdict))
    notes = [f"{file.name}: {lines_named(lines)} left out: {why}" for why, lines in left_out.items()]
    notes += [
        f"{file.name}: {lines_named(n)}: the verdict {v!r} is no vote, counted as not judged" for v, n in unread.items()
    ]
    if not ballots:
        raise ConfigError(f"{file}: no vote can be used; {'; '.join(notes)}")
    return Ballots(file=file, ballots=tuple(ballots), verdicts=roles.get("verdict"), notes=tuple(notes))


def read_vote(value: Json, a: str | None = None, b: str | None = None) -> Vote | None:
    """What a cell says; the name of one of the two editors is a vote for it. None where it says none of these."""
    text = text_of(value)
    if text is None:
        return None
    if a != b and text in (a, b):
        return "A" if text == a else "B"
    folded = " ".join(text.casefold().replace("_", " ").replace("(", " ").replace(")", " ").split())
    return _VOTES.get(folded.replace(" > ", ">").replace(" = ", "=").replace(" < ", "<"))
