"""Masks and what measures compared outside them: over the images, as pictures of a finding, and in a real browser."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from PIL import Image

from editloupe import plugins
from editloupe.config import RunConfig
from editloupe.data.images import RGB
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.viewer.compared import GAIN
from editloupe.viewer.export import export
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDTH, HEIGHT = 320, 240
MASK = (100, 80, 180, 140)
SHIFT = (6, -4)


def textured(seed: int = 3) -> RGB:
    """A picture with structure everywhere."""
    noise = np.random.default_rng(seed).integers(0, 256, (HEIGHT // 4, WIDTH // 4, 3), dtype=np.uint8)
    return np.asarray(cv2.resize(noise, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC), dtype=np.uint8)


@pytest.fixture(scope="module")
def masked_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of measures on one edit: a red square inside the mask, and the whole picture moved by SHIFT."""
    folder = tmp_path_factory.mktemp("masked")
    info = folder / "site" / "outside-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[editloupe.protocols]\noutside = tests.viewer.outside:Outside\n")
    data = folder / "data"
    data.mkdir()
    source = textured()
    Image.fromarray(source).save(data / "source.png")
    x0, y0, x1, y1 = MASK
    edited = source.copy()
    edited[y0 + 10 : y1 - 10, x0 + 10 : x1 - 10] = (230, 20, 20)
    moved = cv2.warpAffine(edited, np.float64([[1, 0, SHIFT[0]], [0, 1, SHIFT[1]]]), (WIDTH, HEIGHT))
    Image.fromarray(moved).save(data / "edited.png")
    mask = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    mask[y0:y1, x0:x1] = 255
    Image.fromarray(mask).save(data / "mask.png")
    row = {"id": "a", "source_file_name": "source.png", "edited_file_name": "edited.png", "mask_file_name": "mask.png"}
    (data / "metadata.jsonl").write_text(json.dumps({**row, "instruction": "Add a red square."}) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "site"))
        plugins.forget()
        drive(open_setup(RunConfig(path=data, protocol="outside", concurrency=1)), folder / "run")
        yield folder / "run"
    plugins.forget()


@pytest.fixture(scope="module")
def pages(masked_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's pages as files."""
    out = tmp_path_factory.mktemp("masked-pages") / "pages"
    export(Site.of([RunReader(masked_run)]), out)
    return out


def sample_page(pages: Path) -> str:
    return next((pages / "samples").glob("*.html")).read_text(encoding="utf-8")


def picture(pages: Path, metric: str, name: str) -> RGB:
    """One of the pictures of a metric's finding."""
    page = sample_page(pages)
    article = next(part for part in page.split('<section class="verdict"')[1:] if f"<h2>{metric.capitalize()}" in part)
    address = next(part for part in article.split('"') if part.startswith("../measured/") and part.endswith(f"{name}.jpg"))
    return np.asarray(Image.open(pages / address.removeprefix("../")).convert("RGB"))


def near(one: RGB, other: RGB) -> bool:
    """Whether two pictures are equal but for what JPEG makes of them."""
    return float(np.abs(one.astype(int) - other.astype(int)).mean()) < 8


def test_a_mask_lies_over_both_images_and_is_switched_on(pages: Path) -> None:
    page = sample_page(pages)
    assert page.count('class="mark mask"') == 2 and 'data-show="mask"' in page
    overlay = np.asarray(Image.open(next((pages / "overlays").glob("*.png"))))
    x0, y0, x1, y1 = MASK
    # Seen through inside, opaque at the edge, nothing outside.
    assert overlay.shape == (HEIGHT, WIDTH, 4)
    assert list(overlay[110, 140]) == [214, 51, 108, 96] and overlay[y0, x0, 3] == 255
    inside = np.zeros((HEIGHT, WIDTH), dtype=bool)
    inside[y0:y1, x0:x1] = True
    assert (overlay[..., 3] > 0).tolist() == inside.tolist()


def test_a_run_keeps_a_mask_that_no_question_shows(masked_run: Path, pages: Path) -> None:
    page = sample_page(pages)
    assert "Mask: edit" in page and "not kept" not in page


def test_what_a_measure_compared_is_shown_as_it_is_and_the_rest_pale(pages: Path) -> None:
    source, shown = textured(), picture(pages, "still", "compared")
    x0, y0, x1, y1 = MASK
    kept = np.ones((HEIGHT, WIDTH), dtype=bool)
    kept[y0:y1, x0:x1] = False
    assert near(shown[kept], source[kept])
    assert shown[y0 + 8 : y1 - 8, x0 + 8 : x1 - 8].min() >= 225 - 225 // 6 - 10
    # 80·60 of 320·240 px are masked.
    assert "93.8 % of the source" in sample_page(pages)


def test_the_difference_is_that_of_the_recorded_alignment(pages: Path) -> None:
    x0, y0, x1, y1 = MASK
    still, aligned, official = (picture(pages, how, "difference") for how in ("still", "aligned", "official"))
    kept = np.ones((HEIGHT, WIDTH), dtype=bool)
    kept[y0:y1, x0:x1] = False
    kept[:8], kept[-8:], kept[:, :8], kept[:, -8:] = False, False, False, False
    assert still[kept].mean() > 100 and aligned[kept].mean() < 5
    # Enlarged: the mean difference without alignment, times the gain, as far as 255 allows.
    moved = cv2.warpAffine(textured(), np.float64([[1, 0, SHIFT[0]], [0, 1, SHIFT[1]]]), (WIDTH, HEIGHT))
    expected = np.minimum(255, GAIN * cv2.absdiff(textured(), moved).astype(int))
    assert near(still[kept], expected[kept])
    # Stripes where nothing was compared: inside the mask, and where the moved picture ends; the published scripts compare
    # everything, also the reflected border.
    mask, border = np.s_[y0 + 8 : y1 - 8, x0 + 8 : x1 - 8], np.s_[8:-8, WIDTH - 4 :]
    for place in (still[mask], aligned[mask], aligned[border]):
        assert place.min() > 80 and place.max() < 112
    for place in (official[mask], official[border], still[border]):
        assert place.min() < 40 or place.max() > 150
    page = sample_page(pages)
    assert "after alignment" in page and "inliers" in page and "not aligned" in page


def test_measures_that_compare_in_the_same_way_share_their_pictures(masked_run: Path, pages: Path) -> None:
    # Three ways in this run, each measured twice.
    assert len(list((pages / "measured").rglob("*.jpg"))) == 6
    assert sample_page(pages).count('<img loading="lazy" src="../measured/') == 12


def test_only_traces_of_findings_are_drawn(masked_run: Path) -> None:
    site = Site.of([RunReader(masked_run)])
    trace = next(f.trace for s in site.runs[0].reader.samples() for f in s.findings if f.trace)
    assert site.at(f"measured/{trace}/difference.jpg") is not None
    others = ("other.jpg", "difference", "../difference.jpg")
    for address in (
        *(f"measured/{trace}/{other}" for other in others),
        "measured/../run.json/compared.jpg",
        "measured/samples.jsonl/compared.jpg",
        "overlays/../run.json.png",
        f"overlays/{'0' * 64}.png",
    ):
        assert site.at(address) is None


@pytest.mark.parametrize("matrix", ["x", [[1, 0], [0, 1]], [[1, 0, 1e999], [0, 1, 0]], [[1, 0, "a"], [0, 1, 0]], 3])
def test_a_matrix_that_is_none_is_no_alignment(matrix: object) -> None:
    from editloupe.viewer.compared import _matrix

    assert _matrix(matrix) is None
    assert _matrix([[1, 0, 2], [0, 1.5, 3]]) is not None


@pytest.mark.browser
def test_the_mask_is_seen_over_the_pixels_that_it_marks(browser: Browser, pages: Path) -> None:
    page = browser.new_page(viewport={"width": 1366, "height": 900})
    page.goto(f"file://{next((pages / 'samples').glob('*.html'))}")
    frame = page.locator(".pane.source .frame")

    def red_at(x: int, y: int) -> float:
        """How much redder than green a pixel of the source's frame is shown, averaged over a few."""
        shot = np.asarray(Image.open(io.BytesIO(frame.screenshot())).convert("RGB")).astype(int)
        k = shot.shape[1] / WIDTH
        part = shot[int((y - 8) * k) : int((y + 8) * k), int((x - 8) * k) : int((x + 8) * k)]
        return float((part[..., 0] - part[..., 1]).mean())

    before = red_at(140, 110), red_at(40, 40)
    page.get_by_label("Mask").check()
    # 96 of 255 of a colour that is 163 redder than green: some 61 of 255, less what the picture gives up.
    assert red_at(140, 110) - before[0] > 40 and abs(red_at(40, 40) - before[1]) < 1
    page.keyboard.press("m")
    assert abs(red_at(140, 110) - before[0]) < 1
    assert page.locator(".verdict.open .picture img").count() == 2
    page.close()
