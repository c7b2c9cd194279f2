"""The arguments of a tool call: right ones in the wrong dress are taken, others are refused with what to write."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from editloupe.backends.boxes import BBOX_RULE, PX_HINT, box_numbers
from editloupe.errors import ToolError
from editloupe.values import Box, ImageRef, Json

if TYPE_CHECKING:
    import jsonschema

BBOX: Final = "bbox"
IMAGE: Final = "target_image"
_NO_BOX: Final = 1e6
"""A larger number is no place in an image, in px neither."""

BBox: TypeAlias = Annotated[
    list[Annotated[int, Field(ge=0, le=1000)]],
    Field(min_length=4, max_length=4, description=f"Where to look: {BBOX_RULE}"),
]


class ToolArgs(BaseModel):
    """The arguments of a tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ImageArgs(ToolArgs):
    """The arguments of a tool that looks at one image."""

    target_image: str = Field(min_length=1, description='Name of the image: for example "Edited Image" or "Crop 1".')


def undressed(arguments: Mapping[str, Json]) -> dict[str, Json]:
    """Return the arguments with a box as four whole numbers where it is meant: from strings, floats, one nesting too many.

    What is no box of four numbers stays as it is, and so do fractions, which are refused by themselves.
    """
    return {key: _box(value) if key == BBOX else value for key, value in arguments.items()}


def _box(given: Json) -> Json:
    numbers = box_numbers(given)
    if numbers is None or max(map(abs, numbers)) >= _NO_BOX:
        return given
    fractions = looks_like_fractions(numbers) and any(number != round(number) for number in numbers)
    return given if fractions else [round(number) for number in numbers]


def refuse_px(arguments: Mapping[str, Json], image_of: Callable[[Json], ImageRef | None]) -> None:
    """Raise ToolError with the converted box where a box lies inside the image in px, and not in thousandths.

    image_of: returns the image of that name, or raises ToolError.
    """
    given = arguments.get(BBOX)
    numbers = [v for v in given if isinstance(v, int)] if isinstance(given, list) else []
    if len(numbers) != 4 or max(numbers) <= 1000 or min(numbers) < 0:
        return
    image = image_of(arguments.get(IMAGE))
    x0, y0, x1, y1 = numbers
    if image is None or not (x0 < x1 <= image.width and y0 < y1 <= image.height):
        return
    meant = list(Box(x0, y0, x1, y1).to_thousandths(width=image.width, height=image.height))
    raise ToolError(
        f"bbox {numbers} goes beyond the image: expected {BBOX_RULE}{PX_HINT}{image.width}×{image.height} px, write {meant}"
    )


@functools.cache
def _validator(arguments: type[BaseModel]) -> jsonschema.Draft202012Validator:
    """Return the validator, made once for each tool: making one takes longer than using it."""
    # Most runs need it for no call.
    import jsonschema

    return jsonschema.Draft202012Validator(arguments.model_json_schema())


def validated(tool: str, expected: type[BaseModel], arguments: Mapping[str, Json]) -> BaseModel:
    """Return the arguments as the tool's own type. Raises ToolError that names each wrong field.

    tool: its name, for messages.   expected: the type of its arguments.
    """
    if problems := _problems(expected, arguments):
        lines = "; ".join(f"{'.'.join(map(str, p.absolute_path)) or 'arguments'}: {_problem(p)}" for p in problems[:5])
        properties = expected.model_json_schema().get("properties", {})
        named = list(dict.fromkeys(str(p.absolute_path[0]) for p in problems if p.absolute_path))
        # What the schema says about the first wrong argument.
        meant = next((f". {n}: {d}" for n in named if (d := properties.get(n, {}).get("description"))), "")
        raise ToolError(
            f"{tool}: wrong arguments: {lines}. Expected {tool}{{{', '.join(properties)}}}"
            f"{meant}{_fractions(map(arguments.get, named))}"
        )
    try:
        return expected.model_validate(dict(arguments))
    except ValidationError as error:
        # Rules that a JSON Schema cannot express, such as one field bounding another.
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "arguments"
        raise ToolError(f"{tool}: wrong arguments: {where}: {first['msg']}") from error


def _problems(expected: type[BaseModel], arguments: Mapping[str, Json]) -> list[jsonschema.ValidationError]:
    return sorted(_validator(expected).iter_errors(dict(arguments)), key=lambda e: list(map(str, e.absolute_path)))


def _fractions(wrong: Iterable[Json]) -> str:
    """Return how to correct a box that was given in fractions of the image; "" where none was."""
    for value in wrong:
        if isinstance(value, Sequence) and looks_like_fractions(value):
            return f" These look like fractions of width and height: multiply by 1000, {[round(1000 * v) for v in value]}."
    return ""


def looks_like_fractions(values: Sequence[Json]) -> TypeGuard[Sequence[float]]:
    """Return True if four numbers are all in 0..1: a box that was meant in fractions and not in thousandths."""
    return len(values) == 4 and all(isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= 1 for v in values)


def _problem(problem: jsonschema.ValidationError) -> str:
    """Return what is wrong with one argument; for a text that is too long, how long it may be."""
    if problem.validator == "maxLength":
        return f"is {len(str(problem.instance)):,} characters long, at most {problem.validator_value} are taken"
    # Without its middle: jsonschema repeats the whole value, and the end says what is wrong.
    message = problem.message
    return message if len(message) <= 200 else f"{message[:80]} … {message[-80:]}"
