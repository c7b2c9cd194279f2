"""What the tests of single tools share: images under their names, and a call as a model makes it."""

from __future__ import annotations

from collections.abc import Mapping

from editloupe.data.images import RGB, ImageStore
from editloupe.findings import Observation
from editloupe.tools.base import Tool, Toolbox, ToolContext
from editloupe.values import Json, View
from tests.imaging.drawn import textured


def context_of(images: Mapping[str, RGB]) -> ToolContext:
    """A conversation that begins with these images."""
    store = ImageStore()
    return ToolContext(images=store, views={name: View.whole(store.add_array(rgb)) for name, rgb in images.items()})


def texture(width: int, height: int) -> ToolContext:
    """A conversation over one drawn image."""
    return context_of({"Edited Image": textured(width, height)})


def call(tool: Tool, context: ToolContext, **arguments: Json) -> Observation:
    """What a tool says; of the edited image, unless another is named."""
    named: dict[str, Json] = {"target_image": "Edited Image", **arguments}
    return Toolbox(tools={tool.name: tool}).call(tool.name, named, context)
