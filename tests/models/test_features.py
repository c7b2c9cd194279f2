"""Image encoders and LPIPS from files, and the measures that stand on them: tiny random weights, the real loading code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe import models
from editloupe.data.images import RGB
from editloupe.errors import ConfigError, ModelAbsent
from editloupe.models.lpips import LPIPS
from tests.imaging.drawn import textured
from tests.models.tiny_encoders import PROCESSORS, SIDE, encoder_folder, lpips_state

torch = pytest.importorskip("torch", reason="needs the extra `vision`")
transformers = pytest.importorskip("transformers", reason="needs the extra `vision`")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")

FAMILIES = ("clip", "dinov2", "dinov2_with_registers", "dinov3")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model folder a family."""
    base = tmp_path_factory.mktemp("encoders")
    return {family: encoder_folder(base / family, family) for family in FAMILIES}


@pytest.fixture(scope="module")
def perceptual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file of LPIPS weights a network."""
    base = tmp_path_factory.mktemp("lpips")
    for name in ("alex", "vgg"):
        torch.save(lpips_state(name), base / f"{name}.pth")
    return {name: base / f"{name}.pth" for name in ("alex", "vgg")}


def opened(folder: Path, kind: str = "features") -> Any:
    return models.get(kind, str(folder), device="cpu")


def architecture(family: str, folder: Path) -> Any:
    kind = transformers.CLIPModel if family == "clip" else transformers.AutoModel
    return kind.from_pretrained(folder).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_images_are_what_transformers_makes_of_them(family: str, folders: dict[str, Path]) -> None:
    image = textured(150, 100)
    encoder = opened(folders[family])
    found = encoder([image], [None])[0]
    said = PROCESSORS["dinov2" if family.startswith("dinov2") else family]
    resized = {key: said[key] for key in said if key != "image_processor_type"}
    # The slow processors, which need no torchvision; that of DINOv3 does, and squashes as ViT's does.
    processor = transformers.ViTImageProcessor if family == "dinov3" else transformers.CLIPImageProcessor
    pixels = _pil(processor)(**resized)(images=[image], return_tensors="pt", input_data_format="channels_last")
    model = architecture(family, folders[family])
    with torch.inference_mode():
        if family == "clip":
            made = model.visual_projection(model.vision_model(**pixels).pooler_output)[0]
        else:
            made = model(**pixels).last_hidden_state[0, 0]
    assert np.allclose(found, made.numpy(), atol=2e-3)


def _pil(processor: Any) -> Any:
    """Return the processor that computes with Pillow, whatever else is installed."""
    return getattr(transformers, f"{processor.__name__}Pil", processor)


@pytest.mark.parametrize("family", FAMILIES)
def test_patches_are_averaged_without_the_other_tokens(family: str, folders: dict[str, Path]) -> None:
    image = textured(SIDE, SIDE)
    encoder = opened(folders[family])
    assert (encoder.side_px, encoder.grid) == (64, 4)
    patches = np.zeros((4, 4), np.bool_)
    patches[0, 1] = patches[2, 3] = True
    said = PROCESSORS["dinov2" if family.startswith("dinov2") else family]
    values = (np.asarray(image, np.float32) / 255 - np.float32(said["image_mean"])) / np.float32(said["image_std"])
    pixels = torch.from_numpy(values.transpose(2, 0, 1)[None])
    model = architecture(family, folders[family])
    with torch.inference_mode():
        if family == "clip":
            tokens = model.vision_model(pixel_values=pixels).last_hidden_state[0, 1:]
            pooled = model.vision_model.post_layernorm(tokens[[1, 11]].mean(0))
            made = model.visual_projection(pooled)
        else:
            registers = {"dinov2": 0, "dinov2_with_registers": 4, "dinov3": 3}[family]
            made = model(pixel_values=pixels).last_hidden_state[0, 1 + registers :][[1, 11]].mean(0)
    assert np.allclose(encoder([image], [patches])[0], made.numpy(), atol=1e-5)


@pytest.mark.parametrize("network", ["alex", "vgg"])
def test_lpips_is_the_published_distance(network: str, perceptual: dict[str, Path]) -> None:
    """Held against the formula, layer by layer."""
    first, second = textured(96, 80), textured(96, 80, seed=2)
    made = models.get("lpips", str(perceptual[network]), device="cpu")
    found = made(first, second)
    assert found == pytest.approx(_lpips(network, first, second), rel=1e-4)
    assert made(first, first) == 0
    everything = np.ones((80, 96), np.bool_)
    assert made(first, second, everything) == pytest.approx(found, rel=1e-5)
    half = everything.copy()
    half[:, 48:] = False
    mixed = np.where(half[..., None], first, second)
    assert made(first, mixed, half) < 0.5 * made(first, mixed, ~half)


def _lpips(network: str, first: RGB, second: RGB) -> float:
    state, functional = lpips_state(network), torch.nn.functional
    pools = {"alex": (3, 6), "vgg": (5, 10, 17, 24)}[network]
    strides, paddings = {0: 4}, {0: 2, 3: 2}

    def features(rgb: RGB) -> list[Any]:
        values = torch.from_numpy(rgb.astype(np.float32).transpose(2, 0, 1)[None]) / 127.5 - 1
        shift, scale = (torch.tensor(v).view(1, 3, 1, 1) for v in ((-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)))
        values, found = (values - shift) / scale, []
        for part in range(1, 6):
            names = [name for name in state if name.startswith(f"net.slice{part}.") and name.endswith("weight")]
            for index in sorted(int(name.split(".")[2]) for name in names):
                if index in pools:
                    values = functional.max_pool2d(values, *((3, 2) if network == "alex" else (2, 2)))
                how = (
                    {"stride": strides.get(index, 1), "padding": paddings.get(index, 1)}
                    if network == "alex"
                    else {"padding": 1}
                )
                key = f"net.slice{part}.{index}"
                values = functional.conv2d(values, state[f"{key}.weight"], state[f"{key}.bias"], **how).relu()
            found.append(values / (values.square().sum(1, keepdim=True).sqrt() + 1e-10))
        return found

    total = 0.0
    for number, (one, other) in enumerate(zip(features(first), features(second), strict=True)):
        total += float(((one - other).square() * state[f"lin{number}.model.1.weight"]).sum(1).mean())
    return total


def test_files_that_are_no_lpips_weights_are_named(tmp_path: Path, perceptual: dict[str, Path]) -> None:
    with pytest.raises(ModelAbsent, match="it needs a file of LPIPS weights; name one by --set lpips=… or EDITLOUPE_LPIPS"):
        models.get("lpips")
    with pytest.raises(ConfigError, match="no such file"):
        models.get("lpips", str(tmp_path / "gone.pth"))
    state = lpips_state("alex")
    for change in ({"lin4.model.1.weight": state["lin0.model.1.weight"]}, {"net.slice2.3.bias": torch.zeros(3)}):
        torch.save({**state, **change}, tmp_path / "odd.pth")
        with pytest.raises(ConfigError, match=r"is not what lpips.LPIPS\(net='alex'\) or net='vgg' saves"):
            LPIPS(tmp_path / "odd.pth", device="cpu").prepare()
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pth")
    with pytest.raises(ConfigError, match="is not what"):
        LPIPS(tmp_path / "other.pth", device="cpu").prepare()
