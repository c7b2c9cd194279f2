"""Take keys out of texts, in every spelling in which servers echo them.

Found are the key itself, its base64 (standard and URL-safe, also within a longer base64 text such as `Basic` of
`user:key`), and each of these with characters in percent or JSON escapes or as HTML entities, also several times over, and
with characters between that nobody sees: line ends, controls, zero-width and format characters.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from functools import lru_cache
from html import unescape
from html.entities import html5
from typing import Final

SHORTEST_SECRET: Final = 8
"""Shorter keys are placeholders ("none", "EMPTY"): taking them out of a reply would change the model's words."""
HIDDEN: Final = "***"
"""What stands in a key's place."""

# Controls, and what Unicode calls Default_Ignorable_Code_Point.
_UNSEEN: Final = (
    (0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5),
    (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
_DROPPED: Final = dict.fromkeys(code for first, last in _UNSEEN for code in range(first, last + 1))
_CLASS: Final = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in _UNSEEN)
# %7A, %257a, \u007A, \\u007a, \x7a, \/, &#122;, &amp;#x7a; and &sol;. It begins with a class, for which `re` looks fast;
# backslashes are taken all at once, so that a text full of them does not take long.
_ESCAPE: Final = re.compile(
    rf"[%\\&{_CLASS}](?:"
    r"(?<=%)(?:25){0,3}(?P<percent>[2-7][0-9A-Fa-f])"
    r"|(?<=\\)\\*+(?:u(?P<json>[0-9A-Fa-f]{4})|x(?P<hex>[0-9A-Fa-f]{2})|(?P<slash>/))?"
    r"|(?<=&)(?:amp;){0,3}(?P<entity>#[0-9]{1,7};?|#[xX][0-9A-Fa-f]{1,6};?|[A-Za-z][A-Za-z0-9]{1,31};)"
    rf"|(?<=[{_CLASS}]))"
)
_URL_SAFE = str.maketrans("+/", "-_")


def scrub(text: str, keys: tuple[str, ...]) -> str:
    """Return the text with each key, however it is spelt, replaced by `***`. Keys under SHORTEST_SECRET characters stay."""
    if len(text) < SHORTEST_SECRET:
        return text
    spellings = _spellings(keys)
    for spelling in spellings:
        text = text.replace(spelling, HIDDEN)
    plain = text.translate(_DROPPED)
    if any(sign in plain for sign in "%\\&"):
        plain = _ESCAPE.sub(_unescaped, text)
    if plain is not text and any(spelling in plain for spelling in spellings):
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
    """Return the character that an escape stands for; "" for what nobody sees."""
    if entity := found["entity"]:
        return (html5.get(entity) or unescape(f"&{entity}")).translate(_DROPPED)
    if number := found["percent"] or found["json"] or found["hex"]:
        return chr(int(number, 16)).translate(_DROPPED)
    return found["slash"] or found[0].translate(_DROPPED)


def _scrub_escaped(text: str, plain: str, spellings: tuple[str, ...]) -> str:
    """plain: the text with each escape as the character that it stands for."""
    # From each of these indexes of `plain` on, up to the next, `text` runs alongside from the index beside it.
    of_plain, of_text = [0], [0]
    for found in _ESCAPE.finditer(text):
        of_plain.append(of_plain[-1] + found.start() - of_text[-1] + len(_unescaped(found)))
        of_text.append(found.end())

    def in_text(index: int) -> int:
        known = bisect_right(of_plain, index) - 1
        return of_text[known] + index - of_plain[known]

    pieces, at = [], 0
    for found in re.finditer("|".join(map(re.escape, spellings)), plain):
        pieces += [text[at : in_text(found.start())], HIDDEN]
        at = in_text(found.end())
    return "".join([*pieces, text[at:]])
