"""Install the toy package as pip would: its modules and the metadata of a distribution in one folder on the path."""

from __future__ import annotations

import shutil
from pathlib import Path

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
