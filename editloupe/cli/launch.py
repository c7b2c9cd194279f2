"""`--launch`: the vLLM server of a judge, started for one command."""

from __future__ import annotations

import shlex
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from editloupe.backends.base import LMM, BackendURI, parse_uri
from editloupe.backends.vllm_server import Server, check_launch
from editloupe.backends.vllm_server import launched as start
from editloupe.cli.output import note, plain, status
from editloupe.config import JudgeConfig, RunConfig
from editloupe.errors import ConfigError

Launch = tuple[BackendURI, tuple[str, ...]]
"""A server to be started: the URI that names the model, and the arguments of `vllm serve`."""


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
    return uri, tuple(given)


def with_backend(run: RunConfig, backend: LMM) -> RunConfig:
    """Return the same run, asked of an open backend."""
    return run.with_judge(run.judge.model_copy(update={"backend": backend}))


@contextmanager
def launched(launch: Launch, *, hidden: bool) -> Iterator[tuple[LMM, Server]]:
    """Start a server, with a progress line; yield the backend that asks it."""
    uri, arguments = launch
    begun = time.monotonic()
    with ExitStack() as stack:
        with status("starting vllm serve", hidden=hidden) as line:

            def tell(seconds: float, text: str) -> None:
                last = textwrap.shorten(text, 100, placeholder=" …")
                line.update(plain(f"starting vllm serve {uri.model}, {seconds:.0f} s  {last}"))

            pair = stack.enter_context(start(uri, arguments, progress=tell))
        if not hidden:
            note(f"vllm serve {uri.model} answers after {time.monotonic() - begun:.0f} s")
        yield pair
