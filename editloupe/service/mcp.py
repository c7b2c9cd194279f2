"""The tools as a Model Context Protocol server on standard input and output (the extra `mcp`).

One process serves one client, hence one conversation: the images that the client opened, and the pictures made since.
There is no HTTP: since the protocol of 2026-07-28 a request there belongs to no session, so that "Crop 1" could be any
client's.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from editloupe.chat import ToolSpec
from editloupe.data.images import encode_png
from editloupe.errors import ConfigError, DataError, MissingExtra, ToolError
from editloupe.service.paths import given
from editloupe.tools.base import spec
from editloupe.tools.session import Picture, Session, ToolAnswer
from editloupe.values import Json
from editloupe.version import VERSION

try:
    import anyio
    import anyio.to_thread
    from mcp.server import Server
    from mcp.server.stdio import stdio_server
    from mcp_types import CallToolResult, ImageContent, ListToolsResult, TextContent, Tool, ToolAnnotations
except ImportError as error:
    raise MissingExtra("An MCP server", "mcp") from error

OPEN: Final = "open_images"
_OPENS: Final = {"original": "Original Image", "edited": "Edited Image", "reference": "Reference Image"}

MOST_SHOWN: Final = 700_000
"""Bytes of PNG in one answer, all pictures together: less than 1 MB in base64, which is what clients take."""
_LONGEST: Final = 2_000
"""Characters of an error."""
_LONG_VALUE: Final = 100
"""Characters from which on a text that was sent is not repeated."""


def serve(session: Session, root: Path) -> None:
    """Serve until the client closes standard input.

    root: only images below it can be opened. Raises ConfigError if it is no folder.
    """
    if not root.is_dir():
        raise ConfigError(f"--root {root}: is no folder; expected the one below which images may be opened")
    base = root.resolve()

    async def list_tools(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=_tools(session))

    async def call_tool(_context: Any, params: Any) -> CallToolResult:
        # In a thread, so that the server answers pings while a network computes.
        return await anyio.to_thread.run_sync(_call, session, base, params.name, params.arguments or {})

    server: Server[Any] = Server(
        "editloupe",
        version=VERSION,
        instructions=_instructions(session),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )

    async def main() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(main)


def _instructions(session: Session) -> str:
    absent = "".join(f" The tool {name} is absent here: {reason}." for name, reason in session.toolbox.absent.items())
    return (
        f"Tools that look closely at images and at what an edit changed. Begin with {OPEN}; the other tools take the image "
        "names that it gives. Pictures that tools show are named Crop 1, Crop 2, … and can be named in later calls. Boxes "
        f"are [x0, y0, x1, y1] in thousandths of width and height.{absent}"
    )


def _tools(session: Session) -> list[Tool]:
    paths: dict[str, Json] = {
        name: {"type": "string", "minLength": 1, "description": f"The image that is to be called {shown!r}."}
        for name, shown in _OPENS.items()
    }
    opening = ToolSpec(
        name=OPEN,
        description="Opens images for the other tools, and forgets what was open before. An image is a path, relative to "
        "the server's root folder or absolute and below it, a file:// address of such a file, or a data: address with the "
        "image in base64. Answers with the names by which the tools know the images.",
        parameters={"type": "object", "properties": paths, "required": ["original"], "additionalProperties": False},
    )
    return [
        Tool(
            name=one.name,
            title=one.name.replace("_", " ").capitalize(),
            description=one.description,
            input_schema=dict(one.parameters),
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
        )
        for one in (opening, *map(spec, session.toolbox.tools.values()))
    ]


def _call(session: Session, root: Path, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
    try:
        if name == OPEN:
            content = _open_images(session, root, arguments)
        elif name in session.toolbox.tools and not session.images:
            raise ToolError(f"no image is open: call {OPEN} first")
        else:
            content = _content(session.call(name, dict(arguments)))
    except (ToolError, ConfigError, DataError) as error:
        return CallToolResult(content=[_text(f"Error: {_brief(str(error), arguments)}")], is_error=True)
    return CallToolResult(content=content)


def _brief(message: str, arguments: Mapping[str, Any]) -> str:
    """Return an error without long texts that were sent: they may hold a whole image."""
    for value in arguments.values():
        if isinstance(value, str) and len(value) > _LONG_VALUE:
            message = message.replace(value, "…").replace(repr(value)[1:-1], "…")
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]} …"


def _open_images(session: Session, root: Path, arguments: Mapping[str, Any]) -> list[TextContent]:
    if not {"original"} <= arguments.keys() <= _OPENS.keys():
        found = ", ".join(map(repr, arguments)) or "nothing"
        raise ToolError(f"{OPEN}: expected original, and edited and reference where there are any; found {found}")
    session.open({_OPENS[role]: given(root, image, name=role) for role, image in arguments.items()})
    return [_text("\n".join(f"{name}: {image.width}×{image.height} px" for name, image in session.images.items()))]


def _content(shown: ToolAnswer) -> list[TextContent | ImageContent]:
    """Return the text, then each picture behind its name. Those that are too large are scaled down, and said to be."""
    blocks: list[TextContent | ImageContent] = [_text(shown.observation.text)]
    for picture in shown.pictures:
        png, note = _fitted(picture, MOST_SHOWN // len(shown.pictures))
        data = base64.b64encode(png).decode("ascii")
        blocks += [_text(f"{picture.name}:{note}"), ImageContent(data=data, mime_type="image/png")]
    return blocks


def _fitted(picture: Picture, most: int) -> tuple[bytes, str]:
    """Return a picture's PNG of about so many bytes, and what is to be said of it; "" for the picture as it is."""
    if len(picture.png) <= most:
        return picture.png, ""
    png, shown = picture.png, Image.open(io.BytesIO(picture.png)).convert("RGB")
    real = shown.size
    while len(png) > most and min(shown.size) > 1:
        scale = min(0.9, math.sqrt(most / len(png)))
        shown = shown.resize((max(1, round(shown.width * scale)), max(1, round(shown.height * scale))))
        png = encode_png(np.asarray(shown))
    sizes = f"{shown.width}×{shown.height} px from {real[0]}×{real[1]}"
    return png, f" (scaled down to {sizes}, since an answer holds {MOST_SHOWN // 1000} kB; zoom_in shows parts in full)"


def _text(text: str) -> TextContent:
    # Half a surrogate pair, which JSON can bring and UTF-8 cannot carry.
    return TextContent(text=text.encode("utf-8", "replace").decode("utf-8"))
