"""KRIS-Bench: `results/MODEL/CATEGORY/metrics.json`, for each id the scores of 1 to 5 with their reasoning.

A reply that holds no digit of 1 to 5 has the score null: `unparsed`. A score without reasoning was taken from a pattern or
from the first such digit in free text; it stays, and is counted in a note. Where the entry's own `instruction` is empty,
the script asked without one, since it looks for another key than the public annotations have: scores that need one are
`input_error`. An edit whose images the script did not find has no entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from editloupe.data.images import ImageStore
from editloupe.errors import DataError
from editloupe.protocols.imported import Imported
from editloupe.protocols.published.results import Files, ResultEntry, Said, files_below, imported, read_json, score

_WHERE: Final = "MODEL/CATEGORY/metrics.json, as the official scripts write it"
_METRICS: Final = ("consistency", "instruction", "quality", "knowledge")
_ALONE: Final = "quality"
"""The metric that is asked without the instruction."""


def read(folder: Path, *, data: Path, edited: Mapping[str, Path], store: ImageStore) -> Imported:
    """Read the result files below a folder (`editloupe.protocols.imported.Importer`)."""
    entries: list[ResultEntry] = []
    folders = {}
    bare = 0
    for file in files_below(folder, "metrics.json", _WHERE):
        category, editor = file.parent.name, file.parent.parent.name
        folders[editor] = file.parent.parent
        for key, values in read_json(file).items():
            place = f"{editor}/{category}/{file.name}, id {key!r}"
            if not isinstance(values, dict):
                raise DataError(f"{place}: expected an object with scores, found {type(values).__name__}")
            said = {metric: _said(values, metric) for metric in _METRICS if f"{metric}_score" in values}
            bare += sum(one.status == "ok" and not values.get(f"{metric}_reasoning") for metric, one in said.items())
            asked = values.get("instruction")
            entries.append(
                ResultEntry(
                    editor=editor,
                    sample_id=f"{category}-{key}",
                    place=place,
                    said=said,
                    instruction=asked if isinstance(asked, str) else None,
                )
            )
    note = f"scores without reasoning: {bare}; the script takes the first digit of 1 to 5 where a reply has no score"
    files = Files(entries=entries, folders=folders, notes=(note,) if bare else ())
    return imported("kris", files, folder, data=data, edited=edited, store=store)


def _said(values: Mapping[str, Any], metric: str) -> Said:
    reasoning = values.get(f"{metric}_reasoning")
    reason = reasoning if isinstance(reasoning, str) else ""
    if metric != _ALONE and values.get("instruction") == "":
        return Said(
            status="input_error",
            reason=f"the script asked without the instruction and wrote {values.get(f'{metric}_score')!r}; {reason}".rstrip(
                "; "
            ),
            kind="asked without the instruction",
        )
    return score(values.get(f"{metric}_score"), metric, "kris", reason)
