"""ImgEdit-Bench: `EDITOR/result.json`, the judge's reply for each key, with a line `ASPECT: 1` to `5` for each of three.

The script takes the mean of the lines that it can read, however many there are, and leaves out a reply without any. Here a
reply with other than three numbers is `unparsed`, and an error in place of the reply `backend_failed`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.data.tables import shown
from editloupe.protocols.imported import Imported
from editloupe.protocols.published.results import Files, ResultEntry, Said, files_below, imported, means, read_json, score

_WHERE: Final = "EDITOR/result.json, as the official basic_bench.py writes it"
_ASPECT: Final = re.compile(r"[^:]*: ([0-9]+)", re.ASCII)
"""A line that the script counts."""
_ASPECTS: Final = 3


def read(folder: Path, *, data: Path, edited: Mapping[str, Path], store: ImageStore) -> Imported:
    """Read the result files below a folder (`editloupe.protocols.imported.Importer`)."""
    types = {
        sample.id: sample.edit_type or "" for sample in load(data, store=store, format="imgedit", outputs=False).samples
    }
    entries: list[ResultEntry] = []
    numbers = []
    folders = {}
    for file in files_below(folder, "result.json", _WHERE):
        editor = file.parent.name
        folders[editor] = file.parent
        for key, reply in read_json(file).items():
            aspects = _aspects(reply)
            place = f"{editor}/{file.name}, key {key!r}"
            entries.append(ResultEntry(editor=editor, sample_id=key, place=place, said={"overall": _said(reply, aspects)}))
            if aspects and key in types:
                # As the script rounds the mean of each reply, and that of each type once more.
                dims = {"edit_type": types[key]} if types[key] else {}
                numbers.append((editor, dims, "overall", round(sum(aspects) / len(aspects), 2)))
    files = Files(entries=entries, folders=folders, published=tuple(means(numbers, digits=2)))
    return imported("imgedit", files, folder, data=data, edited=edited, store=store)


def _aspects(reply: Any) -> list[int]:
    """Return the numbers that the script finds in a reply."""
    lines = reply.splitlines() if isinstance(reply, str) else ()
    return [int(found[1]) for line in lines if (found := _ASPECT.fullmatch(line.strip()))]


def _said(reply: Any, aspects: list[int]) -> Said:
    if isinstance(reply, dict) and "error" in reply:
        return Said(status="backend_failed", reason=str(reply["error"]), kind="an error in place of the reply")
    if not isinstance(reply, str):
        return Said(status="unparsed", reason=f"expected the judge's reply, found {shown(reply)}", kind="no reply")
    if len(aspects) != _ASPECTS:
        kind = f"{len(aspects)} of {_ASPECTS} aspects have a number"
        return Said(status="unparsed", reason=f"{kind}; {reply}", kind=kind)
    for aspect in aspects:
        if (one := score(aspect, "overall", "imgedit", reply)).status != "ok":
            return one
    return Said(status="ok", value=sum(aspects) / _ASPECTS, reason=reply)
