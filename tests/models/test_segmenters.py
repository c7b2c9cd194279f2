"""Segmenters from files: tiny random weights through the loading code that takes real ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe import models
from editloupe.errors import ConfigError
from editloupe.values import Box
from tests.models.tiny_networks import noise
from tests.models.tiny_segmenters import sam_folder

torch = pytest.importorskip("torch", reason="needs the extra `vision`")
pytest.importorskip("transformers", reason="needs the extra `vision`")

# The tests make weights with transformers, whose own code warns.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")

BOXES = [Box(10, 10, 60, 60), Box(50, 20, 110, 80)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sam_folder(tmp_path_factory.mktemp("models") / "sam")


def test_each_box_gives_one_mask_at_the_images_own_size(folder: Path) -> None:
    made = models.get("segment", str(folder), device="cpu")
    found = made(noise(120, 90), BOXES)
    assert [(one.mask.shape, one.mask.dtype) for one in found] == [((90, 120), np.dtype(bool))] * 2
    assert any(one.mask.any() and not one.mask.all() for one in found)
    assert not np.array_equal(found[0].mask, found[1].mask)
    assert made(noise(120, 90), []) == []
    # The same copy for the same weights, and the digest of the files in its version.
    assert models.get("segment", str(folder), device="cpu") is made
    assert made.version.startswith("sam sam sha256:")
    assert models.describe(made) == f"{made.name} on cpu fp32"


@pytest.mark.parametrize("size", [(120, 90), (50, 200), (64, 64)])
def test_the_masks_are_those_that_transformers_makes(size: tuple[int, int], folder: Path) -> None:
    from transformers import SamModel, SamProcessor

    made, rgb = models.get("segment", str(folder), device="cpu"), noise(*size)
    boxes = [box.scaled(size[0] / 120, size[1] / 90) for box in BOXES]
    processor = SamProcessor.from_pretrained(folder, backend="pil")
    inputs = processor(rgb, input_boxes=[[list(box) for box in boxes]], return_tensors="pt")
    with torch.inference_mode():
        raw = SamModel.from_pretrained(folder).eval()(
            pixel_values=inputs["pixel_values"].float(),
            input_boxes=inputs["input_boxes"].float(),
            multimask_output=False,
        )
    masks = processor.post_process_masks(raw.pred_masks, inputs["original_sizes"], inputs["reshaped_input_sizes"])[0]
    for found, mask, score in zip(made(rgb, boxes), masks, raw.iou_scores[0], strict=True):
        assert np.mean(found.mask != mask[0].numpy()) < 1e-3
        assert found.score == pytest.approx(float(score), abs=1e-4)


def test_a_bad_folder_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "detr"}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"'detr' is no segmenter known here \(sam\)"):
        models.get("segment", str(tmp_path), device="cpu")
    with pytest.raises(ConfigError, match=r"segmenter 'no-such': no such folder or file, not in the local cache"):
        models.get("segment", "no-such", device="cpu")

    def loaded(name: str, spoil: Any) -> None:
        spoilt = tmp_path / name
        shutil.copytree(folder, spoilt)
        spoil(spoilt)
        models.prepare(models.get("segment", str(spoilt), device="cpu"))

    def lacking(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / "model.safetensors")
        del tensors["prompt_encoder.no_mask_embed.weight"]
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ConfigError, match=r"segmenter .*1 tensors of its architecture are missing .*no_mask_embed"):
        loaded("lacking", lacking)
    with pytest.raises(ConfigError, match=r"segmenter .*cannot be loaded"):
        loaded("cut", lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-1000]))
    with pytest.raises(ConfigError, match=r"segmenter .*cannot be loaded"):
        loaded("unprepared", lambda f: (f / "processor_config.json").unlink())
