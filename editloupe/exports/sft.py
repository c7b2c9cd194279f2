"""Write a run's dialogues for training with `trl`: JSON Lines of messages, the pictures beside them as files.

A row has the same columns with the same types in every line. A picture stands in a message as {"type": "image"}; the
column `images` names the files in the order of these places.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from editloupe.answers import fold
from editloupe.chat import Message, TextPart
from editloupe.data.human import value_on
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.errors import ConfigError, ImageError
from editloupe.exports.episodes import Source
from editloupe.exports.write import json_bytes, whole
from editloupe.figures.columns import Key, key_of
from editloupe.figures.compare import rated_by_people
from editloupe.figures.judged import judged_in
from editloupe.findings import Finding
from editloupe.runs.store import RunStore
from editloupe.values import Json, digest

FILES: Final = {"sft.jsonl", "dpo.jsonl", "images"}
"""What is written into a folder. A folder that holds nothing else is written again."""

Turns: TypeAlias = Literal["answer", "all"]

_ALONE: Final = "have no answer of the other kind to be paired with"

_AS_SENT: Final = ImagePolicy()
"""How pictures are written: the file's own bytes if it is a plain PNG, JPEG or WebP, else a PNG of its upright pixels."""


@dataclass(kw_only=True)
class Funnel:
    """How many findings became rows, and why the others did not."""

    findings: int = 0
    """Those that were asked for."""
    used: int = 0
    """Those that stand in a row."""
    rows: int = 0
    images: int = 0
    """Files, each counted once."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Reason → findings."""


class People:
    """People's ratings of a run's answers.

    notes: what of the ratings could not be used.
    """

    def __init__(self, store: RunStore, human: Path | None, columns: Mapping[str, str]) -> None:
        """human: a table; None for the ratings that the run's samples carry.   columns: role → column of the table.

        Raises ConfigError if there is no rating, or none meets the run.
        """
        judged = judged_in(store)
        rated, self.notes = rated_by_people(judged, human, columns)
        if rated is None:
            raise ConfigError(
                f"{store.folder}: its samples carry no human ratings; name a table of ratings with --human FILE"
            )
        self._ratings, self._metrics = rated.column, store.metrics()
        self._scores: dict[tuple[str, str], list[bool]] = {}
        """(task id, judge id) → whether people agree with each score that rests on it and is rated."""
        for judge in judged:
            ids = {f.task_id: f.judge_id for f in judge.findings}
            for score in judge.scores:
                alike = self._alike(score.metric, key_of(score), score.value, score.label)
                for task in filter(ids.__contains__, score.findings if alike is not None else ()):
                    self._scores.setdefault((task, ids[task]), []).append(bool(alike))

    def agree(self, finding: Finding) -> bool | None:
        """Return whether people rated the answer alike; None if they did not.

        Of a question that is no rated metric, all scores that rest on it and are rated have to agree.
        """
        if self._ratings.of(finding.metric):
            key = (finding.editor, finding.sample_id, finding.turn, finding.part)
            return self._alike(finding.metric, key, finding.value, finding.label)
        found = self._scores.get((finding.task_id, finding.judge_id))
        return None if found is None else all(found)

    def _alike(self, metric: str, key: Key, value: float | None, label: str | None) -> bool | None:
        """Whether an answer is worth what people say; None where one of them says nothing."""
        theirs = self._ratings.of(metric).get(key)
        ours = label if value is None else value
        if theirs is None or ours is None:
            return None
        one, other = (self._worth(metric, said) for said in (ours, theirs))
        if isinstance(one, str) or isinstance(other, str):
            return one == other
        # A mean of ratings is rounded.
        return abs(one - other) <= 1e-9

    def _worth(self, metric: str, said: float | str) -> float | str:
        """A label's value on the scale of its metric; a word without one as it is, whatever its case and punctuation."""
        if not isinstance(said, str):
            return said
        value = value_on(self._metrics[metric], said)
        return fold(said) if value is None else value


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answers of one run, and people's ratings of them."""

    source: Source
    people: People | None = None
    """None: every answer is an example."""


def write_sft(run: Answers, folder: Path, *, turns: Turns = "answer") -> Funnel:
    """Write `sft.jsonl`, a row for the dialogue of each finding that has an answer, and return the funnel.

    turns: "answer" for the question and the last reply, "all" for every turn with its observations.
    Answers that people do not agree with are left out. Raises ConfigError if nothing is left, or the folder holds other
    things; StorageError. What could not be read stands in the source's `problems`.
    """
    funnel, writer = Funnel(), _RowWriter(folder)

    def rows() -> Iterator[dict[str, Any]]:
        for finding, agrees in _answered(run, funnel):
            try:
                if not agrees:
                    raise _LeftOut("disagree with people")
                messages, images = writer.messages(run.source, _dialogue(run.source, finding, turns))
            except _LeftOut as error:
                funnel.left_out[str(error)] += 1
                continue
            funnel.used += 1
            yield {"messages": messages, "images": images, "lineage": _lineage(run.source, finding)}

    return writer.write("sft.jsonl", rows(), funnel)


def write_dpo(runs: Sequence[Answers], folder: Path) -> Funnel:
    """Write `dpo.jsonl`, a row for each pair of a chosen and a rejected answer to one question, and return the funnel.

    An answer that people agree with is chosen, one that they do not is rejected. The first chosen one goes with the first
    rejected one, the second with the second. Raises as `write_sft`.
    """
    funnel, writer = Funnel(), _RowWriter(folder)

    def rows() -> Iterator[dict[str, Any]]:
        for chosen, rejected in _pairs(runs, funnel):
            try:
                prompt, images = writer.messages(chosen.source, chosen.messages[:-1])
            except _LeftOut as error:
                funnel.left_out[str(error)] += 2
                continue
            funnel.used += 2
            sides = (("chosen", "lineage", chosen), ("rejected", "rejected_lineage", rejected))
            answers = {name: [_row(side.messages[-1])] for name, _, side in sides}
            origins = {name: _lineage(side.source, side.finding) for _, name, side in sides}
            yield {"prompt": prompt, **answers, "images": images, **origins}

    return writer.write("dpo.jsonl", rows(), funnel)


class _LeftOut(Exception):
    """Why a finding gives no row, in words for the funnel."""


@dataclass(frozen=True, kw_only=True)
class _Side:
    """One answer of a pair, with its question."""

    source: Source
    finding: Finding
    messages: Sequence[Message]


class _RowWriter:
    """Writes rows and their pictures below one folder."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() and (not folder.is_dir() or any(path.name not in FILES for path in folder.iterdir())):
            raise ConfigError(f"{folder} holds other files; name an empty or a new folder with --sft")
        self.folder = folder
        self.written: set[str] = set()

    def write(self, name: str, rows: Iterable[dict[str, Any]], funnel: Funnel) -> Funnel:
        """Write the rows. Raises ConfigError if there is none; then older files stay as they are."""
        with whole(self.folder / name, below=self.folder) as file:
            for row in rows:
                file.write(json_bytes(row) + b"\n")
                funnel.rows += 1
            if not funnel.rows:
                reasons = "; ".join(f"{n:,} {what}" for what, n in funnel.left_out.most_common()) or "no question was asked"
                raise ConfigError(f"nothing to export to {name}: of {funnel.findings:,} findings, {reasons}")
        funnel.images = len(self.written)
        return funnel

    def messages(self, source: Source, dialogue: Sequence[Message]) -> tuple[list[dict[str, Any]], list[str]]:
        """Return messages as `trl` reads them, and the files of their pictures, which are written.

        Raises _LeftOut where a picture is not in the run folder any more.
        """
        store = ImageStore(source.folder / "blobs", writes=False)
        try:
            pictures = [store.encoded(part.image, _AS_SENT) for message in dialogue for part in message.images]
        except ImageError as error:
            raise _LeftOut("have a picture that is not in the run folder, or damaged") from error
        return [_row(message) for message in dialogue], [self._written(one.data, one.media_type) for one in pictures]

    def _written(self, data: bytes, media_type: str) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        name = f"images/{sha256[:2]}/{sha256}.{media_type.removeprefix('image/').replace('jpeg', 'jpg')}"
        if name not in self.written:
            with whole(self.folder / name, below=self.folder) as file:
                file.write(data)
            self.written.add(name)
        return name


def _row(message: Message) -> dict[str, Any]:
    parts = [{"type": "text", "text": p.text} if isinstance(p, TextPart) else {"type": "image"} for p in message.parts]
    return {"role": message.role, "content": parts}


def _answered(run: Answers, funnel: Funnel) -> Iterator[tuple[Finding, bool]]:
    """Yield the answers that have a dialogue and, where people are asked, a rating: with whether these agree."""
    for finding in run.source.findings:
        funnel.findings += 1
        agrees = True if run.people is None or finding.answer is None else run.people.agree(finding)
        if finding.answer is None:
            funnel.left_out[f"have no answer ({finding.status})"] += 1
        elif finding.role == "measure" or finding.trace is None:
            funnel.left_out["are measured or known, without a dialogue"] += 1
        elif agrees is None:
            funnel.left_out["are rated by nobody"] += 1
        else:
            yield finding, agrees


def _dialogue(source: Source, finding: Finding, turns: Turns) -> list[Message]:
    """Return the messages of a row. Raises _LeftOut for a dialogue that is no example to learn from."""
    episode = source.episode(finding)
    answered = [(exchange.messages, exchange.reply) for exchange in episode.exchanges if exchange.reply] if episode else []
    if not answered:
        raise _LeftOut("have a trace that cannot be read")
    (prompt, _), (messages, reply) = answered[0], answered[-1]
    if not any(message.images for message in prompt):
        raise _LeftOut("show no picture")
    last = Message.of_text("assistant", reply.text)
    if turns == "answer":
        return [*prompt, last]
    if finding.counts.get("reminders") or finding.counts.get("malformed_calls"):
        raise _LeftOut("have a reply on the way that could not be used")
    if any(message.tool_calls or message.role == "tool" for message in messages):
        raise _LeftOut("called tools natively, which is no text; judge with --set tool_protocol=text")
    return [*messages, last]


def _pairs(runs: Sequence[Answers], funnel: Funnel) -> Iterator[tuple[_Side, _Side]]:
    """Pair answers that people agree with and answers that they do not, to one question in the same words."""
    by_task: dict[str, list[tuple[Source, Finding, bool]]] = {}
    for run in runs:
        for finding, agrees in _answered(run, funnel):
            by_task.setdefault(finding.task_id, []).append((run.source, finding, agrees))
    for found in by_task.values():
        if len({agrees for *_, agrees in found}) == 1:
            # Most questions; their traces need not be read.
            funnel.left_out[_ALONE] += len(found)
            continue
        asked: dict[str, dict[bool, list[_Side]]] = {}
        for source, finding, agrees in found:
            try:
                messages = _dialogue(source, finding, "answer")
            except _LeftOut as error:
                funnel.left_out[str(error)] += 1
                continue
            side = _Side(source=source, finding=finding, messages=messages)
            words = digest([message.to_json() for message in messages[:-1]])
            asked.setdefault(words, {True: [], False: []})[agrees].append(side)
        for sides in asked.values():
            funnel.left_out[_ALONE] += abs(len(sides[True]) - len(sides[False]))
            for chosen, rejected in zip(sides[True], sides[False], strict=False):
                if chosen.finding.answer == rejected.finding.answer:
                    # People rated a score that rests on other answers, too.
                    funnel.left_out["give the very answer that they would be paired with"] += 2
                else:
                    yield chosen, rejected


def _lineage(source: Source, finding: Finding) -> dict[str, Json]:
    return {
        "run": source.store.identity,
        "task_id": finding.task_id,
        "judge_id": finding.judge_id,
        "sample": finding.sample_id,
        "editor": finding.editor,
        "metric": finding.metric,
        "repeat": finding.repeat,
    }
