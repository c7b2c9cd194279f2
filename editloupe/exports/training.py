"""Write a run's dialogues for training with `trl`: JSON Lines of messages, the pictures beside them as files.

A row has the same columns with the same types in every line. A picture stands in a message as {"type": "image"}; the
column `images` names the files in the order of these places.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from editloupe.answers import Record, fold
from editloupe.chat import ImagePart, Message, TextPart
from editloupe.data.images import EncodedImage, ImagePolicy, ImageStore
from editloupe.errors import ConfigError, ImageError
from editloupe.exports.episodes import Episode, Source
from editloupe.exports.references import Reference, Verdict
from editloupe.exports.write import claim, json_bytes, lineage, whole
from editloupe.figures.judged import judged_in
from editloupe.findings import Finding
from editloupe.replies import FINAL_ANSWER, neutralise
from editloupe.values import Json, digest

MARKER: Final = ".editloupe-training"
"""A file in every folder that we wrote. It lets us write there again."""

VERIFICATION: Final = "verification"
"""The question whose answer is {"is_changed": bool, "instruction": str}."""

EDIT_CLASS: Final = "edit_class"
"""The score that says an edit's class; its dimension `class` is people's where they gave one."""

ALIGNMENT: Final = "alignment_accuracy"
"""The score that says how well a restated instruction matches the reference; 1 if it is right."""

HALLUCINATION: Final = "Hallucination"
"""The class of an edit that did something else than the instruction asks for. Verifiers often restate it all the same."""

Turns: TypeAlias = Literal["answer", "all"]

_ALONE: Final = "have no answer of the other kind to be paired with"

_RIGHT: Final = "restate what the reference instruction says"

_AS_SENT: Final = ImagePolicy()
"""How pictures are written: the file's own bytes if it is a plain PNG, JPEG or WebP, else a PNG of its upright pixels."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answers of one run, and what they are held against."""

    source: Source
    references: tuple[Reference, ...] = ()

    def verdict(self, finding: Finding) -> tuple[Verdict, str]:
        """Return whether an answer agrees with all references, and in words why not.

        It disagrees if it disagrees with one of them, whatever the others say.
        """
        found = {reference.name: reference.verdict(finding) for reference in self.references}
        if against := [name for name, verdict in found.items() if verdict == "disagrees"]:
            return "disagrees", f"disagree with {' and '.join(against)}"
        if unknown := [name for name, verdict in found.items() if verdict == "open"]:
            return "open", f"have nothing to be compared with of {' and '.join(unknown)}"
        return "agrees", ""


@dataclass(kw_only=True)
class Funnel:
    """How many findings became rows, and why the others did not."""

    format: Literal["sft", "dpo"]
    findings: int = 0
    """Those that were asked for."""
    used: int = 0
    """Those that stand in a row."""
    rows: int = 0
    images: int = 0
    """Files, each counted once."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Reason → findings."""


def write_sft(run: Answers, folder: Path, *, turns: Turns = "answer", metric: str | None = None) -> Funnel:
    """Write `sft.jsonl`, a row for the dialogue of each finding that has an answer, and return the funnel.

    turns: "answer" for the question and the last reply, "all" for every turn with its observations.
    metric: only this question; None for every question that shows a picture.
    Answers that do not agree with all of the run's references are left out. Raises ConfigError if nothing is left, or the
    folder holds other things; StorageError. What could not be read stands in the source's `problems`.
    """
    funnel, writer = Funnel(format="sft"), _Writer(folder)

    def rows() -> Iterator[dict[str, Any]]:
        for finding in _answered(run.source, metric, funnel):
            verdict, why = run.verdict(finding)
            if verdict != "agrees":
                funnel.left_out[why] += 1
                continue
            try:
                dialogue = _dialogue(_episode(run.source, finding), turns, pictures=metric is None)
                messages, images = writer.messages(run.source, dialogue)
            except _Unusable as error:
                funnel.left_out[str(error)] += 1
                continue
            funnel.used += 1
            yield {"messages": messages, "images": images, "lineage": _lineage(run.source, finding)}

    return writer.write(rows(), funnel)


def write_dpo(runs: Sequence[Answers], folder: Path, *, metric: str | None = None) -> Funnel:
    """Write `dpo.jsonl`, a row for each pair of a chosen and a rejected answer to one question, and return the funnel.

    If the runs have references: an answer that agrees with them is chosen, one that disagrees is rejected. The first
    chosen one goes with the first rejected one, the second with the second. Without references: an edit's
    `reference_instruction` is chosen, and a restatement that misses it is rejected, for edits of the class Hallucination.
    Raises as `write_sft`.
    """
    funnel, writer = Funnel(format="dpo"), _Writer(folder)
    by_people = any(run.references for run in runs)
    pairs = _judged_pairs(runs, metric, funnel) if by_people else _restated_pairs(runs, funnel)

    def rows() -> Iterator[dict[str, Any]]:
        for pair in pairs:
            findings = 1 if pair.chosen_by is pair.rejected_by else 2
            try:
                prompt, images = writer.messages(pair.chosen_by[0], pair.prompt)
            except _Unusable as error:
                funnel.left_out[str(error)] += findings
                continue
            funnel.used += findings
            yield {
                "prompt": prompt,
                "chosen": [_text("assistant", pair.chosen)],
                "rejected": [_text("assistant", pair.rejected)],
                "images": images,
                "lineage": _lineage(*pair.chosen_by),
                "rejected_lineage": _lineage(*pair.rejected_by),
            }

    return writer.write(rows(), funnel)


class _Unusable(Exception):
    """Why a finding gives no row, in words for the funnel."""


@dataclass(frozen=True, kw_only=True)
class _Pair:
    prompt: Sequence[Message]
    chosen: str
    rejected: str
    chosen_by: tuple[Source, Finding]
    """The finding whose dialogue it is; that of the rejected one where people wrote the chosen text."""
    rejected_by: tuple[Source, Finding]


class _Writer:
    """Writes rows and their pictures below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: set[str] = set()
        self.stores: dict[Path, ImageStore] = {}

    def write(self, rows: Iterable[dict[str, Any]], funnel: Funnel) -> Funnel:
        """Write the rows and the funnel. Raises ConfigError if there is no row; then older files stay as they are."""
        claim(self.folder, MARKER, option="--out")
        with whole(self.folder / f"{funnel.format}.jsonl", below=self.folder) as file:
            for row in rows:
                file.write(json_bytes(row) + b"\n")
                funnel.rows += 1
            if not funnel.rows:
                reasons = "; ".join(f"{n:,} {what}" for what, n in funnel.left_out.most_common()) or "no question was asked"
                raise ConfigError(f"nothing to export as {funnel.format}: of {funnel.findings:,} findings, {reasons}")
        funnel.images = len(self.written)
        with whole(self.folder / f"{funnel.format}.funnel.json", below=self.folder) as file:
            told = {**vars(funnel), "left_out": dict(funnel.left_out.most_common())}
            file.write(json_bytes(told, indent=1) + b"\n")
        return funnel

    def messages(self, source: Source, dialogue: Iterable[Message]) -> tuple[list[dict[str, Any]], list[str]]:
        """Return messages as `trl` reads them, and the files of their pictures, which are written.

        Raises _Unusable where a picture is not in the run folder any more.
        """
        store = self.stores.setdefault(source.folder, ImageStore(source.folder / "blobs", writes=False))
        rows, pictures = [], []
        for message in dialogue:
            content: list[dict[str, str]] = []
            for part in message.parts:
                if isinstance(part, TextPart):
                    content.append({"type": "text", "text": part.text})
                    continue
                content.append({"type": "image"})
                pictures.append(self._encoded(store, part))
            rows.append({"role": message.role, "content": content})
        return rows, [self._written(picture) for picture in pictures]

    def _encoded(self, store: ImageStore, part: ImagePart) -> EncodedImage:
        try:
            return store.encoded(part.image, _AS_SENT)
        except ImageError as error:
            raise _Unusable("have a picture that is not in the run folder, or damaged") from error

    def _written(self, picture: EncodedImage) -> str:
        sha256 = hashlib.sha256(picture.data).hexdigest()
        name = f"images/{sha256[:2]}/{sha256}.{picture.media_type.removeprefix('image/').replace('jpeg', 'jpg')}"
        if name not in self.written:
            with whole(self.folder / name, below=self.folder) as file:
                file.write(picture.data)
            self.written.add(name)
        return name


def _answered(source: Source, metric: str | None, funnel: Funnel) -> Iterator[Finding]:
    """Yield the findings that have an answer and a dialogue; the others are counted."""
    known = {f.metric for f in source.findings}
    if metric is not None and metric not in known:
        raise ConfigError(f"{source.folder}: no finding of the question {metric!r}; it has {', '.join(sorted(known))}")
    for finding in source.findings:
        if metric not in (None, finding.metric):
            continue
        funnel.findings += 1
        if finding.answer is None:
            funnel.left_out[f"have no answer ({finding.status})"] += 1
        elif finding.role == "measure" or finding.trace is None:
            funnel.left_out["are measured or known, without a dialogue"] += 1
        else:
            yield finding


def _episode(source: Source, finding: Finding) -> Episode:
    """Return a finding's trace. Raises _Unusable if it cannot be read, or holds no reply."""
    assert finding.trace is not None, "what was never asked is left out before"
    episode = source.episode(finding.trace, finding)
    if episode is None or not any(exchange.reply for exchange in episode.exchanges):
        raise _Unusable("have a trace that cannot be read")
    return episode


def _prompt(episode: Episode, *, pictures: bool = False) -> list[Message]:
    """Return what the model was asked with.   pictures: raise _Unusable if it shows none."""
    prompt = list(next(exchange.messages for exchange in episode.exchanges if exchange.reply))
    if pictures and not any(message.images for message in prompt):
        raise _Unusable("show no picture; --criterion exports such a question")
    return prompt


def _last(episode: Episode) -> str:
    """Return the text of the reply that holds the answer."""
    return next(exchange.reply.text for exchange in reversed(episode.exchanges) if exchange.reply)


def _dialogue(episode: Episode, turns: Turns, *, pictures: bool) -> list[Message]:
    """Return the messages of a row. Raises _Unusable for a dialogue that is no example to learn from.

    pictures: the question must show one.
    """
    prompt, last = _prompt(episode, pictures=pictures), Message.of_text("assistant", _last(episode))
    if turns == "answer":
        return [*prompt, last]
    counts = {} if episode.finding is None else episode.finding.counts
    if counts.get("reminders") or counts.get("malformed_calls"):
        raise _Unusable("have a reply on the way that could not be used")
    messages = next(exchange.messages for exchange in reversed(episode.exchanges) if exchange.reply)
    if any(message.tool_calls or message.role == "tool" for message in messages):
        raise _Unusable("called tools natively, which is no text; judge with --tool-protocol text")
    return [*messages, last]


def _judged_pairs(runs: Sequence[Answers], metric: str | None, funnel: Funnel) -> Iterator[_Pair]:
    """Pair answers that agree with the references and answers that do not, to one question in the same words."""
    by_task: dict[str, list[tuple[Source, Finding, Verdict]]] = {}
    for run in runs:
        for finding in _answered(run.source, metric, funnel):
            verdict, why = run.verdict(finding)
            if verdict == "open":
                funnel.left_out[why] += 1
            else:
                by_task.setdefault(finding.task_id, []).append((run.source, finding, verdict))
    for found in by_task.values():
        if len({verdict for *_, verdict in found}) == 1:
            # Most questions; their traces need not be read.
            funnel.left_out[_ALONE] += len(found)
            continue
        asked: dict[str, dict[Verdict, list[tuple[Source, Finding, Episode]]]] = {}
        for source, finding, verdict in found:
            try:
                episode = _episode(source, finding)
                words = digest([message.to_json() for message in _prompt(episode, pictures=metric is None)])
            except _Unusable as error:
                funnel.left_out[str(error)] += 1
                continue
            asked.setdefault(words, {}).setdefault(verdict, []).append((source, finding, episode))
        for sides in asked.values():
            chosen, rejected = sides.get("agrees", []), sides.get("disagrees", [])
            if alone := abs(len(chosen) - len(rejected)):
                funnel.left_out[_ALONE] += alone
            for (one, good, first), (other, bad, second) in zip(chosen, rejected, strict=False):
                if good.answer == bad.answer:
                    # People rated a score that rests on other answers, too.
                    funnel.left_out["give the very answer that they would be paired with"] += 2
                    continue
                yield _Pair(
                    prompt=_prompt(first),
                    chosen=_last(first),
                    rejected=_last(second),
                    chosen_by=(one, good),
                    rejected_by=(other, bad),
                )


def _restated_pairs(runs: Sequence[Answers], funnel: Funnel) -> Iterator[_Pair]:
    """Pair the reference instruction of an edit that went astray with a restatement that is not what was done."""
    for run in runs:
        source = run.source
        if not any(finding.metric == VERIFICATION for finding in source.findings):
            raise ConfigError(
                f"{source.folder}: nothing says which answer is the better one; expected people's ratings "
                f"(--agree-with FILE), a second judge (--agree-with-run RUN), or a run that asks {VERIFICATION!r}, as the "
                "protocol unicverify does"
            )
        scores = [score for judged in judged_in(source.store) for score in judged.scores]
        # People's class, else the judge's.
        classes = {score.key: score.dims.get("class") for score in scores if score.metric == EDIT_CLASS}
        aligned = {score.key: score.value for score in scores if score.metric == ALIGNMENT}
        for finding in _answered(source, VERIFICATION, funnel):
            sample, pair = source.sample(finding), (source, finding)
            reference = None if sample is None else sample.extra.get("reference_instruction")
            try:
                chosen, rejected = _restated(finding, reference, classes.get(finding.about.key))
                accuracy = aligned.get(finding.about.key, 0.0)
                if accuracy is None:
                    raise _Unusable("have no alignment accuracy, so that they may be right")
                if accuracy >= 1:
                    raise _Unusable(_RIGHT)
                prompt = _prompt(_episode(source, finding))
            except _Unusable as error:
                funnel.left_out[str(error)] += 1
                continue
            yield _Pair(prompt=prompt, chosen=chosen, rejected=rejected, chosen_by=pair, rejected_by=pair)


def _restated(finding: Finding, reference: Json, class_: object) -> tuple[str, str]:
    """Return the final answers with the reference instruction and with the restated one. Raises _Unusable."""
    data = finding.answer.data if isinstance(finding.answer, Record) else None
    restated = data.get("instruction") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(restated, str):
        raise _Unusable("restate no instruction")
    if not data.get("is_changed") or not restated.strip():
        raise _Unusable("say that nothing has changed")
    if not isinstance(reference, str) or not reference.strip():
        raise _Unusable("are of a sample without extra.reference_instruction")
    if class_ is None:
        raise _Unusable("are of a sample without a class")
    if class_ != HALLUCINATION:
        raise _Unusable(f"are of the class {class_}")
    if fold(restated) == fold(reference):
        raise _Unusable(_RIGHT)
    # No reason: people gave none for theirs. Both in one form, so that the form is not what is learned.
    answers = ({"is_changed": True, "instruction": neutralise(text)} for text in (reference, restated))
    chosen, rejected = (f"<{FINAL_ANSWER}>{json.dumps(a, ensure_ascii=False)}</{FINAL_ANSWER}>" for a in answers)
    return chosen, rejected


def _text(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def _lineage(source: Source, finding: Finding) -> dict[str, Json]:
    return lineage(finding, source.store.identity, finding.sample_id, finding.editor)
