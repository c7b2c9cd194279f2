"""Run one call of a tool for the loop: whatever happens is an outcome that can be recorded."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from editloupe import cores
from editloupe.chat import ToolCall
from editloupe.errors import ImageError, Interrupted, ProcessLost, ToolError
from editloupe.findings import Observation
from editloupe.tools.base import Toolbox, ToolContext
from editloupe.tools.cache import ToolCache
from editloupe.values import Serializable

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ToolOutcome(Serializable):
    """The outcome of one tool call."""

    observation: Observation
    aliases: tuple[str, ...] = ()
    """Names under which the observation's images are shown."""
    crashed: str | None = None
    """Type and text of an unexpected exception of the tool."""
    cached: bool = False
    """Whether the result of an equal call was used, and the tool did not run."""


def run_call(toolbox: Toolbox, call: ToolCall, context: ToolContext, cache: ToolCache | None) -> ToolOutcome:
    """Run one call. A ToolError becomes an observation; so does any other exception, counted as a crash.

    cache: earlier results; None runs every call.   Raises Interrupted, ImageError and ProcessLost.
    """
    cached = False
    computes = getattr(toolbox.tools.get(call.name), "computes", False)
    try:
        with cores.computing() if computes else cores.waiting():
            if cache is None:
                observation = toolbox.call(call.name, call.arguments, context)
            else:
                observation, cached = cache.call(toolbox, call.name, call.arguments, context)
    except ToolError as error:
        return ToolOutcome(observation=Observation(text=f"Error: {error}", error=True))
    except (Interrupted, ImageError, ProcessLost):
        raise
    except Exception as error:  # noqa: BLE001 - tools may be plug-ins; their faults are recorded and must not end the run
        text = f"Error: {call.name} failed ({type(error).__name__}); try other arguments or another tool"
        traced = error if _LOG.isEnabledFor(logging.DEBUG) else None
        _LOG.warning("the tool %s crashed: %s: %s", call.name, type(error).__name__, error, exc_info=traced)
        return ToolOutcome(observation=Observation(text=text, error=True), crashed=f"{type(error).__name__}: {error}")
    return ToolOutcome(observation=observation, aliases=context.names(observation), cached=cached)
