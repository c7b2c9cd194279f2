"""Which known name an unknown one may be meant as, for "did you mean". A word in common counts for more than letters do."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

_ALIKE: Final = 0.65
"""Ratio of equal letters from which two names are near; below it, `beams` would be `boxes`."""
_RARE: Final = 0.25
"""Weight of a word from which it makes two names near: no more than two of the known names have it."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that `name` may be meant as; "" if none is near."""
    return matched([name], list(known)).get(name, "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'KNOWN'? ", to stand before a list of what is known; "" if none is near."""
    near = nearest(name, known)
    return f"did you mean {near!r}? " if near else ""


def matched(names: Collection[str], known: Collection[str]) -> dict[str, str]:
    """Return the known name for each of several names that has one near, none of them twice; the nearest pairs first.

    A word of a name weighs the more the fewer names have it: of `edited_file_name` it is `edited`.
    """
    # The larger count of both sides: a word that is common on either says little.
    common = Counter[str]()
    for group in (names, known):
        common |= Counter(word for name in group for word in set(_words(name)))
    scores = {
        (name, other): score for name in names for other in known if (score := _score(name, other, common)) is not None
    }
    found: dict[str, str] = {}
    for name, other in sorted(scores, key=lambda pair: -scores[pair]):
        if name not in found and other not in found.values():
            found[name] = other
    return {name: found[name] for name in names if name in found}


def _score(name: str, other: str, common: Counter[str]) -> float | None:
    """Return how near two names are; None if they are not."""
    words = sum(1 / common[word] ** 2 for word in set(_words(name)) & set(_words(other)))
    letters = difflib.SequenceMatcher(None, name.casefold(), other.casefold()).ratio()
    return words + letters if words >= _RARE or letters >= _ALIKE else None


def _words(name: str) -> list[str]:
    """Return the words of a name with - or _ between them, without the plural's s."""
    return [word.removesuffix("s") for word in re.split(r"[\W_]+", name.casefold()) if word]
