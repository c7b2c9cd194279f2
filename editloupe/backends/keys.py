"""Take keys out of texts: the key itself, as JSON, percent and HTML escape it, and its base64.

Base64 is found standard and URL-safe, also within a longer one such as `Basic` of `user:key`.
"""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from html import escape
from typing import Final
from urllib.parse import quote

SHORTEST_SECRET: Final = 8
"""Shorter keys are placeholders ("none", "EMPTY"): taking them out of a reply would change the model's words."""
HIDDEN: Final = "***"
"""What stands in a key's place."""


def scrub(text: str, keys: tuple[str, ...]) -> str:
    """Return the text without the keys. Keys of fewer than SHORTEST_SECRET characters stay."""
    for spelling in _spellings(keys) if len(text) >= SHORTEST_SECRET else ():
        text = text.replace(spelling, HIDDEN)
    return text


@lru_cache(maxsize=64)
def _spellings(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return what to look for, the longest first: one key may be a part of another."""
    found: set[str] = set()
    for key in (key for key in keys if len(key) >= SHORTEST_SECRET):
        data = key.encode("utf-8", "replace")
        in_json = json.dumps(key)[1:-1]
        found |= {key, in_json, in_json.replace("/", "\\/"), quote(key), quote(key, safe=""), escape(key)}
        for before in range(3):
            # The characters of base64 that the key alone makes, behind so many bytes of something else.
            first, end = -(-before * 8 // 6), (before + len(data)) * 8 // 6
            coded = base64.b64encode(bytes(before) + data).decode("ascii")[first:end]
            found |= {coded, coded.replace("+", "-").replace("/", "_"), quote(coded, safe="")}
    return tuple(sorted(found, key=len, reverse=True))
