"""Faces by OpenCV's networks: places, vectors, sizes, and files that are not what they must be. Weights are drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from editloupe import models
from editloupe.errors import ConfigError, ModelAbsent
from tests.models import tiny_faces
from tests.models.tiny_faces import portrait
from tests.rubrics.test_rubric_files import install

RED, WINE, PINK = (255, 0, 0), (150, 0, 200), (200, 100, 0)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_faces.folder(tmp_path_factory.mktemp("gewichte") / "ö ä'()")


def test_faces_have_places_scores_and_vectors(weights: Path) -> None:
    found = models.get("faces", str(weights))(portrait((1, 1, RED), (5, 3, PINK)), score=0.7, side=640)
    # The surest first; (200 − 100) / 128 = 0.78125.
    assert [list(face.box) for face in found] == [[32, 32, 64, 64], [160, 96, 192, 128]]
    assert [face.score for face in found] == pytest.approx([1.0, 0.78125], abs=1e-3)
    assert [face.vector[:4].tolist() for face in found] == [pytest.approx([255, 0, 0, 0]), pytest.approx([200, 100, 0, 0])]
    embedder = models.get("faces", str(weights))
    assert len(embedder(portrait((1, 1, RED), (5, 3, PINK)), score=0.9, side=640)) == 1
    assert embedder(portrait(), score=0.9, side=640) == ()
    assert models.get("faces", str(weights)) is embedder and "sha256:" in embedder.version


def test_any_size_is_looked_at(weights: Path) -> None:
    for width, height in ((250, 161), (40, 8), (8, 300), (1, 1)):
        found = models.get("faces", str(weights))(np.full((height, width, 3), RED, np.uint8), score=0.1, side=640)
        assert all(0 <= f.box.x0 < f.box.x1 <= width and 0 <= f.box.y0 < f.box.y1 <= height for f in found)


def test_a_folder_that_is_none_or_lacks_a_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelAbsent, match=r"face_detection_yunet_….onnx \(MIT\) and face_.*--set faces=… or EDIT"):
        models.get("faces")
    with pytest.raises(ConfigError, match=r"gone': expected a folder with one \*yunet\*.onnx of .*; found none"):
        models.get("faces", str(tmp_path / "gone"))
    tiny_faces.yunet(tmp_path / "yunet.onnx")
    with pytest.raises(ConfigError, match=r"one \*sface\*.onnx of .*; found none"):
        models.get("faces", str(tmp_path))
    tiny_faces.sface(tmp_path / "sface.onnx")
    tiny_faces.yunet(tmp_path / "yunet_int8.onnx")
    with pytest.raises(ConfigError, match=r"one \*yunet\*.onnx of .*; found yunet.onnx, yunet_int8.onnx"):
        models.get("faces", str(tmp_path))


WRONG: dict[str, tuple[str, Callable[[Path], object]]] = {
    "empty": ("yunet", lambda p: p.write_bytes(b"")),
    "a page": ("sface", lambda p: p.write_text("<!DOCTYPE html><p>Not found")),
    "a pointer": ("yunet", lambda p: p.write_text("version https://git-lfs.github.com/spec/v1\nsize 232589\n")),
    "cut off": ("yunet", lambda p: p.write_bytes(tiny_faces.yunet(p).read_bytes()[:-40])),
    "without an output": ("yunet", lambda p: tiny_faces.yunet(p, without="kps_16")),
    "wider scores": ("yunet", lambda p: tiny_faces.yunet(p, width=2)),
    "the other network too": ("sface", lambda p: tiny_faces.yunet(p)),
    "another vector": ("sface", lambda p: tiny_faces.sface(p, length=512)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_file_that_is_no_such_network_is_one_plain_message(what: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    tiny_faces.folder(tmp_path)
    which, spoil = WRONG[what]
    (file,) = tmp_path.glob(f"*{which}*")
    spoil(file)
    embedder = models.get("faces", str(tmp_path))
    with pytest.raises(ConfigError) as raised:
        models.prepare(embedder)
    text = str(raised.value)
    assert file.name in text and "is damaged, or not the network that its name says" in text and "\n" not in text
    with pytest.raises(ConfigError):
        embedder(portrait((1, 1, RED)), score=0.9, side=640)
    told = capfd.readouterr()
    assert (told.out, told.err) == ("", ""), "OpenCV's own words"
    # A network with a shape of its own: OpenCV would read behind the end of its outputs.
    tiny_faces.folder(tmp_path / "fixed")
    tiny_faces.yunet(tmp_path / "fixed" / "face_detection_yunet_tiny.onnx", fixed=(64, 96))
    embedder = models.get("faces", str(tmp_path / "fixed"))
    with pytest.raises(ConfigError, match=r"its output cls_8 is \(1, 96, 1\) of 64×128 px, not \(1, 128, 1\)"):
        models.prepare(embedder)


OTHER = """
import numpy as np
from editloupe.models.faces import Face
from editloupe.values import Box

class Arc:
    name, version = "arc", "1"
    def __init__(self, weights):
        self.weights = weights
    def __call__(self, rgb, *, score, side):
        return [Face(box=Box(0, 0, 9, 9), score=1.0, vector=np.ones(512, np.float32))]

def open_arc(name, device):
    return Arc(name)

def open_depth(name, device):
    return object()
"""


def test_another_package_brings_an_embedder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"faces": {"arcface": "toyset.faces:open_arc", "depth": "toyset.faces:open_depth"}}
    install(tmp_path, monkeypatch, files={"toyset/__init__.py": "", "toyset/faces.py": OTHER}, entry_points=points)
    assert models.get("faces", "arcface").weights is None
    assert models.get("faces", "arcface=w=1.bin").weights == "w=1.bin"
    with pytest.raises(ConfigError, match=r"face 'depth' .* opened object, which is none"):
        models.get("faces", "depth")
    with pytest.raises(ConfigError, match=r"unknown kind of face 'arc'.*known here: arcface, depth"):
        models.get("faces", "arc=weights.bin")
