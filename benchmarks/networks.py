"""How fast the tools' networks are: GroundingDINO and Real-ESRGAN at full size, alone and in batches, beside their peers.

    python -m benchmarks.networks                 # on the first GPU, else the CPU
    python -m benchmarks.networks --write         # and put the table into benchmarks/README.md
    python -m benchmarks.networks --quick         # smaller pictures, fewer calls: does it run at all?

Weights are random, at full size, written to a folder and loaded by the code that loads real ones. The speed of a network
does not depend on them; what is done with a detector's boxes does, so few of them count here. `N callers` are N threads
that call at once, one picture each, as the samples of a run do. That outputs stay the same in batches and in fp16 is what
the tests on a GPU check (`make test-gpu`).
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np

from benchmarks.drawing import wall
from benchmarks.pages import options, show, table
from editloupe.data.images import RGB
from editloupe.models.detect.transformers import TransformersDetector
from editloupe.models.devices import Device, import_torch, open_device
from editloupe.models.opening import DETECTOR
from editloupe.models.upscale.base import NetworkUpscaler
from editloupe.models.weights import reading

PHRASE = "red mug"
Row: TypeAlias = tuple[object, ...]
"""Cells of the table."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way of running one network."""

    name: str
    callers: int
    """Threads that call at once, one picture each."""
    batch: int
    """Most items a forward pass."""
    run: Callable[[], object]


def measure(network: str, ways: Sequence[Way], *, device: Device, rounds: int) -> list[Row]:
    """Return a row of the table for each way.

    Each way runs once to warm up, then all of them in turn, `rounds` times: what slows the machine slows them all.
    """
    seconds: list[list[float]] = [[] for _ in ways]
    peaks: list[str] = ["–"] * len(ways)
    for turn in range(rounds + 1):
        print(f"{network}: round {turn} of {rounds}", file=sys.stderr)
        for index, way in enumerate(ways):
            if on_gpu(device):
                import_torch().cuda.reset_peak_memory_stats(device.name)
            started = time.perf_counter()
            way.run()
            if on_gpu(device):
                import_torch().cuda.synchronize(device.name)
                peaks[index] = f"{import_torch().cuda.max_memory_allocated(device.name) / 2**30:.1f}"
            if turn:
                seconds[index].append(time.perf_counter() - started)
    rates = [way.callers / statistics.median(taken) for way, taken in zip(ways, seconds, strict=True)]
    peers = {way.callers: rate for way, rate in reversed(list(zip(ways, rates, strict=True)))}
    return [
        (network, way.name, way.callers, way.batch, f"{rate:.3g}", f"{rate / peers[way.callers]:.2f}", peak)
        for way, rate, peak in zip(ways, rates, peaks, strict=True)
    ]


def beside(peer: str, plain: Callable[[int], object], ours: Callable[[int], Callable[[RGB], object]], pictures: list[RGB],
           callers: Sequence[int]) -> list[Way]:  # fmt: skip
    """Return the peer's loop and our batcher at 1 and at all callers, for each number of callers.

    plain: runs the network over so many pictures.   ours: most items a forward pass → a call with one picture.
    """
    ways = []
    for count in callers:
        ways.append(Way(name=peer, callers=count, batch=1, run=lambda n=count: plain(n)))
        for batch in sorted({1, count}):
            call, pool = ours(batch), ThreadPoolExecutor(count)
            run = lambda c=call, p=pool, n=count: list(p.map(c, pictures[:n]))  # noqa: E731
            ways.append(Way(name="editloupe", callers=count, batch=batch, run=run))
    return ways


def detector_rows(folder: Path, device: Device, *, callers: Sequence[int], side: tuple[int, int], rounds: int) -> list[Row]:
    """Measure a GroundingDINO from a folder on pictures of `side` px."""
    torch = import_torch()
    pictures = [wall(np.random.default_rng(seed), *side) for seed in range(max(callers))]
    weights = DETECTOR.find(str(folder))
    loaded = TransformersDetector(weights, device=device.name)._ready()

    def detector(max_batch: int, box_threshold: float) -> TransformersDetector:
        """A detector with a batcher of its own: one copy of the network in memory serves all."""
        made = TransformersDetector(weights, device=device.name, box_threshold=box_threshold)
        made._loaded, made._batcher.max_batch = loaded, max_batch
        return made

    # A random network is sure of hundreds of boxes, and their words take long to read.
    least = min(found.score for found in detector(1, 0.0)([pictures[0]], PHRASE)[0].detections[:10])

    def plain(count: int) -> None:
        for rgb in pictures[:count]:
            inputs = loaded.processor(images=[rgb], text=f"{PHRASE}.", return_tensors="pt").to(device.name)
            with torch.inference_mode(), torch.autocast(device.name.partition(":")[0], torch.float16, enabled=device.half):
                made = loaded.model(**inputs)
            made.logits, made.pred_boxes = made.logits.float(), made.pred_boxes.float()
            loaded.processor.post_process_grounded_object_detection(
                made, inputs["input_ids"], threshold=least, text_threshold=0.25, target_sizes=[rgb.shape[:2]]
            )

    def ours(batch: int) -> Callable[[RGB], object]:
        one = detector(batch, least)
        return lambda rgb: one([rgb], PHRASE)

    ways = beside("transformers, `model(**processor(…))` in a loop", plain, ours, pictures, callers)
    return measure(f"GroundingDINO Swin-T, {side[0]}×{side[1]} px", ways, device=device, rounds=rounds)


def upscaler_rows(path: Path, device: Device, *, callers: Sequence[int], side: int, rounds: int) -> list[Row]:
    """Measure a Real-ESRGAN ×4 from a file on crops of `side`×`side` px."""
    torch = import_torch()
    crops = [wall(np.random.default_rng(seed), side, side) for seed in range(max(callers))]
    network = NetworkUpscaler(path, digest="", device=device.name)._ready()

    def plain(count: int) -> None:
        for rgb in crops[:count]:
            x = torch.from_numpy(rgb).to(device.name).permute(2, 0, 1)[None]
            with torch.inference_mode():
                y = network.model(x.to(torch.float16 if device.half else torch.float32) / 255)
            (y.float().clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()

    def ours(batch: int) -> Callable[[RGB], object]:
        one = NetworkUpscaler(path, digest="", device=device.name)
        one._loaded, one._batcher.max_batch = network, batch
        return lambda rgb: one(rgb, 4)

    ways = beside("the network called in a loop", plain, ours, crops, callers)
    return measure(f"Real-ESRGAN ×4, {side}×{side} px", ways, device=device, rounds=rounds)


def make_grounding_dino(folder: Path, *, side_px: int) -> Path:
    """Write grounding-dino-tiny's architecture (Swin-T, BERT base, 6 + 6 layers, 900 queries; 172 M parameters), random.

    side_px: of a picture's shorter side as the network sees it.
    """
    from transformers import (
        BertTokenizerFast,
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessorPil,
        GroundingDinoProcessor,
    )

    folder.mkdir(parents=True, exist_ok=True)
    # transformers' GroundingDINO splits phrases at these ids of bert-base-uncased.
    fixed = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]", 1012: ".", 1029: "?"}
    letters = [chr(97 + i) for i in range(26)]
    spelled = dict(enumerate([*letters, *(f"##{c}" for c in letters)], start=2000))
    words = [fixed.get(i) or spelled.get(i) or f"[unused{i}]" for i in range(30_522)]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    import_torch().manual_seed(0)
    with reading("the networks"):
        GroundingDinoForObjectDetection(GroundingDinoConfig()).save_pretrained(folder)
        tokenizer = BertTokenizerFast(str(folder / "vocab.txt"))
        images = GroundingDinoImageProcessorPil(size={"shortest_edge": side_px, "longest_edge": side_px * 5 // 3})
        GroundingDinoProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder


def make_real_esrgan(path: Path) -> Path:
    """Write RealESRGAN_x4plus's architecture (64 features, 23 blocks; 16.7 M parameters), random."""
    from editloupe.models.upscale.rrdbnet import RRDBNet, Shape

    torch = import_torch()
    torch.manual_seed(0)
    torch.save({"params_ema": RRDBNet(Shape()).state_dict()}, path)
    return path


def on_gpu(device: Device) -> bool:
    """Return whether this is a CUDA GPU."""
    return device.name.startswith("cuda")


def machine(device: Device) -> str:
    """Return the machine in words: device, precision, threads, versions."""
    import transformers

    facts, threads = device.facts(), import_torch().get_num_threads()
    where = facts["device"] if device.name != "cpu" else f"{threads} CPU thread{'s' if threads > 1 else ''}"
    versions = f"torch {facts['torch']}, transformers {transformers.__version__}"
    return f"{where} ({platform.machine()}), {facts['precision']}, {versions}"


def main() -> None:
    """Print the table."""
    parser = options(__doc__)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N, mps (auto)")
    parser.add_argument("--quick", action="store_true", help="small pictures, 1 and 2 callers, one round")
    args = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    device = open_device(args.device)
    slow = device.name == "cpu"
    rounds = 1 if args.quick else 3 if slow else 5
    more: dict[str, Any] = {"callers": [1, 2] if args.quick else [1, 8] if slow else [1, 8, 32], "rounds": rounds}
    side = (320, 240) if args.quick else (1067, 800)
    with TemporaryDirectory() as place:
        dino = make_grounding_dino(Path(place) / "dino", side_px=side[1])
        rows = detector_rows(dino, device, side=side, **more)
        rows += upscaler_rows(make_real_esrgan(Path(place) / "x4.pth"), device, side=32 if args.quick else 64, **more)
    columns = ("network and picture", "run by", "callers:", "batch:", "items a second:", "× peer:", "GPU GiB:")
    text = f"Measured on: {machine(device)}. Random weights at full size, medians.\n\n{table(columns, rows)}"
    show("networks" if slow else "networks on a GPU", text, write=args.write)


if __name__ == "__main__":
    main()
