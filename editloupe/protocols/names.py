"""Names that data spell in several ways, such as edit types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from editloupe.answers import fold


class Names:
    """The names of a protocol, each with its other spellings. Case, punctuation, slashes and underscores do not matter."""

    def __init__(self, aliases: Mapping[str, Iterable[str]]) -> None:
        self._names = {_key(alias): name for name, others in aliases.items() for alias in (name, *others)}

    def __call__(self, text: str | None) -> str:
        """Return the name that a text means. Any other text is its own name; "" and None are "(none)"."""
        given = (text or "").strip()
        return self._names.get(_key(given), given or "(none)")


@cache
def _key(text: str) -> str:
    return " ".join(fold(text).replace("/", " ").split())
