"""The public test kit: what an own tool must hold, checked in one call. Nothing in editloupe imports it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import jsonschema
import numpy as np

from editloupe.data.images import RGB, ImageStore
from editloupe.errors import ToolError
from editloupe.records import Observation
from editloupe.tools.base import Desk, Tool, Toolbox, spec
from editloupe.values import Box, Json, View, canonical_json

__all__ = ["check_tool"]


def check_tool(
    tool: Tool, *, images: Mapping[str, RGB] | None = None, arguments: Mapping[str, Json] | None = None
) -> Observation:
    """Check that a tool keeps its contract; returns the observation of a plain call, for checks of your own.

    images: name → H×W×3 uint8 RGB; None takes a drawn pair, "Original Image" and "Edited Image".
    arguments: of a call that works; None makes them from the schema (image names for arguments whose name contains
    "image", a box in the middle for arrays of four numbers, defaults and first choices else).

    Checked: name, version and description; a schema that is valid, described and closed; an unknown image, a missing and
    an additional argument and a box outside 0..1000 are ToolErrors; text that states boxes or sizes; views inside their
    origins and pictures in the store; the same call, the same text and pictures; inputs untouched.

    Raises AssertionError, which names the tool and what it broke.
    """
    inputs = dict(images) if images is not None else _drawn_pair()
    store = ImageStore()
    views = {name: View.whole(store.add_array(rgb)) for name, rgb in inputs.items()}
    desk = Desk(images=store, views=views)
    box = Toolbox(tools={tool.name: tool})
    schema = _check_schema(tool)
    call = dict(arguments) if arguments is not None else _arguments(tool, schema, list(views))

    before = {name: store.array(view.image).copy() for name, view in views.items()}
    first = _call(box, tool, call, desk)
    again = _call(box, tool, call, desk)
    fresh = ImageStore()
    for rgb in inputs.values():
        fresh.add_array(rgb)
    anew = _call(box, tool, call, Desk(images=fresh, views=views))
    for other, how in ((again, "twice"), (anew, "with a new image store")):
        _require(tool, first.text == other.text, f"called {how}, its text differs: {first.text!r} and {other.text!r}")
        _require(
            tool, first.to_json() == other.to_json(), f"called {how}, its pictures or data differ; it must be deterministic"
        )
    for name, view in views.items():
        same = np.array_equal(before[name], store.array(view.image))
        _require(tool, same, f"it changed the pixels of {name!r}; it must leave its inputs untouched")

    _check_observation(tool, first, desk)
    _check_refusals(tool, schema, call, box, desk)
    return first


def _check_schema(tool: Tool) -> Mapping[str, Json]:
    for field in ("name", "version", "description"):
        value = getattr(tool, field, None)
        _require(tool, isinstance(value, str) and bool(value.strip()), f"{field} must be a text, found {value!r}")
    _require(tool, re.fullmatch(r"[a-z][a-z0-9_]*", tool.name) is not None, "its name must match [a-z][a-z0-9_]*")
    schema = spec(tool).parameters
    jsonschema.Draft202012Validator.check_schema(dict(schema))
    _require(tool, schema.get("type") == "object", f"its schema must describe an object, found {schema.get('type')!r}")
    closed = schema.get("additionalProperties") is False
    _require(tool, closed, 'its schema must refuse unknown arguments: Args needs model_config = ConfigDict(extra="forbid")')
    for name, field_schema in _properties(schema).items():
        _require(tool, bool(field_schema.get("description")), f"argument {name!r} has no description")
    return schema


def _check_observation(tool: Tool, found: Observation, desk: Desk) -> None:
    _require(tool, not found.error, f"a valid call gave an error: {found.text!r}")
    stated = re.search(r"\[\d+(\.\d+)?(, ?\d+(\.\d+)?){3}\]|\d+ ?[×x] ?\d+ ?px", found.text)
    _require(tool, stated is not None, f"its text must state a box [x0, y0, x1, y1] or a size W×H px, found {found.text!r}")
    canonical_json(found.data)
    seen: list[str] = []
    for view in (*found.views, *found.kept):
        whole = Box.whole(width=view.image.width, height=view.image.height)
        _require(tool, _within(view.window, whole), f"a view's window {list(view.window)} leaves its picture {list(whole)}")
        origin = Box.whole(width=view.origin.width, height=view.origin.height)
        back = view.to_origin(view.window)
        _require(tool, _within(back, origin), f"a view maps to {list(back)}, outside its origin {list(origin)}")
        known = any(view.origin in (v.image, v.origin) for v in desk.views.values())
        _require(tool, known, "a view's origin is none of the images that the call named")
        height, width = desk.images.array(view.image).shape[:2]
        size = (view.image.width, view.image.height)
        _require(tool, (width, height) == size, f"a picture is {width}×{height} px but its ImageRef says {size}")
    for view in found.views:
        if not seen or seen[-1] != view.image.sha256:
            _require(tool, view.image.sha256 not in seen, "the panes of one picture must be consecutive views")
            seen.append(view.image.sha256)


def _check_refusals(tool: Tool, schema: Mapping[str, Json], call: Mapping[str, Json], box: Toolbox, desk: Desk) -> None:
    properties = _properties(schema)
    _refused(tool, box, {**call, "no_such_argument": 1}, desk, "an argument that its schema does not have")
    required = schema.get("required", [])
    assert isinstance(required, list)
    for name in required:
        rest = {key: value for key, value in call.items() if key != name}
        _refused(tool, box, rest, desk, f"a call without {name!r}")
    for name, field_schema in properties.items():
        if _is_image(name, field_schema):
            message = _refused(tool, box, {**call, name: "No Such Image"}, desk, f"an unknown image as {name!r}")
            listed = all(known in message for known in desk.views)
            _require(tool, listed, f"its error about an unknown image must list the known ones, found {message!r}")
        if _is_box(field_schema):
            for wrong in ([100, 100, 1200, 900], [-5, 100, 900, 900], [900, 900, 100, 100], [500, 500, 500, 500]):
                _refused(tool, box, {**call, name: wrong}, desk, f"{name} {wrong}")


def _call(box: Toolbox, tool: Tool, call: Mapping[str, Json], desk: Desk) -> Observation:
    try:
        return box.call(tool.name, call, desk)
    except ToolError as error:
        raise AssertionError(f"tool {tool.name!r}: the call {dict(call)!r} was refused: {error}") from error


def _refused(tool: Tool, box: Toolbox, call: Mapping[str, Json], desk: Desk, what: str) -> str:
    """The message of the ToolError that the call must raise."""
    try:
        box.call(tool.name, call, desk)
    except ToolError as error:
        return str(error)
    raise AssertionError(f"tool {tool.name!r}: {what} must raise ToolError, but the call went through")


def _arguments(tool: Tool, schema: Mapping[str, Json], names: list[str]) -> dict[str, Json]:
    """Arguments of a plausible call, made from the schema."""
    made: dict[str, Json] = {}
    required = schema.get("required", [])
    assert isinstance(required, list)
    waiting = list(names)
    for name, field_schema in _properties(schema).items():
        choices = field_schema.get("enum")
        if _is_image(name, field_schema):
            made[name] = waiting.pop(0) if waiting else names[-1]
        elif _is_box(field_schema):
            made[name] = [250, 250, 750, 750]
        elif name not in required:
            continue
        elif isinstance(choices, list) and choices:
            made[name] = choices[0]
        elif field_schema.get("type") == "string":
            made[name] = "red square"
        else:
            raise AssertionError(f"tool {tool.name!r}: pass `arguments`; no value can be guessed for {name!r}")
    return made


def _properties(schema: Mapping[str, Json]) -> dict[str, Mapping[str, Json]]:
    properties = schema.get("properties", {})
    assert isinstance(properties, Mapping)
    return {name: sub for name, sub in properties.items() if isinstance(sub, Mapping)}


def _is_image(name: str, field_schema: Mapping[str, Json]) -> bool:
    return "image" in name and field_schema.get("type") == "string"


def _is_box(field_schema: Mapping[str, Json]) -> bool:
    items = field_schema.get("items")
    numbers = isinstance(items, Mapping) and items.get("type") in ("integer", "number")
    return field_schema.get("type") == "array" and numbers and field_schema.get("maxItems") == 4


def _within(box: Box, outer: Box) -> bool:
    dust = 1e-6
    return (
        box.x0 >= outer.x0 - dust and box.y0 >= outer.y0 - dust and box.x1 <= outer.x1 + dust and box.y1 <= outer.y1 + dust
    )


def _drawn_pair() -> dict[str, RGB]:
    """A grey slope with a blue square that turns red: 320×240 px, the same pixels every time."""
    slope = np.linspace(90, 160, 320, dtype=np.float64).astype(np.uint8)
    original = np.repeat(np.tile(slope, (240, 1))[..., None], 3, axis=2)
    edited = original.copy()
    original[100:140, 140:190] = (30, 60, 200)
    edited[100:140, 140:190] = (200, 40, 30)
    return {"Original Image": original, "Edited Image": edited}


def _require(tool: Tool, holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(f"tool {getattr(tool, 'name', tool)!r}: {message}")
