"""docs/data.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from editloupe.data.boxes import FORMATS
from editloupe.data.check import ProblemKind
from editloupe.data.images import MAX_PIXELS, MIN_SIDE
from editloupe.data.loaders.layout import USUAL, Layout
from editloupe.data.loaders.own import IMAGEFOLDER, PAIRS
from editloupe.data.outputs import PARTS
from editloupe.data.rows import OWN_COLUMNS

DOCS = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def test_every_column_box_format_and_kind_is_documented() -> None:
    kinds = [name for part in get_args(ProblemKind) for name in (get_args(part) or (part,))]
    names = Layout.read(PAIRS.file).columns["id"][:5]
    usual = [name for role in ("source", "edited", "instruction") for name in (role, *USUAL[role])]
    for name in (*OWN_COLUMNS, *FORMATS, *names, *usual, *kinds):
        assert f"`{name}`" in DOCS, name
    assert all(f"{{{part}}}" in DOCS for part in PARTS)


def test_the_limits_are_those_of_the_code() -> None:
    assert f"above {MAX_PIXELS:,} px" in DOCS and f"below {MIN_SIDE} px" in DOCS


def test_the_mapping_file_that_is_shown_can_be_read(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    (tmp_path / "map.toml").write_text(shown, encoding="utf-8")
    mapping = Layout.read(IMAGEFOLDER.file, tmp_path / "map.toml")
    assert mapping.columns["instruction"] == ("what", "prompt") and mapping.folders["source"] == ("before",)
    assert mapping.outputs.names == ("{id}", "{source}_final")
