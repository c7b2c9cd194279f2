"""Traces to LangSmith: LangGraph and LangChain send them only if the user asks, whatever the environment says."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from editloupe.errors import ConfigError

FLUSH_S = 20.0


@contextmanager
def tracing(enabled: bool | None) -> Iterator[None]:
    """Send traces in this thread, or send none. None leaves it to LangGraph's own server."""
    from langsmith.run_helpers import get_tracing_context, tracing_context

    with tracing_context(**get_tracing_context() if enabled is None else {"enabled": enabled}):
        yield


def announcement() -> str:
    """Return what is sent, and where to, on one line. Raises ConfigError without a key for LangSmith's own server."""
    from langsmith.utils import get_api_url, get_env_var

    if not (get_env_var("API_KEY") or get_env_var("ENDPOINT")):
        raise ConfigError("--langsmith needs a key: set environment variable LANGSMITH_API_KEY, or LANGSMITH_ENDPOINT")
    held = "what the judge thinks and answers; with a langchain/… backend, the whole conversation with its pictures"
    return f"Traces go to LangSmith at {get_api_url(None)}: {held}."


def flush() -> bool:
    """Wait at most FLUSH_S until all traces are sent, and return whether they are."""
    tracers = sys.modules.get("langchain_core.tracers.langchain")
    # The library's own wait has no end where its thread has died.
    waiting = threading.Thread(target=tracers.wait_for_all_tracers if tracers else None, daemon=True)
    waiting.start()
    waiting.join(FLUSH_S)
    return not waiting.is_alive()
