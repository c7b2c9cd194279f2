"""`--launch`: the vLLM server of a judge, started for one command."""

from __future__ import annotations

import shlex
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

from editloupe.backends.base import LMM, BackendURI, parse_uri
from editloupe.backends.vllm_server import Server, check_launch, unstarted
from editloupe.backends.vllm_server import launched as start
from editloupe.cli.output import err, note, plain
from editloupe.config import JudgeConfig, RunConfig
from editloupe.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A server to be started."""

    uri: BackendURI
    """Names the model."""
    arguments: tuple[str, ...]
    """Arguments of `vllm serve`."""


def launch_of(judge: JudgeConfig) -> Launch | None:
    """Return what a judge launches; None if it launches nothing. Raises ConfigError."""
    if not judge.launch:
        if judge.launch_args:
            raise ConfigError("--launch-args needs --launch")
        return None
    try:
        given = shlex.split(judge.launch_args or "")
    except ValueError as error:
        raise ConfigError(f"--launch-args {judge.launch_args!r} cannot be split as a shell does it: {error}") from error
    uri = parse_uri(judge.backend or "baseline")
    if judge.tool_protocol in ("native", "auto") and not any("tool-call-parser" in a for a in given):
        # Without these the server refuses every request that offers tools.
        given += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    check_launch(uri, given)
    return Launch(uri=uri, arguments=tuple(given))


def with_backend(run: RunConfig, backend: LMM) -> RunConfig:
    """Return the same run, asked of an open backend."""
    return run.with_judge(run.judge.model_copy(update={"backend": backend}))


def before_launch(run: RunConfig, launch: Launch) -> RunConfig:
    """Return the run with the backend that the launched server will be. It has the same identity and cannot be asked."""
    return with_backend(run, unstarted(launch.uri, launch.arguments))


@contextmanager
def launched(launch: Launch, *, hidden: bool) -> Iterator[tuple[LMM, Server]]:
    """Start a server, with a progress line; yield the backend that asks it."""
    uri = launch.uri
    with ExitStack() as stack:
        with nullcontext() if hidden else err().status("starting vllm serve", spinner="line") as status:

            def tell(seconds: float, line: str) -> None:
                if status is not None:
                    last = textwrap.shorten(line, 100, placeholder=" …")
                    status.update(plain(f"starting vllm serve {uri.model}, {seconds:.0f} s  {last}"))

            begun = time.monotonic()
            pair = stack.enter_context(start(uri, launch.arguments, progress=tell))
        if not hidden:
            note(f"vllm serve {uri.model} answers after {time.monotonic() - begun:.0f} s")
        yield pair
