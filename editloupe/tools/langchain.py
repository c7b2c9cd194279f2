"""Binds the tools to LangChain, for other agents. Needs langchain-core, and nothing of LangGraph."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from editloupe.data.objects import AnyImage
from editloupe.errors import ConfigError, ToolError
from editloupe.tools.base import spec
from editloupe.tools.session import Session, open_session
from editloupe.tools.settings import ToolSettings


def as_langchain(
    images: Mapping[str, AnyImage] | Session, *, tools: Iterable[str] | None = None, settings: ToolSettings | None = None
) -> list[BaseTool]:
    """Return the tools bound to `images`, to be given to a chat model and to LangGraph's `ToolNode`.

    images: name → file, PIL image, H×W×3 uint8 RGB array or ImageRef. The names are those that the prompt uses ("Original
    Image", "Edited Image"). Or a Session, whose toolbox names the absent tools.
    tools: names; None takes those of the five built-in ones that can be had here. Not with a Session, which has its own.
    settings: weights and device; None reads the environment. Not with a Session.

    The tools of one list share one conversation: a picture that one call shows as "Crop 1" can be named in the next. Make
    a new list for each conversation. Parallel calls run one after another.

    A tool's message has the text and the pictures as LangChain's standard content blocks. Its artifact is JSON: the
    observation (`Observation.from_json` reads it), "tool", "version" and "names" (of the pictures). A ToolError, which the
    LMM can act on, becomes a message with the status "error". Raises ConfigError and ImageError.
    """
    if isinstance(images, Session):
        if tools is not None or settings is not None:
            raise TypeError("a Session has its own tools and settings; give it alone")
        session = images
    else:
        session = open_session(images, tools=tools, settings=settings)
    return [_bound(session, name) for name in session.toolbox.tools]


def _bound(session: Session, name: str) -> BaseTool:
    offered = spec(session.toolbox.tools[name])

    # LangGraph's ToolNode evaluates these annotations, and cannot follow a recursive alias such as Json.
    def call(**arguments: Any) -> tuple[Any, Any]:
        try:
            shown = session.call(name, arguments)
        except (ToolError, ConfigError) as error:
            # Weights that turn out to be damaged with the first call: the LMM reads it and may use another tool.
            raise ToolException(f"Error: {error}") from error
        # JSON and no object of ours, so that every checkpointer of LangGraph keeps it.
        names = [picture.name for picture in shown.pictures]
        artifact = {"tool": shown.tool, "version": shown.version, "names": names, **shown.observation.to_json()}
        blocks: list[dict[str, Any]] = [{"type": "text", "text": shown.observation.text}]
        for picture in shown.pictures:
            data = base64.b64encode(picture.png).decode("ascii")
            blocks.append({"type": "text", "text": f"{picture.name}:"})
            blocks.append({"type": "image", "base64": data, "mime_type": "image/png"})
        return blocks, artifact

    return StructuredTool(
        name=name,
        description=offered.description,
        # The schema and not the pydantic class, which LangChain would apply itself: our own check reports every wrong
        # argument in words that a model can act on, and turns no "12" into 12.
        args_schema=dict(offered.parameters),
        func=call,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )
