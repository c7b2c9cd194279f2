"""Real-ESRGAN's network from its own checkpoint format, in tiles; bad weights and devices said clearly."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe import models
from editloupe.data.images import RGB
from editloupe.errors import ConfigError, ToolError
from editloupe.models.upscale.base import NetworkUpscaler
from editloupe.tools.base import open_toolbox
from editloupe.tools.settings import ToolSettings
from tests.models.tiny_networks import noise, rrdbnet_file, rrdbnet_tensors

torch = pytest.importorskip("torch", reason="needs the extra `vision`")
functional = torch.nn.functional


def opened(path: Path | str, device: str = "cpu") -> Any:
    return models.get("upscale", str(path), device=device)


def independent(rgb: RGB, t: dict[str, Any], *, scale: int) -> RGB:
    """Real-ESRGAN's forward pass, written from the papers' figures as plain functions over the official keys."""

    def conv(name: str, x: Any) -> Any:
        return functional.conv2d(x, t[f"{name}.weight"], t[f"{name}.bias"], padding=1)

    def act(x: Any) -> Any:
        return torch.where(x > 0, x, 0.2 * x)

    def dense(name: str, x: Any) -> Any:
        x1 = act(conv(f"{name}.conv1", x))
        x2 = act(conv(f"{name}.conv2", torch.cat((x, x1), 1)))
        x3 = act(conv(f"{name}.conv3", torch.cat((x, x1, x2), 1)))
        x4 = act(conv(f"{name}.conv4", torch.cat((x, x1, x2, x3), 1)))
        return conv(f"{name}.conv5", torch.cat((x, x1, x2, x3, x4), 1)) * 0.2 + x

    x = torch.from_numpy(rgb.astype(np.float32) / 255).permute(2, 0, 1)[None]
    if scale == 2:
        b, c, h, w = x.shape
        x = x.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4).reshape(b, 4 * c, h // 2, w // 2)
    first = conv("conv_first", x)
    x = first
    for block in range(1 + max(int(k.split(".")[1]) for k in t if k.startswith("body."))):
        inner = x
        for n in (1, 2, 3):
            inner = dense(f"body.{block}.rdb{n}", inner)
        x = inner * 0.2 + x
    x = first + conv("conv_body", x)
    for name in ("conv_up1", "conv_up2"):
        x = act(conv(name, x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)))
    x = conv("conv_last", act(conv("conv_hr", x)))
    return np.asarray((x[0].permute(1, 2, 0).clamp(0, 1) * 255).round().to(torch.uint8).numpy())


@pytest.mark.parametrize("scale", [4, 2])
def test_the_network_equals_an_independent_one_at_eight_bits(scale: int, tmp_path: Path) -> None:
    path = rrdbnet_file(tmp_path, scale=scale)
    rgb = noise(20, 14)
    made = opened(path)(rgb, scale)
    expected = independent(rgb, rrdbnet_tensors(scale=scale), scale=scale)
    assert made.shape == (14 * scale, 20 * scale, 3)
    assert made.std() > 3  # not one flat color, which would prove nothing
    # The order of additions may move a value across a rounding.
    assert np.abs(made.astype(int) - expected.astype(int)).max() <= 1


def test_the_official_checkpoint_has_702_tensors_and_each_has_its_place() -> None:
    from editloupe.models.upscale.rrdbnet import RRDBNet, Shape

    with torch.device("meta"):
        net = RRDBNet(Shape())
    # RealESRGAN_x4plus: 23 blocks × 3 × 5 convolutions and 6 others, a weight and a bias each.
    assert len(net.state_dict()) == 2 * (23 * 3 * 5 + 6) == 702
    official = rrdbnet_tensors(features=64, blocks=23, growth=32)
    assert {k: tuple(v.shape) for k, v in net.state_dict().items()} == {k: tuple(v.shape) for k, v in official.items()}
    assert Shape.of(official, "x4") == Shape(scale=4, features=64, blocks=23, growth=32)


def test_tiles_make_the_same_picture_as_the_whole(tmp_path: Path) -> None:
    path = rrdbnet_file(tmp_path, blocks=1)
    # One block reaches 1 + 15 + 1 px and a little more after doubling: less than the 16 px on each side of a seam.
    rgb = noise(150, 70)
    whole = NetworkUpscaler(path, digest="", device="cpu", tile_px=256)(rgb, 4)
    tiled = NetworkUpscaler(path, digest="", device="cpu", tile_px=64)(rgb, 4)
    assert np.abs(whole.astype(int) - tiled.astype(int)).max() <= 1


def test_weights_that_give_no_numbers_are_an_observation_not_a_black_picture(tmp_path: Path) -> None:
    tensors = rrdbnet_tensors()
    tensors["conv_last.bias"][:] = float("nan")
    torch.save(tensors, tmp_path / "nan.pth")
    with pytest.raises(ToolError, match="no numbers"):
        opened(tmp_path / "nan.pth")(noise(8, 8), 4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_asked_for_and_not_there_is_a_configuration_error(tmp_path: Path) -> None:
    path = str(rrdbnet_file(tmp_path))
    with pytest.raises(ConfigError, match=r"no such GPU.*use --device auto or cpu"):
        open_toolbox(["enhancer"], ToolSettings(upscaler=path, device="cuda:0"))
    with pytest.raises(ConfigError, match="unknown device 'gpu'"):
        open_toolbox(["enhancer"], ToolSettings(upscaler=path, device="gpu"))
    assert opened(path, device="auto")(noise(4, 4), 4).shape == (16, 16, 3)


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('code in a pickle was run')",))


def test_bad_weights_are_named_with_what_to_do(tmp_path: Path) -> None:
    """Files of weights of any model are read by the same lines: what holds here holds for detectors and LPIPS."""
    path, tensors = tmp_path / "bad.pth", rrdbnet_tensors()
    whole = rrdbnet_file(tmp_path, name="whole.pth").read_bytes()
    lacking = {name: tensor for name, tensor in tensors.items() if name != "conv_hr.bias"}
    for content, message in (
        (b"", "damaged, cut off or of another kind"),
        ({"params_ema": {"conv_first.weight": _Evil()}}, "refused: it holds more than tensors"),
        (pickle.dumps(_Evil(), protocol=2), "refused: it holds more than tensors"),
        (whole[: len(whole) // 2], "damaged, cut off"),
        ({"params_ema": lacking}, r"do not fit.*conv_hr.bias"),
        ({"layer1.0.weight": torch.zeros(3)}, "not the keys of an RRDBNet"),
        ({"params_ema": {"epoch": 3}}, "no named tensors"),
    ):
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path)
        with pytest.raises(ConfigError, match=message) as caught:
            open_toolbox(["enhancer"], ToolSettings(upscaler=str(path), device="cpu")).prepare()
        # Never the advice to switch the check off.
        assert str(path) in str(caught.value) and "weights_only" not in str(caught.value)
    for name, message in (("gone.pth", "no such file"), ("weights.bin.txt", "expected one file of weights")):
        with pytest.raises(ConfigError, match=message):
            open_toolbox(["enhancer"], ToolSettings(upscaler=str(tmp_path / name)))
