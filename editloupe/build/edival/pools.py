"""The objects that are there after each edit of a chain: pure functions (paper, 2.3).

What the benchmark's file does and its paper leaves open:
- a renamed or replaced object goes to the end of the list;
- an added text stands among all objects as "text", and cannot be edited;
- a position change touches both of its objects, while the reference of an addition stays untouched.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

from editloupe.files import read_toml
from editloupe.protocols.edival import instructions as kinds
from editloupe.protocols.edival.chain import Pools
from editloupe.protocols.edival.instructions import Edit

TEXT: Final = "text"
"""The object that an added text is."""
RENAMING: Final = (kinds.COLOR_ALTER, kinds.MATERIAL_ALTER)
ADDING: Final = (kinds.SUBJECT_ADD, kinds.SUBJECT_REPLACE)


@cache
def words() -> dict[str, tuple[str, ...]]:
    """Return our word lists by name."""
    lists: dict[str, Any] = read_toml(Path(__file__).with_name("words.toml"), "words.toml")
    return {name: tuple(found) for name, found in lists.items()}


def start(objects: Iterable[str]) -> Pools:
    """Return the pools before the first edit."""
    names = tuple(dict.fromkeys(objects))
    return Pools(ever=names, unchanged=names, available=names, background_kept=True)


def brought(edit: Edit) -> str:
    """Return the name of the object that an edit brings or renames; "" for none."""
    if edit.edit_type in RENAMING:
        return renamed(edit)
    return edit.new if edit.edit_type in ADDING else ""


def after(pools: Pools, edit: Edit, *, foreground: Collection[str] | None = None) -> Pools:
    """Return the pools after an edit.

    foreground: names of the objects that a new background leaves as they are; only these can be edited from then on. None
    takes those that the edit's plain sentence names. Which objects of an image are in the foreground cannot be known from
    a chain without a change of background, and is not needed there.
    """
    ever, unchanged, available, new = pools.ever, pools.unchanged, pools.available, brought(edit)
    if edit.edit_type == kinds.BACKGROUND_CHANGE:
        kept = set(edit.keep if foreground is None else foreground)
        unchanged, available = (tuple(one for one in names if one in kept) for names in (unchanged, available))
    elif edit.edit_type != kinds.SUBJECT_ADD:
        touched = {edit.target, edit.reference}
        unchanged = tuple(one for one in unchanged if one not in touched)
    if edit.edit_type in (kinds.SUBJECT_REMOVE, kinds.SUBJECT_REPLACE, *RENAMING):
        available = tuple(one for one in available if one != edit.target)
    if new:
        ever, available = (*ever, new), (*available, new)
    elif edit.edit_type == kinds.TEXT_CHANGE and not edit.target:
        ever = (*ever, TEXT)
    stays = pools.background_kept and edit.edit_type != kinds.BACKGROUND_CHANGE
    return Pools(ever=ever, unchanged=unchanged, available=available, background_kept=stays)


def renamed(edit: Edit) -> str:
    """Return an object's name after a change of color or material: the first such word is replaced, else one put first.

    The last word, which says what the object is, stays.
    """
    lists = ("colors", "shades") if edit.edit_type == kinds.COLOR_ALTER else ("materials", "textures")
    known = {word for name in lists for word in words()[name]}
    *before, last = edit.target.split()
    place = next((i for i, word in enumerate(before) if re.sub(r"\W", "", word).casefold() in known), None)
    if place is None:
        return f"{edit.new} {edit.target}"
    return " ".join((*before[:place], edit.new, *before[place + 1 :], last))
