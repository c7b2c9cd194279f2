"""An aesthetic head over CLIP: its layers by hand, and with a tiny CLIP."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra `vision`")
pytest.importorskip("transformers", reason="needs the extra `vision`")

from editloupe import models  # noqa: E402
from editloupe.errors import ConfigError, MeasureError, ModelAbsent  # noqa: E402
from editloupe.measures.base import Models, measured, run_measure  # noqa: E402
from tests.models.tiny_encoders import encoder_folder  # noqa: E402


def head(file: Path, **tensors: list[list[float]] | list[float]) -> str:
    """A file with these tensors; "__" stands for a dot in a name."""
    torch.save({name.replace("__", "."): torch.tensor(one) for name, one in tensors.items()}, file)
    return str(file)


def test_linear_layers_are_taken_one_after_another_on_a_vector_of_length_1(tmp_path: Path) -> None:
    # As published: layers.10 comes after layers.2, and dropouts have no weights.
    file = head(
        tmp_path / "head.pth", layers__2__weight=[[1.0, 2.0], [0.0, -1.0]], layers__2__bias=[0.5, 0.0],
        layers__10__weight=[[10.0, 1.0]], layers__10__bias=[1.0],
    )  # fmt: skip
    made = models.get("aesthetic", file)
    # (3, 4) / 5 is (.6, .8); the first layer gives .6 + 1.6 + .5 = 2.7 and -.8, the second 27 - .8 + 1.
    assert made(np.array([3.0, 4.0])) == pytest.approx(27.2)
    assert made(np.array([30.0, 40.0])) == pytest.approx(27.2)


def test_the_measure_is_the_head_of_clips_vector(tmp_path: Path) -> None:
    clip = encoder_folder(tmp_path / "clip", "clip")
    rgb = np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)
    vector = models.get("clip", str(clip), device="cpu")([rgb], [None])[0]
    weights = np.random.default_rng(1).normal(size=len(vector))
    file = head(tmp_path / "head.pth", weight=[weights.tolist()], bias=[2.0])
    door = Models(device="cpu", names={"clip": str(clip), "aesthetic": file})
    found = measured("aesthetic", {}, {"source": rgb[::-1], "edited": rgb}, door)
    assert found.answer.value == pytest.approx(float(vector @ weights / np.linalg.norm(vector)) + 2, rel=1e-4)
    short = Models(device="cpu", names={"clip": str(clip), "aesthetic": head(tmp_path / "short.pth", weight=[[1.0, 1.0]])})
    with pytest.raises(MeasureError, match="reads 2 numbers of CLIP"):
        run_measure("aesthetic", {}, {"image": rgb}, short)


def test_a_file_that_is_no_head_is_named_and_none_is_absent(tmp_path: Path) -> None:
    with pytest.raises(ModelAbsent, match="--set aesthetic=… or EDITLOUPE_AESTHETIC"):
        models.get("aesthetic")
    for name, tensors in {"wide": [[1.0], [1.0]], "flat": [1.0, 2.0]}.items():
        with pytest.raises(ConfigError, match="expected linear layers that end in one number"):
            models.prepare(models.get("aesthetic", head(tmp_path / f"{name}.pth", weight=tensors)))
