"""How fast the tools' networks are: GroundingDINO and Real-ESRGAN at full size, alone and in batches, beside their peers.

    python -m benchmarks.networks                 # on the first GPU, else the CPU
    python -m benchmarks.networks --write         # and put the table into benchmarks/README.md
    python -m benchmarks.networks --quick         # smaller pictures, fewer calls: does it run at all?
    python -m benchmarks.networks --upscaler realesrgan-x4plus.safetensors --detector FOLDER   # with weights of your own

Without weights of your own they are random, at full size, written to a folder and loaded by the code that loads real ones.
The speed of a network does not depend on them; what is done with a detector's boxes does, so few of them count here.
`N callers` are N threads that call at once, one picture each, as the samples of a run do. A second table says how far
outputs differ: in a batch from one by one, and on a GPU in fp16 from fp32.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.pages import put
from editloupe.data.images import RGB
from editloupe.models.detect.base import Detection
from editloupe.models.detect.transformers import TransformersDetector
from editloupe.models.devices import Device, import_torch, open_device
from editloupe.models.opening import DETECTOR
from editloupe.models.upscale.base import NetworkUpscaler
from editloupe.models.weights import reading

PHRASE = "red mug"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way of running one network.

    callers: threads that call at once.   batch: most items a forward pass.   rate: items a second, higher is better.
    peak_gib: most memory that the GPU held; None on a CPU, where a process's peak belongs to all rows before as well.
    """

    network: str
    way: str
    callers: int
    batch: int
    seconds: float
    rate: float
    peak_gib: float | None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far the outputs of one network differ between two ways of running it.

    ways: "this beside that".   same: share of outputs that are the same, as `what` says it.
    worst, mean: the largest difference and the mean of all.
    """

    network: str
    ways: str
    what: str
    same: float
    worst: float
    mean: float


@dataclass(frozen=True)
class Way:
    """run: does `callers` items.   callers, batch: as in Row."""

    name: str
    callers: int
    batch: int
    run: Callable[[], object]


def measure(network: str, ways: Sequence[Way], *, device: Device, rounds: int) -> list[Row]:
    """Each way once to warm up, then all of them in turn, `rounds` times: what slows the machine slows them all."""
    seconds: list[list[float]] = [[] for _ in ways]
    peaks: list[float | None] = [None] * len(ways)
    for turn in range(rounds + 1):
        print(f"{network}: round {turn} of {rounds}", file=sys.stderr)
        for index, way in enumerate(ways):
            _forget_peak(device)
            started = time.perf_counter()
            way.run()
            _wait(device)
            if turn:
                seconds[index].append(time.perf_counter() - started)
            peaks[index] = _peak(device)
    return [
        Row(
            network=network,
            way=way.name,
            callers=way.callers,
            batch=way.batch,
            seconds=round(statistics.median(taken), 4),
            rate=round(way.callers / statistics.median(taken), 4),
            peak_gib=peak,
        )
        for way, taken, peak in zip(ways, seconds, peaks, strict=True)
    ]


def detector_rows(
    folder: Path, device: Device, *, sizes: Sequence[int], side: tuple[int, int], rounds: int
) -> tuple[list[Row], list[Difference]]:
    """A GroundingDINO from a folder: pictures of `side` px, as many callers as `sizes` has it."""
    torch = import_torch()
    pictures = [drawn(*side, seed=seed) for seed in range(max(sizes))]
    ways: list[Way] = []
    weights = DETECTOR.find(str(folder))
    loaded = TransformersDetector(weights, device=device.name)._ready()

    def detector(network: Any, *, max_batch: int, box_threshold: float) -> TransformersDetector:
        """A network behind a batcher of its own: one copy in memory serves all."""
        made = TransformersDetector(weights, device=device.name, box_threshold=box_threshold, max_batch=max_batch)
        made._loaded = network
        return made

    # A random network is sure of hundreds of boxes, and their words take long to read.
    most_sure = detector(loaded, max_batch=1, box_threshold=0.0)([pictures[0]], PHRASE)[0].detections[:10]
    least = min(found.score for found in most_sure)

    def plain(count: int) -> None:
        for rgb in pictures[:count]:
            inputs = loaded.processor(images=[rgb], text=f"{PHRASE}.", return_tensors="pt").to(device.name)
            with torch.inference_mode(), torch.autocast(_kind(device), torch.float16, enabled=device.half):
                made = loaded.model(**inputs)
            made.logits, made.pred_boxes = made.logits.float(), made.pred_boxes.float()
            loaded.processor.post_process_grounded_object_detection(
                made, inputs["input_ids"], threshold=least, text_threshold=0.25, target_sizes=[rgb.shape[:2]]
            )

    for count in sizes:
        ways.append(Way("transformers, `model(**processor(…))` in a loop", count, 1, lambda n=count: plain(n)))
        for batch in sorted({1, count}):
            ours = detector(loaded, max_batch=batch, box_threshold=least)
            pool = ThreadPoolExecutor(count)
            ways.append(
                Way(
                    "editloupe",
                    count,
                    batch,
                    lambda o=ours, p=pool, n=count: list(p.map(lambda rgb: o([rgb], PHRASE), pictures[:n])),
                )
            )
    name = f"GroundingDINO Swin-T, {side[0]}×{side[1]} px"
    rows = measure(name, ways, device=device, rounds=rounds)
    shown = pictures[:8]

    def boxes(max_batch: int, precision: Device) -> list[list[Detection]]:
        ours = detector(replace(loaded, device=precision), max_batch=max_batch, box_threshold=0.0)
        return [list(found.detections) for found in ours(shown, PHRASE)]

    alone = boxes(1, device)
    differences = [boxes_apart(name, f"a batch of {len(shown)} beside one by one", boxes(len(shown), device), alone)]
    if device.half:
        full = boxes(1, replace(device, half=False))
        differences.append(boxes_apart(name, "fp16 beside fp32", alone, full))
    return rows, differences


def boxes_apart(
    network: str, ways: str, found: Sequence[Sequence[Detection]], beside: Sequence[Sequence[Detection]]
) -> Difference:
    """Compare all boxes of pictures, each with the box of the other way that lies nearest.

    The same is a box whose sides are within 1 px and whose score is within 0.01. `worst` and `mean` are of scores.
    """
    same: list[bool] = []
    apart: list[float] = []
    for ours, theirs in zip(found, beside, strict=True):
        boxes = np.array([list(d.box) for d in theirs], dtype=float)
        scores = np.array([d.score for d in theirs])
        for one in ours:
            sides = np.abs(boxes - np.array(list(one.box), dtype=float)).max(1)
            nearest = int((sides + 100 * np.abs(scores - one.score)).argmin())
            apart.append(abs(float(scores[nearest]) - one.score))
            same.append(bool(sides[nearest] <= 1 and apart[-1] <= 0.01))
    what = "boxes within 1 px and 0.01 of a score; scores, 0 to 1"
    return Difference(
        network=network, ways=ways, what=what, same=float(np.mean(same)), worst=max(apart), mean=float(np.mean(apart))
    )


def upscaler_rows(
    path: Path, device: Device, *, sizes: Sequence[int], side: int, rounds: int
) -> tuple[list[Row], list[Difference]]:
    """A Real-ESRGAN ×4 from a file: crops of `side`×`side` px."""
    torch = import_torch()
    crops = [drawn(side, side, seed=seed) for seed in range(max(sizes))]
    ways: list[Way] = []
    network = NetworkUpscaler(path, digest="", device=device.name)._ready()

    def upscaler(loaded: Any, *, max_batch: int) -> NetworkUpscaler:
        """A network behind a batcher of its own: one copy in memory serves all."""
        made = NetworkUpscaler(path, digest="", device=device.name, max_batch=max_batch)
        made._loaded = loaded
        return made

    def plain(count: int) -> None:
        for rgb in crops[:count]:
            x = torch.from_numpy(rgb).to(device.name).permute(2, 0, 1)[None]
            with torch.inference_mode():
                y = network.model(x.to(torch.float16 if device.half else torch.float32) / 255)
            (y.float().clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()

    for count in sizes:
        ways.append(Way("the network called in a loop", count, 1, lambda n=count: plain(n)))
        for batch in sorted({1, count}):
            ours = upscaler(network, max_batch=batch)
            pool = ThreadPoolExecutor(count)
            ways.append(
                Way(
                    "editloupe",
                    count,
                    batch,
                    lambda o=ours, p=pool, n=count: list(p.map(lambda rgb: o(rgb, 4), crops[:n])),
                )
            )
    name = f"Real-ESRGAN ×4, {side}×{side} px"
    rows = measure(name, ways, device=device, rounds=rounds)
    shown = example_crops(side, 8)

    def drawings(max_batch: int, loaded: Any) -> list[RGB]:
        ours = upscaler(loaded, max_batch=max_batch)
        with ThreadPoolExecutor(len(shown)) as pool:
            return list(pool.map(lambda rgb: ours(rgb, 4), shown))

    alone = drawings(1, network)
    differences = [pixels_apart(name, "a batch of 4 beside one by one", drawings(4, network), alone)]
    if device.half:
        plainly = replace(network, model=copy.deepcopy(network.model).float(), device=replace(device, half=False))
        differences.append(pixels_apart(name, "fp16 beside fp32", alone, drawings(1, plainly)))
    return rows, differences


def pixels_apart(network: str, ways: str, found: Sequence[RGB], beside: Sequence[RGB]) -> Difference:
    """Compare pictures, value by value. The same is a value that is within 1 of 255; `worst` and `mean` are of 255."""
    apart = np.concatenate([np.abs(one.astype(int) - other).ravel() for one, other in zip(found, beside, strict=True)])
    return Difference(
        network=network,
        ways=ways,
        what="values within 1 of 255; values, of 255",
        same=float(np.mean(apart <= 1)),
        worst=float(apart.max()),
        mean=float(apart.mean()),
    )


def example_crops(side: int, count: int) -> list[RGB]:
    """Crops of `side`×`side` px from the middle of the images of examples/edits."""
    paths = sorted((Path(__file__).parents[1] / "examples" / "edits" / "images").glob("*.png"))[:count]
    crops = []
    for path in paths:
        with Image.open(path) as image:
            x, y = (image.width - side) // 2, (image.height - side) // 2
            crops.append(np.asarray(image.convert("RGB").crop((x, y, x + side, y + side))))
    return crops


def make_grounding_dino(folder: Path, *, side_px: int = 800) -> Path:
    """grounding-dino-tiny's architecture (Swin-T, BERT base, 6 + 6 layers, 900 queries; 172 M parameters), random.

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
    """RealESRGAN_x4plus's architecture (64 features, 23 blocks; 16.7 M parameters), random, as a published checkpoint."""
    from editloupe.models.upscale.rrdbnet import RRDBNet, Shape

    torch = import_torch()
    torch.manual_seed(0)
    torch.save({"params_ema": RRDBNet(Shape()).state_dict()}, path)
    return path


def drawn(width: int, height: int, *, seed: int) -> RGB:
    """A picture with structure at several scales, H×W×3 uint8."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 200, (-(-height // 16), -(-width // 16), 3)).repeat(16, axis=0).repeat(16, axis=1)
    made = coarse[:height, :width] + random.integers(0, 56, (height, width, 3))
    return np.asarray(made, dtype=np.uint8)


def machine(device: Device) -> str:
    """The machine in words: device, precision, threads, versions."""
    import transformers

    torch = import_torch()
    facts = device.facts()
    threads = torch.get_num_threads()
    where = facts["device"] if device.name != "cpu" else f"{threads} CPU thread{'s' if threads > 1 else ''}"
    kind = platform.machine()
    return f"{where} ({kind}), {facts['precision']}, torch {facts['torch']}, transformers {transformers.__version__}"


def table(rows: Sequence[Row], words: str, weights: str = "Random weights at full size") -> str:
    """Markdown: items a second, and each way against the first of as many items of the same network."""
    lines = [f"Measured on: {words}. {weights}, medians.", ""]
    lines += ["| network and picture | run by | callers | batch | items a second | × peer | GPU GiB |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        peer = next(r for r in rows if (r.network, r.callers) == (row.network, row.callers))
        memory = "–" if row.peak_gib is None else f"{row.peak_gib:.1f}"
        lines.append(
            f"| {row.network} | {row.way} | {row.callers} | {row.batch} | {row.rate:.3g} | {row.rate / peer.rate:.2f} "
            f"| {memory} |"
        )
    return "\n".join(lines)


def difference_table(differences: Sequence[Difference]) -> str:
    """Markdown: how far outputs differ."""
    lines = ["| network and picture | outputs | the same | worst | mean | of what |", "|---|---|---:|---:|---:|---|"]
    lines += [
        f"| {d.network} | {d.ways} | {100 * d.same:.3g} % | {d.worst:.3g} | {d.mean:.2g} | {d.what} |" for d in differences
    ]
    return "\n".join(lines)


def _kind(device: Device) -> str:
    return device.name.partition(":")[0]


def _wait(device: Device) -> None:
    if _kind(device) == "cuda":
        import_torch().cuda.synchronize(device.name)


def _forget_peak(device: Device) -> None:
    if _kind(device) == "cuda":
        import_torch().cuda.reset_peak_memory_stats(device.name)


def _peak(device: Device) -> float | None:
    if _kind(device) != "cuda":
        return None
    return round(import_torch().cuda.max_memory_allocated(device.name) / 2**30, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Items a second of the tools' networks, alone and in batches.")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N, mps (auto)")
    parser.add_argument("--callers", type=int, nargs="+", help="how many call at once (1 8 32; on a CPU 1 8)")
    parser.add_argument("--rounds", type=int, help="measured rounds after one to warm up (5; on a CPU 3)")
    parser.add_argument("--threads", type=int, help="CPU threads of a network (torch's choice)")
    parser.add_argument("--only", choices=("detector", "upscaler"), help="one of the two networks")
    parser.add_argument("--detector", type=Path, help="a folder of GroundingDINO that transformers saved (random weights)")
    parser.add_argument("--upscaler", type=Path, help="a file of Real-ESRGAN ×4 (random weights)")
    parser.add_argument("--quick", action="store_true", help="small pictures, 1 and 2 callers, one round")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if options.threads:
        import_torch().set_num_threads(options.threads)
    device = open_device(options.device)
    slow = device.name == "cpu"
    sizes = options.callers or ([1, 2] if options.quick else [1, 8] if slow else [1, 8, 32])
    rounds = options.rounds or (1 if options.quick else 3 if slow else 5)
    rows: list[Row] = []
    differences: list[Difference] = []
    with TemporaryDirectory() as place:
        if options.only != "upscaler":
            side = (320, 240) if options.quick else (1067, 800)
            folder = options.detector or make_grounding_dino(Path(place) / "dino", side_px=min(800, side[1]))
            measured, apart = detector_rows(folder, device, sizes=sizes, side=side, rounds=rounds)
            rows, differences = rows + measured, differences + apart
        if options.only != "detector":
            side_px = 32 if options.quick else 64
            path = options.upscaler or make_real_esrgan(Path(place) / "x4.pth")
            measured, apart = upscaler_rows(path, device, sizes=sizes, side=side_px, rounds=rounds)
            rows, differences = rows + measured, differences + apart
    words = machine(device)
    own = [str(path.name) for path in (options.detector, options.upscaler) if path is not None]
    weights = f"Weights: {', '.join(own)}; random where none are named" if own else "Random weights at full size"
    text = f"{table(rows, words, weights)}\n\n{difference_table(differences)}"
    print(text)
    if options.json:
        figures: dict[str, Any] = {"machine": words, "rounds": rounds, "rows": [asdict(row) for row in rows]}
        figures["differences"] = [asdict(one) for one in differences]
        options.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.write:
        put("networks" if device.name == "cpu" else "networks on a GPU", text)


if __name__ == "__main__":
    main()
