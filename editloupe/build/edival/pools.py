"""The objects that are there after each edit of a chain: pure functions (paper, 2.3).

What the benchmark's file does and its paper leaves open:
- a renamed or replaced object goes to the end of the list;
- an added text stands among all objects as "text", and cannot be edited;
- a position change touches both of its objects, while the reference of an addition stays untouched.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from editloupe.files import read_toml
from editloupe.protocols.edival.chain import Pools
from editloupe.protocols.edival.instructions import (
    BACKGROUND_CHANGE,
    COLOR_ALTER,
    COUNT_CHANGE,
    MATERIAL_ALTER,
    POSITION_CHANGE,
    SUBJECT_ADD,
    SUBJECT_REMOVE,
    SUBJECT_REPLACE,
    TEXT_CHANGE,
    Edit,
)

TEXT: Final = "text"
"""The object that an added text is."""


@cache
def words() -> dict[str, tuple[str, ...]]:
    """Return our word lists by name."""
    lists: dict[str, Any] = read_toml(Path(__file__).with_name("words.toml"), "words.toml")
    return {name: tuple(found) for name, found in lists.items()}


def start(objects: Iterable[str]) -> Pools:
    """Return the pools before the first edit."""
    names = tuple(dict.fromkeys(objects))
    return Pools(ever=names, unchanged=names, available=names, background_kept=True)


def after(pools: Pools, edit: Edit, *, foreground: Collection[str] | None = None) -> Pools:
    """Return the pools after an edit.

    foreground: names of the objects that a new background leaves as they are; only these can be edited from then on. None
    takes those that the edit's plain sentence names. Which objects of an image are in the foreground cannot be known from
    a chain without a change of background, and is not needed there.
    """
    kind, target = edit.edit_type, edit.target
    if kind == SUBJECT_ADD:
        return _added(pools, edit.new)
    if kind in (COLOR_ALTER, MATERIAL_ALTER):
        return _added(_dropped(pools, target), renamed(edit))
    if kind == SUBJECT_REMOVE:
        return _dropped(pools, target)
    if kind == SUBJECT_REPLACE:
        return _added(_dropped(pools, target), edit.new)
    if kind == TEXT_CHANGE:
        return _touched(pools, target) if target else replace(pools, ever=(*pools.ever, TEXT))
    if kind == POSITION_CHANGE:
        return _touched(pools, target, edit.reference)
    if kind == COUNT_CHANGE:
        return _touched(pools, target)
    assert kind == BACKGROUND_CHANGE, kind
    kept = set(edit.keep if foreground is None else foreground)
    return replace(
        pools,
        unchanged=tuple(name for name in pools.unchanged if name in kept),
        available=tuple(name for name in pools.available if name in kept),
        background_kept=False,
    )


def renamed(edit: Edit) -> str:
    """Return an object's name after a change of colour or material: the first such word is replaced, else one put first.

    The last word, which says what the object is, stays.
    """
    lists = ("colors", "shades") if edit.edit_type == COLOR_ALTER else ("materials", "textures")
    known = {word for name in lists for word in words()[name]}
    *before, last = edit.target.split()
    place = next((i for i, word in enumerate(before) if re.sub(r"\W", "", word).casefold() in known), None)
    if place is None:
        return f"{edit.new} {edit.target}"
    return " ".join((*before[:place], edit.new, *before[place + 1 :], last))


def _touched(pools: Pools, *names: str) -> Pools:
    return replace(pools, unchanged=tuple(name for name in pools.unchanged if name not in names))


def _dropped(pools: Pools, name: str) -> Pools:
    return replace(_touched(pools, name), available=tuple(one for one in pools.available if one != name))


def _added(pools: Pools, name: str) -> Pools:
    return replace(pools, ever=(*pools.ever, name), available=(*pools.available, name))
