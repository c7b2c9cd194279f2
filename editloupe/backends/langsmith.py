"""Traces to LangSmith: LangGraph and LangChain send them only if the user asks, whatever the environment says."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from editloupe.errors import ConfigError


@contextmanager
def tracing(enabled: bool | None) -> Iterator[None]:
    """Send traces in this thread, or send none. None leaves it to LangGraph's own server."""
    from langsmith.run_helpers import get_tracing_context, tracing_context

    # No tracer reads these obsolete names any more; LangChain raises RuntimeError where it finds one.
    for name in ("LANGCHAIN_TRACING", "LANGCHAIN_HANDLER"):
        os.environ.pop(name, None)
    with tracing_context(**get_tracing_context() if enabled is None else {"enabled": enabled}):
        yield


def announcement() -> str:
    """Return what is sent, and where to, on one line. Raises ConfigError without a key for LangSmith's own server."""
    from langsmith.utils import get_api_url, get_env_var

    if not (get_env_var("API_KEY") or get_env_var("ENDPOINT")):
        raise ConfigError(
            "--set langsmith=true needs a key: set environment variable LANGSMITH_API_KEY, or LANGSMITH_ENDPOINT"
        )
    return f"Traces go to LangSmith at {get_api_url(None)}: thoughts and answers; with langchain/… the pictures too."


def flush(longest_s: float = 20.0) -> bool:
    """Wait until all traces are sent, at most so long, and return whether they are."""
    tracers = sys.modules.get("langchain_core.tracers.langchain")
    # The library's own wait has no end where its thread has died.
    waiting = threading.Thread(target=tracers.wait_for_all_tracers if tracers else None, daemon=True)
    waiting.start()
    waiting.join(longest_s)
    return not waiting.is_alive()
