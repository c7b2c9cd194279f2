"""The judge over HTTP (extra `serve`): verdicts for a training loop or another language.

This module needs FastAPI and is imported by the command only; `queue` and `http_models` do not need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

from fastapi import FastAPI, File, Form, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

from editloupe.data.images import ImageStore
from editloupe.data.rows import size_note
from editloupe.errors import ConfigError, DataError, EditLoupeError, SampleError
from editloupe.protocols.base import scored
from editloupe.scores import MetricSet
from editloupe.service import http_models as wire
from editloupe.service.http_guard import Guard, Limits, problem_response
from editloupe.service.http_metrics import Metrics
from editloupe.service.queue import JudgeQueue, QueueFull, ShuttingDown, Slot, Timeout
from editloupe.values import ImageRef
from editloupe.version import VERSION

Model = TypeVar("Model", bound=BaseModel)

CACHE_BYTES: Final = 64 * 2**20
"""Decoded and encoded pictures of one request that are kept in memory while it is judged."""

_DESCRIPTION = """\
Judges image edits. A verdict has a finding for each question, with an answer or with the status that says why there is
none. It has the protocol's scores, and a reward, which is a number only if every metric was judged. Traces stay in the run
folder.
"""

_START: Final = """\
editloupe: judges image edits.

{routes}  GET  /openapi.json    The description of all this, from which clients can be generated.

Judge an edit:

  curl -s {here}/v1/judge/upload{token} -F source=@before.png -F edited=@after.png \\
    -F instruction="Change the color of the red mug to blue."
"""

_SHOW_TOKEN: Final = ' -H "Authorization: Bearer TOKEN"'


def make_app(queue: JudgeQueue, limits: Limits, *, root: Path | None, on_close: Callable[[int], None]) -> Any:
    """Return the ASGI application.

    root: images below it may be named by path; None for none.
    on_close: called at the end with the number of threads that still hang in a call.
    """
    metrics = Metrics(queue)
    queue.on_finding = metrics.count_finding

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        on_close(await queue.close(wait_s=2.0))

    async def judge(request: Request) -> wire.Verdict:
        """Judge one edit; its images come in base64, or as paths on the server."""
        return await _judge([await _parsed(request, wire.Edit)], _slot(request).until)

    async def upload(
        request: Request,
        source: Annotated[UploadFile, File(description="The image before the edit.")],
        edited: Annotated[UploadFile, File(description="The image after it.")],
        instruction: Annotated[str, Form(min_length=1, max_length=8000)],
        reference: Annotated[UploadFile | None, File(description="A right answer.")] = None,
        id: Annotated[str | None, Form(max_length=200)] = None,
        boxes: Annotated[list[str] | None, Form(description="Targets in the source image: x0,y0,x1,y1 in px.")] = None,
        edit_type: Annotated[str | None, Form(max_length=200)] = None,
        criteria: Annotated[list[str] | None, Form(description="Metrics, by id or short name; none for all.")] = None,
        repeat: Annotated[int, Form(ge=0, le=9999)] = 0,
    ) -> wire.Verdict:
        """Judge one edit; its images come as files of a form."""
        images = _store()
        files = {"source": source, "edited": edited, "reference": reference}
        refs = {}
        for name, file in files.items():
            if file is not None:
                refs[name] = await asyncio.to_thread(images.add_bytes, await file.read(), name=name)
        fields = {"instruction": instruction, "id": id, "edit_type": edit_type, "repeat": repeat}
        try:
            checked = wire.EditFields.model_validate({**fields, "boxes": _numbers(boxes), "criteria": criteria or []})
        except ValidationError as error:
            raise SampleError(_message(error.errors())) from error
        return await _verdict(checked, refs, images, _slot(request).until)

    async def batch(request: Request) -> wire.BatchVerdicts:
        """Judge several edits at once. All of them find room, or none is begun."""
        slot = _slot(request)
        edits = (await _parsed(request, wire.Batch)).edits
        if len(edits) > queue.capacity:
            raise SampleError(f"{len(edits)} edits in one batch; this service takes at most {queue.capacity} at once")
        queue.resize(slot, len(edits))

        async def one(edit: list[wire.Edit]) -> wire.BatchItem:
            try:
                return wire.BatchItem(verdict=await _judge(edit, slot.until))
            except (EditLoupeError, Timeout, ShuttingDown) as error:
                return wire.BatchItem(problem=wire.problem(_status(error), str(error)))

        waiting = [one([edits.pop(0)]) for _ in range(len(edits))]
        return wire.BatchVerdicts(results=list(await asyncio.gather(*waiting)))

    async def _judge(edit: list[wire.Edit], until: float) -> wire.Verdict:
        """edit: one, taken out, so that its images in base64 leave memory once they are files."""
        images, sent = _store(), edit.pop()
        pictures = {"source": sent.source, "edited": sent.edited, "reference": sent.reference}
        fields = wire.EditFields.model_validate(sent.model_dump(exclude=set(pictures)))
        del sent
        refs = {}
        for name in tuple(pictures):
            picture = pictures.pop(name)
            if picture is not None:
                refs[name] = await asyncio.to_thread(wire.open_picture, picture, name, images, root)
            del picture
        return await _verdict(fields, refs, images, until)

    async def _verdict(
        fields: wire.EditFields, refs: Mapping[str, ImageRef], images: ImageStore, until: float
    ) -> wire.Verdict:
        sample, protocol = wire.sample_of(fields, refs), queue.setup.protocol
        protocol.check([sample])
        known = MetricSet(id=protocol.name, metrics=tuple(protocol.metrics))
        try:
            asked = {known.metric(name).id for name in fields.criteria} or set(queue.setup.metrics)
        except ConfigError as error:
            raise SampleError(f"criteria: {error}") from error
        source, edited = refs["source"], refs["edited"]
        same_size = (source.width, source.height) == (edited.width, edited.height)
        results = await queue.judge(sample, images, metrics=asked, repeat=fields.repeat, until=until)
        scores = [s for s in scored(protocol, [sample], [r.finding for r in results]) if s.metric in asked]
        return wire.Verdict(
            id=fields.id,
            sample=sample.id,
            judge=queue.setup.judge.id,
            reward=wire.reward_of(scores, [metric for metric in protocol.metrics if metric.id in asked]),
            scores=[wire.ScoreOut.model_validate(score) for score in scores],
            findings=[wire.finding_out(result) for result in results],
            warnings=[] if same_size else [size_note(source, edited)],
        )

    def _store() -> ImageStore:
        # One a request, so that pictures leave memory with it.
        return ImageStore(queue.store.blobs, max_pixels=limits.max_pixels, cache_bytes=CACHE_BYTES)

    async def healthz() -> wire.Health:
        """The process answers."""
        return wire.Health()

    async def readyz(request: Request) -> wire.Ready:
        """The service takes requests; 503 once it shuts down. Backend and options are told to who may ask for verdicts."""
        if queue.closing:
            raise ShuttingDown
        setup, trusted = queue.setup, request.scope["editloupe.trusted"]
        options = wire.options_out(setup.options) if trusted else {}
        return wire.Ready(
            backend=setup.backend.uri if trusted else None,
            judge=setup.judge.id,
            protocol=setup.protocol.name,
            options=options,
            mode=_word(options.get("mode")),
            rubric=_word(options.get("rubric")),
            criteria=setup.metrics,
            places=queue.capacity,
            taken=queue.taken,
        )

    async def prometheus() -> Response:
        """Counters and gauges for Prometheus."""
        return PlainTextResponse(metrics.text(), media_type=metrics.media_type)

    async def start(request: Request) -> Response:
        """What this is, for who opens the address in a browser."""
        listed = "".join(
            f"  {next(iter(more.get('methods', ['GET']))):4} {path:16} {(endpoint.__doc__ or '').partition('.')[0]}.\n"
            for path, endpoint, _, more in routes
        )
        shown = "" if limits.token is None else _SHOW_TOKEN
        return PlainTextResponse(_START.format(routes=listed, here=str(request.base_url).rstrip("/"), token=shown))

    app = FastAPI(
        title="editloupe",
        version=VERSION,
        description=_DESCRIPTION,
        lifespan=lifespan,
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        exception_handlers={
            RequestValidationError: _invalid,
            HTTPException: _refused,
            **dict.fromkeys((EditLoupeError, Timeout, ShuttingDown, QueueFull, Exception), _failed),
        },
    )
    judging = (400, 401, 403, 408, 413, 421, 422, 500, 503, 504)
    posted, asked = {"methods": ["POST"], "tags": ["judge"]}, {"tags": ["operation"]}
    routes: tuple[tuple[str, Any, tuple[int, ...], dict[str, Any]], ...] = (
        ("/v1/judge", judge, (*judging, 415), {**posted, "openapi_extra": _body(wire.Edit)}),
        ("/v1/judge/upload", upload, judging, posted),
        ("/v1/judge/batch", batch, (*judging, 415), {**posted, "openapi_extra": _body(wire.Batch)}),
        ("/healthz", healthz, (403, 421), asked),
        ("/readyz", readyz, (403, 421, 503), asked),
        ("/metrics", prometheus, (401, 403, 421), {**asked, "response_class": PlainTextResponse}),
    )
    for path, endpoint, statuses, more in routes:
        # Generated clients name their functions by it.
        app.add_api_route(path, endpoint, operation_id=endpoint.__name__, responses=_problems(*statuses), **more)
    app.add_api_route("/", start, include_in_schema=False)
    app.openapi = _openapi(app.openapi, secured=limits.token is not None)
    app.add_middleware(Guard, queue=queue, limits=limits, metrics=metrics)
    return app


async def _parsed(request: Request, model: type[Model]) -> Model:
    """Return the body, read here and kept nowhere: FastAPI would hold it, twice, until the request is answered.

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


def _slot(request: Request) -> Slot:
    slot = request.scope["editloupe.slot"]
    assert isinstance(slot, Slot)
    return slot


def _word(option: object) -> str | None:
    return None if option is None else str(option)


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
    if isinstance(error, DataError):
        return 422
    if isinstance(error, QueueFull | ShuttingDown):
        return 503
    return 504 if isinstance(error, Timeout) else 500


async def _failed(_: Request, error: Exception) -> Response:
    status = _status(error)
    # What is no error of ours may speak of anything; it is in the server's log.
    detail = str(error) if status != 500 or isinstance(error, EditLoupeError) else "editloupe itself failed; see its log"
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, QueueFull | ShuttingDown) else {}
    return problem_response(status, detail, headers)


async def _invalid(_: Request, error: Any) -> Response:
    return problem_response(422, _message(error.errors()))


async def _refused(_: Request, error: Any) -> Response:
    # Of a path that there is not, the framework says no more than that.
    missing = "nothing is at this path; GET /openapi.json says what there is"
    detail = missing if error.status_code == 404 else str(error.detail)
    return problem_response(error.status_code, detail, error.headers)


def _message(errors: Any) -> str:
    """Return where and what, a line each; never what was sent, which may be megabytes."""
    lines = []
    for one in list(errors)[:10]:
        where = ".".join(str(part) for part in one["loc"] if part not in _NOT_SENT)
        lines.append(f"{where}: {one['msg']}" if where else str(one["msg"]))
    return "\n".join(dict.fromkeys(lines))


_NOT_SENT: Final = frozenset({"body", *(form.__name__ for form in get_args(wire.Picture))})
"""Parts of a place that stand for a part of the request, or for a form that it may have, and not for what was sent."""


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": wire.Problem, "description": wire.TITLES[status]} for status in statuses}


def _openapi(made: Callable[[], dict[str, Any]], *, secured: bool) -> Callable[[], dict[str, Any]]:
    """Return FastAPI's description with errors as application/problem+json, and with the token if one is needed."""

    def described() -> dict[str, Any]:
        schema = made()
        for path, item in schema["paths"].items():
            for operation in item.values():
                for status, response in operation["responses"].items():
                    if not status.startswith("2"):
                        shape = {"schema": {"$ref": "#/components/schemas/Problem"}}
                        response["content"] = {"application/problem+json": shape}
                    if status == "503":
                        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "required": True}}
                if secured and path not in ("/healthz", "/readyz"):
                    operation["security"] = [{"token": []}]
        bodies = models_json_schema(
            [(wire.Edit, "validation"), (wire.Batch, "validation")], ref_template="#/components/schemas/{model}"
        )[1]
        schema["components"]["schemas"] |= bodies["$defs"]
        form = schema["components"]["schemas"]["Body_upload"]["properties"]
        for name, field in form.items():
            form[name] = _form_field(field)
        if secured:
            schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        return schema

    return described


def _form_field(field: dict[str, Any]) -> dict[str, Any]:
    """Return a field of a form without null, which a form cannot hold, and a file in the words that generators know."""
    options = [option for option in field.get("anyOf", ()) if option != {"type": "null"}]
    found = {name: value for name, value in {**field, **(options[0] if options else {})}.items() if name != "anyOf"}
    if found.pop("contentMediaType", None) is not None:
        found["format"] = "binary"
    return found
