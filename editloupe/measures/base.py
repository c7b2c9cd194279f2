"""What a measure is, and how one is found and run.

A measure is a class behind the entry point group `editloupe.measures`. It takes its arguments, the pictures of its task and
the door to models with weights, and returns an answer. If it has no value for an input it raises MeasureError, which
becomes a finding with a status; a failure never becomes a number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Final, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from editloupe import models as installed
from editloupe import plugins
from editloupe.answers import Answer, answer_from_json
from editloupe.data.images import RGB
from editloupe.errors import BackendError, ConfigError, MeasureError, ModelAbsent, PhraseError, ToolError
from editloupe.findings import FAILURES, JudgeKind, JudgeSpec
from editloupe.values import Box, Json

_STATUSES: Final[Mapping[type[Exception], str]] = {
    PhraseError: "input_error", ModelAbsent: "not_defined", ToolError: "tool_failed", BackendError: "backend_failed",
}  # fmt: skip
"""What a model raises → the status of a finding, the first that holds."""


class Args(BaseModel):
    """The arguments of a measure. A measure derives its own model from this one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An answer, and how it came about."""

    answer: Answer
    reason: str = ""
    """What a reader of the answer must know, for the finding; "" for nothing."""
    data: Mapping[str, Json] = field(default_factory=dict)
    """The same for programs, for the trace."""
    pictures: tuple[bytes, ...] = ()
    """Image files of the pictures that the measure made. The run keeps them; the answer names them by their digests."""


class BaseMeasure:
    """What the measures of this package begin with. One of another package need not."""

    version: ClassVar[str] = "1"
    Args: ClassVar[type[BaseModel]] = Args
    needs: ClassVar[tuple[str, ...]] = ()


class MeasureFn(Protocol):
    """The contract.

    A class may also have `metric`, a `scores.Metric`: name, domain, direction and unit of its answer. A class whose answer
    is known and not computed says so: `kind = "key"`.
    """

    name: ClassVar[str]
    """As the entry point has it."""
    version: ClassVar[str]
    """A new one for every change that can change a value."""
    Args: ClassVar[type[BaseModel]]
    """The model of the arguments."""
    needs: ClassVar[tuple[str, ...]]
    """Kinds of models that it opens, for example "features"; () for none."""

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Answer | Measured:
        """Return the answer, with how it came about where a reader must know that.

        args: an instance of `Args`.   images: by alias in the order of the task's views, each H×W×3 uint8 RGB.
        models: `models.get(kind)` opens a model with weights; `Models` below, or the module `editloupe.models`.
        Raises MeasureError if the measure is not defined on these images, and ModelAbsent as `get` does.
        """


@dataclass(frozen=True, kw_only=True)
class Models:
    """The door to models with weights, with the device and the weights that a run names."""

    device: str = "auto"
    """As `editloupe.models.get` takes it."""
    names: Mapping[str, str | None] = field(default_factory=dict)
    """Kind → weights; None for the kind's default."""
    _opened: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def get(self, kind: str, name: str | None = None) -> Any:
        """Return a model, opened once. Raises as `editloupe.models.get`."""
        if name is not None:
            return installed.get(kind, name, device=self.device)
        if kind not in self._opened:
            self._opened[kind] = installed.get(kind, self.names.get(kind), device=self.device)
        return self._opened[kind]

    def versions(self, kinds: tuple[str, ...]) -> dict[str, str]:
        """Return kind → the version of its weights, "absent" for a model that is not here."""
        found = dict.fromkeys(kinds, "absent")
        for kind in kinds:
            with suppress(ModelAbsent):
                found[kind] = str(self.get(kind).version)
        return found


@cache
def open_measure(name: str) -> MeasureFn:
    """Return a measure by name. Raises UnknownPlugin, and ConfigError for a class that is no measure or cannot be made."""
    found: Any = plugins.load("measures", name)
    where = plugins.described("measures", name)
    try:
        measure: Any = found() if isinstance(found, type) else found
    except Exception as error:
        raise ConfigError(f"{where} cannot be opened: {type(error).__name__}: {error}") from error
    missing = [part for part in ("version", "Args", "needs") if not hasattr(measure, part)]
    if missing or not callable(measure):
        raise ConfigError(f"{where} lacks {', '.join(missing) or '__call__'}; see docs/protocols.md")
    checked: MeasureFn = measure
    return checked


def judge_of(name: str, models: Models) -> JudgeSpec:
    """Return the judge that a measure is, with the versions of the weights that it needs.

    Raises as `open_measure`, and ConfigError where weights that are named cannot be had.
    """
    measure = open_measure(name)
    kind: JudgeKind = getattr(measure, "kind", "measure")
    return JudgeSpec(
        kind=kind,
        backend=f"{kind}/{name}",
        backend_version=measure.version,
        endpoint="in process",
        tools=models.versions(measure.needs),
    )


def only(images: Mapping[str, RGB]) -> RGB:
    """Return the one image of a measure of one image. Raises MeasureError unless there is exactly one."""
    if len(images) != 1:
        raise MeasureError(f"expected one image, found {len(images)}", status="input_error")
    (rgb,) = images.values()
    return rgb


def clipped(boxes: Iterable[Sequence[float]], rgb: RGB, what: str) -> list[Box]:
    """Return boxes [x0, y0, x1, y1] in px, each cut off at an image's sides.

    what: names one in the message.   Raises MeasureError for one that lies outside.
    """
    height, width = rgb.shape[:2]
    try:
        return [Box(*box).clipped(width=width, height=height) for box in boxes]
    except ValueError as error:
        raise MeasureError(f"{what} lies outside the image: {error}", status="input_error") from error


def run_measure(name: str, args: Mapping[str, Json], images: Mapping[str, RGB], models: Models | None = None) -> Answer:
    """Return the answer that a measure gives to these images. Raises as `measured`."""
    return measured(name, args, images, models).answer


def measured(name: str, args: Mapping[str, Json], images: Mapping[str, RGB], models: Models | None = None) -> Measured:
    """Return what a measure says of these images, with how it came about.

    Raises MeasureError if it has no value, raises, returns no Answer, or lacks its weights, and UnknownPlugin or
    ConfigError if it cannot be opened. What a model raises keeps its words: PhraseError is the input's fault, other
    ToolErrors the tool's, BackendErrors the backend's.
    """
    measure = open_measure(name)
    try:
        checked = measure.Args.model_validate(dict(args))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise MeasureError(f"measure {name!r}: argument {place}: {problem['msg']}", status="input_error") from error
    where = plugins.described("measures", name)
    try:
        said = measure(checked, images, models or Models())
    except MeasureError as error:
        if error.status in FAILURES:
            raise
        message = f"{where} raised a MeasureError with the unknown status {error.status!r}: {error}"
        raise MeasureError(message, status="tool_failed") from error
    except Exception as error:
        status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), "")
        message = str(error) if status else f"{where} raised {type(error).__name__}: {error}"
        raise MeasureError(message, status=status or "tool_failed") from error
    found = said if isinstance(said, Measured) else Measured(answer=said)
    try:
        # As it is read from a recording.
        answer = answer_from_json(json.loads(json.dumps(found.answer.to_json(), allow_nan=False)))
        data = json.loads(json.dumps(found.data, allow_nan=False))
        return Measured(answer=answer, reason=str(found.reason), data=data, pictures=found.pictures)
    except Exception as error:
        message = f"{where} returned {said!r}; expected an editloupe.answers.Answer of plain numbers and text"
        raise MeasureError(message, status="tool_failed") from error
