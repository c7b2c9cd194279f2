"""Networks on a real GPU: fp16 beside fp32, batches, memory that does run out, and the agent in its loop.

The weights are tiny and random. What a network says is nonsense; that both precisions and devices say the same is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe import models
from editloupe.data.images import RGB, ImageStore
from editloupe.errors import ConfigError, Rejected, ToolError
from editloupe.models import chat
from editloupe.models.batching import Network
from editloupe.models.detect.base import DetectionResult
from editloupe.models.opening import DETECTOR, SEGMENTER
from editloupe.models.upscale.base import NetworkUpscaler
from editloupe.testing import check_backend
from editloupe.values import Box
from tests.imaging.drawn import textured
from tests.models.tiny_detectors import grounding_dino_folder
from tests.models.tiny_encoders import encoder_folder, lpips_state
from tests.models.tiny_networks import noise, rrdbnet_file
from tests.models.tiny_segmenters import sam_folder
from tests.runs.test_five_tools import EXAMPLES, judge_with_all_tools

torch = pytest.importorskip("torch", reason="needs the extra `vision`")
pytest.importorskip("transformers", reason="needs the extra `vision`")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA GPU here"),
    # The tests make weights with transformers, whose own code warns.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning"),
]

DEVICES = ("cpu", "cuda")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def detectors(base: Path) -> dict[str, Path]:
    """One folder a family."""
    return {
        "grounding-dino": grounding_dino_folder(base / "gd"),
        "mm-grounding-dino": grounding_dino_folder(base / "mm", kind="MMGroundingDino"),
    }


@pytest.fixture(scope="module")
def checkpoint(base: Path) -> Path:
    return rrdbnet_file(base)


Leave = Callable[[int | None], None]


@pytest.fixture
def leave() -> Iterator[Leave]:
    """Returns a function that leaves this process so many more bytes of the GPU; None for all of it."""
    total = torch.cuda.get_device_properties(0).total_memory
    fill: list[Any] = []

    def leave(size: int | None) -> None:
        fill.clear()
        torch.cuda.empty_cache()
        most = total if size is None else torch.cuda.memory_reserved() + size
        torch.cuda.set_per_process_memory_fraction(most / total)
        with suppress(torch.OutOfMemoryError):
            # What is reserved already has gaps, which a small picture would fit into.
            while size == 0:
                fill.append(torch.empty(1, device="cuda"))

    yield leave
    leave(None)


def detector(path: Path, device: str) -> Any:
    from editloupe.models.detect.transformers import TransformersDetector

    return TransformersDetector(DETECTOR.find(str(path)), device=device, box_threshold=0.0)


def check_same(found: DetectionResult, beside: DetectionResult) -> None:
    """Check that nearly every box of one result is in the other: a random network orders some of its queries by chance."""
    rows, others = (np.array([[*d.box, 100 * d.score] for d in one.detections]) for one in (found, beside))
    assert len(rows) == len(others) > 0
    apart = np.abs(rows[:, None] - others[None]).max(-1).min(-1)
    assert np.quantile(apart, 0.8) < 1.0, "px, and hundredths of a score"


@pytest.mark.parametrize("family", ["grounding-dino", "mm-grounding-dino"])
def test_a_detector_in_fp16_finds_what_it_finds_in_fp32(family: str, detectors: dict[str, Path]) -> None:
    picture = textured(150, 100)
    (plain,), (half,) = (detector(detectors[family], device)([picture], "red mug") for device in DEVICES)
    check_same(half, plain)


def watch(network: Network[Any, Any, Any]) -> list[int]:
    """Return the sizes of the batches that go through a network from now on."""
    network.prepare()
    sizes: list[int] = []
    network._ready().model.register_forward_pre_hook(
        lambda _, args, kwargs: sizes.append(len(kwargs["pixel_values"] if "pixel_values" in kwargs else args[0])),
        with_kwargs=True,
    )
    return sizes


def test_an_upscaler_in_fp16_draws_what_it_draws_in_fp32(checkpoint: Path) -> None:
    crop = textured(90, 70)
    plain, half = (NetworkUpscaler(checkpoint, digest="", device=device)(crop, 4).astype(int) for device in DEVICES)
    assert np.abs(plain - half).max() <= 4 and np.abs(plain - half).mean() < 0.5
    assert plain.std() > 5, "there is something to compare"


def test_crops_of_many_callers_share_batches_and_each_gets_its_own(checkpoint: Path) -> None:
    made = NetworkUpscaler(checkpoint, digest="", device="cuda")
    crops, sizes = [textured(64, 64, seed=i) for i in range(8)], watch(made)
    alone = [made(crop, 4) for crop in crops]
    made._batcher.window_s = 0.3
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda crop: made(crop, 4), crops))
    assert sizes == [1] * 8 + [8]
    for one, other in zip(alone, together, strict=True):
        assert np.abs(one.astype(int) - other).max() <= 1


def test_a_batch_that_the_gpu_has_no_room_for_is_split_and_then_told(checkpoint: Path, leave: Leave) -> None:
    made = NetworkUpscaler(checkpoint, digest="", device="cuda")
    tiles, sizes = [noise(256, 256, seed=i) for i in range(4)], watch(made)
    made._batcher.window_s = 0.3

    def held(pictures: Sequence[RGB]) -> tuple[int, list[RGB]]:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_reserved()
        drawn = made._batcher.map(pictures)
        return torch.cuda.max_memory_reserved() - before, drawn

    held(tiles[:1])  # cuDNN takes memory of its own with the first call
    one, four = held(tiles[:1])[0], held(tiles)
    assert four[0] > 2 * one
    sizes.clear()
    leave((one + four[0]) // 2)
    for tile, other in zip(made._batcher.map(tiles), four[1], strict=True):
        assert np.abs(tile.astype(int) - other).max() <= 1
    assert sizes[0] == 4 and sum(sizes[1:]) >= 4 and max(sizes[1:]) <= 2
    leave(0)
    with pytest.raises(ToolError, match="ran out of memory on this picture alone"):
        made(tiles[0], 4)
    leave(None)
    assert np.abs(made(tiles[0], 4).astype(int) - four[1][0]).max() <= 1, "the next call is served again"


@pytest.mark.parametrize("family", ["clip", "dinov2", "dinov2_with_registers", "dinov3"])
def test_an_encoder_in_fp16_gives_the_direction_of_fp32(family: str, base: Path) -> None:
    folder, pictures = encoder_folder(base / family, family), [textured(150, 100, seed=i) for i in range(5)]
    plain, half = (models.get("features", str(folder), device=device)(pictures, [None] * 5) for device in DEVICES)
    for one, other in zip(plain, half, strict=True):
        assert float(one @ other / np.linalg.norm(one) / np.linalg.norm(other)) > 0.9995


def test_lpips_in_fp16_is_that_of_fp32_to_a_hundredth(base: Path) -> None:
    torch.save(lpips_state("alex"), base / "alex.pth")
    first, second = textured(150, 100), textured(150, 100, seed=2)
    plain, half = (models.get("lpips", str(base / "alex.pth"), device=device)(first, second) for device in DEVICES)
    assert plain > 0 and half == pytest.approx(plain, rel=0.01)


def test_a_segmenter_in_fp16_marks_what_it_marks_in_fp32(base: Path) -> None:
    folder = sam_folder(base / "sam")
    boxes, picture = [Box(10, 10, 60, 60), Box(50, 20, 110, 80)], textured(120, 90)
    plain, half = (SEGMENTER(str(folder), device)(picture, boxes) for device in DEVICES)
    for one, other in zip(plain, half, strict=True):
        assert np.mean(one.mask != other.mask) < 0.02


@pytest.mark.parametrize("limit", [3, None])
def test_the_agent_calls_all_five_tools_on_the_gpu(
    limit: int | None, detectors: dict[str, Path], checkpoint: Path, tmp_path: Path
) -> None:
    count = judge_with_all_tools(
        EXAMPLES, tmp_path / "run", detectors["grounding-dino"], limit=limit, device="cuda", upscaler=checkpoint
    )
    assert count == (limit or 12)


@pytest.fixture
def chat_folder(tmp_path: Path) -> Iterator[Path]:
    pytest.importorskip("peft", reason="needs the extra `local`")
    from tests.models.tiny_idefics3 import build

    chat._loaded.cache_clear()
    yield build(tmp_path / "tiny", spread=0.3)
    chat._loaded.cache_clear()


def test_a_local_model_on_the_gpu_keeps_the_contract_of_backends(chat_folder: Path) -> None:
    from tests.models.test_chat import opened

    reply = check_backend(lambda: opened(chat_folder, "?device=cuda"))
    raw: Any = reply.raw
    assert (raw["precision"], raw["device"]) == ("bfloat16", f"cuda:0 {torch.cuda.get_device_name(0)}")


def test_a_conversation_that_the_gpu_has_no_room_for_is_a_failure_of_its_own(chat_folder: Path, leave: Leave) -> None:
    from tests.models.test_chat import opened, question

    lmm, images = opened(chat_folder, "?device=cuda"), ImageStore()
    first = lmm.complete(question(images), images)
    leave(0)
    with pytest.raises(Rejected, match=r"failed over this conversation .*out of memory"):
        lmm.complete(question(images), images)
    leave(None)
    assert lmm.complete(question(images), images).text == first.text


def test_a_model_that_the_gpu_has_no_room_for_is_named_before_anything_is_asked(chat_folder: Path, leave: Leave) -> None:
    from tests.models.test_chat import opened

    leave(0)
    with pytest.raises(ConfigError, match=r"on cuda:0: cannot be loaded, .*out of memory"):
        opened(chat_folder, "?device=cuda").reach()
