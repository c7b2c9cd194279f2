"""Tokens of an encoder, which of them are patches, and CLIP's texts: tiny random weights, the real loading code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe import models
from editloupe.errors import ConfigError, ToolError
from editloupe.models.features.base import Tokens
from tests.imaging.drawn import textured
from tests.models.tiny_encoders import PROCESSORS, encoder, encoder_folder


def test_registers_that_count_as_patches_shift_all_others() -> None:
    # 4 registers (values 1 to 4) and 14×14 patches (values 5 to 200), as DINOv3 gives them at 224 px.
    every = np.arange(1, 201, dtype=np.float32)[:, None]
    tokens = Tokens(cls=np.zeros(1, np.float32), registers=every[:4], patches=every[4:].reshape(14, 14, 1))
    published = tokens.with_registers()
    assert published.patches.shape == (10, 20, 1) and len(published.registers) == 0
    assert published.patches[0, :4, 0].tolist() == [1, 2, 3, 4]
    # The patch in row 7, column 7 of 14 is number 4 + 7 · 14 + 7 = 109 of 200, which stands in row 5, column 9 of 10×20.
    assert tokens.patches[7, 7, 0] == published.patches[5, 9, 0] == 110
    plain = Tokens(cls=every[0], registers=every[:0], patches=every[4:].reshape(14, 14, 1))
    assert np.array_equal(plain.with_registers().patches, plain.patches)


def opened(folder: Path, kind: str) -> Any:
    return models.get(kind, str(folder), device="cpu")


@pytest.mark.parametrize(("family", "registers"), [("dinov2", 0), ("dinov2_with_registers", 4), ("dinov3", 4), ("clip", 0)])
def test_tokens_at_224_px(family: str, registers: int, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra `vision`")
    transformers = pytest.importorskip("transformers", reason="needs the extra `vision`")
    folder = encoder_folder(tmp_path / family, family, side=224, registers=4)
    image = textured(224, 224)
    model = opened(folder, "features")
    (found,) = model.tokens([image])
    assert found.cls.shape == (32,) and found.patches.shape == (14, 14, 32) and found.registers.shape == (registers, 32)
    said = PROCESSORS["dinov2" if family.startswith("dinov2") else family]
    values = (np.asarray(image, np.float32) / 255 - np.float32(said["image_mean"])) / np.float32(said["image_std"])
    pixels = torch.from_numpy(values.transpose(2, 0, 1)[None])
    kind = transformers.CLIPModel if family == "clip" else transformers.AutoModel
    network = kind.from_pretrained(folder).eval()
    with torch.inference_mode():
        made = (network.vision_model if family == "clip" else network)(pixel_values=pixels).last_hidden_state[0].numpy()
    assert len(made) == 1 + registers + 196
    assert np.allclose(found.cls, made[0], atol=1e-5)
    assert np.allclose(found.registers, made[1 : 1 + registers], atol=1e-5)
    assert np.allclose(found.patches, made[1 + registers :].reshape(14, 14, 32), atol=1e-5)
    # Official mode: 200 tokens in a grid of 10×20 where there are registers, else the grid itself.
    assert found.with_registers().patches.shape[:2] == ((10, 20) if registers else (14, 14))
    # Any aspect is squashed as a whole; a vector and tokens do not share a batch.
    wide, vector = model.tokens([textured(300, 100)])[0], model([image], [None])[0]
    assert wide.patches.shape == (14, 14, 32) and vector.ndim == 1


def test_texts_are_what_transformers_makes_of_them(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra `vision`")
    folder = encoder_folder(tmp_path / "clip", "clip")
    text = opened(folder, "clip_text")
    one, other = text(["a cup", "a red cup"])
    with torch.inference_mode():
        # Words of the tiny vocabulary: begin 0, end 1, a 2, red 3, cup 4.
        said = encoder("clip").get_text_features(input_ids=torch.tensor([[0, 2, 3, 4, 1]]))
        made = getattr(said, "pooler_output", said)[0].numpy()
    assert one.shape == other.shape == made.shape and np.allclose(other, made, atol=1e-5)
    assert not np.allclose(one, other)
    with pytest.raises(ToolError, match=r"the text 'a cup a cup.* has 42 tokens, and CLIP reads at most 20; shorten it"):
        text(["a cup " * 20])
    with pytest.raises(ConfigError, match="model_type 'dinov2' is no CLIP with a text part known here"):
        opened(encoder_folder(tmp_path / "dino", "dinov2"), "clip_text")


def test_a_clip_folder_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra `vision`")
    folder = encoder_folder(tmp_path / "clip", "clip")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(ConfigError, match=r"has no tokenizer.json and no vocab.json, so it cannot read text"):
        opened(folder, "clip_text")
