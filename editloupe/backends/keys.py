"""Take keys out of texts, in every spelling in which servers echo them.

The key itself and its base64 (standard and URL-safe, also within a longer base64 text such as `Basic` of `user:key`) are
replaced. Where a text still spells one of them in percent or JSON escapes or HTML entities, or with blanks and characters
that nobody sees between, the whole text is.
"""

from __future__ import annotations

import base64
import json
import re
from functools import lru_cache
from html import unescape
from typing import Final
from urllib.parse import unquote

SHORTEST_SECRET: Final = 8
"""Shorter keys are placeholders ("none", "EMPTY"): taking them out of a reply would change the model's words."""
HIDDEN: Final = "***"
"""What stands in a key's place."""

# Backslashes are taken all at once, so that a text full of them does not take long.
_ESCAPE: Final = re.compile(r"\\+(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2}))?")
_UNSEEN: Final = bytes(range(0x21)) + b"\x7f"
_URL_SAFE: Final = str.maketrans("+/", "-_")


def scrub(text: str, keys: tuple[str, ...]) -> str:
    """Return the text without the keys. Keys of fewer than SHORTEST_SECRET characters stay."""
    spellings = _spellings(keys) if len(text) >= SHORTEST_SECRET else ()
    for spelling in spellings:
        text = text.replace(spelling, HIDDEN)
    read = _read(text) if spellings and not text.isalnum() else ""
    return HIDDEN if any(spelling in read for spelling in spellings) else text


@lru_cache(maxsize=64)
def _spellings(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return what to look for, the longest first: one key may be a part of another."""
    found: set[str] = set()
    for key in (key for key in keys if len(key) >= SHORTEST_SECRET):
        data = key.encode("utf-8", "replace")
        found |= {key, json.dumps(key)[1:-1]}
        for before in range(3):
            # The characters of base64 that the key alone makes, behind so many bytes of something else.
            first, end = -(-before * 8 // 6), (before + len(data)) * 8 // 6
            coded = base64.b64encode(bytes(before) + data).decode("ascii")[first:end]
            found |= {coded, coded.translate(_URL_SAFE)}
    return tuple(sorted(found, key=len, reverse=True))


def _read(text: str) -> str:
    """Return a text as it is read once its escapes are resolved, up to four times over, without what nobody sees."""
    for _ in range(4):
        before, text = text, _ESCAPE.sub(lambda escape: chr(int(escape[1] or escape[2] or "0", 16)), text)
        text = unquote(unescape(text))
        if text == before:
            break
    return text.encode("ascii", "ignore").translate(None, _UNSEEN).decode("ascii")
