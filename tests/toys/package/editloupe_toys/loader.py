"""Edits of several turns: samples.json is a list of {id, source, turns: [{instruction, edited}], …}."""

import json

from editloupe.data.rows import Loaded
from editloupe.values import Sample, Turn


def matches(data):
    """Whether the folder has this layout."""
    return (data.root / "samples.json").exists()


def load(data):
    """Return the samples; a missing output stays missing."""
    samples = []
    for row in json.loads((data.root / "samples.json").read_text()):
        turns = []
        for turn in row["turns"]:
            path = data.root / turn["edited"]
            turns.append(Turn(instruction=turn["instruction"], edited=data.store.add_file(path) if path.exists() else None))
        source = data.store.add_file(data.root / row["source"])
        extra = {key: value for key, value in row.items() if key not in ("id", "editor", "source", "turns")}
        editor = row.get("editor", "")
        samples.append(Sample(id=row["id"], editor=editor, source=source, turns=tuple(turns), extra=extra))
    return Loaded(format="toy-turns", samples=tuple(samples), rejected=())
