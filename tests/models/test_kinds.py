"""KIND=WEIGHTS: models that other packages bring, and the two packages that have a kind here."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from editloupe import models
from editloupe.errors import ConfigError, MeasureError, MissingExtra, PhraseError
from editloupe.measures.base import Models, run_measure
from editloupe.testing import check_tool
from editloupe.tools.base import open_toolbox
from editloupe.tools.settings import ToolSettings
from tests.models import tiny_faces
from tests.packages import install

DOCS = Path(__file__).parents[2] / "docs" / "tools.md"


def red_at(left: int, top: int) -> np.ndarray:
    """128×128 px, gray with one red square of 32 px, which the tiny network sees as one of its cells."""
    image = np.full((128, 128, 3), 120, np.uint8)
    image[top : top + 32, left : left + 32] = (255, 0, 0)
    return image


@pytest.fixture
def onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The detector of docs/tools.md, installed as a package, with a file for it."""
    (code,) = [
        block for block in re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.S) if "OnnxDetector" in block
    ]
    assert len(code.splitlines()) <= 75
    points = {"detectors": {"onnx": "toyset.onnx:open_detector", "broken": "toyset.gone:open_detector"}}
    install(tmp_path / "site", monkeypatch, files={"toyset/__init__.py": "", "toyset/onnx.py": code}, entry_points=points)
    (tmp_path / "tiny.txt").write_text("red square\nblue cup", encoding="utf-8")
    return tiny_faces.objects(tmp_path / "tiny.onnx")


def test_the_detector_of_the_docs_serves_tools_and_measures(onnx: Path) -> None:
    box = open_toolbox(["grounding", "detect_object"], ToolSettings(detector=f"onnx={onnx}"))
    assert set(box.tools) == {"grounding", "detect_object"} and not box.absent
    box.prepare()
    assert "onnx tiny.onnx sha256:" in box.versions()["grounding"]
    check_tool(box.tools["detect_object"])
    door = Models(names={"detect": f"onnx={onnx}"})
    found: Any = run_measure("detections", {"phrase": "red square"}, {"image": red_at(64, 32)}, door).to_json()["data"]
    # Red 1, green 0 in the cell of column 2 and row 1 of 4×4.
    assert found["detections"] == [{"box": [500, 250, 750, 500], "score": 1.0, "label": "red square"}]
    assert run_measure("detect_target", {"phrase": "blue cup"}, {"image": red_at(0, 0)}, door).to_json()["boxes"] == []


def test_a_word_that_a_detector_does_not_know_is_told(onnx: Path) -> None:
    made = models.get("detect", f"onnx={onnx}")
    told = r"does not know 'red squaer'; did you mean 'red square'\? it knows 2 words only: red square, blue cup"
    with pytest.raises(PhraseError, match=told):
        made([red_at(0, 0)], "red squaer")
    with pytest.raises(MeasureError, match="does not know 'cat'"):
        run_measure("detections", {"phrase": "cat"}, {"image": red_at(0, 0)}, Models(names={"detect": f"onnx={onnx}"}))


def test_what_cannot_be_opened_says_which_kinds_there_are_and_what_was_found(onnx: Path) -> None:
    for name, told in (
        (
            "onix=a.onnx",
            r"unknown kind of detector 'onix'; did you mean 'onnx'\? known here: broken, groundingdino-py, onnx",
        ),
        ("broken=a.onnx", r"detector 'broken' \(toyset 1.0, .*\) cannot be imported: ModuleNotFoundError"),
        (f"onnx={onnx}x", "expected a file and"),
    ):
        with pytest.raises(ConfigError, match=told):
            models.get("detect", name)
    other = tiny_faces.sface(onnx.with_name("other.onnx"))
    other.with_suffix(".txt").write_text("face", encoding="utf-8")
    with pytest.raises(ConfigError, match="no network with boxes and scores"):
        models.prepare(models.get("detect", f"onnx={other}"))
    with pytest.raises(ConfigError, match="unknown kind of upscaler 'swinir'; known here: realesrgan"):
        models.get("upscale", "swinir=weights.pth")


OTHERS = """
import numpy as np
from editloupe.models.segment.base import Segmentation

class Doubler:
    name, version, learned = "doubler", "doubler 1", True
    def __call__(self, rgb, scale):
        return rgb.repeat(scale, 0).repeat(scale, 1)

class Boxes:
    name, version = "boxes", "boxes 1"
    def __call__(self, rgb, boxes):
        masks = [np.zeros(rgb.shape[:2], bool) for _ in boxes]
        for mask, box in zip(masks, boxes):
            x0, y0, x1, y1 = box.ints()
            mask[y0:y1, x0:x1] = True
        return [Segmentation(mask=mask, score=1.0) for mask in masks]

class Means:
    name, version, side_px, grid = "means", "means 1", 8, 2
    def __call__(self, images, patches):
        return [rgb.mean(axis=(0, 1)).astype(np.float32) for rgb in images]

class Reader(Means):
    def texts(self, texts):
        return [np.array([1, 0, 0], np.float32) for _ in texts]

def open_it(kind):
    def open_one(weights, device):
        return kind()
    return open_one

doubler, boxes, means, reader = map(open_it, (Doubler, Boxes, Means, Reader))

def fails(weights, device):
    raise RuntimeError("no license")
"""


def test_upscalers_segmenters_and_encoders_are_kinds_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "upscalers": {"doubler": "toyset.others:doubler"},
        "segmenters": {"boxes": "toyset.others:boxes", "fails": "toyset.others:fails"},
        "encoders": {"means": "toyset.others:means", "reader": "toyset.others:reader"},
    }
    install(
        tmp_path / "site", monkeypatch, files={"toyset/__init__.py": "", "toyset/others.py": OTHERS}, entry_points=points
    )
    rgb = red_at(0, 0)
    assert models.get("upscale", "doubler")(rgb, 2).shape == (256, 256, 3)
    box = open_toolbox(["enhancer"], ToolSettings(upscaler="doubler"))
    assert "doubler 1" in box.versions()["enhancer"]
    boxes: Any = run_measure(
        "segmentation", {"boxes": [[0, 0, 64, 128]]}, {"image": rgb}, Models(names={"segment": "boxes=x"})
    )
    assert boxes.to_json()["data"]["share"] == 0.5
    door = Models(names={"clip": "reader", "clip_text": "reader"})
    both = {"source": rgb, "edited": rgb}
    assert run_measure("clip", {"mask": "none"}, both, door).value == pytest.approx(1)
    red = np.zeros((16, 16, 3), np.uint8)
    red[..., 0] = 9
    assert run_measure("clip_text_similarity", {"text": "red"}, {"edited": red}, door).value == pytest.approx(1)
    with pytest.raises(ConfigError, match="--set clip=means: this kind has no texts, so that it is no CLIP"):
        models.get("clip_text", "means")
    with pytest.raises(ConfigError, match=r"segmenter 'fails' \(toyset 1.0\) cannot open 'x': RuntimeError: no license"):
        models.get("segment", "fails=x")


class Values(list[Any]):
    """Stands in for a tensor."""

    def tolist(self) -> list[Any]:
        return list(self)


def test_groundingdino_s_own_package_finds_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a module with the signatures of groundingdino-py 0.4.0, which cannot be installed here."""
    pytest.importorskip("torch", reason="needs the extra `vision`")
    asked: list[Any] = []

    def load_model(model_config_path: str, model_checkpoint_path: str, device: str = "cuda") -> Any:
        if Path(model_checkpoint_path).read_bytes() == b"other":
            raise RuntimeError("Missing key(s) in state_dict")
        return "network"

    def predict(
        model: Any, image: Any, caption: str, box_threshold: float, text_threshold: float, device: str = "cuda"
    ) -> Any:
        asked.append((model, image.shape, caption, box_threshold, text_threshold, device))
        return Values([Values([0.5, 0.5, 0.5, 0.25])]), Values([0.75]), ["mug"]

    package = ModuleType("groundingdino.util.inference")
    package.load_model, package.predict = load_model, predict  # type: ignore[attr-defined]
    seen = SimpleNamespace(preprocess_image=staticmethod(lambda bgr: bgr[:, :, 0].repeat(2, 0).repeat(2, 1)))
    package.Model = seen  # type: ignore[attr-defined]
    with pytest.raises(MissingExtra, match=r"editloupe\[groundingdino\]"):
        models.get("detect", f"groundingdino-py={__file__},weights.pth")
    for name, module in (("groundingdino", ModuleType("groundingdino")), ("groundingdino.util", ModuleType("x"))):
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["groundingdino.util"].inference = package  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "groundingdino.util.inference", package)
    monkeypatch.setattr(sys.modules["groundingdino"], "util", sys.modules["groundingdino.util"], raising=False)
    config, weights = tmp_path / "config.py", tmp_path / "weights.pth"
    config.write_text("", encoding="utf-8")
    weights.write_bytes(b"weights")
    made = models.get("detect", f"groundingdino-py={config},{weights}", device="cpu")
    (result,) = made([np.zeros((40, 80, 3), np.uint8)], "red mug")
    # Center and sides as shares: (0.5 ± 0.25) · 80 and (0.5 ± 0.125) · 40.
    assert [(tuple(d.box), d.score, d.label) for d in result.detections] == [((20, 15, 60, 25), 0.75, "mug")]
    assert (result.width, result.height) == (160, 80)
    assert asked == [("network", (80, 160), "red mug", 0.35, 0.25, "cpu")]
    weights.write_bytes(b"other")
    other = tmp_path / "other.pth"
    other.write_bytes(b"other")
    with pytest.raises(ConfigError, match=r"cannot be loaded \(RuntimeError: Missing key"):
        models.prepare(models.get("detect", f"groundingdino-py={config},{other}", device="cpu"))
    for name in ("groundingdino-py", "groundingdino-py=gone.py,w.pth"):
        with pytest.raises(ConfigError, match=r"expected groundingdino-py=CONFIG,WEIGHTS.*found no file"):
            models.get("detect", name)


def test_realesrgan_s_own_package_enlarges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against modules with the signatures of realesrgan 0.3.0 and basicsr 1.4.2, which cannot be installed here."""
    torch = pytest.importorskip("torch", reason="needs the extra `vision`")
    from tests.models.tiny_networks import rrdbnet_file

    made: list[Any] = []

    class RRDBNet:
        def __init__(self, num_in_ch: int, num_out_ch: int, scale: int = 4, num_feat: int = 64, num_block: int = 23,
                     num_grow_ch: int = 32) -> None:  # fmt: skip
            made.append((num_in_ch, num_out_ch, scale, num_feat, num_block, num_grow_ch))

    class RealESRGANer:
        def __init__(self, scale: int, model_path: str, dni_weight: Any = None, model: Any = None, tile: int = 0,
                     tile_pad: int = 10, pre_pad: int = 10, half: bool = False, device: Any = None) -> None:  # fmt: skip
            self.scale = scale

        def enhance(self, img: np.ndarray, outscale: float | None = None, alpha_upsampler: str = "realesrgan") -> Any:
            return img.repeat(int(outscale or self.scale), 0).repeat(int(outscale or self.scale), 1), "RGB"

    weights = rrdbnet_file(tmp_path)
    with pytest.raises(MissingExtra, match=r"editloupe\[realesrgan\]"):
        models.get("upscale", f"realesrgan={weights}")
    for name, inner in (
        ("torchvision", {}), ("torchvision.transforms", {}), ("torchvision.transforms.functional", {}),
        ("basicsr", {}), ("basicsr.archs", {}), ("basicsr.archs.rrdbnet_arch", {"RRDBNet": RRDBNet}),
        ("realesrgan", {"RealESRGANer": RealESRGANer}),
    ):  # fmt: skip
        module = ModuleType(name)
        vars(module).update(inner)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "torchvision.transforms.functional_tensor", raising=False)
    upscaler = models.get("upscale", f"realesrgan={weights}", device="cpu")
    rgb = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    assert np.array_equal(upscaler(rgb, 2), rgb.repeat(2, 0).repeat(2, 1))
    assert made == [(3, 3, 4, 8, 2, 4)] and upscaler.version.startswith("realesrgan tiny_x4 sha256:")
    assert sys.modules["torchvision.transforms.functional_tensor"] is sys.modules["torchvision.transforms.functional"]
    monkeypatch.delitem(sys.modules, "torchvision.transforms.functional_tensor")
    torch.save({"params": {"conv.weight": torch.zeros(2)}}, tmp_path / "other.pth")
    with pytest.raises(ConfigError, match=r"has not the keys of an RRDBNet \(Real-ESRGAN\), found conv.weight"):
        models.prepare(models.get("upscale", f"realesrgan={tmp_path / 'other.pth'}", device="cpu"))
