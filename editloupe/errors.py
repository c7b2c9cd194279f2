"""The error tree, sorted by who must act.

`EditLoupeError` → `ConfigError` (the user: the command, a URI, a file that steers a run) · `DataError` (the user's data) ·
`BackendError`, `StorageError` (the operator) · `ReplyError`, `MeasureError`, `EditError`, `ProtocolError` (become a finding
with a status, never a number) · `ToolError` (shown to the model, which can mend it) · `ToolAbsent`, `ModelAbsent` (said to
be absent) · `ProcessLost`, `ReplayMiss`, `Interrupted`.

A message names the thing, what was expected, what was found and what to do. Errors of other libraries are translated
once, where they are met, with `from`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

_ALIKE: Final = 0.65
"""Ratio of equal letters from which two names are near; below it, `beams` would be `boxes`."""


class EditLoupeError(Exception):
    """The root: catch it to catch everything that editloupe raises on purpose."""


class ConfigError(EditLoupeError):
    """The command, a URI or a steering file is wrong; nothing was spent."""


class UnknownPlugin(ConfigError):
    """No installed plug-in has this name; the message lists those that are."""

    def __init__(self, group: str, name: str, known: tuple[str, ...]) -> None:
        self.group = group
        listed = ", ".join(known) or "none"
        form = "expected PROVIDER/MODEL, such as openai/gpt-4.1; " if group == "backend" else ""
        super().__init__(f"unknown {group} {name!r}; {form}{did_you_mean(name, known)}known here: {listed}")


class MissingExtra(ConfigError):
    """An optional dependency is needed and absent."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional package: pip install 'editloupe[{extra}]'")


class RunMismatch(ConfigError):
    """The output folder holds another run; the message names the field that differs."""


class DataError(EditLoupeError):
    """The user's data cannot be used as it is."""


class SampleError(DataError):
    """One sample cannot be used.

    file, line: where it stands (line counts from 1; None where the file has no lines).
    """

    def __init__(self, message: str, *, file: Path | str | None = None, line: int | None = None) -> None:
        self.file = None if file is None else Path(file)
        self.line = line
        where = "" if file is None else f"{file}: " if line is None else f"{file}, line {line}: "
        super().__init__(where + message)


class ImageError(DataError):
    """One image file cannot be decoded, or breaks a limit."""


class TraceError(DataError):
    """A trace file is damaged, was changed, or was written by a newer version."""


class BackendError(EditLoupeError):
    """The endpoint of a model failed.

    status: the HTTP status where there was one.   retryable: whether the same request may succeed later.
    for_all: whether it lies in the key, the account, the model's name or the address, so that every other request will be
    refused as well.   lost: how the connection failed, in equal words for equal failures; "" where there was an answer.
    how: whether no connection came about, one broke, or the answer took too long; "" where there was an answer.
    """

    retryable = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        for_all: bool = False,
        lost: str = "",
        how: Literal["", "unreached", "broken", "late"] = "",
    ) -> None:
        self.status, self.retry_after_s, self.for_all = status, retry_after_s, for_all
        self.lost, self.how = lost, how
        super().__init__(message)


class RateLimited(BackendError):
    """Too many requests; `retry_after_s` is what the endpoint asks for, if it does."""

    retryable = True


class Unavailable(BackendError):
    """Time-out, connection reset, or a 5xx answer."""

    retryable = True


class Rejected(BackendError):
    """The endpoint refuses this request and will refuse it again (a 4xx answer)."""


class ContextTooLong(Rejected):
    """The conversation no longer fits into the model's context."""


class NotRecorded(Rejected):
    """The run behind `recorded/RUN` holds no answer to this request; the message names the nearest and what differs."""


class ReplyError(EditLoupeError):
    """The model's reply cannot be used; `status` is the finding's status."""

    def __init__(self, status: str, message: str) -> None:
        self.status = status
        super().__init__(message)


class MeasureError(EditLoupeError):
    """A measure has no value for this input; `status` is the finding's status."""

    def __init__(self, message: str, *, status: str = "not_defined") -> None:
        self.status = status
        super().__init__(message)


class EditError(EditLoupeError):
    """An image editor gave no image; `kind` says how.

    "failed": it ended with an error, or its server did.   "timed_out": it took too long.   "no_image": it ended well, and
    what it gave is no image.
    """

    def __init__(self, kind: Literal["failed", "timed_out", "no_image"], message: str) -> None:
        self.kind = kind
        super().__init__(message)


class ProtocolError(EditLoupeError):
    """A protocol raised, or planned what cannot be asked. The message names its package and the place."""


class ToolError(EditLoupeError):
    """A tool cannot do what was asked; the model reads the message and may mend its call."""


class PhraseError(ToolError):
    """A phrase cannot be looked for: it names nothing, or has more tokens than the detector takes."""


class ToolFailed(ToolError):
    """A tool raised an exception that is no ToolError; the message names it, `__cause__` is it."""


class ProcessLost(EditLoupeError):
    """The process of a call died twice, such as for want of memory; the message says what it ran and how it ended."""


class ToolAbsent(EditLoupeError):
    """A tool cannot be offered here, and nobody asked for what is missing; the message is the reason that is shown."""


class ModelAbsent(EditLoupeError):
    """A model that nobody named is not here: no weights, no extra. The message is the reason that is shown."""


class StorageError(EditLoupeError):
    """The run folder cannot be written; what is on disk stays, and the same command goes on from there."""


class ReplayMiss(EditLoupeError):
    """The recording has no answer to this request; the message names the nearest one and the first difference."""


class Interrupted(EditLoupeError):
    """The run was asked to stop. What is recorded stays, and the same command goes on from there."""


class Parked(Interrupted):
    """The question waits for the answer of a batch. What is recorded stays, and the same command goes on from there."""


def first_words(error: Exception) -> str:
    """Return what another library's error says, on one line of at most 300 characters; its kind if it says nothing."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'KNOWN'? ", to stand before a list of what is known; "" if none is near."""
    near = nearest(name, known)
    return f"did you mean {near!r}? " if near else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that `name` may be meant as; "" if none is near."""

    def alike(other: str) -> float:
        return difflib.SequenceMatcher(None, name.casefold(), other.casefold()).ratio()

    best = max((one for one in known if one != name), key=alike, default="")
    return best if alike(best) >= _ALIKE else ""
