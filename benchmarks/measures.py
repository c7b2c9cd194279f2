"""How fast the measures of an edit are, beside GIE-Bench's published functions, and whether they give the same numbers.

    python -m benchmarks.measures --data EDITS            # a folder of real edits; at most 200 pairs, 3 rounds
    python -m benchmarks.measures --data EDITS --write    # and put the table into benchmarks/README.md

Four measures: MSE, PSNR and L1 of the whole image (the scripts' mask has no effect on them), and SSIM as published.
`aligned` lays the edited image onto the source by SIFT first, as the scripts do; `as it is` does not. The published
functions are written anew from their description with OpenCV and scikit-image: each script reads both files and aligns them
for itself; L1, which none has, is counted in PSNR's. FLANN's trees are random: OpenCV gets the same seed for every pair in
all ways, without which the scripts' numbers differ from call to call. Ways take turns, each round in a process of its own;
medians of the rounds. Edits that OpenCV and Pillow read differently (transparency, color profiles) and those of two sizes
are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
from PIL import Image

from benchmarks.pages import put
from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.errors import MeasureError
from editloupe.measures.base import run_measure

MEASURES = ("mse", "psnr", "l1", "ssim")
WAYS = ("editloupe, in Python", "editloupe measure", "published functions")
Values = dict[str, float | None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of real edits")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "ALIGN"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one_round(args.one[0], args.one[1], args.data)))
        return
    with TemporaryDirectory() as folder:
        count = prepare(args.data, Path(folder), args.pairs)
        text = report(Path(folder), count, args.rounds)
    print(text)
    if args.write:
        put("measures", text)


def prepare(data: Path, folder: Path, most: int) -> int:
    """Write pairs with a mask of 224×224 px as a folder of edits; return how many."""
    samples = load(data, store=ImageStore(cache_bytes=0)).samples
    pairs = [(s.source.path, s.edited.path) for s in samples if s.edited and s.source.path and s.edited.path]
    rows = []
    for number, paths in enumerate([pair for pair in pairs if alike(*pair)][:most]):
        names = [f"{role}-{number}{path.suffix}" for role, path in zip(("source", "edited"), paths, strict=True)]
        for name, path in zip(names, paths, strict=True):
            (folder / name).write_bytes(path.read_bytes())
        rng = np.random.default_rng(number)
        mask = np.zeros((224, 224), np.uint8)
        x, y, w, h = (int(v) for v in (*rng.integers(20, 120, 2), *rng.integers(30, 90, 2)))
        mask[y : y + h, x : x + w] = 255
        Image.fromarray(mask).save(folder / f"mask-{number}.png")
        files = dict(zip(("source_file_name", "edited_file_name"), names, strict=True))
        rows.append({"id": f"{number:03d}", **files, "mask_file_name": f"mask-{number}.png", "instruction": "?"})
    (folder / "metadata.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return len(rows)


def alike(source: Path, edited: Path) -> bool:
    """Return whether two files have one size and are read alike by OpenCV and by editloupe."""
    store, shapes = ImageStore(cache_bytes=0), []
    for path in (source, edited):
        read, own = cv2.imread(str(path)), store.array(store.add_file(path))
        if read is None or not np.array_equal(read[..., ::-1], own) or Image.open(path).mode != "RGB":
            return False
        shapes.append(own.shape)
    return shapes[0] == shapes[1]


def one_round(way: str, align: str, folder: Path) -> dict[str, Any]:
    """Measure all pairs in one way. Return seconds, the peak of memory in MiB, and the values by pair."""
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines()]
    begin = {"published functions": published, "editloupe, in Python": ours, "editloupe measure": command}[way]
    seconds, values = begin(folder, rows, align)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "seconds": seconds,
        "cpu": sum(one.ru_utime + one.ru_stime for one in used),
        "peak": max(one.ru_maxrss for one in used) / 1024,
        "values": values,
    }


def published(folder: Path, rows: list[dict[str, str]], align: str) -> tuple[float, dict[str, Values]]:
    """Return seconds and values of the published functions."""
    from skimage.metrics import structural_similarity

    def aligned(source: Any, edited: Any) -> Any:
        if align == "none":
            return edited
        gray = [cv2.cvtColor(image, cv2.COLOR_BGR2GRAY) for image in (source, edited)]
        sift: Any = cv2.SIFT.create()
        (points_1, told_1), (points_2, told_2) = (sift.detectAndCompute(image, None) for image in gray)
        if told_1 is None or told_2 is None:
            return None
        cv2.setRNGSeed(0)
        matcher = cv2.FlannBasedMatcher({"algorithm": 1, "trees": 5}, {"checks": 50})
        good = [m for m, n in matcher.knnMatch(told_1, told_2, k=2) if m.distance < 0.7 * n.distance]
        if len(good) < 4:
            return None
        here = np.float32([points_1[m.queryIdx].pt for m in good]).reshape(-1, 1, 2)
        there = np.float32([points_2[m.trainIdx].pt for m in good]).reshape(-1, 1, 2)
        matrix: Any
        matrix, _ = cv2.estimateAffinePartial2D(there, here, method=cv2.LMEDS)
        if matrix is None:
            return None
        height, width = source.shape[:2]
        return cv2.warpAffine(edited, matrix, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)

    def read(row: dict[str, str]) -> tuple[Any, Any]:
        names = (row["source_file_name"], row["edited_file_name"])
        source, edited = (cv2.imread(str(folder / name)) for name in names)
        return source, aligned(source, edited)

    def squares(row: dict[str, str]) -> tuple[float | None, Any, Any]:
        source, edited = read(row)
        if edited is None:
            return None, source, edited
        # The scripts' masks hold 0 and 1 and are compared with 128: every pixel counts.
        counted = (np.zeros(source.shape[:2], np.uint8) < 128).astype(np.uint8)
        squared = (source.astype(np.float32) - edited.astype(np.float32)) ** 2
        return float(np.sum(squared * counted[..., None]) / (np.sum(counted) * 3 + 1e-10)), source, edited

    def similar(row: dict[str, str]) -> float:
        rest = 1 - (np.array(Image.open(folder / row["mask_file_name"])) > 127).astype(np.uint8)
        two = []
        for name in (row["source_file_name"], row["edited_file_name"]):
            image = Image.open(folder / name).resize((224, 224), Image.Resampling.LANCZOS).convert("L")
            two.append(np.array(image, dtype=np.float32) / 255.0 * rest)
        return float(structural_similarity(two[0], two[1], data_range=1.0, full=True)[0])

    found: dict[str, Values] = {row["id"]: {} for row in rows}
    began = time.perf_counter()
    for row in rows:
        found[row["id"]]["mse"] = squares(row)[0]
    for row in rows:
        mean, source, edited = squares(row)
        found[row["id"]]["psnr"] = None if not mean else float(10 * np.log10(255**2 / mean))
        found[row["id"]]["l1"] = None if edited is None else float(np.mean(np.abs(source.astype(np.float32) - edited)))
    for row in rows:
        found[row["id"]]["ssim"] = similar(row)
    return time.perf_counter() - began, found


def ours(folder: Path, rows: list[dict[str, str]], align: str) -> tuple[float, dict[str, Values]]:
    """Return seconds and values of the measures, called one after the other."""
    found: dict[str, Values] = {}
    began = time.perf_counter()
    store = ImageStore(cache_bytes=2**26)
    for row in rows:
        names = {"source": "source_file_name", "edited": "edited_file_name", "mask": "mask_file_name"}
        images = {alias: store.array(store.add_file(folder / row[name])) for alias, name in names.items()}
        found[row["id"]] = {}
        for name in MEASURES:
            try:
                value = run_measure(name, {"mask": "official", "align": align}, images).value
            except MeasureError:
                value = None
            found[row["id"]][name] = value
    return time.perf_counter() - began, found


def command(folder: Path, rows: list[dict[str, str]], align: str) -> tuple[float, dict[str, Values]]:
    """Return seconds and values of the command, with its run folder, on all cores; the start of Python included."""
    with TemporaryDirectory() as out:
        words = ["measure", str(folder), "--measures", ",".join(MEASURES), "--mask", "official", "--set", f"align={align}"]
        words += ["--out", f"{out}/run", "--fail-on-error", "1", "--format", "json"]
        program = [sys.executable, "-m", "editloupe", *words]
        began = time.perf_counter()
        subprocess.run(program, check=True, capture_output=True)
        seconds = time.perf_counter() - began
        lines = [json.loads(line) for line in Path(out, "run", "findings.jsonl").read_text().splitlines()]
    found: dict[str, Values] = {row["id"]: {} for row in rows}
    for line in lines:
        found[line["sample_id"]][line["metric"]] = line["value"]
    return seconds, found


def report(folder: Path, count: int, rounds: int) -> str:
    """Return the table and what it was measured on."""
    lines = [
        "| | s a pair | times as fast | CPU s a pair | peak of memory, MiB | largest difference from the published |",
        "|---|---|---|---|---|---|",
    ]
    for align in ("sift", "none"):
        made: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way in WAYS:
                program = [sys.executable, "-m", "benchmarks.measures", "--data", str(folder), "--one", way, align]
                done = subprocess.run(program, check=True, capture_output=True, text=True)
                made[way].append(json.loads(done.stdout))
        theirs = made["published functions"]
        slow = statistics.median(one["seconds"] for one in theirs)
        for way in WAYS:
            seconds = statistics.median(one["seconds"] for one in made[way])
            peak = max(one["peak"] for one in made[way])
            same = "–" if way == "published functions" else difference(made[way][0]["values"], theirs[0]["values"])
            name = f"{way}, {'aligned' if align == 'sift' else 'as it is'}"
            cpu = statistics.median(one["cpu"] for one in made[way]) / count
            lines.append(f"| {name} | {seconds / count:.3f} | {slow / seconds:.1f} | {cpu:.3f} | {peak:.0f} | {same} |")
    cores, opencv = len(os.sched_getaffinity(0)), cv2.__version__
    return "\n".join([*lines, "", f"{count} pairs, {cores} cores, OpenCV {opencv}, median of {rounds} rounds."])


def difference(found: dict[str, Values], theirs: dict[str, Values]) -> str:
    """Return the largest relative difference, and how many values only one of the two has."""
    largest, alone = 0.0, 0
    for key, values in theirs.items():
        for name, value in values.items():
            own = found[key].get(name)
            if own is None or value is None:
                alone += (own is None) != (value is None)
            else:
                largest = max(largest, abs(own - value) / max(1e-9, abs(value)))
    return f"{largest:.1g} of the value" + (f"; {alone} with a value in one alone" if alone else "")


if __name__ == "__main__":
    main()
