"""The official code's result files as findings: `EDITOR/multipass/INDEX_input_raw.json`, `EDITOR/singlepass/…_turn_N.json`.

What `results.toml` cannot say: an image has an entry after each turn, a prompt one with a list of verdicts, and consistency
and quality stand beside them. The files of rates are not read: those of multipass repeat the same numbers without reasons,
and those of singlepass count the last edit of a prompt alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from editloupe.data.rows import Loaded
from editloupe.data.tables import shown
from editloupe.errors import DataError
from editloupe.protocols.edival.chain import MODE, SENTENCES, read_chain
from editloupe.protocols.edival.instructions import parse_edit
from editloupe.protocols.edival.tables import FOLLOWING, SUCCESS
from editloupe.protocols.importer import ResultEntry, ResultFiles, ResultGroup, read_object
from editloupe.values import Json, Sample, Turn, finite, in_one

_OF_PROMPT: Final = {
    "task_type": "task_types", FOLLOWING: "instruction_following_list", "instruction": "instructions",
    "instruction_following_reason": "instruction_following_reason_list", "format_instructions": "format_instructions",
}  # fmt: skip
"""Key of one edit → key of all edits of a prompt."""
_REASON: Final = "instruction_following_reason"
_BASE: Final = "base_image_quality"
_NO_BOX: Final = "no box of an unchanged object"


class EdiValResults(ResultFiles):
    """Entries by image and turn, or by prompt."""

    tells_missing = False

    def entries(self, path: Path, its: Mapping[str, str], refused: list[str]) -> Iterator[ResultEntry]:
        multi, values = its[MODE] == "multipass", read_object(path)
        turns = sorted(int(name) for name in values if re.fullmatch("[1-9][0-9]{0,2}", name))
        if multi and not turns:
            raise DataError(f"{path}: holds no turn; expected the keys 1, 2 …, found {', '.join(values) or 'none'}")
        for edits in turns if multi else [int(its["edits"])]:
            row = values[str(edits)] if multi else values
            if not isinstance(row, Mapping):
                refused.append(f"{path}: turn {edits} is {shown(row)}; expected an object")
                continue
            # The base image has one quality, which stands with the first entry.
            base = values.get(_BASE) if not multi or edits == turns[0] else None
            id_ = its["index"] if multi else f"{its['index']}.c{edits}"
            whole = {**its, **row, _BASE: base}
            yield ResultEntry(sample_id=id_, item=str(edits), place=f"{path}, turn {edits}", row=whole)

    def samples(self, loaded: Loaded) -> Iterable[Sample]:
        """Return the chains, and their first edits as prompts where the data has no prompts of its own."""
        prompts = any(sample.extra.get(MODE) == "singlepass" for sample in loaded.samples)
        for sample in loaded.samples:
            yield replace(sample, extra={MODE: "multipass", **sample.extra})
            yield from () if prompts else _prompts(sample)

    def kept(self, group: ResultGroup) -> Iterable[Sample]:
        # Without outputs nobody knows which other samples were to be judged: the code leaves out those without one.
        return [s for id_, s in group.samples.items() if group.known or id_ in group.judged]

    def parts(self, entry: ResultEntry, sample: Sample) -> Iterator[tuple[int, str, Mapping[str, Json]]]:
        chain, edits = read_chain(sample), int(entry.item)
        multi = chain.mode == "multipass"
        due = chain.edits[edits - 1 : edits] if multi else chain.edits
        if len(due) != (1 if multi else edits):
            raise ValueError(f"it is about {edits} edits, and the data has {len(chain.edits)}")
        turn = edits if multi else 1
        for place, (row, edit) in enumerate(zip(_edits(entry.row, len(due)), due, strict=True), start=1):
            kind, bracketed, sentence = (
                str(row[name] or "") for name in ("task_type", "format_instructions", "instruction")
            )
            if parse_edit(kind, bracketed, sentence) != edit:
                raise ValueError(f"its instruction is {sentence or bracketed!r}, and the data's {edit.sentence()!r}")
            yield turn, "" if multi else f"instruction {place}", followed(row)
        yield turn, "", self.beside(entry.row)
        if isinstance(base := entry.row[_BASE], Mapping):
            names = [name for rule in self.mapping.metrics.values() for name, *_ in rule.record.values()]
            yield 0, "", {name: base.get(f"base_image_{name}") for name in names}

    def lacks_output(self, entry: ResultEntry, sample: Sample) -> bool:
        return sample.turns[int(entry.item) - 1 if len(sample.turns) > 1 else 0].edited is None

    def beside(self, row: Mapping[str, Json]) -> dict[str, Json]:
        """Return what an entry says beside its verdicts, with `boxes` where a mean of 0 is one of no box."""
        rules = {metric: rule for metric, rule in self.mapping.metrics.items() if metric != FOLLOWING}
        found = {name: row.get(name) for rule in rules.values() for name in rule.names}
        details = row.get("object_details")
        for name in [name for name in found if name.startswith("object_") and found[name] == 0]:
            boxes = details.get(name.removesuffix("_mean")) if isinstance(details, Mapping) else None
            found |= {} if boxes else {f"{name}:boxes": _NO_BOX}
        return found

    def counted(self, group: ResultGroup) -> Iterator[tuple[Mapping[str, str | int], str | None, str, float]]:
        """Yield each number that the official notebook counts, with the zeros."""
        rows = {(one.row["index"], int(one.item)): one.row for one in group.every}
        mode = group.key[2]
        for (index, edits), row in rows.items():
            dims: dict[str, str | int] = {"mode": mode, "turns": edits}
            needed = range(1, edits + 1) if mode == "multipass" else (edits,)
            success = [number for turn in needed for number in _numbers(rows.get((index, turn), {}))]
            if None not in success:
                yield dims, f"instruction {edits}" if mode == "singlepass" else None, SUCCESS, float(all(success))
            yield from ((dims, None, FOLLOWING, number) for number in _numbers(row) if number is not None)
            values = {id_: finite(row.get(rule.value)) for id_, rule in self.mapping.metrics.items() if not rule.record}
            yield from ((dims, None, id_, n) for id_, n in values.items() if id_ != FOLLOWING and n is not None)


EDIVAL: Final = EdiValResults(Path(__file__).with_name("results.toml"), name="edival")


def followed(row: Mapping[str, Json]) -> dict[str, Json]:
    """Return the verdict on an edit as the mapping reads it: true and false are 1 and 0, the reason has the edit type."""
    given = row.get(FOLLOWING)
    reason = f"{row.get('task_type') or ''}: {row.get(_REASON) or ''}"
    return {FOLLOWING: int(given) if isinstance(given, bool) else given, _REASON: reason}


def _edits(row: Mapping[str, Json], due: int) -> list[dict[str, Json]]:
    """Return what an entry says of each edit: the last one, or all of a prompt. Raises ValueError for another number."""
    columns: dict[str, list[Json]] = {}
    for name, several in _OF_PROMPT.items():
        value = row.get(several, row.get(name))
        columns[name] = list(value) if isinstance(value, list) else [row.get(name)]
        if len(columns[name]) != due:
            raise ValueError(f"expected {due} of {several!r}, found {len(columns[name])}")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _numbers(row: Mapping[str, Json]) -> list[float | None]:
    """Return the zeros and ones of an entry as they are written; None for what is no number."""
    listed = row.get(_OF_PROMPT[FOLLOWING])
    found = listed if isinstance(listed, list) else [row.get(FOLLOWING)]
    return [float(one) if isinstance(one, bool) else finite(one) for one in found]


def _prompts(sample: Sample) -> Iterator[Sample]:
    """Yield a chain as complex prompts of its first edits, without outputs."""
    sentences = [turn.instruction for turn in sample.turns]
    lists = {name: value for name, value in sample.extra.items() if isinstance(value, list | tuple)}
    for edits in range(1, len(sentences) + 1):
        cut = {name: list(value[:edits]) for name, value in lists.items() if len(value) == len(sentences)}
        turn = Turn(instruction=in_one(sentences[:edits]), edited=None)
        extra = {**sample.extra, **cut, SENTENCES: sentences[:edits], MODE: "singlepass"}
        yield replace(sample, id=f"{sample.id}.c{edits}", turns=(turn,), extra=extra)
