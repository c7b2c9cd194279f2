"""DLEBench as downloaded: keys by a mapping file, boxes by what fits, outputs by name; refused where it is a guess."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load
from editloupe.errors import ConfigError
from editloupe.values import Box

INSTRUCTION = "Change the color of the scarf to blue."


@pytest.fixture
def download(draw: Callable[..., Path], write: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """download(rows) writes data.jsonl and draws the images it names, by default 64×48 px; outputs for all in out/."""

    def make(rows: list[dict[str, object]], *, size: tuple[int, int] = (64, 48)) -> Path:
        for i, row in enumerate(rows):
            draw(f"dle/Source_Images/{row['image']}", i, size=size)
            if "reference_image" in row:
                draw(f"dle/Reference_Images/{row['reference_image']}", i + 50)
            draw(f"out/{row['image']}", i + 100)
        return write("dle/data.jsonl", rows).parent  # type: ignore[no-any-return]

    return make


PX = {"bbox_format": "xyxy"}


def row(name: str, **columns: object) -> dict[str, object]:
    base: dict[str, object] = {"image": f"{name}.png", "reference_image": f"{name}.png", "edit_operation": INSTRUCTION}
    return {**base, **columns}


def opened(path: Path, *, out: Path | None = None, **options: object) -> Loaded:
    edited = {"Bagel": out or path.parent / "out"}
    return load(path, store=ImageStore(), **{"edited": edited, **options})  # type: ignore[arg-type]


def test_the_documented_keys_are_read_and_all_others_kept(download: Callable[..., Path]) -> None:
    rows = [
        row("a", type="Removal Object", prompt_clean="a street", target_object="scarf", bbox=[1140, 800, 1160, 830], **PX),
        row("b", type="remove_thing", prompt_clean="a shop", target_object="cup", bbox=[1020, 30, 1060, 40], **PX),
    ]
    loaded = opened(download(rows, size=(1200, 900)))
    assert (loaded.format, loaded.rejected) == ("dlebench", ())
    a, b = loaded.samples
    assert (a.key, a.dataset, a.instruction) == ("Bagel/a", "DLEBench", INSTRUCTION)
    assert a.targets[0].name == "scarf" and a.targets[0].boxes == {"source": Box(1140, 800, 1160, 830)}
    assert a.extra == {"prompt_clean": "a street"} and a.reference is not None and a.edited is not None
    assert b.edit_type == "remove_thing"  # as the data spell it


def test_boxes_are_refused_until_it_is_stated_how_they_are_written(download: Callable[..., Path], tmp_path: Path) -> None:
    path = download([row("a", bbox=[5, 5, 20, 20]), row("b", bbox="10,10,30,30")])
    with pytest.raises(
        ConfigError,
        match=r"2 rows have boxes, such as \[5.*\], \[10.* nothing says how they are written.*bbox_format = \"xyxy\"",
    ):
        opened(path)
    fields = tmp_path / "map.toml"
    fields.write_text('layout = "dlebench"\n[options]\nbbox_format = "xywh"\n', encoding="utf-8")
    assert opened(path, fields=fields).samples[0].targets[0].boxes["source"] == Box(5, 5, 25, 25)
