"""The judge over HTTP (extra `serve`): POST /v1/judge for a training loop or another language, and how it goes.

This module needs Starlette and is imported by the command only.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import Field, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from editloupe.errors import DataError, Interrupted, SampleError
from editloupe.findings import Finding
from editloupe.service.doors import Door, Opens
from editloupe.service.edits import SentEdit
from editloupe.service.judging import Busy, Service
from editloupe.values import Json

_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
logger: Final = logging.getLogger("editloupe")
_EDITS: Final = TypeAdapter(Annotated[list[SentEdit], Field(min_length=1, max_length=256)])


def make_app(
    service: Service, *, token: str | None, hosts: Sequence[str], door: Opens | None = None, **of_door: Any
) -> Starlette:
    """Return the ASGI application. The bytes of a request are bounded as those of a fetched picture.

    token: that clients must show; None for none.
    hosts: names by which the service may be called; () for any.
    door: the wire of another reward server beside ours.   of_door: as `doors.Door` takes it.
    """
    metrics = _Metrics(service)

    async def judge(request: Request) -> Response:
        """Judge one edit, or a list of which each has a verdict or an error of its own."""
        if not _shows(request, token):
            return _error(401, "expected the header Authorization: Bearer TOKEN")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            # What a page of another site sends without asking first has other types.
            return _error(415, "expected Content-Type: application/json")
        try:
            edits, is_list = await asyncio.to_thread(_read, await request.body())
        except DataError as error:
            return _error(422, str(error))
        if len(edits) > service.capacity:
            # To wait would not help, as 503 would promise.
            return _error(413, f"{len(edits)} edits in one list; expected at most {service.capacity}")
        try:
            with service.places(len(edits)):
                answers = await asyncio.gather(*(_judged(service, edit, metrics) for edit in edits))
        except Busy as error:
            return _error(503, str(error), {"Retry-After": "5"})
        if is_list:
            return JSONResponse([answer for _, answer in answers])
        ((status, answer),) = answers
        return JSONResponse(answer, status_code=status)

    async def health(_: Request) -> Response:
        """It takes requests, and this is who judges."""
        setup = service.setup
        who = {"judge": setup.judge.id, "protocol": setup.protocol.name, "criteria": list(setup.metrics)}
        return JSONResponse({"status": "ok", **who, "places": service.capacity, "taken": service.taken})

    async def prometheus(request: Request) -> Response:
        if not _shows(request, token):
            return _error(401, "expected the header Authorization: Bearer TOKEN")
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    middleware = [
        Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts) or ["*"]),
        Middleware(RequestBodyLimitMiddleware, max_body_size=service.sources.max_bytes),
    ]
    routes = [Route("/v1/judge", judge, methods=["POST"]), Route("/healthz", health), Route("/metrics", prometheus)]
    if door is not None:
        routes += door(Door(service, registry=metrics.registry, **of_door))
    return Starlette(routes=routes, middleware=middleware)


class _Metrics:
    """Counters and gauges for Prometheus."""

    def __init__(self, service: Service) -> None:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.registry = registry
        self.edits = Counter("editloupe_edits", "Edits answered, by HTTP status.", ("status",), registry=registry)
        self.seconds = Histogram("editloupe_edit_seconds", "Seconds of an edit.", buckets=_SECONDS, registry=registry)
        self._findings = Counter("editloupe_findings", "New findings, by status.", ("metric", "status"), registry=registry)
        self._tokens = Counter("editloupe_tokens", "Tokens of new findings.", ("direction",), registry=registry)
        taken = Gauge("editloupe_edits_taken", "Edits that are judged or wait.", registry=registry)
        taken.set_function(lambda: service.taken)
        service.on_finding = self._count

    def _count(self, finding: Finding) -> None:
        self._findings.labels(finding.metric, finding.status).inc()
        self._tokens.labels("input").inc(finding.usage.input_tokens or 0)
        self._tokens.labels("output").inc(finding.usage.output_tokens or 0)


async def _judged(service: Service, edit: SentEdit, metrics: _Metrics) -> tuple[int, dict[str, Json]]:
    """Return the HTTP status of one edit with its verdict, or with why there is none. What else is raised is logged."""
    status, answer = 200, dict[str, Json]()
    with metrics.seconds.time():
        try:
            answer = await service.judge(edit)
        except DataError as error:
            status, answer = 422, {"error": str(error)}
        except TimeoutError:
            waited = f"no verdict within {service.timeout_s:g} s; the same request goes on from what is recorded"
            status, answer = 504, {"error": waited}
        except Interrupted as error:
            status, answer = 503, {"error": str(error)}
        except Exception:  # a fault of ours must not cost the other edits of a list; its log has it
            logger.exception("an edit failed")
            status, answer = 500, {"error": "editloupe itself failed; the log of the service says how"}
    metrics.edits.labels(str(status)).inc()
    return status, answer


def _shows(request: Request, token: str | None) -> bool:
    """Whether a request shows the token, or none is asked for."""
    scheme, _, shown = request.headers.get("authorization", "").partition(" ")
    return token is None or (
        scheme.lower() == "bearer" and hmac.compare_digest(shown.strip().encode("utf-8", "replace"), token.encode())
    )


def _error(status: int, text: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": text}, status_code=status, headers=headers)


def _read(body: bytes) -> tuple[list[SentEdit], bool]:
    """Return the edits of a request, and whether it is a list.

    Raises SampleError, which says where and what, a line each; never what was sent, which may be megabytes.
    """
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SampleError(f"not JSON ({type(error).__name__}); expected an edit, or a list of edits") from error
    is_list = isinstance(sent, list)
    try:
        return _EDITS.validate_python(sent if is_list else [sent]), is_list
    except ValidationError as error:
        lines = []
        for one in error.errors(include_url=False, include_input=False, include_context=False)[:10]:
            where = ".".join(map(str, one["loc"][0 if is_list else 1 :]))
            told = str(one["msg"]).removeprefix("Value error, ")
            lines.append(f"{where}: {told}" if where else told)
        raise SampleError("\n".join(dict.fromkeys(lines))) from error
