"""Take keys out of texts, in every spelling in which servers echo them.

Found are the key itself, its base64 (standard and URL-safe, also within a longer base64 text such as `Basic` of
`user:key`), and each of these with characters in percent or JSON escapes, also several times over.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from functools import lru_cache
from typing import Final

SHORTEST_SECRET: Final = 8
"""Shorter keys are placeholders ("none", "EMPTY"): taking them out of a reply would change the model's words."""
HIDDEN: Final = "***"
"""What stands in a key's place."""

# %7A, %257a, \u007A, \\u007a, \x7a and \/. The bounds keep a text full of backslashes from taking long.
_ESCAPE = re.compile(r"%(?:25){0,3}([2-7][0-9A-Fa-f])|\\{1,8}(?:(?:u00|x)([2-7][0-9A-Fa-f])|/)")
_URL_SAFE = str.maketrans("+/", "-_")


def scrub(text: str, keys: tuple[str, ...]) -> str:
    """Return the text with each key, however it is spelt, replaced by `***`. Keys under SHORTEST_SECRET characters stay."""
    if len(text) < SHORTEST_SECRET:
        return text
    spellings = _spellings(keys)
    for spelling in spellings:
        text = text.replace(spelling, HIDDEN)
    if spellings and ("%" in text or "\\" in text):
        plain = _ESCAPE.sub(_unescaped, text)
        if any(spelling in plain for spelling in spellings):
            return _scrub_escaped(text, plain, spellings)
    return text


@lru_cache(maxsize=64)
def _spellings(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return what to look for, the longest first: one key may be a part of another."""
    found: set[str] = set()
    for key in keys:
        if len(key) < SHORTEST_SECRET:
            continue
        data = key.encode("utf-8", "replace")
        quoted = json.dumps(key)[1:-1]
        found |= {key, key.replace(" ", "+"), quoted, json.dumps(quoted)[1:-1]}
        for before in range(3):
            # The characters of base64 that the key alone makes, behind so many bytes of something else.
            first, end = -(-before * 8 // 6), (before + len(data)) * 8 // 6
            coded = base64.b64encode(bytes(before) + data).decode("ascii")[first:end]
            found |= {coded, coded.translate(_URL_SAFE)}
    return tuple(sorted(found, key=len, reverse=True))


def _unescaped(found: re.Match[str]) -> str:
    number = found[1] or found[2]
    return chr(int(number, 16)) if number else "/"


def _scrub_escaped(text: str, plain: str, spellings: tuple[str, ...]) -> str:
    """plain: the text with each escape as the character that it stands for."""
    # From each of these indexes of `plain` on, up to the next, `text` runs alongside from the index beside it.
    of_plain, of_text = [0], [0]
    for found in _ESCAPE.finditer(text):
        of_plain.append(of_plain[-1] + found.start() - of_text[-1] + 1)
        of_text.append(found.end())

    def in_text(index: int) -> int:
        known = bisect_right(of_plain, index) - 1
        return of_text[known] + index - of_plain[known]

    pieces, at = [], 0
    for found in re.finditer("|".join(map(re.escape, spellings)), plain):
        pieces += [text[at : in_text(found.start())], HIDDEN]
        at = in_text(found.end())
    return "".join([*pieces, text[at:]])
