"""Measures of an edit: values, masks, alignment, and what is not defined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from editloupe.data.images import RGB, ImageStore
from editloupe.errors import MeasureError
from editloupe.measures.base import measured, open_measure, run_measure
from editloupe.testing import check_measure
from tests.imaging.drawn import textured, with_square

REAL = Path(__file__).parents[3] / "shared" / "data" / "real-edits"
PIXELS = ("mse", "psnr", "l1", "ssim")
real = pytest.mark.skipif(not REAL.is_dir(), reason="the real edits are not here (../shared/data/real-edits)")


def value(name: str, source: RGB, edited: RGB, mask: RGB | None = None, /, **args: Any) -> float:
    images = {"source": source, "edited": edited, **({} if mask is None else {"mask": mask})}
    found = run_measure(name, {**({} if mask is not None else {"mask": "none"}), **args}, images).value
    assert found is not None
    return found


def undefined(name: str, source: RGB, edited: RGB, mask: RGB | None = None, /, **args: Any) -> str:
    images = {"source": source, "edited": edited, **({} if mask is None else {"mask": mask})}
    with pytest.raises(MeasureError) as raised:
        run_measure(name, args, images)
    assert raised.value.status == "not_defined"
    return str(raised.value)


def drawn() -> tuple[RGB, RGB, RGB]:
    """Return a texture, the same with a square inside and a little noise outside, and the square's mask."""
    source = textured(160, 120)
    noise = np.random.default_rng(2).integers(-2, 3, source.shape)
    edited = with_square(np.clip(source + noise, 0, 255).astype(np.uint8), (40, 30, 90, 80))
    mask = np.zeros_like(source)
    mask[30:80, 40:90] = 255
    return source, edited, mask


@pytest.mark.parametrize("args", [{}, {"mask": "official"}, {"align": "sift"}])
def test_a_measure_of_a_pair_keeps_the_contract(args: dict[str, Any]) -> None:
    source, edited, mask = drawn()
    for name in (*PIXELS, "alignment"):
        check_measure(open_measure(name), args=args, images={"source": source, "edited": edited, "mask": mask})
        check_measure(open_measure(name), args=args)


def test_values_are_those_of_the_formulas() -> None:
    source, edited, mask = drawn()
    difference = (source.astype(float) - edited.astype(float))[mask[..., 0] == 0]
    assert value("mse", source, edited, mask) == pytest.approx((difference**2).mean(), rel=1e-12)
    assert value("l1", source, edited, mask) == pytest.approx(np.abs(difference).mean(), rel=1e-12)
    assert value("psnr", source, edited, mask) == pytest.approx(10 * np.log10(255**2 / (difference**2).mean()))


def test_equal_images() -> None:
    source = textured(160, 120)
    for align in ("none", "sift"):
        assert value("mse", source, source, align=align) == value("l1", source, source, align=align) == 0
        assert value("ssim", source, source, align=align) == 1
        assert value("ssim", source, source, side=0, align=align) == pytest.approx(1, abs=1e-12)
    assert "infinite: what is compared is equal" in undefined("psnr", source, source, mask="none")


def test_full_empty_and_missing_masks() -> None:
    source, edited, _ = drawn()
    for name in PIXELS:
        for align in ("none", "sift"):
            assert "outside the mask" in undefined(name, source, edited, np.full_like(source, 255), align=align)
        assert value(name, source, edited, np.zeros((24, 24, 3), np.uint8)) == value(name, source, edited)
        assert "no mask of the edit" in undefined(name, source, edited)


def test_what_lies_inside_the_mask_does_not_count() -> None:
    source, edited, mask = drawn()
    other = with_square(edited, (40, 30, 90, 80), (0, 255, 0))
    for name in ("mse", "psnr", "l1"):
        assert value(name, source, edited, mask) == value(name, source, other, mask)
    assert value("mse", source, edited) > 100 * value("mse", source, edited, mask)


@pytest.mark.parametrize("side", [0, 224])
def test_the_measure_ssim_is_that_of_scikit_image_on_luma(side: int) -> None:
    metrics = pytest.importorskip("skimage.metrics")
    source, edited, _ = drawn()
    size = (side, side) if side else (160, 120)
    luma = [
        np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling.LANCZOS).convert("L"), np.float64) / 255
        for rgb in (source, edited)
    ]
    assert value("ssim", source, edited, side=side) == pytest.approx(
        metrics.structural_similarity(*luma, data_range=1.0), abs=1e-6
    )


def test_other_sizes_are_measured_in_the_sources_frame_and_said() -> None:
    source, edited, mask = drawn()
    larger = np.asarray(cv2.resize(edited, (320, 240), interpolation=cv2.INTER_NEAREST), np.uint8)
    images = {"source": source, "edited": larger, "mask": mask}
    found = measured("mse", {}, images)
    assert found.answer.value == pytest.approx(value("mse", source, edited, mask), rel=0.01)
    assert "the edited image has 320×240 px" in found.reason
    assert found.data["alignment"]["edited_size"] == [320, 240]  # type: ignore[index, call-overload]
    small = np.ascontiguousarray(mask[::8, ::8])
    assert measured("mse", {}, {**images, "mask": small}).data["compared"] < measured("mse", {}, images).data["compared"]  # type: ignore[operator]


def turned(degrees: float, zoom: float) -> list[list[float]]:
    """Return the 2×3 matrix of a turn and zoom about the middle of 512×512 px."""
    return np.asarray(cv2.getRotationMatrix2D((256, 256), degrees, zoom), float).tolist()


def of(kind: str) -> RGB:
    """Return the pair of the real edits that has a mask: its "source", "edited" or "masks" image."""
    store = ImageStore()
    return store.array(store.add_file(REAL / kind / "re-153-imaginairy.png"))


@real
def test_the_published_figures_of_a_real_pair() -> None:
    """The official functions of GIE-Bench on re-153: with its mask inert, with a working mask, with one of 224×224 px."""
    images = {"source": of("source"), "edited": of("edited"), "mask": of("masks")}
    small = {**images, "mask": np.asarray(Image.fromarray(images["mask"]).resize((224, 224), Image.Resampling.NEAREST))}

    def said(name: str, pictures: dict[str, RGB] = images, **args: Any) -> float | None:
        return run_measure(name, args, pictures).value

    for align in ("none", "sift"):
        assert said("mse", mask="official", align=align) == pytest.approx(671.5259, abs=1e-3)
        assert said("psnr", mask="official", align=align) == pytest.approx(19.860, abs=1e-2)
        assert said("mse", align=align) == pytest.approx(0.1200, abs=1e-3)
        assert said("psnr", align=align) == pytest.approx(57.339, abs=1e-2)
    assert said("mse", small, dilate=False) == pytest.approx(1.3179, abs=1e-3)
    assert said("psnr", small, dilate=False) == pytest.approx(46.932, abs=1e-2)
    assert said("ssim", mask="official") == pytest.approx(0.9998, abs=1e-3)
    assert said("ssim") == pytest.approx(0.9953, abs=1e-3)
    assert said("ssim", mask="none") == pytest.approx(0.8961, abs=1e-3)
    # A mask of 224² leaks at its edge; grown by one of its cells it does not.
    grown = said("mse", small)
    assert grown is not None and grown <= 0.13


@real
@pytest.mark.parametrize(
    ("matrix", "before", "official"),
    [([[1.0, 0.0, 7.0], [0.0, 1.0, -4.0]], 2860.90, 23.82), (turned(3, 1), 2689.88, 104.97)],
)
def test_a_motion_of_a_real_photograph_is_undone(matrix: list[list[float]], before: float, official: float) -> None:
    """GIE-Bench's published functions give the last two numbers for re-153's source and its own moved copy."""
    source = of("source")
    size, border = (512, 512), cv2.BORDER_REFLECT
    edited = np.asarray(cv2.warpAffine(source, np.array(matrix), size, borderMode=border), np.uint8)
    empty = np.zeros_like(source)
    assert value("mse", source, edited) == pytest.approx(before, rel=0.01)
    published = run_measure(
        "mse", {"mask": "official", "align": "sift"}, {"source": source, "edited": edited, "mask": empty}
    )
    assert published.value == pytest.approx(official, rel=0.01)
    assert value("mse", source, edited, empty, align="sift") < 0.5 * official
