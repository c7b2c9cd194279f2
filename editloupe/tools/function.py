"""A function of yours as a tool, by the decorator `tool`."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, overload

import numpy as np
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, create_model

from editloupe.backends.boxes import BBOX_RULE
from editloupe.data.objects import image_of
from editloupe.errors import ConfigError, ImageError, ToolError
from editloupe.findings import Observation
from editloupe.tools.base import Tool, ToolContext
from editloupe.values import Box, ImageRef, View, source_digest

_IMAGE: Final = 'Name of an image, for example "Edited Image" or "Crop 1".'


class FunctionTool:
    """A tool made by `tool`."""

    def __init__(self, function: Callable[..., Any], *, name: str, version: str, repeatable: bool) -> None:
        self._function = function
        self.name = name
        self.description = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
        self.repeatable = repeatable
        self.version = f"{version}+{source_digest(function)}".rstrip("+")
        if not self.description:
            raise ConfigError(f"tool {name!r}: expected a docstring; the model reads its first paragraph")
        self._parameters = _parameters(function, name)
        self.Args = _model(name, self._parameters)

    def __call__(self, args: Any, context: ToolContext | None = None, **more: Any) -> Any:
        """Answer a model's call; called as the function is, return what that returns."""
        if not isinstance(context, ToolContext) or not isinstance(args, self.Args):
            return self._function(args, *(() if context is None else (context,)), **more)
        given: dict[str, Any] = {}
        first: ImageRef | None = None
        place: Box | None = None
        for parameter in self._parameters:
            value: Any = getattr(args, parameter.name, None)
            if parameter.kind == "context":
                value = context
            elif parameter.kind in ("pil", "array"):
                ref = context.image(value)
                first = first or ref
                rgb = context.images.array(ref)
                value = rgb if parameter.kind == "array" else Image.fromarray(rgb)
            elif parameter.kind == "box" and value is not None:
                if first is None:
                    raise ToolError(f"{self.name}: the box belongs to no image")
                value = place = context.box(value, first)
            given[parameter.name] = value
        return self._observed(self._function(**given), context, first, place)

    def _observed(self, found: Any, context: ToolContext, origin: ImageRef | None, place: Box | None) -> Observation:
        """Return what the function gave as an observation. A picture counts as one of the first image, or of the place."""
        if isinstance(found, Observation):
            return found
        parts = found if isinstance(found, tuple) else (found,)
        texts = [part for part in parts if isinstance(part, str)]
        views: list[View] = []
        for part in parts:
            if isinstance(part, str):
                continue
            try:
                ref = image_of(part, context.images, name=f"what the tool {self.name} returned")
            except ImageError as error:
                raise ConfigError(f"{error}; or a text, or both in a tuple") from error
            view = View.whole(ref)
            if origin is not None:
                region = place or Box.whole(width=origin.width, height=origin.height)
                view = replace(view, origin=origin, region=region, op=self.name)
            views.append(view)
        texts += [
            f"{context.crop_name(number)}: {view.image.width}×{view.image.height} px."
            for number, view in enumerate(views, start=1)
        ]
        return Observation(text="\n".join(texts), views=tuple(views))


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *, name: str = "", version: str = "1", repeatable: bool = False
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, *, name: str = "", version: str = "1", repeatable: bool = False
) -> Any:
    """Make a tool of a function, for `Judge(tools=[…])`.

    The first paragraph of its docstring tells the model what it does. Its parameters need types: `PIL.Image.Image` or
    `numpy.ndarray` for an image, which the model names; `editloupe.Box` for a place in the first image, in px;
    `ToolContext`; or text, numbers, lists, as JSON has them. It returns a text, an image, or a tuple of both, and raises
    ToolError for what the model should read.

    name: as the model calls it; "" for the function's.   version: part of the judge's identity, beside the source's digest.
    repeatable: whether equal calls have equal results, so that a run answers them from the first one.
    Raises ConfigError for a function without a docstring, or with a parameter of another type.
    """

    def made(one: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(one, name=name or one.__name__, version=version, repeatable=repeatable)

    return made if function is None else made(function)


def as_tool(given: Tool | Callable[..., Any]) -> Tool:
    """Return a tool as it is, an instance of a tool's class, and a plain function as a tool. Raises ConfigError."""
    made: Any = given
    if inspect.isclass(made):
        made = made()
    if all(hasattr(made, part) for part in ("name", "description", "Args", "version")) and callable(made):
        return typing.cast(Tool, made)
    if inspect.isroutine(made):
        return typing.cast(Tool, tool(made))
    raise ConfigError(
        f"tools: expected names, functions with @tool, or objects with name, version, description, Args and "
        f"__call__(args, context); found {given!r}"
    )


@dataclass(frozen=True, kw_only=True)
class _Parameter:
    name: str
    kind: str
    """pil, array, box, context or json."""
    annotation: Any
    default: Any

    @property
    def field(self) -> tuple[Any, Any] | None:
        """What the model is asked for; None for what it does not give."""
        if self.kind in ("pil", "array"):
            return str, Field(min_length=1, description=_IMAGE)
        if self.kind == "box":
            corners = Field(default=self.default, min_length=4, max_length=4, description=BBOX_RULE)
            return (list[float] if self.default is ... else list[float] | None), corners
        return None if self.kind == "context" else (self.annotation, self.default)


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) is typing.Union or type(annotation).__name__ == "UnionType"


def _parameters(function: Callable[..., Any], name: str) -> list[_Parameter]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigError(f"tool {name!r}: its types cannot be read: {error}") from error
    found = []
    for one in inspect.signature(function).parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) or one.name not in hints:
            raise ConfigError(f"tool {name!r}: the parameter {one.name!r} needs a type, such as PIL.Image.Image or Box")
        default = ... if one.default is inspect.Parameter.empty else one.default
        kind = _kind(hints[one.name])
        found.append(_Parameter(name=one.name, kind=kind, annotation=hints[one.name], default=default))
    return found


def _kind(annotation: Any) -> str:
    if _is_union(annotation):
        kinds = [_kind(part) for part in typing.get_args(annotation) if part is not type(None)]
        return kinds[0] if len(kinds) == 1 else "json"
    plain = typing.get_origin(annotation) or annotation
    if plain is np.ndarray:
        return "array"
    if inspect.isclass(plain) and plain.__module__.partition(".")[0] == "PIL":
        return "pil"
    return "box" if plain is Box else "context" if plain is ToolContext else "json"


def _model(name: str, parameters: list[_Parameter]) -> type[BaseModel]:
    fields: dict[str, Any] = {one.name: one.field for one in parameters if one.field is not None}
    try:
        return create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
    except Exception as error:
        raise ConfigError(f"tool {name!r}: a parameter's type is not one that JSON has: {error}") from error
