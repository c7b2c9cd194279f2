"""`vllm serve` as a process of ours: started on a free port of this machine, waited for, stopped whatever happens.

    with launched(parse_uri("vllm/Qwen/Qwen3-VL-8B-Instruct"), ["--max-model-len", "32768"]) as (backend, server):
        ...

The port is new each time and no part of the judge's identity; the model and the arguments are.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

from editloupe.backends import vllm
from editloupe.backends.base import BackendURI
from editloupe.backends.keys import scrub
from editloupe.backends.openai import OpenAIBackend
from editloupe.errors import ConfigError, Unavailable

START_S: Final = 3600.0
"""A large model may have to be fetched first."""
GRACE_S: Final = 15.0
"""Seconds between SIGTERM and SIGKILL."""
LOG_LINES: Final = 15
"""Of the server's log, where it fails."""
_PR_SET_PDEATHSIG = 1

_LINE_BYTES = 400

_OURS: Final = {
    "--host": "the server is reached from this machine only",
    "--port": "a free one is chosen",
    "--uds": "the server is reached by its port",
    "--served-model-name": "the model keeps the name that --backend gives it",
    "--model": "--backend names it",
    "--api-key": "keys come from the environment: set VLLM_API_KEY",
    "--hf-token": "keys come from the environment: set HF_TOKEN",
}
"""Arguments that cannot be passed on, with the reason."""


def check_launch(uri: BackendURI, arguments: Sequence[str]) -> None:
    """Check that a backend can be launched. Raises ConfigError: another provider, an address, an argument of ours."""
    if uri.provider != "vllm":
        raise ConfigError(f"--launch starts vllm serve and needs --backend vllm/MODEL, found {uri.provider!r}")
    if not uri.model:
        raise ConfigError("--launch needs a model: --backend vllm/MODEL, such as vllm/Qwen/Qwen3-VL-8B-Instruct")
    if "base_url" in uri.params:
        raise ConfigError("--launch starts a server of its own; leave base_url out, or --launch")
    for argument in arguments:
        name = argument.partition("=")[0].replace("_", "-")
        if name in _OURS:
            raise ConfigError(f"--launch-args holds {name}: {_OURS[name]}")


def executable() -> Path:
    """Find `vllm` on the PATH, else beside this Python. Raises ConfigError where it is not installed."""
    beside = Path(sys.executable).with_name("vllm")
    found = shutil.which("vllm") or (str(beside) if os.access(beside, os.X_OK) else None)
    if found is None:
        raise ConfigError(
            "--launch needs the program vllm, which is not on the PATH: on a machine with a GPU, install it in an "
            "environment of its own (python -m venv vllm && vllm/bin/pip install 'vllm>=0.31,<0.33') and put its bin "
            "folder on the PATH, or start the server elsewhere and name it with "
            "--backend 'vllm/MODEL?base_url=http://HOST:8000/v1'"
        )
    return Path(found)


def unstarted(uri: BackendURI, arguments: Sequence[str] = ()) -> OpenAIBackend:
    """Return who would judge if the server were launched so; it cannot be asked. Raises ConfigError."""
    check_launch(uri, arguments)
    return _opened(uri, arguments, "http://127.0.0.1:1/v1")


def _opened(uri: BackendURI, arguments: Sequence[str], base_url: str) -> OpenAIBackend:
    place = "launched: " + shlex.join(["vllm", "serve", uri.model, *arguments])
    here = BackendURI(provider=uri.provider, model=uri.model, params={**uri.params, "base_url": base_url})
    return vllm.open_backend(here, place=place)


@contextlib.contextmanager
def launched(
    uri: BackendURI,
    arguments: Sequence[str] = (),
    *,
    progress: Callable[[float, str], None] = lambda seconds, line: None,
    start_s: float = START_S,
    grace_s: float = GRACE_S,
) -> Iterator[tuple[OpenAIBackend, Server]]:
    """Launch a server that lives as long as the block, and yield the backend that asks it.

    arguments: passed on to `vllm serve MODEL`.   progress: called a few times a second until the server answers, with the
    seconds since its start and its last log line.   start_s, grace_s: bounds of starting and of stopping, in seconds.
    Raises ConfigError (nothing was started), Unavailable with the last log lines (it ended, or did not answer in time).
    """
    check_launch(uri, arguments)
    with Server(executable(), uri.model, arguments, grace_s=grace_s) as server:
        server.wait(progress, start_s)
        backend = _opened(uri, arguments, server.base_url)
        try:
            yield backend, server
        finally:
            backend.close()


class Server:
    """One `vllm serve`, in a process group of its own, with its log in a temporary file. A context manager.

    A terminal's Ctrl-C does not reach it: the run stops first, then the server. SIGTERM and SIGHUP stop the server too,
    where the block was entered in the main thread.
    """

    def __init__(self, program: Path, model: str, arguments: Sequence[str], *, grace_s: float = GRACE_S) -> None:
        self.port = _free_port()
        self._command = [str(program), "serve", model, "--host", "127.0.0.1", "--port", str(self.port), *arguments]
        self._model, self._grace_s = model, grace_s
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Server:
        self._log = tempfile.TemporaryFile()
        self._begun = time.monotonic()
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_dies_with_us(),
            )
        except OSError as error:
            self._log.close()
            raise ConfigError(f"{self._command[0]} cannot be run: {error.strerror or error}") from error
        if threading.current_thread() is threading.main_thread():
            self._before = {n: signal.signal(n, self._on_signal) for n in (signal.SIGTERM, signal.SIGHUP)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.stop()
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._log.close()

    def wait(self, progress: Callable[[float, str], None], start_s: float) -> None:
        """Wait until the server answers. Raises Unavailable, with its last log lines, where it ends or takes too long."""
        while True:
            seconds = time.monotonic() - self._begun
            if trouble := self.trouble():
                raise Unavailable(trouble)
            if self._healthy():
                return
            if seconds > start_s:
                raise Unavailable(f"vllm serve {self._model} did not answer within {start_s:g} s{self._log_tail()}")
            progress(seconds, "".join(self._lines(1)))
            time.sleep(0.2)

    def stop(self) -> None:
        """End the whole process group: SIGTERM, then SIGKILL. The second call does nothing."""
        try:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self._process.pid, signal.SIGTERM)
                self._process.wait(self._grace_s)
        finally:
            # Always: what the server started may outlive it, with the GPU's memory. And also where a second Ctrl-C
            # ended the waiting.
            self.kill()
            self._process.wait()

    def kill(self) -> None:
        """End the group at once, for a run that may not wait any more."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def trouble(self) -> str:
        """Return how the server ended by itself, with its last log lines; "" while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        ending = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        return f"vllm serve {self._model} ended with {ending}{self._log_tail()}"

    def _log_tail(self) -> str:
        lines = self._lines(LOG_LINES)
        return ":\n" + "\n".join(f"    {line}" for line in lines) if lines else "; its log is empty"

    def _lines(self, count: int) -> list[str]:
        """Return the last lines of the log that say something."""
        size = os.fstat(self._log.fileno()).st_size
        start = max(0, size - 64 * _LINE_BYTES)
        text = os.pread(self._log.fileno(), size - start, start).decode("utf-8", "replace")
        text = scrub(text, (os.environ.get(vllm.KEY_VARIABLE, "").strip(),))
        # A progress bar writes its line again and again behind carriage returns.
        lines = ["".join(c if c.isprintable() else " " for c in line).rstrip() for line in text.splitlines()]
        return [line if len(line) <= _LINE_BYTES else line[: _LINE_BYTES - 1] + "…" for line in lines if line][-count:]

    def _healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            with contextlib.closing(connection):
                connection.request("GET", "/health")
                return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.kill()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _dies_with_us() -> Callable[[], None] | None:
    """Return what makes the new process end when this one does, even by SIGKILL; None where the system cannot.

    The system watches the thread that starts it, so only the main one may ask this.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return None
    import ctypes

    # Loaded here and not behind the fork, where an import may block on another thread's lock.
    prctl, us = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != us:
            os._exit(1)

    return ask


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
