"""gie_bench.json as it is downloaded: its counts and oddities are said, masks become images, outputs are found by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load
from editloupe.errors import SampleError
from editloupe.protocols.giebench.tables import EDIT_TYPES, edit_type_name
from tests.protocols.giebench_data import mask, row, write


def opened(path: Path, **options: Any) -> Loaded:
    return load(path, store=ImageStore(), **{"outputs": False, **options})


def test_masks_become_images_and_what_is_odd_about_one_stands_with_its_row(tmp_path: Path) -> None:
    odd: dict[str, tuple[Any, bool]] = {
        "": (mask((50, 50, 100, 100)), True),
        "the mask is empty": (mask(), True),
        "the mask is full": (mask((0, 0, 224, 224)), True),
        "the mask is 24×24, and others are 224×224": (mask((5, 5, 9, 9), side=24), True),
        "the mask holds other numbers": ([[2 * v for v in line] for line in mask((5, 5, 9, 9))], True),
        "there is no mask": (None, False),
        "rows differ in length": ([[0, 1], [1]], False),
        "at least 8×8 numbers": ([[0, 1], [1, 0]], False),
    }
    types = ("Scene Change", "Background Change", *EDIT_TYPES[:6])
    rows = [row(n, object_mask=one, edit_type=types[n]) for n, (one, _) in enumerate(odd.values())]
    loaded = opened(write(tmp_path / "gie", [*rows, row(8, image=rows[0]["image"])]))
    assert (loaded.format, loaded.rejected) == ("giebench", ()) and "9 rows about 8 images" in loaded.notes
    for sample, (words, (_, there)) in zip(loaded.samples, odd.items(), strict=False):
        told = [one for one in sample.warnings if "mask" in one]
        assert ("edit" in sample.masks) == there and bool(told) == bool(words) and all(words in one for one in told), words
    assert {edit_type_name(sample.edit_type) for sample in loaded.samples[:2]} == {"Scene / Background Change"}


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
