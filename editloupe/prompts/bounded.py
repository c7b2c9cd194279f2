"""Render a template that is not ours: in a process of its own, bounded in time, memory and size.

A template is a program, and may come with a run from anybody. It can loop, and `'a' * 10**10` or `10**10**10` is one step
that Jinja2's sandbox does not stop. The process is started with the first such template, and ends with this one.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from editloupe.errors import ConfigError

SECONDS: Final = 1
"""Computing time of one text. A prompt takes milliseconds."""
MEMORY_MB: Final = 256
"""Memory of one text, beside that of Python itself."""

_START: Final = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from editloupe.prompts import rendered
from editloupe.prompts.bounded import serve
serve(rendered)
"""
_lock = threading.Lock()
_process: subprocess.Popen[bytes] | None = None


def render_bounded(shown: str, text: str, variables: Mapping[str, object]) -> str:
    """Return the text of a template as `editloupe.prompts.rendered` does.

    Raises ConfigError as that does, and for a template that takes too long or too much memory. Thread-safe.
    """
    try:
        request = pickle.dumps((shown, text, dict(variables)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(f"prompt {shown!r}: its variables must be plain values: {error}") from error
    with _lock:
        process = _running()
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        with suppress(BrokenPipeError):
            process.stdin.write(request)
            process.stdin.flush()
        answer = process.stdout.readline()
        if not answer.endswith(b"\n"):
            code = process.wait()
            _close()
            if code == -signal.SIGPROF:
                raise ConfigError(f"prompt {shown!r}: takes more than {SECONDS} s to render; is there a loop without end?")
            raise ConfigError(f"prompt {shown!r}: cannot be rendered; the process for it ended with code {code}")
    good, found = json.loads(answer)
    if not good:
        raise ConfigError(found)
    return str(found)


def serve(rendered: Callable[[str, str, dict[str, object]], str]) -> None:
    """Answer requests on standard input, a line of JSON each on standard output: whether it went well, and the text.

    rendered: `editloupe.prompts.rendered`.
    """
    # Ctrl-C is for the process that asks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rendered("", "", {})
    first = True
    while True:
        try:
            shown, text, variables = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if first:
            # Not before: the values of a request bring their modules.
            _bound_memory()
            first = False
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            answer = [True, rendered(shown, text, variables)]
        except ConfigError as error:
            answer = [False, str(error)]
        except MemoryError:
            answer = [False, f"prompt {shown!r}: takes more than {MEMORY_MB} MB of memory to render"]
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _running() -> subprocess.Popen[bytes]:
    """Return the process, started if there is none."""
    global _process
    if _process is None or _process.poll() is not None:
        _close()
        # -I: neither the folder where the user is nor the environment puts modules in place of ours.
        _process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert _process.stdin is not None, "it is a pipe"
        pickle.dump(sys.path, _process.stdin)
    return _process


def _close() -> None:
    """End the process, if there is one."""
    global _process
    process, _process = _process, None
    if process is not None:
        process.kill()
        with suppress(BrokenPipeError), process:
            pass


def _forget() -> None:
    """Leave the process to the parent, in a fork of this one."""
    global _lock, _process
    _lock, _process = threading.Lock(), None


def _bound_memory() -> None:
    """Let this process take no more memory than it has and MEMORY_MB. Only Linux says how much that is."""
    used = Path("/proc/self/statm")
    if used.exists():
        most = int(used.read_text(encoding="ascii").split()[0]) * resource.getpagesize() + MEMORY_MB * 2**20
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


atexit.register(_close)
os.register_at_fork(after_in_child=_forget)
