"""What a tool is, how its arguments are checked, and which tools are there.

A tool is a class with `name`, `version`, `description`, `Args` and `__call__(args, context) -> Observation`. `Args` is a
pydantic model, and the LMM is shown its JSON Schema. A tool raises ToolError for what it cannot do: the LMM reads it and
may call again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, cast

from pydantic import BaseModel

from editloupe import models, plugins
from editloupe.backends.image_tokens import BY_AREA, ImageTokens
from editloupe.chat import ToolSpec
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.errors import ConfigError, ModelAbsent, ToolAbsent, ToolError
from editloupe.findings import Observation
from editloupe.models.devices import check_device
from editloupe.tools.arguments import looks_like_fractions, refuse_px, undressed, validated
from editloupe.tools.settings import ToolSettings
from editloupe.values import Box, ImageRef, Json, View, box_from_json, canonical_json

BUILT_IN_TOOLS = ("grounding", "zoom_in", "localize_differences", "enhancer", "detect_object")
"""Tools on offer by default; one that is not installed is said to be absent.

DLEBench names four (section 4.2): Grounding, Zoom-In, Difference and Enhancer. Its dialogues (Tables 8, 11 and 12) call
Difference `localize_differences`, and an object detector that answers in words alone `detect_object`.
"""
MIN_SIDE_PX = 4
"""Of a box in an image that a tool enlarges."""


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """A conversation's images by name, the store that holds their pixels, and what was called before.

    A tool is given one with each call. `after` returns that of the next call.
    """

    images: ImageStore
    """Holds the pixels of the images, and takes the pictures that the tool makes."""
    views: Mapping[str, View]
    """Name → View. "Original Image" and "Edited Image" are whole views; "Crop 1" knows where it was cut."""
    panes: Mapping[str, Sequence[View]] = field(default_factory=dict)
    """Name → all its Views, where a picture has several panes; `views` has the first."""
    crops: int = 0
    """Number of pictures that tools have shown so far. The next one is "Crop crops+1"."""
    past_calls: tuple[str, ...] = ()
    """Canonical JSON of each (tool, arguments) that was called before in this conversation."""
    image_tokens: ImageTokens = BY_AREA
    """The formula by which the backend counts a picture."""
    max_image_side: int | None = None
    """Longest side in px of what the backend is sent; None for no limit."""

    def after(
        self, tool: str, arguments: Mapping[str, Json], observation: Observation, names: Iterable[str]
    ) -> ToolContext:
        """Return the context after this call was answered. names: of the observation's pictures."""
        shown = {
            name: tuple(view for view in observation.views if view.image == image)
            for name, image in zip(names, observation.images, strict=True)
        }
        try:
            call = [self.written(tool, arguments)]
        except ValueError:
            call = []  # the arguments hold NaN, with which no call succeeds
        return replace(
            self,
            views={**self.views, **{name: panes[0] for name, panes in shown.items()}},
            panes={**self.panes, **shown},
            crops=self.crops + len(shown),
            past_calls=(*self.past_calls, *call),
        )

    def written(self, tool: str, arguments: Mapping[str, Json]) -> str:
        """Return a call as `past_calls` holds it. Raises ValueError for arguments that hold NaN."""
        return canonical_json({"name": tool, "arguments": self.spelled(arguments)})

    def spelled(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Return the arguments with images' names as the conversation spells them. Case and outer spaces are ignored."""
        return {key: self._spelling(v) if isinstance(v, str) else v for key, v in arguments.items()}

    def _spelling(self, name: str) -> str:
        folded = name.strip().casefold()
        return next((known for known in self.views if known.casefold() == folded), name)

    def tokens(self, width: int, height: int) -> int:
        """Return what a picture of that size in px costs at the backend."""
        return self.image_tokens.count(*ImagePolicy(max_side=self.max_image_side).size(width, height))

    def crop_name(self, number: int) -> str:
        """Return what the conversation will call the `number`-th picture (from 1) of the observation being made."""
        return f"Crop {self.crops + number}"

    def names(self, observation: Observation) -> tuple[str, ...]:
        """Return what the conversation will call the observation's pictures, in the order of `Observation.images`."""
        return tuple(self.crop_name(number) for number in range(1, len(observation.images) + 1))

    def named(self, name: str) -> str:
        """Return an image's name as the conversation spells it. Case and outer spaces are ignored.

        Raises ToolError, which lists the known names, where there is no such image.
        """
        if (known := self._spelling(name)) not in self.views:
            raise ToolError(f"there is no image {name!r}; the images are: {', '.join(map(repr, self.views))}")
        return known

    def view(self, name: str) -> View:
        """Return the view of that name. Raises ToolError as `named`."""
        return self.views[self.named(name)]

    def views_of(self, name: str) -> Sequence[View]:
        """Return the views of that name, one for each pane of its picture. Raises ToolError as `named`."""
        return self.panes.get(self.named(name)) or (self.view(name),)

    def image(self, name: str) -> ImageRef:
        """Return the image of that name. Raises ToolError as `named`."""
        return self.view(name).image

    def masks(self, name: str) -> tuple[Box, ...]:
        """Return the boxes, in px of the named image, that the question painted over in it; () for none.

        A crop has those of the image from which it was cut, grown by the 2 px over which enlarging spreads an edge.
        Raises ToolError as `named`.
        """
        view, cuts = self.view(name), list[View]()
        while view.op != "mask":
            cut_from = (v for v in self.views.values() if v.image == view.origin and v != view and v not in cuts)
            cuts.append(view)
            if (found := next(cut_from, None)) is None:
                return ()
            view = found
        boxes = [box_from_json(box) for box in cast("Sequence[Json]", view.params["boxes"])]
        for cut in reversed(cuts):
            grown = [Box(x0 - 2, y0 - 2, x1 + 2, y1 + 2) for x0, y0, x1, y1 in boxes]
            boxes = [cut.from_origin(part) for box in grown if (part := box.intersection(cut.region)) is not None]
        return tuple(boxes)

    def box(self, values: Iterable[float], image: ImageRef) -> Box:
        """Return four numbers 0..1000, [x0, y0, x1, y1], as a box in px of `image`.

        Raises ToolError that says how to correct the box where it leaves the image, is empty or inverted.
        """
        x0, y0, x1, y1 = values
        given = f"[{x0:g}, {y0:g}, {x1:g}, {y1:g}]"
        if not all(0 <= v <= 1000 for v in (x0, y0, x1, y1)):
            raise ToolError(
                f"bbox {given} leaves the image: expected four integers between 0 and 1000, "
                "[x0, y0, x1, y1] as thousandths of the image's width and height"
            )
        if x1 <= x0 or y1 <= y0:
            raise ToolError(f"bbox {given} is empty or inverted: expected x0 < x1 and y0 < y1; swap the corners")
        return Box.from_thousandths((x0, y0, x1, y1), width=image.width, height=image.height)

    def box_in_px(self, bbox: Sequence[int], name: str) -> Box:
        """Return a box in thousandths in whole px of the named image, rounded outward.

        Raises ToolError as `named` and `box`, and where the box is less than 4 px wide or high.
        """
        image = self.image(name)
        box = self.box(bbox, image)
        if min(box.width, box.height) < MIN_SIDE_PX:
            least = [-(-1000 * MIN_SIDE_PX // side) for side in (image.width, image.height)]
            advice = f"ask for x1 - x0 ≥ {least[0]} and y1 - y0 ≥ {least[1]}"
            if looks_like_fractions(bbox):
                advice += f"; if these are fractions of the image, multiply them by 1000: {[1000 * v for v in bbox]}"
            raise ToolError(
                f"bbox {bbox} is only {box.width:.1f}×{box.height:.1f} px of {name!r} ({image.width}×{image.height} px); "
                f"expected at least {MIN_SIDE_PX} px a side: {advice}"
            )
        return box.rounded_out()


class Tool(Protocol):
    """One visual tool. An instance keeps nothing of a conversation and may be called from several threads.

    A tool may set `repeatable = True`. It then promises that its observation depends only on its arguments, the images that
    they name, the number of pictures shown before, whether exactly this call was made before, and how the backend counts
    and reduces pictures. A run answers an equal call of such a tool from the first one.

    A tool that keeps a core busy may set `computes = True`. Then no more of such calls run at once than there are cores.

    It may have further methods. `open(settings)` of the class returns the tool, weights found and not loaded; it raises
    ToolAbsent or ModelAbsent with the reason, and ConfigError. `prepare()` loads what the first call would load; it raises
    ConfigError. `describe()` returns a line for each model inside, with the device and precision that it was loaded for.
    `tolerance` says how far an observation may be from a recorded one.
    """

    name: ClassVar[str]
    """The name that the LMM calls it by; the entry point's name."""
    description: ClassVar[str]
    """What the LMM reads about it."""
    Args: ClassVar[type[BaseModel]]
    """The arguments; the LMM is shown their JSON Schema."""

    @property
    def version(self) -> str:
        """Part of the judge's identity: it changes with anything that changes an observation, a model inside included."""

    def __call__(self, args: Any, context: ToolContext) -> Observation:
        """Return what the tool found. Raises ToolError, which the LMM reads."""


def works_with(tool: Tool) -> tuple[str, ...]:
    """Return what a tool says of the models that it works with; () for one that says nothing."""
    describe = getattr(tool, "describe", None)
    return () if describe is None else tuple(describe())


def spec(tool: Tool) -> ToolSpec:
    """Return a tool as an LMM is offered it: its JSON Schema has no pydantic titles."""
    return ToolSpec(name=tool.name, description=tool.description, parameters=_schema(tool.Args))


@functools.cache
def _schema(arguments: type[BaseModel]) -> Mapping[str, Json]:
    """Return the schema, made once for each tool: every task asks for it, and pydantic takes milliseconds to write it."""
    return cast("Mapping[str, Json]", _plain(arguments.model_json_schema()))


@dataclass(frozen=True, kw_only=True)
class Toolbox:
    """The tools at hand, and those that were asked for and are absent."""

    tools: Mapping[str, Tool]
    """Name → tool, in the order in which they are offered."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Name → reason of absence."""

    def specs(self, names: Iterable[str]) -> tuple[ToolSpec, ...]:
        """Return the specs of those among `names` that are at hand."""
        return tuple(spec(self.tools[name]) for name in names if name in self.tools)

    def versions(self) -> dict[str, str]:
        """Return name → version of the tools at hand."""
        return {name: tool.version for name, tool in self.tools.items()}

    def prepare(self) -> None:
        """Load now what the tools would load with their first call. Raises ConfigError for bad weights."""
        for tool in self.tools.values():
            models.prepare(tool)

    def call(self, name: str, arguments: Mapping[str, Json], context: ToolContext) -> Observation:
        """Validate the arguments, run the tool, return its observation.

        Raises ToolError for an unknown tool and for wrong arguments, and what the tool itself raises.
        """
        if name in self.absent:
            raise ToolError(f"the tool {name!r} is absent here; use {', '.join(self.tools)}")
        if name not in self.tools:
            raise ToolError(f"there is no tool {name!r}; the tools are: {', '.join(self.tools) or 'none'}")
        tool, taken = self.tools[name], undressed(arguments)
        refuse_px(taken, lambda image: context.image(image) if isinstance(image, str) else None)
        observation = tool(validated(tool.name, tool.Args, taken), context)
        if taken == arguments:
            return observation
        noted = ", ".join(f"{key} {value}" for key, value in taken.items() if value != arguments[key])
        return replace(observation, text=f"{observation.text}\nTaken as: {noted}.")


def open_toolbox(
    names: Iterable[str] = BUILT_IN_TOOLS, settings: ToolSettings | None = None, *, own: Iterable[Tool] = ()
) -> Toolbox:
    """Return the named tools. One that cannot be offered is listed as absent, with its reason.

    settings: weights and device; None reads the environment (ToolSettings.from_environment).
    own: tools at hand, which are meant by their names before installed ones.
    Raises UnknownPlugin for a name that is not installed and not built in.
    Raises ConfigError where the settings name weights or a device that cannot be had.
    """
    settings = ToolSettings.from_environment() if settings is None else settings
    check_device(settings.device)
    installed = plugins.names("tools")
    at_hand = {tool.name: tool for tool in own}
    tools: dict[str, Tool] = {}
    absent: dict[str, str] = {}
    for name in names:
        if name in at_hand:
            tools[name] = at_hand[name]
            continue
        if name in BUILT_IN_TOOLS and name not in installed:
            absent[name] = "no installed package provides it"
            continue
        kind: Any = plugins.load("tools", name)
        try:
            made: Tool = kind.open(settings) if hasattr(kind, "open") else kind()
        except (ToolAbsent, ModelAbsent) as reason:
            absent[name] = str(reason)
            continue
        if made.name != name:
            raise ConfigError(f"tool plug-in {name!r} calls itself {made.name!r}; the two must agree")
        tools[name] = made
    return Toolbox(tools=tools, absent=absent)


def _plain(schema: Any) -> Any:
    """Return a JSON Schema without "title" annotations, which only cost tokens."""
    if isinstance(schema, dict):
        return {
            key: {name: _plain(sub) for name, sub in value.items()} if key == "properties" else _plain(value)
            for key, value in schema.items()
            if key != "title" or not isinstance(value, str)
        }
    return [_plain(item) for item in schema] if isinstance(schema, list) else schema
