"""What a tool is, how its arguments are checked, and which tools are there.

A tool is a class with `name`, `version`, `description`, `Args` (a pydantic model, whose JSON Schema the model is shown)
and `__call__(args, desk) -> Observation`. What it cannot do is a ToolError, which the model reads and may mend.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeGuard, cast, runtime_checkable

from pydantic import BaseModel, ValidationError

from editloupe import plugins
from editloupe.chat import ToolSpec
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ToolAbsent, ToolError
from editloupe.findings import Observation
from editloupe.tools.devices import check_device
from editloupe.tools.settings import ToolSettings
from editloupe.values import Box, ImageRef, Json, View

if TYPE_CHECKING:
    import jsonschema

PAPER_TOOLS = ("grounding", "zoom_in", "localize_differences", "enhancer", "detect_object")
"""The five tools by which DLEBench's agent looks (section 4.2); one that is not installed is said to be absent."""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What lies in front of a tool: the conversation's images by name, and the store that holds their pixels.

    views: name → View; "Original Image" and "Edited Image" are whole views, "Crop 1" knows where it was cut.
    crops: how many pictures tools have shown so far; the next one is "Crop crops+1".
    past_calls: canonical JSON of (tool, arguments) made before in this conversation.
    """

    images: ImageStore
    views: Mapping[str, View]
    crops: int = 0
    past_calls: frozenset[str] = field(default_factory=frozenset)

    def crop_name(self, number: int) -> str:
        """What the conversation will call the `number`-th picture (from 1) of the observation being made."""
        return f"Crop {self.crops + number}"

    def names(self, observation: Observation) -> tuple[str, ...]:
        """What the conversation will call the observation's pictures, in the order of `Observation.images`."""
        return tuple(self.crop_name(number) for number in range(1, len(observation.images) + 1))

    def named(self, name: str) -> str:
        """An image's name as the conversation spells it, case and outer spaces ignored.

        Raises ToolError, which lists the known names.
        """
        folded = name.strip().casefold()
        for known in self.views:
            if known.casefold() == folded:
                return known
        raise ToolError(f"there is no image {name!r}; the images are: {', '.join(map(repr, self.views))}")

    def view(self, name: str) -> View:
        """The image of that name. Raises ToolError as `named`."""
        return self.views[self.named(name)]

    def image(self, name: str) -> ImageRef:
        return self.view(name).image

    def box(self, values: Iterable[float], image: ImageRef) -> Box:
        """Four numbers 0..1000, [x0, y0, x1, y1], as a box in px of `image`. Raises ToolError that says how to mend."""
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


class Tool(Protocol):
    """One visual tool. Instances are stateless towards a conversation and may be called from several threads.

    A tool with `repeatable = True` says that its observations rest on nothing but its arguments, the images that they name,
    and whether exactly this call was made before, and that it speaks of its own pictures by `Desk.crop_name` only; then a
    run answers an equal call from the first one.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    Args: ClassVar[type[BaseModel]]

    @property
    def version(self) -> str:
        """Part of the judge's identity: changes with anything that changes an observation, a model inside included."""

    def __call__(self, args: Any, desk: Desk) -> Observation: ...


@runtime_checkable
class Opens(Protocol):
    """A tool class that is made from settings; one without `open` is made by calling it without arguments."""

    def open(self, settings: ToolSettings) -> Tool:
        """Cheap: weights are found, not loaded. Raises ToolAbsent (the reason) and ConfigError (the settings are wrong)."""


@runtime_checkable
class Prepares(Protocol):
    """A tool that loads something heavy with its first call, and can do so before."""

    def prepare(self) -> None:
        """Load now. Raises ConfigError: weights that are damaged, of another architecture or unsafe."""


@runtime_checkable
class Holds(Protocol):
    """A tool that can say what it works with."""

    def holds(self) -> tuple[str, ...]:
        """Each model with the device and precision that it was loaded for, or that there is nothing to load."""


def spec(tool: Tool) -> ToolSpec:
    """A tool as a model is offered it: JSON Schema without pydantic's titles."""
    return ToolSpec(name=tool.name, description=tool.description, parameters=_schema(tool.Args))


@functools.cache
def _schema(arguments: type[BaseModel]) -> Mapping[str, Json]:
    """Made once for each tool: every task asks for it, and pydantic takes milliseconds to write it."""
    made: Mapping[str, Json] = _plain(arguments.model_json_schema())
    return made


@functools.cache
def _validator(arguments: type[BaseModel]) -> jsonschema.Draft202012Validator:
    """Made once for each tool: making one takes longer than using it."""
    # Imported at the first call of a tool: it is slow to import.
    import jsonschema

    return jsonschema.Draft202012Validator(dict(_schema(arguments)))


@dataclass(frozen=True, kw_only=True)
class Toolbox:
    """The tools at hand, and those that were asked for and are absent, with the reason."""

    tools: Mapping[str, Tool]
    absent: Mapping[str, str] = field(default_factory=dict)

    def specs(self, names: Iterable[str]) -> tuple[ToolSpec, ...]:
        """Of those among `names` that are at hand."""
        return tuple(spec(self.tools[name]) for name in names if name in self.tools)

    def versions(self) -> dict[str, str]:
        return {name: tool.version for name, tool in self.tools.items()}

    def prepare(self) -> None:
        """Load what the tools would load with their first call, so that bad weights are found before anything is spent.

        Raises ConfigError.
        """
        for tool in self.tools.values():
            if isinstance(tool, Prepares):
                tool.prepare()

    def call(self, name: str, arguments: Mapping[str, Json], desk: Desk) -> Observation:
        """Validate, then run. Raises ToolError: an unknown tool, arguments off the schema, what the tool itself raises."""
        tool = self.tools.get(name)
        if tool is None:
            if name in self.absent:
                raise ToolError(f"the tool {name!r} is absent here ({self.absent[name]}); use {', '.join(self.tools)}")
            raise ToolError(f"there is no tool {name!r}; the tools are: {', '.join(self.tools) or 'none'}")
        return tool(validated(tool, arguments), desk)


def validated(tool: Tool, arguments: Mapping[str, Json]) -> BaseModel:
    """The arguments as the tool's own type. Raises ToolError that names each wrong field."""
    problems = sorted(_validator(tool.Args).iter_errors(dict(arguments)), key=lambda e: list(map(str, e.absolute_path)))
    if problems:
        lines = "; ".join(f"{'.'.join(map(str, p.absolute_path)) or 'arguments'}: {_told(p)}" for p in problems[:5])
        raise ToolError(
            f"{tool.name}: wrong arguments: {lines}. Expected {_signature(tool)}{_meant(tool, problems)}"
            f"{_fractions(arguments, problems)}"
        )
    try:
        return tool.Args.model_validate(dict(arguments))
    except ValidationError as error:
        # Rules that a JSON Schema cannot express, such as one field bounding another.
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "arguments"
        raise ToolError(f"{tool.name}: wrong arguments: {where}: {first['msg']}") from error


def open_toolbox(names: Iterable[str] = PAPER_TOOLS, settings: ToolSettings | None = None) -> Toolbox:
    """The named tools, made. What cannot be offered is listed as absent with its reason; an uninstalled name outside the
    paper's five is unknown.

    settings: weights and device; None reads the environment (ToolSettings.from_environment).
    Raises UnknownPlugin, and ConfigError where the settings name weights or a device that cannot be had.
    """
    settings = ToolSettings.from_environment() if settings is None else settings
    check_device(settings.device)
    installed = plugins.names("tools")
    tools: dict[str, Tool] = {}
    absent: dict[str, str] = {}
    for name in names:
        if name in PAPER_TOOLS and name not in installed:
            absent[name] = "no installed package provides it"
            continue
        kind = plugins.load("tools", name)
        try:
            made = kind.open(settings) if isinstance(kind, Opens) else cast(type[Tool], kind)()
        except ToolAbsent as reason:
            absent[name] = str(reason)
            continue
        if made.name != name:
            raise ConfigError(f"tool plug-in {name!r} calls itself {made.name!r}; the two must agree")
        tools[name] = made
    return Toolbox(tools=tools, absent=absent)


def _meant(tool: Tool, problems: Sequence[jsonschema.ValidationError]) -> str:
    """What the schema says of the first argument that is wrong: how to mend it."""
    properties = tool.Args.model_json_schema().get("properties", {})
    for problem in problems:
        name = next(iter(problem.absolute_path), None)
        if name in properties and properties[name].get("description"):
            return f". {name}: {properties[name]['description']}"
    return ""


def _fractions(arguments: Mapping[str, Json], problems: Sequence[jsonschema.ValidationError]) -> str:
    """How to mend a box that was given in fractions of the image."""
    for name in dict.fromkeys(problem.absolute_path[0] for problem in problems if problem.absolute_path):
        value = arguments.get(str(name))
        if isinstance(value, Sequence) and looks_like_fractions(value):
            return f" These look like fractions of width and height: multiply by 1000, {[round(1000 * v) for v in value]}."
    return ""


def looks_like_fractions(values: Sequence[Json]) -> TypeGuard[Sequence[float]]:
    """Whether four numbers are all in 0..1, as a box is that was meant in fractions and not in thousandths."""
    return len(values) == 4 and all(isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= 1 for v in values)


def _told(problem: jsonschema.ValidationError) -> str:
    """What is wrong with one argument; of a text that is too long, how long it may be."""
    if problem.validator == "maxLength":
        return f"is {len(str(problem.instance)):,} characters long, at most {problem.validator_value} are taken"
    return _shortened(problem.message)


def _shortened(message: str) -> str:
    """jsonschema repeats the whole value, which may be pages long; its end says what is wrong."""
    return message if len(message) <= 200 else f"{message[:80]} … {message[-80:]}"


def _signature(tool: Tool) -> str:
    return f"{tool.name}{{{', '.join(tool.Args.model_json_schema().get('properties', {}))}}}"


def _plain(schema: Any) -> Any:
    """A JSON Schema without "title" annotations, which only cost tokens."""
    if isinstance(schema, dict):
        return {
            key: {name: _plain(sub) for name, sub in value.items()} if key == "properties" else _plain(value)
            for key, value in schema.items()
            if key != "title" or not isinstance(value, str)
        }
    return [_plain(item) for item in schema] if isinstance(schema, list) else schema
