"""What a measure is, and how one is found and run.

A measure is a class behind the entry point group `editloupe.measures`. It takes its arguments, the pictures of its task and
the door to models with weights, and returns an answer. If it has no value for an input it raises MeasureError, which
becomes a finding with a status; a failure never becomes a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from editloupe import plugins
from editloupe.answers import Answer
from editloupe.data.images import RGB
from editloupe.errors import ConfigError, MeasureError
from editloupe.findings import JudgeSpec
from editloupe.values import Json


class Args(BaseModel):
    """The arguments of a measure. A measure derives its own model from this one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class MeasureFn(Protocol):
    """The contract."""

    name: ClassVar[str]
    """As the entry point has it."""

    version: ClassVar[str]
    """A new one for every change that can change a value."""

    Args: ClassVar[type[BaseModel]]
    """The model of the arguments."""

    needs: ClassVar[tuple[str, ...]]
    """Kinds of models that it opens, for example "features"; () for none."""

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Answer:
        """Return the answer.

        args: an instance of `Args`.   images: by alias in the order of the task's views, each H×W×3 uint8 RGB.
        models: the module `editloupe.models`.
        Raises MeasureError if the measure is not defined on these images.
        """


@cache
def open_measure(name: str) -> MeasureFn:
    """Return a measure by name. Raises UnknownPlugin, and ConfigError for a class that is no measure."""
    found: Any = plugins.load("measures", name)
    measure: Any = found() if isinstance(found, type) else found
    missing = [part for part in ("version", "Args", "needs") if not hasattr(measure, part)]
    if missing or not callable(measure):
        where = f"measure {name!r} ({plugins.origin('measures', name)})"
        raise ConfigError(f"{where} lacks {', '.join(missing) or '__call__'}; see docs/protocols.md")
    checked: MeasureFn = measure
    return checked


def judge_of(name: str) -> JudgeSpec:
    """Return the judge that a measure is. Raises as `open_measure`."""
    return JudgeSpec(
        kind="measure",
        backend=f"measure/{name}",
        backend_version=open_measure(name).version,
        endpoint="in process",
    )


def run_measure(name: str, args: Mapping[str, Json], images: Mapping[str, RGB]) -> Answer:
    """Return what a measure says of these images.

    Raises MeasureError if it has no value or raises, and UnknownPlugin or ConfigError if it cannot be opened.
    """
    from editloupe import models

    measure = open_measure(name)
    try:
        checked = measure.Args.model_validate(dict(args))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise MeasureError(f"measure {name!r}: argument {where}: {problem['msg']}", status="input_error") from error
    try:
        return measure(checked, images, models)
    except MeasureError:
        raise
    except Exception as error:
        origin = plugins.origin("measures", name)
        raise MeasureError(
            f"measure {name!r} ({origin}) raised {type(error).__name__}: {error}", status="tool_failed"
        ) from error
