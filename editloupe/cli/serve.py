"""`editloupe serve`: the judge as a small HTTP service."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import typer

from editloupe.backends.endpoint import is_loopback
from editloupe.backends.limits import limit_of
from editloupe.cli import options
from editloupe.cli.options import check_company, given, one_run, opt, read_text
from editloupe.cli.output import note, tell_traces
from editloupe.errors import ConfigError, MissingExtra
from editloupe.runs.run import default_concurrency
from editloupe.runs.setup import open_setup

TOKEN: Final = "EDITLOUPE_SERVE_TOKEN"
EXTRA: Final = ("prometheus_client", "httpx")
"""What the extra `serve` brings."""
MAX_PIXELS: Final = 40_000_000
"""Maximum pixels of an image that a client sends."""
TIMEOUT_S: Final = 600.0
"""Seconds for one edit, waiting included; then 504."""
GRACE_S: Final = 30
"""Seconds to finish in when stopped."""


NoScore: TypeAlias = Literal["error", "group-mean"]


def serve(
    context: typer.Context,
    out_dir: Annotated[Path, opt("--out", "RUN", "Run folder, where the trace of every verdict stays.")],
    host: Annotated[str, opt("--host", "NAME", "Address to listen at. Default: loopback alone.")] = "127.0.0.1",
    port: Annotated[int, opt("--port", "N", "0 takes a free one and says which.", min=0, max=65535)] = 8321,
    concurrency: options.Concurrency = None,
    max_queue: Annotated[int, opt("--max-queue", "N", "Edits that may wait; further ones get 503.", min=0)] = 128,
    max_body_mb: Annotated[float, opt("--max-body-mb", "MB", "Largest request.", min=0.001, max=1024)] = 32.0,
    root: Annotated[Path | None, opt("--root", "FOLDER", "Images below it may be named by path.")] = None,
    image_host: Annotated[list[str] | None, opt("--image-host", "HOST[:PORT]", "Fetch images from it; repeatable.")] = None,
    token_file: Annotated[Path | None, opt("--token-file", "FILE", f"Token that clients show. Or set {TOKEN}.")] = None,
    door: Annotated[str | None, opt("--door", "NAME", "Another project's wire too: flow-grpo. It has no token.")] = None,
    no_score: Annotated[NoScore, opt("--no-score", None, "What a door answers for an edit without a score.")] = "error",
    reward: Annotated[str | None, opt("--reward", "EXPR", "Such as '0.7*IF+0.3*VC'. Default: the mean.")] = None,
    canary: Annotated[int | None, opt("--canary", "N", "After N edits of a door, judge two of known truth.", min=1)] = None,
    protocol: options.ProtocolName = None,
    mode: options.Mode = None,
    backend: options.Backend = None,
    sets: options.Sets = None,
) -> int:
    """Serve verdicts over HTTP: POST /v1/judge with an edit or a list of edits, GET /healthz and /metrics."""
    check_company(("--door NAME", door is not None, {"--canary": canary, "--no-score": no_score != "error"}))
    if root is not None and not root.is_dir():
        raise ConfigError(f"--root {root}: is not a folder; expected the one below which images may be named")
    named = os.environ.get(TOKEN, "").strip() or None
    token = named if token_file is None else read_text(token_file, "--token-file", "the token that clients must show")
    try:
        import uvicorn

        from editloupe.service.app import make_app
        from editloupe.service.doors import load_door
        from editloupe.service.edits import Sources
        from editloupe.service.judging import Service
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        raise MissingExtra("The HTTP service", "serve") from error
    wire = None if door is None else load_door(door)
    run = one_run(given(context), "serve")
    setup = open_setup(run)
    tell_traces(run.langsmith)
    if run.max_connections is not None:
        limit_of(setup.backend.endpoint).fix(run.max_connections)
    # Weights that cannot be loaded are found now, and not with the first request.
    setup.toolbox.prepare()
    shown = f"[{host}]" if ":" in host else host
    hosts = ("127.0.0.1", "localhost", "::1", "[::1]", host) if is_loopback(f"http://{shown}") else ()
    sources = Sources(
        root=None if root is None else root.resolve(),
        hosts=frozenset(name.lower() for name in image_host or ()),
        max_bytes=int(max_body_mb * 1_000_000),
        max_pixels=MAX_PIXELS,
    )
    at_once = default_concurrency(setup)
    with listen(host, port) as listening:
        service = Service(
            setup, out_dir, sources=sources, concurrency=at_once, waiting=max_queue, timeout_s=TIMEOUT_S, reward=reward
        )
        app = make_app(service, token=token, hosts=hosts, door=wire, group_mean=no_score == "group-mean", canary=canary)
        config = uvicorn.Config(
            app, http="h11", ws="none", log_level="warning", access_log=False, server_header=False,
            # Of connections, whether something is asked on them or not.
            limit_concurrency=at_once + max_queue + 64, timeout_graceful_shutdown=GRACE_S,
        )  # fmt: skip
        name = f"http://{shown}:{listening.getsockname()[1]}"
        if not hosts and token is None:
            note(f"warning: anyone who reaches {host} can ask, and spend; set {TOKEN} or --token-file")
        if door is not None:
            note(f"door {door}: this wire has no token; anyone who reaches {name} can ask, and spend")
        note(f"{setup.backend.uri} answers at {name}, {at_once} edits at once; traces in {out_dir}")
        for number in (signal.SIGINT, signal.SIGTERM):
            # The server stops, and raises the signal again once it has stopped.
            signal.signal(number, lambda *_: None)
        uvicorn.Server(config).run(sockets=[listening])
    if hanging := service.close():
        note(f"{hanging} edits were not done; their traces hold what had come, and the same request goes on from there")
        # Their threads would keep the process until the endpoint answers.
        sys.stderr.flush()
        os._exit(1)
    return 0


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises ConfigError for an address that cannot be had."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        # From here on a client is not refused, however long the rest of the start takes.
        return socket.create_server(address, family=family, backlog=2048, dualstack_ipv6=both)
    except OSError as error:
        # The error of `create_server` repeats the address; a name that is not found has no number of the system.
        reason = error if isinstance(error, socket.gaierror) or error.errno is None else os.strerror(error.errno)
        raise ConfigError(f"cannot listen at {host}, port {port} ({reason}); name another, or --port 0") from error
