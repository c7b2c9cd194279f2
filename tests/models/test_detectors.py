"""Detectors from files: tiny random weights through the loading code that takes real ones."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe import models
from editloupe.errors import ConfigError, ToolError
from editloupe.models import opening
from editloupe.models.detect.base import DetectionResult
from editloupe.models.opening import DETECTOR
from editloupe.testing import check_tool
from editloupe.tools.base import BUILT_IN_TOOLS, open_toolbox
from editloupe.tools.grounding import DetectObject, Grounding
from editloupe.tools.settings import ToolSettings
from tests.models.tiny_detectors import grounding_dino_folder, original_checkpoint
from tests.models.tiny_networks import noise

torch = pytest.importorskip("torch", reason="needs the extra `vision`")
pytest.importorskip("transformers", reason="needs the extra `vision`")

# The tests make weights with transformers, whose own code warns.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model folder a family, and an original checkpoint."""
    base = tmp_path_factory.mktemp("models")
    (base / "original").mkdir()
    return {
        "grounding-dino": grounding_dino_folder(base / "gd"),
        "mm-grounding-dino": grounding_dino_folder(base / "mm", kind="MMGroundingDino"),
        "original": original_checkpoint(base / "original"),
    }


@pytest.fixture
def no_hub(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no network, and no model that another test has opened."""
    monkeypatch.setattr(opening, "_made", opening._made.__wrapped__)
    return empty_cache


def detector(path: Path, *, threshold: float | None = 0.0) -> Any:
    from editloupe.models.detect.transformers import TransformersDetector

    return TransformersDetector(DETECTOR.find(str(path)), device="cpu", box_threshold=threshold)


def numbers(result: DetectionResult) -> np.ndarray:
    return np.array([[*d.box, 100 * d.score] for d in result.detections])


@pytest.mark.parametrize("family", ["grounding-dino", "mm-grounding-dino", "original"])
def test_every_family_loads_and_keeps_the_tools_contract(family: str, folders: dict[str, Path]) -> None:
    made = detector(folders[family])
    tool = Grounding(made)
    tool.prepare()
    found = check_tool(tool)
    assert found.data["found"]
    assert made.name in found.text
    result = made([noise(96, 64)], "red mug")[0]
    assert result.detections and all(0 <= d.score <= 1 for d in result.detections)
    assert all(d.box.x1 <= 96 and d.box.y1 <= 64 for d in result.detections)
    assert not any("[" in d.label for d in result.detections)


@pytest.mark.parametrize(
    ("phrase", "pieces", "label"),
    [
        # The vocabulary has single letters, so that "rainbow" has seven pieces; "-", "'" and digits are unknown to it.
        ("a rainbow", ["##b", "##o", "##w"], "rainbow"),
        ("a rainbow mug", ["r", "mug"], "rainbow mug"),
        ("red mug", [".", "[SEP]", "[CLS]"], ""),
        ("3.5 kg mug", ["[UNK]", "##g"], "3.5 kg"),
    ],
)
def test_a_label_has_whole_words_of_the_phrase(
    phrase: str, pieces: list[str], label: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = detector(folders["grounding-dino"])
    made.prepare()
    tokenizer, model = made._ready().processor.tokenizer, made._ready().model
    forward = model.forward

    def scored(**inputs: Any) -> Any:
        # As if exactly these tokens of the first phrase had matched every box.
        outputs = forward(**inputs)
        tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        outputs.logits[:] = -9.0
        for at, token in enumerate(tokens):
            if token in pieces:
                outputs.logits[:, :, at] = 2.0
        return outputs

    monkeypatch.setattr(model, "forward", scored)
    (result,) = made([noise(96, 64)], phrase)
    assert result.detections and {d.label for d in result.detections} == {label}


def test_a_batch_gives_what_each_image_alone_gives(folders: dict[str, Path]) -> None:
    made = detector(folders["grounding-dino"])
    made.prepare()
    made._batcher.max_batch = 8  # a CPU takes one by one
    # Two sizes, and phrases of two lengths, from many threads at once.
    asked = [(noise(96, 64 if i % 2 else 96, seed=i), "red mug" if i % 3 else "a cat") for i in range(8)]
    alone = [made([rgb], phrase)[0] for rgb, phrase in asked]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda a: made([a[0]], a[1])[0], asked))
    for one, other in zip(alone, together, strict=True):
        assert (one.width, one.height) == (other.width, other.height)
        assert np.allclose(numbers(one), numbers(other), atol=0.02)


def test_a_phrase_of_more_tokens_than_the_model_takes_is_told_to_the_model(folders: dict[str, Path]) -> None:
    with pytest.raises(ToolError, match=r"tokens and GroundingDINO .* takes 64; name the object in a few"):
        detector(folders["grounding-dino"])([noise(64, 64)], 32 * "red mug ")


def test_an_original_checkpoint_has_every_tensor_in_its_place(folders: dict[str, Path]) -> None:
    from editloupe.models.detect.groundingdino_checkpoint import config_of, hub_tensors, load_checkpoint
    from editloupe.models.weights import load_tensors

    original = load_tensors(folders["original"])
    config = config_of(original)
    assert (config.d_model, config.encoder_attention_heads, config.num_queries) == (32, 4, 10)
    assert (config.backbone_config.window_size, list(config.backbone_config.depths)) == (4, [1, 1, 1, 1])
    tensors, unknown = hub_tensors(original)
    assert unknown == []
    query = tensors["model.decoder.layers.1.self_attn.query.weight"]
    assert torch.equal(query, original["transformer.decoder.layers.1.self_attn.in_proj_weight"][:32])
    key = tensors["model.backbone.conv_encoder.model.encoder.layers.2.blocks.0.attention.self.key.bias"]
    assert torch.equal(key, original["backbone.0.layers.2.blocks.0.attn.qkv.bias"][48:96])
    norm = tensors["model.backbone.conv_encoder.model.hidden_states_norms.stage2.weight"]
    assert norm is original["backbone.0.norm1.weight"]
    model, _ = load_checkpoint(folders["original"])
    # What is in the file is in the model: nothing stayed random.
    assert torch.equal(model.model.level_embed, original["transformer.level_embed"])
    assert torch.equal(model.model.text_projection.weight, original["feat_map.weight"])


def test_without_a_name_and_a_cache_the_tools_are_absent_and_say_why(no_hub: Path) -> None:
    box = open_toolbox(BUILT_IN_TOOLS, ToolSettings())
    assert set(box.absent) == {"grounding", "detect_object"}
    assert f"{DETECTOR.default} is not in the local Hugging Face cache" in box.absent["grounding"]
    assert not no_hub.exists()


def test_the_default_is_taken_from_the_cache_at_its_pinned_commit(no_hub: Path, folders: dict[str, Path]) -> None:
    snapshot = no_hub / f"models--{DETECTOR.default.replace('/', '--')}" / "snapshots" / DETECTOR.revision
    shutil.copytree(folders["grounding-dino"], snapshot)
    made = models.get("detect", device="cpu")
    assert made.version == f"grounding-dino {DETECTOR.default}@{DETECTOR.revision[:12]}, box 0.30, text 0.25"
    made([noise(64, 64)], "red mug")


def test_an_observation_says_by_what_and_where_it_was_computed(folders: dict[str, Path]) -> None:
    import transformers

    made = detector(folders["mm-grounding-dino"])
    where = {
        "device": "cpu",
        "precision": "fp32",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    for tool in (Grounding(made), DetectObject(made)):
        found = check_tool(tool)
        assert {key: found.data[key] for key in where} == where
        assert found.data["detector"] == made.version
        # For the trace alone: neither the judge's identity nor the text that the model reads has it.
        assert torch.__version__ not in tool.version + found.text


@pytest.mark.usefixtures("no_hub")
def test_a_bad_checkpoint_is_named_when_it_is_loaded(folders: dict[str, Path], tmp_path: Path) -> None:
    path, whole = tmp_path / "bad.pth", folders["original"]
    tensors = torch.load(whole, weights_only=True)["model"]
    shutil.copy(whole, path)
    with pytest.raises(ConfigError, match=r"put BERT's vocab.txt"):
        detector(path).prepare()
    shutil.copy(whole.with_name("vocab.txt"), tmp_path)
    lacking = {name: tensor for name, tensor in tensors.items() if name != "module.feat_map.bias"}
    for content, message in (
        ({"conv.weight": torch.zeros(2)}, "holds no GroundingDINO"),
        (lacking, r"missing.*text_projection.bias"),
        ({**tensors, "head.weight": torch.zeros(2)}, "1 tensors are not GroundingDINO's: head.weight"),
    ):
        torch.save({"model": content}, path)
        with pytest.raises(ConfigError, match=message):
            detector(path).prepare()
