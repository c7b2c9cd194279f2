"""The first place where two conversations differ, in words."""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import Any

from editloupe.values import Json

_SHOWN = 160
"""Characters of a value that is printed."""


def first_difference(one: Json, other: Json, *, names: tuple[str, str] = ("recorded", "now")) -> str:
    """Return where two JSON values first differ, and what stands there: "message 3, role: recorded …, now …".

    Return "" if they are equal. A key without a value is no difference.
    names: what the two are called.
    """
    place = ""
    while isinstance(one, dict | list) and type(one) is type(other):
        pairs: list[tuple[str, Any, Any]]
        if isinstance(one, dict) and isinstance(other, dict):
            pairs = [(f", {key}", one.get(key), other.get(key)) for key in (*one, *other)]
        else:
            pairs = [(f" {number}", *pair) for number, pair in enumerate(zip_longest(one, other), start=1)]  # type: ignore[arg-type]
        step, one, other = next((pair for pair in pairs if pair[1] != pair[2]), ("", None, None))
        place += step
    if one == other:
        return ""
    if isinstance(one, str) and isinstance(other, str):
        at = next(n for n, (mine, its) in enumerate(zip_longest(one, other)) if mine != its)
        place, shown = f"{place}, from character {at + 1}", (_around(one, at), _around(other, at))
    else:
        shown = short(one), short(other)
    return f"{place.lstrip(', ')}: {names[0]} {shown[0]}, {names[1]} {shown[1]}"


def short(value: Json) -> str:
    """Return JSON on one line, cut where it is long."""
    text = " ".join(json.dumps(value, ensure_ascii=False).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _around(text: str, at: int) -> str:
    """Return the text near a character, quoted."""
    start, end = max(0, at - 20), at + 40
    return repr(f"{'…' if start else ''}{text[start:end]}{'…' if len(text) > end else ''}")
