"""The pages on which people answer a run's questions one after another, on loopback alone.

A rater is told nothing of what others said, nor which editor made an edit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from jinja2 import Environment, PackageLoader
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from editloupe.annotate.questions import Annotation, PeopleQuestion, other_name, swapped, views_of
from editloupe.annotate.replies import options_of, writable
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.errors import ConfigError, DataError, EditLoupeError, StorageError
from editloupe.imaging.views import make_view
from editloupe.tasks import Ask, Recipe
from editloupe.values import Box, ImageRef, Json, Sample, finite

_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_WHOLE: Final = frozenset({"whole", "mask", "fill", "outline", "patch"})
"""View ops whose picture is the whole image, so that a place of the image is the same place of the picture."""


def make_app(annotation: Annotation) -> Starlette:
    """Return the ASGI application."""
    pages = _Pages(annotation)

    async def told(_: Request, error: Exception) -> Response:
        """Return what went wrong, in words for the page."""
        status = error.status_code if isinstance(error, HTTPException) else 422 if isinstance(error, DataError) else 500
        text = error.detail if isinstance(error, HTTPException) else str(error)
        return JSONResponse({"error": text}, status_code=status, headers=_HEADERS)

    routes = [
        Route("/", pages.index),
        Route("/rate", pages.rate),
        Route("/queue", pages.queue),
        Route("/question", pages.question),
        Route("/picture/{sha256:str}", pages.picture),
        Route("/answer", pages.answer, methods=["POST"]),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]
    own_names = Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "::1", "[::1]"])
    handlers: dict[Any, Any] = dict.fromkeys((HTTPException, DataError, StorageError), told)
    return Starlette(routes=routes, middleware=[own_names], exception_handlers=handlers)


class _Pages:
    def __init__(self, annotation: Annotation) -> None:
        self._annotation = annotation
        self._images = ImageStore(annotation.folder / "blobs", cache_bytes=64 * 2**20)
        self._shown: dict[str, ImageRef] = {}
        """Pictures of questions that were asked for, by their digest: no others are given."""
        self._templates = Environment(loader=PackageLoader("editloupe.annotate"), autoescape=True)

    def index(self, _: Request) -> Response:
        annotation = self._annotation
        raters = [(name, annotation.progress(name)) for name in annotation.named or annotation.raters]
        return self._html("index.html", raters=raters, open_to_all=not annotation.named)

    def rate(self, request: Request) -> Response:
        return self._html("rate.html", rater=self._rater(request.query_params.get("rater")))

    def queue(self, request: Request) -> Response:
        rater = self._rater(request.query_params.get("rater"))
        questions = self._annotation.questions(rater)
        listed = [{"id": id_, **self._named(question), "state": state} for id_, (question, state) in questions.items()]
        return JSONResponse({"questions": listed, "latest": self._annotation.latest(rater)}, headers=_HEADERS)

    def question(self, request: Request) -> Response:
        rater = self._rater(request.query_params.get("rater"))
        question = self._asked(rater, request.query_params.get("id"))
        return JSONResponse(self._told(question, rater), headers=_HEADERS)

    def picture(self, request: Request) -> Response:
        ref = self._shown.get(request.path_params["sha256"])
        if ref is None:
            raise HTTPException(404, "no question shows this picture")
        made = self._images.encoded(ref, ImagePolicy())
        return Response(made.data, media_type=made.media_type, headers={**_HEADERS, "Cache-Control": "max-age=86400"})

    async def answer(self, request: Request) -> Response:
        """Store an answer: it is on disk before this returns."""
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            # What a page of another site sends without asking first has other types.
            raise HTTPException(415, "expected Content-Type: application/json")
        try:
            data = await request.json()
        except (ValueError, RecursionError) as error:
            raise DataError("expected JSON") from error
        return await run_in_threadpool(self._stored, data if isinstance(data, Mapping) else {})

    def _stored(self, data: Mapping[str, Any]) -> Response:
        rater, answer, note, task_id = (data.get(name) for name in ("rater", "answer", "note", "task_id"))
        if not isinstance(answer, str | None) or not isinstance(note, str) or not isinstance(task_id, str):
            raise DataError("expected the texts rater, id, task_id, note and answer (null for a question that is skipped)")
        rater = self._rater(rater)
        question = self._asked(rater, data.get("id"))
        seconds = finite(data.get("seconds")) or 0.0
        # Half a character, as an input that cuts an emoji leaves it, could be stored and never be told again.
        note = note.encode("utf-8", "replace").decode()
        self._annotation.save(question, rater, answer, task_id=task_id, note=note, seconds=seconds)
        return JSONResponse({"stored": self._stands(question, rater)}, headers=_HEADERS)

    def _html(self, name: str, **values: Any) -> HTMLResponse:
        folder = self._annotation.folder
        made = self._templates.get_template(name).render(run=folder.resolve().name, writable=writable(folder), **values)
        return HTMLResponse(made, headers=_HEADERS)

    def _rater(self, given: object) -> str:
        """Return the name of a rater who may answer here. Raises HTTPException."""
        try:
            self._annotation.check(str(given or ""))
        except ConfigError as error:
            raise HTTPException(404, str(error)) from error
        return str(given)

    def _asked(self, rater: str, id_: object) -> PeopleQuestion:
        found = self._annotation.questions(rater).get(str(id_))
        if found is None:
            raise HTTPException(404, f"{rater} is not asked this question here; load the page again")
        return found[0]

    def _named(self, question: PeopleQuestion) -> dict[str, Json]:
        """What a rater is told of a question's place. Not which editor made the edit, nor which two are compared."""
        about, metric = question.about, self._annotation.metrics.get(question.metric)
        scope = "two edits" if about.beside else about.scope
        return {"sample": about.sample_id, "name": metric.name if metric else question.metric, "scope": scope}

    def _told(self, question: PeopleQuestion, rater: str) -> dict[str, Json]:
        task = self._annotation.task(question, rater)
        sample = self._annotation.samples[question.about.key]
        turns = [sample.asked(question.about.turn)] if question.about.turn else [turn.instruction for turn in sample.turns]
        # Where a judge is not told the instruction, nobody is.
        prompt = " ".join(task.prompt.split())
        instructions: list[Json] = [text for text in turns if " ".join(text.split()) in prompt]
        views, problem = self._views(task, rater)
        return {
            "id": question.id,
            "task_id": task.id,
            **self._named(question),
            "instructions": instructions,
            "prompt": task.prompt,
            "spec": task.answer.to_json(),
            "options": [{"name": name, "about": described(name, task.prompt)} for name in options_of(task.answer)],
            "views": views,
            "problem": problem,
            "given": self._stands(question, rater),
        }

    def _views(self, task: Ask, rater: str) -> tuple[list[Json], str]:
        """The pictures of a question, and why one of them cannot be shown."""
        found: list[Json] = []
        sample = self._annotation.samples[task.about.key]
        for recipe in views_of(task, swapped(task, rater)):
            try:
                image = make_view(recipe, self._images).image
            except (EditLoupeError, OSError) as error:
                return found, f"{recipe.alias}: {error}"
            self._shown[image.sha256] = image
            found.append(
                {
                    "alias": recipe.alias,
                    "sha256": image.sha256,
                    "width": image.width,
                    "height": image.height,
                    "boxes": [list(box) for box in _targets(sample, recipe)],
                }
            )
        return found, ""

    def _stands(self, question: PeopleQuestion, rater: str) -> dict[str, Json] | None:
        """What stands on a question, in the names that this rater sees."""
        given = self._annotation.given(question, rater)
        if given is None:
            return None
        answer, swap = given.finding.answer, swapped(self._annotation.task(question, rater), rater)
        said = None if answer is None else other_name(str(answer), swap)
        return {"answer": said, "note": given.finding.reason}


def _targets(sample: Sample, recipe: Recipe) -> list[Box]:
    """Return the boxes of an edit's targets in a picture that shows a whole image of it."""
    if recipe.op not in _WHOLE or recipe.origin not in (sample.source, sample.edited):
        return []
    role: Literal["source", "edited"] = "source" if recipe.origin == sample.source else "edited"
    return [target.boxes[role] for target in sample.targets if role in target.boxes]


def described(name: str, prompt: str) -> str:
    """Return what a prompt says of a label in a list: "- **NAME**: TEXT"; "" where it says nothing there."""
    found = re.search(rf"^\s*(?:[-*]|\d+[.)])\s+(?:\*\*)?{re.escape(name)}(?:\*\*)?\s*[:–—]\s*(.+)$", prompt, re.MULTILINE)
    return found[1].strip() if found else ""
