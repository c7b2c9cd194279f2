"""A conversation with the tools: images by name, pictures that later calls can name, one call after another.

The judge's loop, the command line, LangChain and MCP all go through `Conversation`; the last three through `Session`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from editloupe.backends.image_tokens import BY_AREA, ImageTokens
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.data.objects import AnyImage, image_of
from editloupe.errors import ConfigError, EditLoupeError, ImageError, ToolError, ToolFailed
from editloupe.findings import Evidence, Observation
from editloupe.tools.base import BUILT_IN_TOOLS, Toolbox, ToolContext, open_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.values import Box, ImageRef, Json, View, canonical_json

_PNG: Final = ImagePolicy(formats=("image/png",))
_CROP = re.compile(r"crop \d+")
_NAMED_CROP = re.compile(r"\bCrop \d+\b")


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """What the calls of one conversation share. Each call gives a new value."""

    panes: Mapping[str, tuple[View, ...]]
    """Image name → its Views; several for a picture of several panes."""
    crops: int = 0
    """Number of pictures that tools have shown so far."""
    past_calls: tuple[str, ...] = ()
    """Canonical JSON of each call that was made."""
    image_tokens: ImageTokens = BY_AREA
    """The formula by which the backend counts a picture."""
    max_image_side: int | None = None
    """Longest side in px of what the backend is sent; None for no limit."""

    def tool_context(self, images: ImageStore) -> ToolContext:
        """Return the context of the next call."""
        return ToolContext(images=images, views={name: panes[0] for name, panes in self.panes.items()}, **vars(self))

    def after(
        self, tool: str, arguments: Mapping[str, Json], observation: Observation, names: Iterable[str]
    ) -> Conversation:
        """Return the conversation after this call was answered. names: of the observation's pictures."""
        panes, crops = dict(self.panes), self.crops
        for name, image in zip(names, observation.images, strict=True):
            panes[name] = tuple(view for view in observation.views if view.image == image)
            crops += 1
        # An image's name as the conversation spells it, so that a call in other letters counts as the same.
        known = {name.casefold(): name for name in self.panes}
        spelled = {k: known.get(v.strip().casefold(), v) if isinstance(v, str) else v for k, v in arguments.items()}
        try:
            call = [canonical_json({"name": tool, "arguments": spelled})]
        except ValueError:
            call = []  # the arguments hold NaN, with which no call succeeds
        return replace(self, panes=panes, crops=crops, past_calls=(*self.past_calls, *call))


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
        self._given, self.store = store, store or ImageStore()
        self._lock = threading.Lock()
        self._conversation = Conversation(panes={})
        self.open(images or {})

    @property
    def images(self) -> dict[str, ImageRef]:
        """Every image that a call can name, pictures of earlier calls included."""
        return {name: panes[0].image for name, panes in self._conversation.panes.items()}

    def open(self, images: Mapping[str, AnyImage]) -> None:
        """Begin anew with these images: name → file, bytes, PIL image, H×W×3 uint8 RGB array or ImageRef.

        Files are decoded now, so that a broken one is found before anything is spent. Raises ImageError, and ConfigError
        for a name that is empty, given twice (case ignored), or kept for the tools' own pictures ("Crop 1").
        """
        panes: dict[str, tuple[View, ...]] = {}
        store = self._given or ImageStore()
        for name, image in images.items():
            folded = name.strip().casefold()
            if not folded or _CROP.fullmatch(folded):
                raise ConfigError(
                    f"image name {name!r}: expected words, and not 'Crop N', which is what tools' pictures get"
                )
            if folded in (known.casefold() for known in panes):
                raise ConfigError(f"image name {name!r} is given twice; names differ in more than case and spaces")
            ref = image_of(image, store, name=name)
            store.array(ref)
            panes[name.strip()] = (View.whole(ref),)
        with self._lock:
            self._conversation, self.store = Conversation(panes=panes), store

    def call(self, tool: str, arguments: Mapping[str, Json]) -> ToolAnswer:
        """Call a tool and return its answer.

        Raises ToolError, which says how to correct the call, and ToolFailed where the tool raised what it should not have.
        Raises ConfigError where weights that are loaded with the first call are damaged.
        """
        with self._lock:
            before, store = self._conversation, self.store
            if not before.panes:
                raise ToolError("no image is open; open one first")
            context = before.tool_context(store)
            observation = self._observed(tool, arguments, context)
            names = context.names(observation)
            after = self._conversation = before.after(tool, arguments, observation, names)
        # Where two names have one image, the one that the call used comes first.
        called = {str(value).strip().casefold() for value in arguments.values()}
        known = sorted(after.panes, key=lambda name: name.casefold() not in called)
        named = {image: name for name in reversed(known) for image in [after.panes[name][0].image]}

        def picture(views: Sequence[View], image: ImageRef, name: str) -> Picture:
            panes = tuple(view for view in views if view.image == image)
            origins = tuple(named.get(view.origin, "") for view in panes)
            return Picture(name=name, panes=panes, png=store.encoded(image, _PNG).data, origins=origins)

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
