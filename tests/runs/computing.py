"""Tools and a measure that compute, in a module that another process can import."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from editloupe.answers import Number
from editloupe.data.images import RGB
from editloupe.errors import ToolError
from editloupe.findings import Observation
from editloupe.measures import base
from editloupe.tools.base import ToolContext

CALL = '<tool_call>{"name": "where", "parameters": {}}</tool_call>'


class Where:
    """A tool that says in which process it ran, once it has done what it was made with."""

    name, version, description, computes = "where", "1", "Says where it runs.", True

    class Args(BaseModel):
        """No arguments."""

    def __init__(self, does: Callable[[], object] = int) -> None:
        self.does = does

    def __call__(self, args: Any, context: ToolContext) -> Observation:
        self.does()
        return Observation(text=str(os.getpid()))


class Odd(Exception):
    """An error that cannot be read where it was not raised."""

    def __init__(self, *, why: str) -> None:
        super().__init__(why)


def refuses() -> None:
    raise ToolError("look elsewhere")


def fails() -> None:
    raise Odd(why="odd")


def naps() -> None:
    time.sleep(0.06)


class Dies:
    """Ends its process the hard way, the first `times` times."""

    def __init__(self, folder: Path, times: int) -> None:
        self.folder, self.times = folder, times

    def __call__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        if (died := len(list(self.folder.iterdir()))) < self.times:
            (self.folder / str(died)).touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Sleeps:
    """Tells a file its process's number, and sleeps."""

    def __init__(self, told: Path) -> None:
        self.told = told

    def __call__(self) -> None:
        self.told.with_suffix(".part").write_text(str(os.getpid()))
        self.told.with_suffix(".part").rename(self.told)
        time.sleep(60)


class DyingMeasure:
    """A measure that ends its process."""

    name, version = "dying", "1"
    needs: ClassVar[tuple[str, ...]] = ()
    Args = base.Args

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Number:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError
