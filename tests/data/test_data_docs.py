"""docs/data.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from editloupe.data.boxes import FORMATS
from editloupe.data.check import ProblemKind
from editloupe.data.human import CRITERIA
from editloupe.data.images import MAX_PIXELS, MIN_SIDE
from editloupe.data.loaders.pairs import NAME_COLUMNS
from editloupe.data.outputs import PARTS
from editloupe.data.rows import OWN_COLUMNS
from editloupe.protocols.dlebench.loader import read_mapping

DOCS = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def test_every_column_box_format_criterion_and_kind_is_documented() -> None:
    kinds = [name for part in get_args(ProblemKind) for name in (get_args(part) or (part,))]
    for name in (*OWN_COLUMNS, *FORMATS, *CRITERIA, *NAME_COLUMNS, *kinds):
        assert f"`{name}`" in DOCS, name
    # {edited} and {output} serve the other formats, which have no mapping file.
    assert all(f"{{{part}}}" in DOCS for part in PARTS if part not in ("edited", "output"))


def test_the_limits_are_those_of_the_code() -> None:
    assert f"above {MAX_PIXELS:,} px" in DOCS and f"below {MIN_SIDE} px" in DOCS


def test_the_mapping_file_that_is_shown_can_be_read(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    (tmp_path / "map.toml").write_text(shown, encoding="utf-8")
    mapping = read_mapping(tmp_path / "map.toml")
    assert mapping.fields["instruction"] == ["edit_prompt"] and mapping.edited["names"] == ["{id}"]
