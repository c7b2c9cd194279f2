"""Install the toy package as pip would: its modules and the metadata of a distribution in one folder on the path."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from editloupe import plugins

PACKAGE = Path(__file__).parent / "package" / "editloupe_toys"

ENTRY_POINTS = """\
[editloupe.protocols]
stars = editloupe_toys.stars:Stars
choice = editloupe_toys.choice:MultipleChoice
turns = editloupe_toys.turns:EveryTurn
pixels = editloupe_toys.pixels:Pixels
objects = editloupe_toys.objects:ObjectsKept
places = editloupe_toys.places:Places
changes = editloupe_toys.changes:Changes
review = editloupe_toys.review:Review
arena = editloupe_toys.arena:Arena
inputs = editloupe_toys.inputs:InputsUsed
checklist = editloupe_toys.checklist:Checklist
faulty = editloupe_toys.faulty:Faulty
wrong = editloupe_toys.wrong:WrongMeasure

[editloupe.measures]
toy-share = editloupe_toys.pixels:ChangedShare
toy-red = editloupe_toys.pixels:MeanColor
toy-wrong = editloupe_toys.wrong:Wrong
toy-unopened = editloupe_toys.wrong:Unopened

[editloupe.backends]
toy = editloupe_toys.backend:open_backend

[editloupe.loaders]
toy-turns = editloupe_toys.loader
"""


def install(site: Path, *, name: str = "editloupe-toys", entry_points: str = ENTRY_POINTS) -> Path:
    """Put the package and its metadata into `site`, which is to be put on the path."""
    shutil.copytree(PACKAGE, site / PACKAGE.name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    info = site / f"{name.replace('-', '_')}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")
    return site


@contextmanager
def installed(site: Path, *, name: str = "editloupe-toys", entry_points: str = ENTRY_POINTS) -> Iterator[None]:
    """Install the package into `site` for the block. What is imported of it there goes with it, as its folder may."""
    install(site, name=name, entry_points=entry_points)
    before = _taken_out()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        plugins.forget()
        yield
    plugins.forget()
    _taken_out()
    sys.modules.update(before)


def _taken_out() -> dict[str, ModuleType]:
    """Take the package's modules out of those that are imported, and return them."""
    own = [module for module in sys.modules if module.partition(".")[0] == PACKAGE.name]
    return {module: sys.modules.pop(module) for module in own}
