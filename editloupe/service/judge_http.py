"""The judge over HTTP (extra `serve`): verdicts for a training loop or another language.

This module needs FastAPI and is imported by the command only; `bureau` and `http_models` are free of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, File, Form, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

import editloupe
from editloupe.data.images import ImageStore
from editloupe.errors import DataError, EditLoupeError, RubricError, SampleError
from editloupe.service import http_models as wire
from editloupe.service.bureau import CACHE_BYTES, Bureau, Closing, Full, Late, Seat
from editloupe.service.http_guard import Guard, Limits, problem_response
from editloupe.service.http_metrics import Metrics
from editloupe.service.http_models import Batch, BatchItem, BatchVerdicts, Edit, Health, Problem, Ready, Verdict
from editloupe.values import ImageRef

Model = TypeVar("Model", bound=BaseModel)

_DESCRIPTION = """\
Judges image edits. A verdict is one finding a criterion, each with a label or with the status that says why there is none,
and a reward that is a number only where every criterion was judged. The trace of each verdict stays in the run folder.
"""

_TITLES: Mapping[int, str] = {
    400: "Bad request",
    401: "Not authorised",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "The body came too slowly",
    413: "The body is too large",
    415: "The body is no JSON",
    421: "Another host is meant",
    422: "The request cannot be used",
    500: "The service failed",
    503: "Busy, or shutting down",
    504: "No verdict in time",
}


def make_app(bureau: Bureau, limits: Limits, *, root: Path | None, closed: Callable[[int], None]) -> Any:
    """The ASGI application.

    root: images below it may be named by path; None for none.   closed: told, at the end, how many threads still hang.
    """
    metrics = Metrics(bureau)
    bureau.seen = metrics.found

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        bureau.start()
        yield
        closed(await bureau.close(wait_s=2.0))

    async def judge(request: Request) -> Verdict:
        """Judge one edit; its images come in base64, or as paths on the server."""
        return await _judged([await _parsed(request, Edit)], _seat(request).until)

    async def upload(
        request: Request,
        source: Annotated[UploadFile, File(description="The image before the edit.")],
        edited: Annotated[UploadFile, File(description="The image after it.")],
        instruction: Annotated[str, Form(min_length=1, max_length=8000)],
        reference: Annotated[UploadFile | None, File(description="A right answer.")] = None,
        id: Annotated[str | None, Form(max_length=200)] = None,
        boxes: Annotated[list[str] | None, Form(description="Targets in the source image: x0,y0,x1,y1 in px.")] = None,
        edit_type: Annotated[str | None, Form(max_length=200)] = None,
        criteria: Annotated[list[str] | None, Form(description="Ids or short names; none for all.")] = None,
        repeat: Annotated[int, Form(ge=0, le=9999)] = 0,
    ) -> Verdict:
        """Judge one edit; its images come as files of a form."""
        images = _store()
        files = {"source": source, "edited": edited, "reference": reference}
        refs = {}
        for name, file in files.items():
            if file is not None:
                refs[name] = await asyncio.to_thread(images.add_bytes, await file.read(), name=name)
        fields = {"instruction": instruction, "id": id, "edit_type": edit_type, "repeat": repeat}
        try:
            asked = wire.Asked.model_validate({**fields, "boxes": _numbers(boxes), "criteria": criteria or []})
        except ValidationError as error:
            raise SampleError(_told(error.errors())) from error
        return await _verdict(asked, refs, images, _seat(request).until)

    async def batch(request: Request) -> BatchVerdicts:
        """Judge several edits at once. All of them find room, or none is begun."""
        seat = _seat(request)
        edits = (await _parsed(request, Batch)).edits
        if len(edits) > bureau.places:
            raise SampleError(f"{len(edits)} edits in one batch; this service takes at most {bureau.places} at once")
        bureau.widen(seat, len(edits))

        async def one(edit: list[Edit]) -> BatchItem:
            try:
                return BatchItem(verdict=await _judged(edit, seat.until))
            except (EditLoupeError, Late, Closing) as error:
                status = _status(error)
                return BatchItem(problem=wire.problem(status, _TITLES[status], str(error)))

        waiting = [one([edits.pop(0)]) for _ in range(len(edits))]
        return BatchVerdicts(results=list(await asyncio.gather(*waiting)))

    async def _judged(edit: list[Edit], until: float) -> Verdict:
        """edit: one, taken out, so that its images in base64 leave memory once they are files."""
        images, given = _store(), edit.pop()
        pictures = {"source": given.source, "edited": given.edited, "reference": given.reference}
        asked = wire.Asked.model_validate(given.model_dump(exclude=set(pictures)))
        del given
        refs = {}
        for name in tuple(pictures):
            picture = pictures.pop(name)
            if picture is not None:
                refs[name] = await asyncio.to_thread(wire.opened, picture, name, images, root)
            del picture
        return await _verdict(asked, refs, images, until)

    async def _verdict(asked: wire.Asked, refs: Mapping[str, ImageRef], images: ImageStore, until: float) -> Verdict:
        sample, bench = wire.sample_of(asked, refs), bureau.bench
        bench.protocol.check([sample])
        known = [c.id for c in bench.criteria]
        criteria = [bench.rubric.criterion(name).id for name in asked.criteria] or known
        for criterion in criteria:
            if criterion not in known:
                raise SampleError(f"this service does not judge by {criterion!r}; it judges by {', '.join(known)}")
        given = await bureau.judge(sample, images, criteria=criteria, repeat=asked.repeat, until=until)
        done = {one.finding.task_id: one.finding for one in given}
        scores = [score for score in bench.protocol.score([sample], done) if score.metric in criteria]
        return Verdict(
            id=asked.id,
            sample=sample.id,
            judge=bench.judge.id,
            reward=wire.reward_of(scores),
            findings=[wire.finding_out(one) for one in given],
            warnings=list(wire.warnings_of(sample)),
        )

    def _store() -> ImageStore:
        # One a request, so that pictures leave memory with it.
        return ImageStore(bureau.store.blobs, max_pixels=limits.max_pixels, cache_bytes=CACHE_BYTES)

    async def healthz() -> Health:
        """The process answers."""
        return Health()

    async def readyz() -> Ready:
        """The service takes requests; 503 once it shuts down."""
        if bureau.closing:
            raise Closing("the service is shutting down")
        bench = bureau.bench
        return Ready(
            backend=bench.backend.uri,
            judge=bench.judge.id,
            mode=bench.settings.mode,
            rubric=bench.rubric.id,
            criteria=[c.id for c in bench.criteria],
            places=bureau.places,
            taken=bureau.taken,
        )

    async def measured() -> Response:
        """Counters and gauges for Prometheus."""
        return PlainTextResponse(metrics.text(), media_type=metrics.media_type)

    app = FastAPI(
        title="editloupe",
        version=editloupe.__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    judging = (400, 401, 403, 408, 413, 421, 422, 500, 503, 504)
    for path, endpoint, body in (
        ("/v1/judge", judge, Edit),
        ("/v1/judge/upload", upload, None),
        ("/v1/judge/batch", batch, Batch),
    ):
        app.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            responses=_problems(*judging, *([] if body is None else [415])),
            tags=["judge"],
            openapi_extra=None if body is None else _body(body),
        )
    app.add_api_route("/healthz", healthz, methods=["GET"], responses=_problems(403, 421), tags=["operation"])
    app.add_api_route("/readyz", readyz, methods=["GET"], responses=_problems(403, 421, 503), tags=["operation"])
    app.add_api_route(
        "/metrics",
        measured,
        methods=["GET"],
        response_class=PlainTextResponse,
        responses=_problems(401, 403, 421),
        tags=["operation"],
    )
    for kind, handler in (
        (RequestValidationError, _invalid),
        (HTTPException, _refused),
        (EditLoupeError, _failed),
        (Late, _failed),
        (Closing, _failed),
        (Full, _failed),
        (Exception, _failed),
    ):
        app.add_exception_handler(kind, handler)
    app.openapi = _openapi(app.openapi, secured=limits.token is not None)
    app.add_middleware(Guard, bureau=bureau, limits=limits, metrics=metrics)
    return app


async def _parsed(request: Request, model: type[Model]) -> Model:
    """The body, read here and kept nowhere: FastAPI holds it, twice, until the request is answered.

    Raises RequestValidationError, HTTPException.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"expected Content-Type: application/json, found {kind!r}")
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
    try:
        return await asyncio.to_thread(model.model_validate_json, data)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_input=False, include_context=False)) from None


def _body(model: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _seat(request: Request) -> Seat:
    seat = request.scope["editloupe.seat"]
    assert isinstance(seat, Seat)
    return seat


def _numbers(boxes: list[str] | None) -> list[list[float]]:
    """Raises SampleError."""
    found = []
    for text in boxes or []:
        try:
            found.append([float(part) for part in text.split(",")])
        except ValueError:
            raise SampleError(f"boxes: expected x0,y0,x1,y1 in px, found {text!r}") from None
    return found


def _status(error: Exception) -> int:
    if isinstance(error, DataError | RubricError):
        return 422
    if isinstance(error, Full | Closing):
        return 503
    return 504 if isinstance(error, Late) else 500


async def _failed(_: Request, error: Exception) -> Response:
    status = _status(error)
    # What is no error of ours may speak of anything; it is in the server's log.
    told = str(error) if status != 500 or isinstance(error, EditLoupeError) else "editloupe itself failed; see its log"
    headers = {"Retry-After": str(error.retry_after_s if isinstance(error, Full) else 5)} if status == 503 else {}
    return problem_response(status, _TITLES[status], told, headers)


async def _invalid(_: Request, error: Any) -> Response:
    return problem_response(422, _TITLES[422], _told(error.errors()))


async def _refused(_: Request, error: Any) -> Response:
    title = _TITLES.get(error.status_code, "Refused")
    return problem_response(error.status_code, title, str(error.detail), dict(error.headers or {}))


def _told(errors: Any) -> str:
    """Where and what, a line each; never what was sent, which may be megabytes."""
    lines = []
    for one in list(errors)[:10]:
        where = ".".join(str(part) for part in one["loc"] if part != "body")
        lines.append(f"{where}: {one['msg']}" if where else str(one["msg"]))
    return "\n".join(lines)


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem, "description": _TITLES[status]} for status in statuses}


def _openapi(made: Callable[[], dict[str, Any]], *, secured: bool) -> Callable[[], dict[str, Any]]:
    """FastAPI's description with errors as what they are, application/problem+json, and the token where one is needed."""

    def described() -> dict[str, Any]:
        schema = made()
        for path, item in schema["paths"].items():
            for operation in item.values():
                for status, response in operation["responses"].items():
                    if not status.startswith("2"):
                        told = {"schema": {"$ref": "#/components/schemas/Problem"}}
                        response["content"] = {"application/problem+json": told}
                    if status == "503":
                        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "required": True}}
                if secured and path not in ("/healthz", "/readyz"):
                    operation["security"] = [{"token": []}]
        bodies = models_json_schema(
            [(Edit, "validation"), (Batch, "validation")], ref_template="#/components/schemas/{model}"
        )[1]
        schema["components"]["schemas"] |= bodies["$defs"]
        if secured:
            schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        return schema

    return described
