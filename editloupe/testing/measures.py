"""The contract of measures, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from editloupe.answers import answer_from_json
from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.measures.base import Measured
from editloupe.tasks import STATUSES
from editloupe.testing.contracts import drawn_pair, requirement
from editloupe.values import Json


def check_measure(
    measure: Any,
    *,
    args: Mapping[str, Json] | None = None,
    images: Mapping[str, RGB] | None = None,
    models: Any = None,
) -> list[str]:
    """Check that a measure keeps its contract. Return what it said of each input, for checks of your own.

    measure: a measure's class, or an instance.   args: arguments that work; None for the defaults.
    images: alias → H×W×3 uint8 RGB, pictures that it can measure; None takes a drawn pair, "source" and "edited".
    models: what the measure is given as `models`; None for `editloupe.models`.

    Checked: name, version, Args and needs; an unknown argument is refused; the same input gives the same answer; inputs
    stay untouched; an answer is finite and round-trips through JSON; equal images, one white pixel, images of two sizes
    and no image at all give an answer or a MeasureError with a known status, and nothing else.

    Raises AssertionError, which names the measure and what it broke.
    """
    opened = import_module("editloupe.models") if models is None else models
    made = measure() if isinstance(measure, type) else measure
    name = getattr(made, "name", type(made).__name__)
    require = requirement(f"measure {name!r}")
    for part, kind in (("name", str), ("version", str), ("needs", tuple)):
        require(isinstance(getattr(made, part, None), kind), f"expected {part} as a {kind.__name__}")
    require(bool(made.name) and bool(made.version), "name and version must not be empty")
    require(hasattr(made, "Args") and hasattr(made.Args, "model_validate"), "expected Args, a pydantic model")
    try:
        made.Args.model_validate({"no such argument": 1})
    except ValueError:
        pass
    else:
        require(False, "Args takes an unknown argument; derive it from editloupe.measures.base.Args")
    given = made.Args.model_validate(dict(args or {}))
    pictures = dict(images) if images is not None else dict(zip(("source", "edited"), drawn_pair().values(), strict=True))

    def said(what: str, inputs: Mapping[str, RGB]) -> str:
        before = {alias: rgb.copy() for alias, rgb in inputs.items()}
        try:
            found = made(given, inputs, opened)
            answer = found.answer if isinstance(found, Measured) else found
        except MeasureError as error:
            require(error.status in STATUSES and error.status != "ok", f"{what}: unknown status {error.status!r}")
            require(bool(str(error)), f"{what}: a MeasureError needs a reason")
            return f"{error.status}: {error}"
        except Exception as error:
            raise AssertionError(f"measure {name!r}: {what}: raised {error!r}; expected a MeasureError") from error
        finally:
            same = all(np.array_equal(before[alias], rgb) for alias, rgb in inputs.items())
            require(same, f"{what}: an input was changed")
        value = getattr(answer, "value", None)
        require(value is None or math.isfinite(value), f"{what}: the answer {value!r} is not finite")
        require(answer_from_json(answer.to_json()) == answer, f"{what}: the answer does not round-trip through JSON")
        return str(answer)

    plain = said("a plain input", pictures)
    require(said("the same input again", pictures) == plain, "the same input gave another answer")
    first = next(iter(pictures.values()))
    pixel: RGB = np.full((1, 1, 3), 255, np.uint8)
    return [
        plain,
        said("equal images", dict.fromkeys(pictures, first)),
        said("images of one white pixel", dict.fromkeys(pictures, pixel)),
        said("images of two sizes", {a: rgb if i else rgb[:-1] for i, (a, rgb) in enumerate(pictures.items())}),
        said("no image", {}),
    ]
