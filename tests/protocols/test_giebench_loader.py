"""gie_bench.json as it is downloaded: its counts and oddities are said, masks become images, outputs are found by name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load
from editloupe.errors import SampleError
from editloupe.protocols.giebench.tables import EDIT_TYPES, edit_type_name
from tests.protocols.giebench_data import row, whole_set, write

ODD = ("empty", "full")


def opened(path: Path, **options: Any) -> Loaded:
    return load(path, store=ImageStore(), **{"outputs": False, **options})


def test_a_file_of_the_shape_of_the_real_one_gives_its_counts_and_warnings(tmp_path: Path) -> None:
    loaded = opened(write(tmp_path / "gie", whole_set()))
    assert (loaded.format, len(loaded.samples), loaded.rejected) == ("giebench", 1080, ())
    merged = Counter(edit_type_name(sample.edit_type) for sample in loaded.samples)
    assert merged == dict.fromkeys(EDIT_TYPES, 120)
    assert len({sample.source.sha256 for sample in loaded.samples}) == 848
    assert "1080 rows about 848 images" in loaded.notes
    odd = {word: [s.id for s in loaded.samples if any(f"mask is {word}" in one for one in s.warnings)] for word in ODD}
    assert odd == {"empty": ["375", "408", "497", "593", "802"], "full": ["841", "1002"]}


def test_a_file_that_is_broken_or_cut_off_is_refused_and_not_repaired(tmp_path: Path) -> None:
    root = write(tmp_path / "gie", [row(0)])
    whole = '{"image": "a.jpg", "edit_instruction": "Go."}'
    for text, said in (
        (f'[{whole}, {{"image": "b', "or is cut off: .*nothing is repaired"),
        (f"[{whole}", "or is cut off"),
        (f"[{whole} {whole}]", "Expecting ',' delimiter"),
        ('[{"image": "a.jpg", "object_mask": [[0,1],[1,0]}]', "Expecting ',' delimiter"),
        ('[{"image": NaN}]', "holds NaN, which is not a JSON number"),
        ('[{"image": 1, "image": 2}]', "holds the key 'image' twice"),
        ("[1]", "expected an object, found the number 1"),
        (f"[{whole}] and more", "Extra data"),
        ("[]", "holds no rows"),
        ('[{"picture": "a.jpg"}]', "no column for the source; looked for image; the columns are picture"),
        ("[" * 200, "nested deeper than 100"),
    ):
        (root / "gie_bench.json").write_text(text, encoding="utf-8")
        with pytest.raises(SampleError, match=said):
            opened(root)
