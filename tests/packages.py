"""A small distribution with entry points, as pip would leave it, in a folder on the path."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from editloupe import plugins


def install(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    files: Mapping[str, str],
    entry_points: Mapping[str, Mapping[str, str]],
) -> None:
    """Write the files of a distribution "toyset 1.0" and put it on the path for this test.

    entry_points: group without "editloupe." → name → module or module:object.
    """
    info = "".join(
        f"[editloupe.{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in entry_points.items()
    )
    metadata = "Metadata-Version: 2.1\nName: toyset\nVersion: 1.0\n"
    dist = {"toyset-1.0.dist-info/METADATA": metadata, "toyset-1.0.dist-info/entry_points.txt": info}
    for name, text in {**files, **dist}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    for module in [name for name in sys.modules if name.partition(".")[0] == "toyset"]:
        monkeypatch.delitem(sys.modules, module)
    # Each test sees what is installed for it, through caches of its own.
    for name in ("_installed", "_found"):
        monkeypatch.setattr(plugins, name, cache(getattr(plugins, name).__wrapped__))
