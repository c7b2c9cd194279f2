"""Console output: results go to standard output, progress and remarks to standard error."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from rich.console import Console
from rich.status import Status
from rich.text import Text
from typer import Option

from editloupe.errors import EditLoupeError
from editloupe.figures.escape import safe, safe_json
from editloupe.runs.executors import Stop

if TYPE_CHECKING:
    from editloupe.values import Json

Format: TypeAlias = Literal["table", "json", "csv", "md", "latex"]
"""How tables are printed. Of all but the first, standard output holds tables alone, and remarks go to standard error."""


_chosen: Final[dict[str, Format]] = {"form": "table"}
"""How this command's tables are printed."""


def choose_format(form: Format) -> Format:
    """Say how this command's tables are printed, and return it."""
    _chosen["form"] = form
    return form


Form = Annotated[
    Format,
    Option(
        "--format", callback=choose_format, show_default=False, metavar="FORM", rich_help_panel="Output",
        help="Print table (default), json, csv, md or latex.",
    ),
]  # fmt: skip
"""The option of a command that prints tables."""


def chosen_format() -> Format:
    """Return how this command's tables are printed."""
    return _chosen["form"]


def as_json() -> bool:
    """Return whether this command prints JSON."""
    return _chosen["form"] == "json"


def for_programs() -> bool:
    """Return whether this command's tables are printed for programs."""
    return _chosen["form"] != "table"


@cache
def out() -> Console:
    """Return standard output."""
    # Named, so that tables are drawn with what its encoding has.
    return Console(file=sys.stdout, highlight=False, emoji=False, soft_wrap=False)


@cache
def err() -> Console:
    """Return standard error."""
    return Console(stderr=True, highlight=False, emoji=False)


class OutputError(EditLoupeError):
    """Standard output cannot be written."""


@contextmanager
def printing() -> Iterator[None]:
    """Name standard output where it cannot be written, such as on a full disk. Raises OutputError."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read it has what he wanted
    except OSError as error:
        raise OutputError(
            f"standard output cannot be written ({error.strerror}); the command stopped there. Run it again with an output "
            "that can be written"
        ) from error


def say(text: str, style: str = "") -> None:
    """Print text without markup on standard output. Long lines are not broken.

    Where tables are printed for programs, it is a remark.
    """
    if for_programs():
        note(text)
    else:
        with printing():
            out().print(Text(safe(text), style=style), soft_wrap=True)


def say_first(lines: Sequence[str], most: int = 20, more: str = "; --format json lists all.") -> None:
    """Print the first lines, and how many there are beyond them.   more: where these can be seen."""
    for line in lines[:most]:
        say(line)
    if len(lines) > most:
        say(f"  … and {len(lines) - most} more{more}")


def print_json(data: Mapping[str, Json], *, indent: int | None = None) -> None:
    """Print one JSON object on standard output."""
    write(json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False) + "\n", json_text=True)


def write(text: str, *, json_text: bool = False) -> None:
    """Write a text to standard output.   json_text: controls, and what the encoding lacks, become escapes as in JSON."""
    text = safe_json(text) if json_text else text
    if json_text and not (sys.stdout.encoding or "utf-8").lower().startswith("utf"):
        text = "".join(c if c < "\x7f" else json.dumps(c)[1:-1] for c in text)
    with printing():
        sys.stdout.write(text)


def note(message: str) -> None:
    """Print a remark on standard error."""
    err().print(safe(message), markup=False, soft_wrap=True)


def warn(problems: Iterable[str]) -> None:
    """Print warnings on standard error."""
    for problem in problems:
        note(f"warning: {problem}")


def fail(message: str) -> None:
    """Print an error on standard error."""
    err().print("error:", style="bold red", end=" ")
    note(message)


def status(text: str, *, hidden: bool = False) -> Status:
    """Return a live line on standard error, to be used as a context."""
    return Status(text, console=Console(quiet=True) if hidden else err(), spinner="line")


def many(count: int, noun: str) -> str:
    """Return "1 sample" or "1,200 samples"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def command(*parts: str | Path) -> str:
    """Return a command line of editloupe, quoted for a shell."""
    return shlex.join(["editloupe", *map(str, parts)])


def slug(text: str) -> str:
    """Return a text as part of a file's name."""
    return re.sub(r"[^\w.]+", "-", text).strip("-")


def tell_traces(wanted: bool) -> None:
    """Say that traces go to LangSmith, if they are wanted. Raises ConfigError if they cannot be sent."""
    if wanted:
        from editloupe.backends.langsmith import announcement

        note(announcement())


def send_traces() -> None:
    """Wait a while until the traces that go to LangSmith are sent. Without any there is nothing to do."""
    module = sys.modules.get("editloupe.backends.langsmith")
    if module is not None and not module.flush():
        note("LangSmith did not take all traces.")


def prepare_streams() -> None:
    """Make the standard streams take all that is printed: characters that their encoding lacks become escapes."""
    _chosen["form"] = "table"
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # It was closed before the start (`>&-`). The next file that is opened must not get its number.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - it stays open until the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


GRACE_S: Final = 5.0
"""So long calls that are under way may take after Ctrl-C. A model that thinks for minutes cannot be called off."""


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Yield what the first Ctrl-C (or SIGTERM) sets: waits and retries end, and calls under way have GRACE_S to end.

    The second one ends the process at once.
    """
    stop, pressed = Stop(), threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        # This thread may be amid a line of its own, and a stream refuses to be written to from within a write.
        if pressed.is_set():
            if err().is_terminal:
                # The cursor is shown again, and the prompt comes behind the panel, which stays.
                os.write(2, b"\x1b[?25h\n")
            os._exit(130)
        pressed.set()
        stop.within(GRACE_S)
        text = (
            f"Stopping: nothing more is asked, and calls under way have {GRACE_S:g} s to end. Press again to stop at once; "
            "the same command continues the run."
        )
        saying = threading.Thread(target=note, args=(text,))
        saying.start()
        # At once, unless it is this thread that writes.
        saying.join(0.5)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
