"""A sealed row: one that states the digest of itself and of its image files, so that a later change is seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from editloupe.values import Json, digest

COLUMN: Final = "probe"
"""Column of metadata.jsonl that holds an object with the seal, as `digest`."""


def seal_of(row: Mapping[str, Json], files: Mapping[str, str]) -> str:
    """Return the digest that a row has to state: another one says what was changed since.

    It reads "row=HEX edited_file_name=HEX …", each SHA-256, the columns sorted.
    row: a line of metadata.jsonl. The digest that it states itself does not count.
    files: column → SHA-256 in hex of the bytes of the file that the row names there, such as "source_file_name".
    """
    own = row.get(COLUMN)
    stated = {key: value for key, value in own.items() if key != "digest"} if isinstance(own, Mapping) else own
    of = {"row": digest({**row, COLUMN: stated}), **dict(sorted(files.items()))}
    return " ".join(f"{name}={value}" for name, value in of.items())


def stated_seal(row: Mapping[str, Json]) -> str | None:
    """Return the seal that a line of metadata states; None without one. Such a column may hold something else."""
    own = row.get(COLUMN)
    return str(own["digest"]) if isinstance(own, Mapping) and "digest" in own else None


def changed_since(stated: str, found: str) -> str:
    """Return what of a row was changed after it was built, as a message; "" for nothing.   Both: as `seal_of`."""
    known, now = ({part.partition("=")[0]: part for part in text.split(" ") if part} for text in (stated, found))
    differ = [name for name in {**known, **now} if known.get(name) != now.get(name)]
    what = " and ".join(f"its {name.removesuffix('_file_name')}{' image' * name.endswith('_file_name')}" for name in differ)
    again = "Its truth may no longer hold; build the probes again"
    return f"the probe was changed after it was built: {what}. {again}" if differ else ""
