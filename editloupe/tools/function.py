"""A function of yours as a tool, by the decorator `tool`."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import replace
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
        self._kinds, self.Args = _read(function, name)

    def __call__(self, args: Any, context: ToolContext | None = None, **more: Any) -> Any:
        """Answer a model's call; called as the function is, return what that returns."""
        if not isinstance(context, ToolContext) or not isinstance(args, self.Args):
            return self._function(args, *(() if context is None else (context,)), **more)
        given: dict[str, Any] = {}
        first: ImageRef | None = None
        place: Box | None = None
        for name, kind in self._kinds.items():
            value: Any = context if kind == "context" else getattr(args, name)
            if kind in ("pil", "array"):
                ref = context.image(value)
                first, rgb = first or ref, context.images.array(ref)
                value = rgb if kind == "array" else Image.fromarray(rgb)
            elif kind == "box" and value is not None:
                if first is None:
                    raise ToolError(f"{self.name}: the box belongs to no image")
                value = place = context.box(value, first)
            given[name] = value
        return self._observed(self._function(**given), context, first, place)

    def _observed(self, found: Any, context: ToolContext, origin: ImageRef | None, place: Box | None) -> Observation:
        """Return what the function gave as an observation. A picture counts as one of the first image, or of the place."""
        if isinstance(found, Observation):
            return found
        parts = found if isinstance(found, tuple) else (found,)
        texts, views = [part for part in parts if isinstance(part, str)], list[View]()
        for part in (part for part in parts if not isinstance(part, str)):
            try:
                ref = image_of(part, context.images, name=f"what the tool {self.name} returned")
            except ImageError as error:
                raise ConfigError(f"{error}; or a text, or both in a tuple") from error
            view = View.whole(ref)
            if origin is not None:
                view = replace(view, origin=origin, region=place or View.whole(origin).region, op=self.name)
            views.append(view)
            texts.append(f"{context.crop_name(len(views))}: {ref.width}×{ref.height} px.")
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


def _read(function: Callable[..., Any], name: str) -> tuple[dict[str, str], type[BaseModel]]:
    """Return the kind of each parameter (pil, array, box, context or json), and the model of what the LMM gives."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ConfigError(f"tool {name!r}: its types cannot be read: {error}") from error
    kinds, fields = dict[str, str](), dict[str, Any]()
    for one in inspect.signature(function).parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) or one.name not in hints:
            raise ConfigError(f"tool {name!r}: the parameter {one.name!r} needs a type, such as PIL.Image.Image or Box")
        default = ... if one.default is inspect.Parameter.empty else one.default
        kinds[one.name] = kind = _kind(hints[one.name])
        if kind in ("pil", "array"):
            fields[one.name] = str, Field(min_length=1, description=_IMAGE)
        elif kind == "box":
            corners = Field(default=default, min_length=4, max_length=4, description=BBOX_RULE)
            fields[one.name] = (list[float] if default is ... else list[float] | None), corners
        elif kind == "json":
            fields[one.name] = hints[one.name], default
    try:
        return kinds, create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
    except Exception as error:
        raise ConfigError(f"tool {name!r}: a parameter's type is not one that JSON has: {error}") from error


def _kind(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        kinds = [_kind(part) for part in typing.get_args(annotation) if part is not type(None)]
        return kinds[0] if len(kinds) == 1 else "json"
    plain = origin or annotation
    if plain is np.ndarray:
        return "array"
    if inspect.isclass(plain) and plain.__module__.partition(".")[0] == "PIL":
        return "pil"
    return "box" if plain is Box else "context" if plain is ToolContext else "json"
