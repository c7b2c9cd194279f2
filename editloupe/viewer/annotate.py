"""Pages on which people answer a run's questions one after another, and the data that their script asks for.

    index.html                 who is there: a rater chooses a name
    annotate.html?rater=NAME   the questions of one rater, answered by keys
    queue.json?rater=NAME      how each of them stands
    question.json?rater=NAME&id=ID   one of them, with its pictures
    answer, undo               what the page sends (POST)

A rater is told nothing of what others said, nor which editor made an edit; the adjudicator is told what the raters said of
a question.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from editloupe.answers import AnswerSpec, Labels
from editloupe.data.human import ADJUDICATED
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, DataError, EditLoupeError
from editloupe.imaging.views import make_view
from editloupe.runs.annotation import (
    Annotation,
    Meanwhile,
    Progress,
    Question,
    Reply,
    check_name,
    options_of,
    other_name,
    swapped,
    views_of,
)
from editloupe.runs.people import Given, writable
from editloupe.scores import Metric
from editloupe.tasks import Ask
from editloupe.values import Json, Sample, digest, finite
from editloupe.viewer.pages import ASSET_TYPES, FOREVER, PLAIN_CSP, Response, assets, rendered, text
from editloupe.viewer.pictures import Pictures
from editloupe.viewer.rows import question_name, tone
from editloupe.viewer.sample import home, targets

_WHOLE: Final = frozenset({"whole", "mask", "fill", "outline", "patch"})
"""View ops whose picture is the whole image, so that a place of the image is the same place of the picture."""


@dataclass(frozen=True, kw_only=True)
class AnnotationSite:
    """The questions of one run, served."""

    annotation: Annotation
    adjudicates: bool = False
    """Whether only disagreements are asked, by who settles them."""
    names_shown: bool = False
    """Whether the adjudicator is told who said what; else raters are numbered."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    """What a page of this server sends along; pages of other sites cannot read it."""
    listed: bool = False

    @cached_property
    def _pictures(self) -> Pictures:
        folder = self.annotation.folder.resolve()
        return Pictures(folder, lambda name: path if (path := folder / name).is_file() else None)

    @cached_property
    def _run(self) -> str:
        return digest([str(self.annotation.folder.resolve()), self.annotation.identity])[:16]

    def _shelf_of(self, rater: str) -> str:
        """Under which a browser keeps what is not saved yet; another run's at the same address has another name."""
        return f"editloupe:annotate:{self._run}:{rater}"

    @cached_property
    def _images(self) -> ImageStore:
        return ImageStore(self.annotation.folder / "blobs", cache_bytes=64 * 2**20)

    def at(self, address: str, query: str = "") -> Response | None:
        """Return what lies at an address below the root; None if nothing does."""
        given = {name: values[0] for name, values in parse_qs(query).items()}
        match address.split("/"):
            case [""]:
                return Response(status=HTTPStatus.FOUND, location="/index.html")
            case ["static", name] if name in (files := assets()):
                return Response(body=files[name], type=f"{ASSET_TYPES[name.rpartition('.')[2]]}; charset=utf-8")
            case ["blobs", ab, name]:
                found = self._pictures.shown(f"{ab}/{name}")
                return None if found is None else Response(body=found[0], type=found[1], cache=FOREVER, csp=PLAIN_CSP)
            case ["index.html"]:
                return self._index()
        rater = given.get("rater", "")
        if (refused := self._refused(rater)) is not None:
            return refused if address in ("annotate.html", "queue.json", "question.json") else None
        match address:
            case "annotate.html":
                return text(self._page(rater))
            case "queue.json":
                return _json(self._queue(rater))
            case "question.json":
                question = self.annotation.question(given.get("id", ""), rater)
                return None if question is None else _json(self._question(question, rater))
        return None

    def said(self, address: str, data: Any) -> Response | None:
        """Store what a rater's page sent, on disk before this returns. Raises StorageError."""
        if address not in ("answer", "undo"):
            return None
        rater = data.get("rater") if isinstance(data, Mapping) else None
        if not isinstance(rater, str):
            return _refused("expected a JSON object with the name of a rater")
        if (refused := self._refused(rater)) is not None:
            return refused
        try:
            if address == "undo":
                question = self.annotation.undo(rater)
                return _json({"id": None if question is None else question.id, "progress": self._progress(rater)})
            return self._answer(data, rater)
        except DataError as error:
            return _refused(str(error))

    def _answer(self, data: Mapping[str, Any], rater: str) -> Response:
        """Raises DataError, StorageError."""
        answer, seconds = data.get("answer"), finite(data.get("seconds"))
        words = {name: data.get(name, "") for name in ("id", "task_id", "note", "seen")}
        if not all(isinstance(word, str) for word in words.values()) or not isinstance(answer, str | None):
            raise DataError("expected the texts id, task_id, note, seen and answer (null for a question that is skipped)")
        question = self.annotation.question(words["id"], rater)
        if question is None:
            raise DataError(f"{rater} is not asked this question here; load the page again")
        reply = Reply(
            answer=answer, note=words["note"], seconds=seconds or 0.0, task_id=words["task_id"], seen=words["seen"]
        )
        try:
            given: Given | None = self.annotation.save(question, rater, reply)
            status = HTTPStatus.OK
        except Meanwhile as other:
            given, status = None if other.now.retracted else other.now, HTTPStatus.CONFLICT
        task = self.annotation.task(question, rater)
        now = self._given(given, task, rater)
        return _json({**now, "progress": self._progress(rater)}, status=status)

    def _refused(self, rater: str) -> Response | None:
        """The answer to a name that may not be used here; None for one that may."""
        raters = self.annotation.assignment.raters
        if self.adjudicates:
            why = "" if rater == ADJUDICATED else "Only disagreements are settled here."
        elif raters and rater not in raters:
            why = f"{rater!r} is none of the raters: {', '.join(raters)}."
        else:
            why = ""
            try:
                check_name(rater)
            except ConfigError as error:
                why = str(error)
        return text(f"{why}\n", "text/plain", status=HTTPStatus.NOT_FOUND) if why else None

    def _index(self) -> Response:
        if self.adjudicates:
            return Response(status=HTTPStatus.FOUND, location=f"/annotate.html?rater={ADJUDICATED}")
        annotation = self.annotation
        shown = annotation.assignment.raters or annotation.raters
        page = rendered(
            "raters.html",
            root="",
            run=annotation.folder.resolve().name,
            raters=[annotation.progress(name) for name in shown],
            open_to_all=not annotation.assignment.raters,
            writable=writable(annotation.folder),
        )
        return text(page)

    def _page(self, rater: str) -> str:
        return rendered(
            "annotate.html",
            root="",
            run=self.annotation.folder.resolve().name,
            rater=rater,
            token=self.token,
            adjudicates=self.adjudicates,
            writable=writable(self.annotation.folder),
            shelf=self._shelf_of(rater),
        )

    def _progress(self, rater: str) -> dict[str, Json]:
        found: Progress = self.annotation.progress(rater)
        return {"total": found.total, "answered": found.answered, "skipped": found.skipped, "open": found.open}

    def _queue(self, rater: str) -> dict[str, Json]:
        metrics = self.annotation.metrics
        questions: list[Json] = [
            {
                "id": question.id,
                **_named(question, metrics),
                "status": status,
            }
            for question, status in self.annotation.statuses(rater)
        ]
        # A page of an earlier start of the server goes on with the new token: another site's page cannot read it.
        return {
            "token": self.token,
            "shelf": self._shelf_of(rater),
            "questions": questions,
            "progress": self._progress(rater),
        }

    def _question(self, question: Question, rater: str) -> dict[str, Json]:
        annotation = self.annotation
        task = annotation.task(question, rater)
        sample = annotation.samples[question.about.key]
        metric = annotation.metrics.get(question.metric)
        shown, problem = self._views(task, rater, sample)
        place = home(sample, [m for m in targets(sample) if any(m.image.sha256 == v["origin"] for v in shown)])
        turns = [sample.asked(question.about.turn)] if question.about.turn else [t.instruction for t in sample.turns]
        # Where a judge is not told the instruction, nobody is.
        prompt = " ".join(task.prompt.split())
        instructions = [instruction for instruction in turns if " ".join(instruction.split()) in prompt]
        votes: list[Json] = []
        if self.adjudicates:
            everybody = annotation.raters
            for given in annotation.votes(question):
                who = given.rater if self.names_shown else f"Rater {everybody.index(given.rater) + 1}"
                votes.append({"who": who, **self._given(given, task, rater)})
        return {
            "id": question.id,
            "task_id": task.id,
            **_named(question, annotation.metrics),
            "edit_type": sample.edit_type,
            "instructions": list(instructions),
            "prompt": task.prompt,
            "spec": task.answer.to_json(),
            "options": _options(task.answer, task.prompt, metric),
            "views": [{name: value for name, value in view.items() if name != "origin"} for view in shown],
            "problem": problem,
            "home": None if place is None or not any(view["whole"] for view in shown) else list(place.box),
            "votes": votes,
            **self._given(annotation.given(question, rater), task, rater),
        }

    def _views(self, task: Ask, rater: str, sample: Sample) -> tuple[list[dict[str, Json]], str]:
        """The pictures of a question, and why one of them cannot be shown."""
        found: list[dict[str, Json]] = []
        marks = targets(sample)
        for recipe in views_of(task, self._swap(task, rater)):
            try:
                image = make_view(recipe, self._images).image
            except (EditLoupeError, OSError) as error:
                return found, f"{recipe.alias}: {error}"
            whole = recipe.op in _WHOLE
            boxes: list[Json] = [
                {"name": mark.name, "box": list(mark.box)} for mark in marks if whole and mark.image == recipe.origin
            ]
            found.append(
                {
                    "alias": recipe.alias,
                    "address": self._pictures.address(image),
                    "width": image.width,
                    "height": image.height,
                    "whole": whole,
                    "op": recipe.op,
                    "boxes": boxes,
                    "origin": recipe.origin.sha256,
                }
            )
        return found, ""

    def _swap(self, task: Ask, rater: str) -> tuple[str, str] | None:
        return swapped(task, rater, self.annotation.assignment.seed)

    def _given(self, given: Given | None, task: Ask, rater: str) -> dict[str, Json]:
        """What stands on a question, in the names that this rater sees."""
        if given is None:
            return {"given": None, "revision": ""}
        answer = given.finding.answer
        data: dict[str, Json] | None = None
        if answer is not None:
            data = {**answer.to_json(), "text": other_name(str(answer), self._swap(task, rater))}
            if "name" in data:
                data["name"] = data["text"]
        said: dict[str, Json] = {
            "answer": data,
            "note": given.finding.reason,
            "time": given.time,
            "status": "skipped" if answer is None else "answered",
        }
        return {"given": said, "revision": given.revision}


def _named(question: Question, metrics: Mapping[str, Metric]) -> dict[str, Json]:
    """What a rater is told of a question's place. Not which editor made the edit, nor which two are compared."""
    about = question.about
    scope = "two edits" if about.beside else about.scope
    return {"sample": about.sample_id, "name": question_name(question.metric, metrics), "scope": scope}


def _options(spec: AnswerSpec, prompt: str, metric: Metric | None) -> list[Json]:
    """The words of a menu, each with what the question says of it, and its colour."""
    values = {rule.name: rule.value for rule in spec.labels} if isinstance(spec, Labels) else {}
    own = metric is not None and {level.name for level in metric.levels} == set(values)
    return [
        {
            "name": name,
            "about": described(name, prompt),
            "tone": tone(metric, values[name]) if own and name in values else "tone-plain",
        }
        for name in options_of(spec)
    ]


def described(name: str, prompt: str) -> str:
    """Return what a prompt says of a label in a list: "- **NAME**: TEXT"; "" where it says nothing there."""
    found = re.search(rf"^\s*(?:[-*]|\d+[.)])\s+(?:\*\*)?{re.escape(name)}(?:\*\*)?\s*[:–—]\s*(.+)$", prompt, re.MULTILINE)
    return found[1].strip() if found else ""


def _json(data: Mapping[str, Json], status: HTTPStatus = HTTPStatus.OK) -> Response:
    body = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text(body, "application/json", status=status, cache="no-store")


def _refused(why: str) -> Response:
    return _json({"error": why}, status=HTTPStatus.UNPROCESSABLE_ENTITY)
