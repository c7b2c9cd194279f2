"""Frozen figures: a JSON file an item, compared figure by figure, or written anew."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

HERE = Path(__file__).parent
WRITING = "GUARDS_WRITE"
"""Variable that makes the guards write what they would compare."""
TOLERANCE = 1e-5
"""By how much a number may differ from the frozen one, of the number itself. Frozen numbers have eight digits."""

Figure: TypeAlias = "float | int | str | None"
Figures: TypeAlias = Mapping[str, Mapping[str, Figure]]
"""What a figure is about (a sample, a row of a table) → its name → number, label or "(status)"."""


def holds(item: str, found: Figures, *, whole: bool = True) -> None:
    """Fail with a line a figure that differs from `numbers/ITEM.json`. whole: all that is frozen must be there too."""
    path = HERE / "numbers" / f"{item}.json"
    if os.environ.get(WRITING):
        write(path, found, keep={} if whole else read(path))
        return
    expected = read(path)
    lines = differences(expected if whole else {about: expected.get(about, {}) for about in found}, found)
    if lines:
        pytest.fail(f"{item}: {len(lines)} figures are not the frozen ones\n" + "\n".join(lines[:60]), pytrace=False)


def differences(expected: Figures, found: Figures) -> list[str]:
    """Return a line for each figure that differs, was lost or came new."""
    lines = []
    for about in dict.fromkeys([*expected, *found]):
        frozen, now = expected.get(about, {}), found.get(about, {})
        for name in dict.fromkeys([*frozen, *now]):
            was, is_ = frozen.get(name, "nothing"), now.get(name, "nothing")
            if not same(was, is_):
                lines.append(f"  {about} | {name}: {was} was frozen, {is_} was found")
    return lines


def same(was: Figure, is_: Figure) -> bool:
    """Return whether two figures are the same; a label is no number, and a status neither."""
    numbers = [isinstance(one, int | float) and not isinstance(one, bool) for one in (was, is_)]
    if not all(numbers):
        return was == is_ and not any(numbers)
    return math.isclose(float(was), float(is_), rel_tol=TOLERANCE, abs_tol=TOLERANCE)  # type: ignore[arg-type]


def read(path: Path) -> dict[str, dict[str, Figure]]:
    """Return what is frozen; nothing where nothing is yet."""
    found: dict[str, dict[str, Figure]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def write(path: Path, found: Figures, *, keep: Figures) -> None:
    """Freeze figures, a line for each thing they are about."""
    path.parent.mkdir(exist_ok=True)
    both = {**keep, **found}
    lines = [
        f"{json.dumps(about, ensure_ascii=False)}: {json.dumps(rounded(both[about]), ensure_ascii=False)}"
        for about in sorted(both)
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def rounded(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    """Return figures with eight digits each."""
    return {name: float(f"{one:.8g}") if isinstance(one, float) else one for name, one in figures.items()}
