"""Counters and gauges of the HTTP service for Prometheus."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from editloupe.findings import Finding
from editloupe.service.queue import JudgeQueue

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)


class Metrics:
    """The registry of one service."""

    media_type: str = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, queue: JudgeQueue) -> None:
        # Without this, each counter has a time stamp beside it, which doubles their number.
        disable_created_metrics()
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._registry = registry
        self._requests = Counter("editloupe_requests", "Requests answered.", ("endpoint", "status"), registry=registry)
        self._seconds = Histogram(
            "editloupe_request_seconds",
            "Seconds from the first byte to the answer.",
            ("endpoint",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._findings = Counter("editloupe_findings", "New findings, by status.", ("metric", "status"), registry=registry)
        self._tokens = Counter("editloupe_tokens", "Tokens of new findings.", ("direction",), registry=registry)
        for name, description, read in (
            ("editloupe_places", "Places for edits, judged or waiting.", lambda: queue.capacity),
            ("editloupe_places_taken", "Places that are taken.", lambda: queue.taken),
            ("editloupe_tasks_running", "Tasks that a thread works on.", lambda: queue.running),
        ):
            Gauge(name, description, registry=registry).set_function(read)

    def count_finding(self, finding: Finding) -> None:
        """Count a new finding."""
        self._findings.labels(finding.metric, finding.status).inc()
        self._tokens.labels("input").inc(finding.usage.input_tokens or 0)
        self._tokens.labels("output").inc(finding.usage.output_tokens or 0)

    def count_answer(self, endpoint: str, status: int, seconds: float) -> None:
        """Count an answer.   endpoint: one of a few words, whatever the client asked for."""
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def text(self) -> str:
        """Return all of it in Prometheus' text format."""
        written: bytes = generate_latest(self._registry)
        return written.decode("utf-8")
