"""A chain of edits of one image, and the objects that are there after each, as a sample's columns hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

from editloupe.errors import DataError
from editloupe.protocols.base import Paper
from editloupe.protocols.edival.instructions import Edit, parse_edit
from editloupe.protocols.edival.rules import Rules
from editloupe.tasks import About
from editloupe.values import Json, Sample

Mode: TypeAlias = Literal["multipass", "singlepass"]
"""multipass: each turn edits what the turn before gave.   singlepass: one prompt has all edits (complex mode)."""

Dims: TypeAlias = Mapping[str, str | int | float | None]
"""The columns by which scores are grouped."""

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

    def dims(self, index: int) -> Dims:
        """Return the columns by which scores of an edit are grouped."""
        edits = self.edits_at(self.turn(index))
        return {"edit_type": self.edits[index].edit_type, "mode": self.mode, "turns": edits}

    def dims_at(self, turn: int) -> Dims:
        """Return the columns by which scores of the image after a turn are grouped: those of its last edit."""
        return self.dims(self.edits_at(turn) - 1)


class _Columns(BaseModel):
    """The columns of a chain, by their names."""

    model_config = ConfigDict(strict=True)
    mode: Mode = "multipass"
    task_type: Sequence[str]
    format_instructions: Sequence[str]
    instructions: Sequence[str] = ()
    bg_consistency: Sequence[bool]
    unchanged_objects: Sequence[Sequence[str]]
    available_objects: Sequence[Sequence[str]]
    all_objects: Sequence[Sequence[str]]


def read_chain(sample: Sample) -> Chain:
    """Return the chain of a sample. Raises DataError, which names the column, for columns that hold none."""
    where = f"sample {sample.key!r}"
    try:
        read = _Columns.model_validate(dict(sample.extra))
    except ValidationError as error:
        first = error.errors()[0]
        name, *place = first["loc"]
        at = f", item {place[0]}" if place else ""
        found = "" if first["type"] == "missing" else f"; found {first['input']!r}"
        raise DataError(f"{where}: column {name!r}{at}: {first['msg']}{found}") from error
    edits = len(read.task_type)
    multi = read.mode == "multipass"
    plain = read.instructions or [turn.instruction for turn in sample.turns if multi]
    lengths = {name: len(column) for name, column in {**vars(read), SENTENCES: plain}.items() if name != MODE}
    if {*lengths.values()} != {edits} or not edits or len(sample.turns) != (edits if multi else 1):
        due = "a turn for each" if multi else "one turn for all"
        found = ", ".join(f"{count} of {name}" for name, count in lengths.items())
        raise DataError(
            f"{where}: expected one item for each edit in every column of the chain, and {due}; found {found}, and "
            f"{len(sample.turns)} turns"
        )
    try:
        parsed = tuple(map(parse_edit, read.task_type, read.format_instructions, plain))
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    rows = zip(read.all_objects, read.unchanged_objects, read.available_objects, read.bg_consistency, strict=True)
    pools = (
        Pools(ever=tuple(ever), unchanged=tuple(unchanged), available=tuple(available), background_kept=kept)
        for ever, unchanged, available, kept in rows
    )
    return Chain(mode=read.mode, edits=parsed, pools=tuple(pools))


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
