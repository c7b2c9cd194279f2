"""A conversation with the tools: images by name, pictures that later calls can name, one call after another.

The command line, LangChain and MCP go through `Session`. The judge's loop keeps a `ToolContext` of its own.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.data.objects import AnyImage, image_of
from editloupe.errors import ConfigError, EditLoupeError, ImageError, ToolError, ToolFailed
from editloupe.findings import Evidence, Observation
from editloupe.tools.base import BUILT_IN_TOOLS, Toolbox, ToolContext, open_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.values import Box, ImageRef, Json, View

_PNG: Final = ImagePolicy(formats=("image/png",))
_CROP = re.compile(r"crop \d+")
_NAMED_CROP = re.compile(r"\bCrop \d+\b")


def places_in(thought: str, panes: Mapping[str, Sequence[View]]) -> tuple[Evidence, ...]:
    """Return the places that a thought refers to: the crops that it names, mapped to the input images.

    panes: image name → its Views.
    """
    if not (named := dict.fromkeys(_NAMED_CROP.findall(thought))):
        return ()
    # An image of the question is an input or made of one; images of tools are numbered.
    inputs = {views[0].origin.sha256: name for name, views in panes.items() if not _NAMED_CROP.fullmatch(name)}
    makers = {view.image.sha256: views for views in panes.values() for view in views if view.image != view.origin}
    found: list[Evidence] = []
    for name in named:
        for view in panes.get(name, []):
            image, box = _root(view, makers)
            if image in inputs:
                found.append(Evidence(image=inputs[image], box=box))
    return tuple(dict.fromkeys(found))


def _root(view: View, makers: Mapping[str, Sequence[View]]) -> tuple[str, Box]:
    """Follow a view to the input image that it shows. Return (SHA-256, box in px of that image)."""
    origin, box = view.origin.sha256, view.region
    while origin in makers:
        pane = max(makers[origin], key=lambda p: common.area if (common := p.window.intersection(box)) else 0.0)
        box = pane.to_origin(pane.window.intersection(box) or pane.window)
        origin = pane.origin.sha256
    return origin, box


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One picture of an observation, with its bytes."""

    name: str
    """For example "Crop 2"; "" for a picture that is kept and not shown."""
    panes: tuple[View, ...]
    png: bytes = field(repr=False)
    origins: tuple[str, ...]
    """For each pane the name of the image that it shows; "" where the conversation has no name for it."""

    @property
    def image(self) -> ImageRef:
        """The picture itself."""
        return self.panes[0].image


@dataclass(frozen=True, kw_only=True)
class ToolAnswer:
    """The answer to one call."""

    tool: str
    version: str
    observation: Observation
    pictures: tuple[Picture, ...]
    kept: tuple[Picture, ...]
    """Pictures that are kept beside them and not shown."""


class Session:
    """The tools bound to given images. Pictures become "Crop 1", "Crop 2", … and can be named in later calls.

    toolbox: the tools at hand; `toolbox.absent` names the others, with the reason.
    store: holds the pixels. None makes a new one with each `open`.
    Calls from several threads run one after another, so that no two pictures get one name.
    """

    def __init__(
        self, toolbox: Toolbox, images: Mapping[str, AnyImage] | None = None, *, store: ImageStore | None = None
    ) -> None:
        self.toolbox = toolbox
        self._given, self._lock = store, threading.Lock()
        self.open(images or {})

    @property
    def store(self) -> ImageStore:
        """What holds the pixels."""
        return self._context.images

    @property
    def images(self) -> dict[str, ImageRef]:
        """Every image that a call can name, pictures of earlier calls included."""
        return {name: view.image for name, view in self._context.views.items()}

    def open(self, images: Mapping[str, AnyImage]) -> None:
        """Begin anew with these images: name → file, bytes, PIL image, H×W×3 uint8 RGB array or ImageRef.

        Files are decoded now, so that a broken one is found before anything is spent. Raises ImageError, and ConfigError
        for a name that is empty, given twice (case ignored), or kept for the tools' own pictures ("Crop 1").
        """
        views: dict[str, View] = {}
        store = self._given or ImageStore()
        for name, image in images.items():
            folded = name.strip().casefold()
            if not folded or _CROP.fullmatch(folded):
                raise ConfigError(
                    f"image name {name!r}: expected words, and not 'Crop N', which is what tools' pictures get"
                )
            if folded in (known.casefold() for known in views):
                raise ConfigError(f"image name {name!r} is given twice; names differ in more than case and spaces")
            ref = image_of(image, store, name=name)
            store.array(ref)
            views[name.strip()] = View.whole(ref)
        with self._lock:
            self._context = ToolContext(images=store, views=views)

    def call(self, tool: str, arguments: Mapping[str, Json]) -> ToolAnswer:
        """Call a tool and return its answer.

        Raises ToolError, which says how to correct the call, and ToolFailed where the tool raised what it should not have.
        Raises ConfigError where weights that are loaded with the first call are damaged.
        """
        with self._lock:
            before = self._context
            if not before.views:
                raise ToolError("no image is open; open one first")
            observation = self._observed(tool, arguments, before)
            names = before.names(observation)
            after = self._context = before.after(tool, arguments, observation, names)
        # Where two names have one image, the one that the call used comes first.
        called = {str(value).strip().casefold() for value in arguments.values()}
        known = sorted(after.views, key=lambda name: name.casefold() not in called)
        named = {after.views[name].image: name for name in reversed(known)}

        def picture(views: Sequence[View], image: ImageRef, name: str) -> Picture:
            panes = tuple(view for view in views if view.image == image)
            origins = tuple(named.get(view.origin, "") for view in panes)
            return Picture(name=name, panes=panes, png=before.images.encoded(image, _PNG).data, origins=origins)

        kept = dict.fromkeys(view.image for view in observation.kept)
        return ToolAnswer(
            tool=tool,
            version=self.toolbox.tools[tool].version,
            observation=observation,
            pictures=tuple(picture(observation.views, *shown) for shown in zip(observation.images, names, strict=True)),
            kept=tuple(picture(observation.kept, image, "") for image in kept),
        )

    def _observed(self, tool: str, arguments: Mapping[str, Json], context: ToolContext) -> Observation:
        try:
            return self.toolbox.call(tool, arguments, context)
        except ImageError as error:
            raise ToolError(str(error)) from error
        except EditLoupeError:
            raise
        except Exception as error:
            raise ToolFailed(f"{tool} failed ({type(error).__name__}: {error})") from error


def open_session(
    images: Mapping[str, AnyImage] | None = None,
    *,
    tools: Iterable[str] | None = None,
    settings: ToolSettings | None = None,
) -> Session:
    """Return a session over `images`.

    tools: names; None takes those of the five built-in ones that can be had here.
    settings: weights and device; None reads the environment.
    Raises ConfigError for an unknown name, and for a tool that was named and is absent; ImageError for a broken image.
    """
    named = None if tools is None else tuple(tools)
    box = open_toolbox(BUILT_IN_TOOLS if named is None else named, settings)
    if named is not None and box.absent:
        raise ConfigError("; ".join(f"the tool {name!r} is absent here: {reason}" for name, reason in box.absent.items()))
    return Session(box, images)
