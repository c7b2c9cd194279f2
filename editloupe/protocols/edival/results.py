"""The official code's result files as findings: `EDITOR/multipass/INDEX_input_raw.json`, `EDITOR/singlepass/…_turn_N.json`.

What `results.toml` cannot say: an image has an entry after each turn, a prompt one with a list of verdicts, and consistency
and quality stand beside them. `image_rate.json` of multipass repeats the same numbers without reasons; it is compared and
not used. Neither are `task_rate.json`, and the rates of singlepass, which count the last edit of a prompt alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Final

from editloupe.answers import Number, Record
from editloupe.data.rows import Loaded
from editloupe.data.tables import shown
from editloupe.findings import Finding
from editloupe.protocols.base import make_protocol
from editloupe.protocols.edival.chain import MODE, SENTENCES, read_chain
from editloupe.protocols.edival.instructions import parse_edit
from editloupe.protocols.edival.mode_rows import FOLLOWING, SUCCESS
from editloupe.protocols.imported import Published
from editloupe.protocols.importer import (
    ResultEntry,
    ResultFiles,
    ResultGroup,
    ResultMapping,
    ResultSaid,
    read_object,
    read_said,
)
from editloupe.scores import Metric
from editloupe.values import Json, Sample, Turn, finite, in_one

CONSISTENCY: Final[Mapping[str, tuple[str, str]]] = {
    "object_consistency": ("object_dinov3_consistency_mean", "object_dinov3_consistency"),
    "object_l1": ("object_l1_consistency_mean", "object_l1_consistency"),
    "background_consistency": ("background_dinov3_consistency", ""),
    "background_l1": ("background_l1_consistency", ""),
}
"""Metric → its key, and the list beside it that holds a number for each box."""
QUALITY: Final[Mapping[str, Mapping[str, str]]] = {
    "image_statistics": {"luminance_p99": "p99", "luminance_p999": "p999", "saturation": "mean_s", "sharpness": "sharpness",
                         "contrast": "contrast"},
    "preference": {"preference": "human_preference_score"},
}  # fmt: skip
"""Question → the metrics that it answers, and their keys."""
_OF_PROMPT: Final = {
    "task_type": "task_types", FOLLOWING: "instruction_following_list", "instruction": "instructions",
    "instruction_following_reason": "instruction_following_reason_list", "format_instructions": "format_instructions",
}  # fmt: skip
"""Key of one edit → key of all edits of a prompt."""
_REASON: Final = "instruction_following_reason"
EDITS: Final = "edits"
BASE: Final = "base_image_quality"
_SHOWN: Final = 3


class EdiValResults(ResultFiles):
    """Entries by image and turn, or by prompt."""

    def entries(
        self, mapping: ResultMapping, path: Path, its: Mapping[str, str], refused: list[str]
    ) -> Iterator[ResultEntry]:
        index, multi = its["index"], its[MODE] == "multipass"
        try:
            values = read_object(path)
            turns = sorted(int(name) for name in values if re.fullmatch("[1-9][0-9]{0,2}", name))
            if multi and not turns:
                names = ", ".join(map(repr, values)) or "none"
                raise ValueError(f"holds no turn; expected the keys 1, 2 …, found {names}")
        except ValueError as error:
            refused.append(f"{path}: {error}")
            return
        base = values.get("base_image_quality")
        for edits in turns if multi else [int(its["edits"])]:
            row = values[str(edits)] if multi else values
            if not isinstance(row, Mapping):
                refused.append(f"{path}: turn {edits} is {shown(row)}; expected an object")
                continue
            # The base image has one quality, which stands with the first entry.
            first = not multi or edits == turns[0]
            more: dict[str, Json] = {EDITS: edits, BASE: (base if isinstance(base, dict) else {}) if first else None}
            id_ = index if multi else f"{index}.c{edits}"
            yield ResultEntry(sample_id=id_, item=str(edits), place=f"{path}, turn {edits}", row={**its, **row, **more})

    def samples(self, loaded: Loaded) -> Iterable[Sample]:
        """Return the chains, and their first edits as prompts where the data has no prompts of its own."""
        prompts = any(sample.extra.get(MODE) == "singlepass" for sample in loaded.samples)
        for sample in loaded.samples:
            yield replace(sample, extra={MODE: "multipass", **sample.extra})
            yield from () if prompts else _prompts(sample)

    def kept(self, group: ResultGroup) -> Iterable[Sample]:
        # Without outputs nobody knows which other samples were to be judged: the code leaves out those without one.
        return [s for id_, s in group.samples.items() if group.known or id_ in group.judged]

    def said(self, mapping: ResultMapping, entry: ResultEntry, sample: Sample) -> Iterable[ResultSaid]:
        chain, edits = read_chain(sample), int(str(entry.row[EDITS]))
        multi = chain.mode == "multipass"
        due = chain.edits[edits - 1 : edits] if multi else chain.edits
        if len(due) != (1 if multi else edits):
            raise ValueError(f"it is about {edits} edits, and the data has {len(chain.edits)}")
        rows = _edits(entry.row, len(due))
        for row, edit in zip(rows, due, strict=True):
            kind, bracketed, sentence = (_text(row[name]) for name in ("task_type", "format_instructions", "instruction"))
            if parse_edit(kind, bracketed, sentence) != edit:
                raise ValueError(f"its instruction is {sentence or bracketed!r}, and the data's {edit.sentence()!r}")
        turn, metrics = (edits if multi else 1), _metrics(mapping)
        for place, row in enumerate(rows, start=1):
            yield replace(read_followed(mapping, row), turn=turn, part="" if multi else f"instruction {place}")
        for metric in (name for name in CONSISTENCY if name in metrics):
            yield replace(read_consistency(entry.row, metric), turn=turn)
        images: dict[int, tuple[Json, str]] = {turn: (entry.row, ""), 0: (entry.row[BASE], "base_image_")}
        for number, (values, prefix) in images.items():
            if isinstance(values, Mapping):
                found = (_quality(question, values, prefix, metrics) for question in QUALITY)
                yield from (replace(one, turn=number) for one in found if one is not None)

    def findings(self, mapping: ResultMapping, group: ResultGroup, judge_id: str) -> Iterator[Finding]:
        # The protocol itself tells which outputs are missing.
        return super().findings(mapping, replace(group, known=False), judge_id)

    def published(self, mapping: ResultMapping, group: ResultGroup, judge_id: str) -> Iterator[Published]:
        """Yield the means as the official notebook computes them, with the zeros."""
        rows = {(one.row["index"], int(one.item)): one.row for one in group.every}
        mode = group.key[2]
        for edits in sorted({turn for _, turn in rows}):
            whole = [index for index, turn in rows if turn == edits]
            at = [rows[index, edits] for index in whole]
            needed = range(1, edits + 1) if mode == "multipass" else (edits,)
            success = [[n for turn in needed for n in _numbers(rows.get((index, turn), {}))] for index in whole]
            means = {SUCCESS: [float(all(numbers)) for numbers in success if None not in numbers]}
            means[FOLLOWING] = [number for row in at for number in _numbers(row) if number is not None]
            for metric, (key, _) in CONSISTENCY.items():
                means[metric] = [number for row in at if (number := finite(row.get(key))) is not None]
            for metric, numbers in means.items():
                if numbers:
                    part = f"instruction {edits}" if mode == "singlepass" and metric == SUCCESS else None
                    dims: dict[str, str | int] = {"mode": mode, "turns": edits}
                    mean, editor = fmean(numbers), group.key[0]
                    yield Published(judge_id=judge_id, editor=editor, dims=dims, part=part, metric=metric, mean=mean,
                                    count=len(numbers))  # fmt: skip

    def notes(self, mapping: ResultMapping, group: ResultGroup) -> Iterator[str]:
        yield from super().notes(mapping, group)
        said = [one for _, its in group.found.values() for one in its if one.metric == FOLLOWING and one.status == "ok"]
        for what, count in (
            ("0 after a model's no, which the code also writes for a model that failed",
             sum(one.value == 0 and "VLM response: 'no'" in one.reason for one in said)),
            ("1 for an object that is not seen, which the code also writes for a detector that failed",
             sum(one.value == 1 and one.reason.startswith("Successfully removed") for one in said)),
        ):  # fmt: skip
            if count:
                yield f"{group.title}: {what}: {count}"
        if group.key[2] == "multipass" and group.every:
            yield from _compared(group)


EDIVAL: Final = EdiValResults(Path(__file__).with_name("results.toml"), name="edival")


def _metrics(mapping: ResultMapping) -> dict[str, Metric]:
    return {one.id: one for one in make_protocol(mapping.protocol, mapping.options).metrics}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


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
    return [_number(one) for one in (listed if isinstance(listed, list) else [row.get(FOLLOWING)])]


def _number(value: Json) -> float | None:
    """Return a finite number; true and false are 1 and 0."""
    return float(value) if isinstance(value, bool) else finite(value)


def read_followed(mapping: ResultMapping, row: Mapping[str, Json]) -> ResultSaid:
    """Return what 0 or 1 with its reason says of an edit."""
    number, kind, reason = _number(row.get(FOLLOWING)), _text(row.get("task_type")), _text(row.get(_REASON))
    given = row.get(FOLLOWING) if number is None else number
    said = read_said(FOLLOWING, mapping.metrics[FOLLOWING], {FOLLOWING: given, _REASON: f"{kind}: {reason}"})
    said = replace(said, reason=said.reason.replace(f"{kind}: {reason}", reason))
    if said.status == "ok" and said.value not in (0, 1):
        return ResultSaid(
            metric=FOLLOWING,
            status="off_menu",
            reason=f"{FOLLOWING} is neither 0 nor 1: {number:g}",
            kind="neither 0 nor 1",
        )
    return said


def read_consistency(row: Mapping[str, Json], metric: str) -> ResultSaid:
    """Return what an entry says of one kind of consistency, -1 to 1. A mean of no boxes is not defined."""
    key, listed = CONSISTENCY[metric]
    value, details = row.get(key), row.get("object_details")
    if value is None:
        unchanged = isinstance(row.get("bg_details"), Mapping)
        why = (
            "there is nothing to compare"
            if unchanged
            else "the official code compares nothing after a change of background"
        )
        return ResultSaid(metric=metric, status="not_defined", reason=why)
    number = finite(value)
    if number is None or not -1 <= number <= 1:
        return ResultSaid(
            metric=metric,
            status="unparsed",
            reason=f"{key} is no number from -1 to 1: {shown(value)}",
            kind=f"{key} is no number",
        )
    boxes = details.get(listed) if isinstance(details, Mapping) else None
    if listed and number == 0 and not boxes:
        found = "no box of an unchanged object" if boxes == [] else "0 without details, which is what it writes for no box"
        return ResultSaid(
            metric=metric, status="not_defined", reason=f"the official code found {found}", kind=f"{metric} of 0: {found}"
        )
    return ResultSaid(metric=metric, status="ok", value=number)


def _quality(question: str, row: Mapping[str, Json], prefix: str, metrics: Mapping[str, Metric]) -> ResultSaid | None:
    """Return one number, or a record of several; None where the protocol has none of them."""
    given = {name: row.get(prefix + key) for name, key in QUALITY[question].items() if name in metrics}
    found = {name: _on_scale(value, metrics[name]) for name, value in given.items()}
    wrong = [
        f"{name} that is no number on its scale"
        for name, value in given.items()
        if value is not None and found[name] is None
    ]
    numbers = [number for number in found.values() if number is not None]
    kind = ", ".join(wrong)
    if not given:
        return None
    if not numbers:
        why = kind or f"the file has no {', '.join(found)}"
        return ResultSaid(metric=question, status="unparsed" if wrong else "not_defined", reason=why, kind=kind)
    answer = Number(value=numbers[0]) if len(found) == 1 else Record(data=dict(found))
    return ResultSaid(metric=question, status="ok", answer=answer, kind=kind)


def _on_scale(value: Json, metric: Metric) -> float | None:
    """Return a number that a metric can have; None for anything else."""
    number, bounds = finite(value), metric.domain.bounds
    return number if number is None or bounds is None or bounds[0] <= number <= bounds[1] else None


def _compared(group: ResultGroup) -> Iterator[str]:
    """Yield how image_rate.json differs from the files of the images."""
    path = Path(group.every[0].place.rpartition(", turn")[0]).parent / "image_rate.json"
    if not path.is_file():
        return
    try:
        rates = read_object(path)
    except ValueError as error:
        yield f"{group.title}: not compared: {path}: {error}"
        return
    own: dict[str, list[float | None]] = {}
    for entry in sorted(group.every, key=lambda one: (one.sample_id, int(one.item))):
        own.setdefault(entry.sample_id, []).extend(_numbers(entry.row))
    if differing := [index for index in {**own, **rates} if own.get(index) != rates.get(index)]:
        listed = ", ".join(sorted(differing)[:_SHOWN])
        yield f"{group.title}: {path.name} differs from the images' own files: {len(differing)} images ({listed})"


def _prompts(sample: Sample) -> Iterator[Sample]:
    """Yield a chain as complex prompts of its first edits, without outputs."""
    sentences = [turn.instruction for turn in sample.turns]
    lists = {name: value for name, value in sample.extra.items() if isinstance(value, list | tuple)}
    for edits in range(1, len(sentences) + 1):
        cut = {name: list(value[:edits]) for name, value in lists.items() if len(value) == len(sentences)}
        turn = Turn(instruction=in_one(sentences[:edits]), edited=None)
        extra = {**sample.extra, **cut, SENTENCES: sentences[:edits], MODE: "singlepass"}
        yield replace(sample, id=f"{sample.id}.c{edits}", turns=(turn,), extra=extra)
