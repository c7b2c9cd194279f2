"""Inpainters: OpenCV's, and a pipeline of diffusers with tiny random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe import models
from editloupe.errors import ConfigError
from editloupe.models import inpaint
from tests.models.tiny_networks import noise

WORDS = ("<|startoftext|>", "<|endoftext|>", "a</w>", "cat</w>", "background</w>", "a", "c", "t")


def hole(width: int, height: int) -> np.ndarray:
    mask = np.zeros((height, width), bool)
    mask[10:30, 20:50] = True
    return mask


def test_opencv_continues_the_surroundings_and_changes_nothing_else() -> None:
    made = models.get("inpaint", device="cpu")
    assert not made.takes_words
    rgb, mask = np.full((48, 64, 3), 90, np.uint8), hole(64, 48)
    rgb[:, 40:] = 140
    rgb[mask] = (255, 0, 0)
    filled = made(rgb, mask)
    assert np.array_equal(filled[~mask], rgb[~mask])
    # Of the red nothing is left: the hole has grays between its neighbors'.
    assert (filled.max(axis=2) - filled.min(axis=2)).max() <= 2 and filled[mask].min() >= 85 and filled[mask].max() <= 145
    assert np.array_equal(made(rgb, np.zeros_like(mask)), rgb)
    with pytest.raises(ValueError, match="takes no words, found 'cat'"):
        made(rgb, mask, "cat")


def test_an_unknown_inpainter_says_what_there_is() -> None:
    for name in ("lama", "opencv:x", "diffusers:"):
        with pytest.raises(ConfigError, match="expected opencv or diffusers:MODEL"):
            models.get("inpaint", name)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch", reason="needs the extra `inpaint`")
    diffusers = pytest.importorskip("diffusers", reason="needs the extra `inpaint`")
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(WORDS)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"block_out_channels": (32, 64), "norm_num_groups": 8}
    unet = diffusers.UNet2DConditionModel(
        **sizes,
        layers_per_block=1,
        sample_size=32,
        in_channels=9,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
    )
    vae = diffusers.AutoencoderKL(
        **sizes,
        in_channels=3,
        out_channels=3,
        down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2,
        latent_channels=4,
    )
    text = CLIPTextConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=20,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    diffusers.StableDiffusionInpaintPipeline(
        vae=vae,
        text_encoder=CLIPTextModel(text),
        tokenizer=CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=20),
        unet=unet,
        scheduler=diffusers.DDIMScheduler(steps_offset=1, clip_sample=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder / "tiny")
    return folder / "tiny"


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")
def test_a_pipeline_fills_the_mask_alone_by_words_and_seed(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inpaint, "STEPS", 1)
    made = models.get("inpaint", f"diffusers:{pipeline}", device="cpu")
    assert made.takes_words
    assert made.version.startswith("diffusers tiny sha256:") and ", steps 1, guidance 4," in made.version
    rgb, mask = noise(70, 90), hole(70, 90)
    filled = made(rgb, mask, "a cat", seed=1)
    assert filled.shape == rgb.shape and np.array_equal(filled[~mask], rgb[~mask])
    assert (filled != rgb)[mask].mean() > 0.5
    assert np.array_equal(filled, made(rgb, mask, "a cat", seed=1))
    assert not np.array_equal(filled, made(rgb, mask, "a cat", seed=2))
    assert not np.array_equal(filled, made(rgb, mask, "", seed=1))


def test_what_is_no_pipeline_is_refused(pipeline: Path, tmp_path: Path, empty_cache: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no model_index\.json"):
        models.get("inpaint", f"diffusers:{tmp_path}", device="cpu")
    with pytest.raises(ConfigError, match="no such folder or file, not in the local cache"):
        models.get("inpaint", "diffusers:/no/such/place", device="cpu")
    (tmp_path / "model_index.json").write_text('{"_class_name": "Nothing"}')
    made = models.get("inpaint", f"diffusers:{tmp_path}", device="cpu")
    with pytest.raises(ConfigError, match="is no inpainting pipeline"):
        models.prepare(made)
