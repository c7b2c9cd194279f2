"""How a target is called: by the data, and in the words of a model."""

from __future__ import annotations

import re
from typing import Final

from editloupe.replies import one_line
from editloupe.values import Sample

SIGNS: Final = "\"'`“”‘’«»<>[]*_ \t.,;:"
"""Signs around a name that are no part of it."""
_ARTICLE: Final = re.compile(r"^(an?|the|some) ")


def plain_name(text: str) -> str:
    """Return a name in lower case on one line, without an article and without signs around it."""
    return _ARTICLE.sub("", one_line(text).casefold().strip(SIGNS))


def target_name(sample: Sample) -> str:
    """Return what the data calls the target; "" where it says nothing."""
    named = next((target.name for target in sample.targets if target.name), None)
    return str(named or sample.extra.get("target_name") or "").strip()
