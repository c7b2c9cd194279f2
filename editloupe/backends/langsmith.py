"""Traces to LangSmith. LangGraph and LangChain send them as the environment says; here only if the user asks for them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from editloupe.errors import ConfigError

FLUSH_S: Final = 20.0

_VERSION_1: Final = ("LANGCHAIN_TRACING", "LANGCHAIN_HANDLER")
"""LangChain raises where one of these is set and nothing is traced."""

_ENABLE: Final = ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING_V2", *_VERSION_1)
"""What makes LangGraph and LangChain send traces."""


@contextmanager
def tracing(wanted: bool | None) -> Iterator[None]:
    """Let LangGraph and LangChain send traces to LangSmith in this thread, or keep them from it.

    wanted: True sends, False sends nothing, whatever the environment says; None leaves it to whoever has decided already,
    such as LangGraph's own server.
    """
    if wanted is None:
        yield
        return
    if not wanted and "langchain_core" not in sys.modules and not any(map(os.environ.get, _ENABLE)):
        yield  # nobody here could send anything, and the import takes long
        return
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.tracers.context import tracing_v2_callback_var
    from langsmith.run_helpers import tracing_context

    silent = not wanted and any(os.environ.get(name) for name in _VERSION_1)
    with tracing_context(enabled=wanted):
        # A handler that does nothing, in the place of the one that sends.
        token = tracing_v2_callback_var.set(BaseCallbackHandler() if silent else None)  # type: ignore[arg-type]
        try:
            yield
        finally:
            tracing_v2_callback_var.reset(token)


def decided() -> bool:
    """Return whether somebody has said in this thread whether traces are sent."""
    from langsmith.run_helpers import get_tracing_context

    return get_tracing_context()["enabled"] is not None


def announcement() -> str:
    """Return what is sent, and where to, on one line. Raises ConfigError without a key for LangSmith's own server."""
    endpoint, key = _variable("ENDPOINT"), _variable("API_KEY")
    if not (endpoint or key):
        raise ConfigError("--langsmith needs a key: set environment variable LANGSMITH_API_KEY, or LANGSMITH_ENDPOINT")
    return (
        f"Traces go to LangSmith at {endpoint or 'https://api.smith.langchain.com'}: what the judge thinks and answers, "
        "and with a langchain/… backend the whole conversation with its pictures."
    )


def flush() -> bool:
    """Wait until all traces are sent, and return whether they are; never longer than FLUSH_S.

    Imports nothing: without LangChain there are none.
    """
    tracers = sys.modules.get("langchain_core.tracers.langchain")
    if tracers is None:
        return True
    # The library's own wait has no end where its thread has died.
    waiting = threading.Thread(target=tracers.wait_for_all_tracers, daemon=True)
    waiting.start()
    waiting.join(FLUSH_S)
    return not waiting.is_alive()


def _variable(name: str) -> str:
    return next(
        (value for start in ("LANGSMITH", "LANGCHAIN") if (value := os.environ.get(f"{start}_{name}", "").strip())), ""
    )
