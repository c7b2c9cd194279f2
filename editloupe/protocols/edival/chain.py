"""A chain of edits of one image, and the objects that are there after each, as a sample's columns hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from editloupe.errors import DataError
from editloupe.protocols.base import Paper
from editloupe.protocols.edival.instructions import Edit, parse_edit
from editloupe.protocols.edival.rules import Rules
from editloupe.tasks import About
from editloupe.values import Json, Sample

Mode: TypeAlias = Literal["multipass", "singlepass"]
"""multipass: each turn edits what the turn before gave.   singlepass: one prompt has all edits (complex mode)."""

PAPER: Final = Paper(
    title="EdiVal-Agent: An Object-Centric Framework for Automated, Fine-Grained Evaluation of Multi-Turn Editing",
    url="https://arxiv.org/abs/2509.13399",
)

MODE: Final = "mode"
TYPES: Final = "task_type"
SENTENCES: Final = "instructions"
BRACKETED: Final = "format_instructions"
BACKGROUND: Final = "bg_consistency"
UNCHANGED: Final = "unchanged_objects"
AVAILABLE: Final = "available_objects"
EVER: Final = "all_objects"
"""Columns of a sample. Each but the mode is a list with an item for each edit of the chain; a pool is a list of names.
In multipass the instructions may be absent: they are the turns' own."""


@dataclass(frozen=True, kw_only=True)
class Pools:
    """The objects after an edit, by name."""

    ever: tuple[str, ...]
    """All that have been there since the start."""
    unchanged: tuple[str, ...]
    """Those that no edit has touched."""
    available: tuple[str, ...]
    """Those that the next edit may touch."""
    background_kept: bool
    """Whether no edit has changed the background."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The edits of a sample in their order."""

    mode: Mode
    edits: tuple[Edit, ...]
    pools: tuple[Pools, ...]
    """After each edit."""

    def turn(self, index: int) -> int:
        """Return the turn, from 1, whose image shows the edit of an index from 0."""
        return index + 1 if self.mode == "multipass" else 1

    def edits_at(self, turn: int) -> int:
        """Return how many edits the image after a turn has had."""
        return turn if self.mode == "multipass" else len(self.edits)

    def dims(self, index: int) -> dict[str, str | int | float | None]:
        """Return the columns by which scores of an edit are grouped."""
        edits = self.edits_at(self.turn(index))
        return {"edit_type": self.edits[index].edit_type, "mode": self.mode, "turns": edits}

    def dims_at(self, turn: int) -> dict[str, str | int | float | None]:
        """Return the columns by which scores of the image after a turn are grouped: those of its last edit."""
        return self.dims(self.edits_at(turn) - 1)


def read_chain(sample: Sample) -> Chain:
    """Return the chain of a sample. Raises DataError, which names the column, for columns that hold none."""
    extra = sample.extra
    mode = extra.get(MODE, "multipass")
    if mode != "multipass" and mode != "singlepass":
        raise _wrong(sample, MODE, mode, "multipass or singlepass")
    types, bracketed = _texts(sample, TYPES), _texts(sample, BRACKETED)
    if mode == "multipass" and SENTENCES not in extra:
        plain = [turn.instruction for turn in sample.turns]
    else:
        plain = _texts(sample, SENTENCES)
    kept = _list(sample, BACKGROUND)
    pools = {name: _pools(sample, name) for name in (EVER, UNCHANGED, AVAILABLE)}
    lengths = {TYPES: len(types), BRACKETED: len(bracketed), SENTENCES: len(plain), BACKGROUND: len(kept)}
    lengths |= {name: len(rows) for name, rows in pools.items()}
    turns = len(types) if mode == "multipass" else 1
    if len(set(lengths.values())) != 1 or not types or len(sample.turns) != turns:
        due = "a turn for each" if mode == "multipass" else "one turn for all"
        found = ", ".join(f"{count} of {name}" for name, count in lengths.items())
        raise DataError(
            f"sample {sample.key!r}: expected one item for each edit in every column of the chain, and "
            f"{due}; found {found}, and {len(sample.turns)} turns"
        )
    unread = [value for value in kept if not isinstance(value, bool)]
    if unread:
        raise _wrong(sample, BACKGROUND, unread[0], "true or false")
    try:
        edits = tuple(map(parse_edit, types, bracketed, plain))
    except DataError as error:
        raise DataError(f"sample {sample.key!r}: {error}") from error
    rows = zip(pools[EVER], pools[UNCHANGED], pools[AVAILABLE], kept, strict=True)
    return Chain(
        mode=mode,
        edits=edits,
        pools=tuple(Pools(ever=e, unchanged=u, available=a, background_kept=bool(k)) for e, u, a, k in rows),
    )


def about_edit(sample: Sample, chain: Chain, index: int) -> About:
    """Return what a finding or a score of an edit is about. index: from 0."""
    part = "" if chain.mode == "multipass" else f"instruction {index + 1}"
    return About.of(sample, turn=chain.turn(index), part=part)


def gap(sample: Sample, turn: int, rules: Rules) -> tuple[Literal["missing_output"], str] | None:
    """Return why nothing can be asked of the image after a turn: an output is missing. None where it can."""
    first = next((n for n, one in enumerate(sample.turns, start=1) if one.edited is None), None)
    if first is None:
        return None
    missing = f"the output of turn {first} is missing"
    if rules.chains == "complete":
        return "missing_output", f"{missing}, and chains=complete leaves such a chain out"
    if turn < first:
        return None
    behind = "" if turn == first else ", and a chain is judged up to its first missing output"
    return "missing_output", f"{missing}{behind}"


def columns(chain: Chain) -> Mapping[str, Json]:
    """Return the columns that `read_chain` reads."""
    return {
        MODE: chain.mode,
        TYPES: [edit.edit_type for edit in chain.edits],
        SENTENCES: [edit.sentence() for edit in chain.edits],
        BRACKETED: [edit.sentence(brackets=True) for edit in chain.edits],
        BACKGROUND: [pools.background_kept for pools in chain.pools],
        UNCHANGED: [list(pools.unchanged) for pools in chain.pools],
        AVAILABLE: [list(pools.available) for pools in chain.pools],
        EVER: [list(pools.ever) for pools in chain.pools],
    }


def _wrong(sample: Sample, name: str, found: object, expected: str) -> DataError:
    return DataError(f"sample {sample.key!r}: column {name!r} holds {found!r}; expected {expected}")


def _list(sample: Sample, name: str) -> Sequence[Json]:
    found = sample.extra.get(name)
    if not isinstance(found, list | tuple):
        raise _wrong(sample, name, found, "a list with an item for each edit")
    return found


def _texts(sample: Sample, name: str) -> list[str]:
    found = _list(sample, name)
    unread = [value for value in found if not isinstance(value, str)]
    if unread:
        raise _wrong(sample, name, unread[0], "texts")
    return [str(value) for value in found]


def _pools(sample: Sample, name: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for row in _list(sample, name):
        if not isinstance(row, list | tuple) or not all(isinstance(value, str) for value in row):
            raise _wrong(sample, name, row, "a list of names for each edit")
        found.append(tuple(map(str, row)))
    return found
