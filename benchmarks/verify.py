"""How many pairs a minute the rules of unicverify settle, through the command and without a model.

    python -m benchmarks.verify --write      # 200 pairs of each kind, and the table goes into benchmarks/README.md

Drawn pairs of 512×512 px, every one another picture, as PNG: identical; saved again as JPEG of quality 60 to 95; with a
thing of 40 to 120 px painted in; and a third of each. A round is `editloupe judge FOLDER --protocol unicverify --option
rules=only --option no_edit=differences`: the start of Python, decoding, a run folder with a trace for each pair. Drawing is
not timed. What is right is known, and wrong calls are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np

from benchmarks.drawing import RGB, backdrop
from benchmarks.pages import put

KINDS = ("identical", "saved again", "edited")
BACKDROPS = ("wall", "carpet", "tiles", "planks", "blurred photo", "skyline", "hills", "plaid")
SIDE = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200, help="of each kind")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    args = parser.parse_args()
    lines = ["| pairs | pairs a minute | CPU s a pair | wrong |", "|---|---|---|---|"]
    with TemporaryDirectory() as folder:
        for name, kinds in (("a third of each", KINDS), *((kind, (kind,)) for kind in KINDS)):
            place = Path(folder, name.replace(" ", "-"))
            truth = draw(place, args.pairs, kinds)
            seconds, cpu, changed = command(place, Path(folder, "run", place.name))
            wrong = sum(changed[key] != value for key, value in truth.items())
            per = f"{60 * args.pairs / seconds:,.0f}"
            lines.append(f"| {name} | {per} | {cpu / args.pairs:.3f} | {wrong} of {args.pairs} |")
    cores = len(os.sched_getaffinity(0))
    text = "\n".join([*lines, "", f"{args.pairs} pairs a row, {SIDE}×{SIDE} px, {cores} cores, OpenCV {cv2.__version__}."])
    print(text)
    if args.write:
        put("verify", text)


def draw(folder: Path, count: int, kinds: tuple[str, ...]) -> dict[str, bool]:
    """Write pairs as a folder of edits. Return id → whether something was edited."""
    (folder / "images").mkdir(parents=True)
    rows, truth = [], {}
    for number in range(count):
        kind = kinds[number % len(kinds)]
        rng = np.random.default_rng((number, KINDS.index(kind)))
        source = backdrop(BACKDROPS[number % len(BACKDROPS)], rng, SIDE, SIDE)
        names = {}
        for role, rgb in (("source", source), ("edited", delivered(source, kind, rng))):
            names[f"{role}_file_name"] = f"images/{number:04}-{role}.png"
            cv2.imwrite(str(folder / names[f"{role}_file_name"]), rgb[..., ::-1])
        rows.append({"id": f"{number:04}", **names, "instruction": "Add a thing."})
        truth[f"{number:04}"] = kind == "edited"
    (folder / "metadata.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return truth


def delivered(source: RGB, kind: str, rng: np.random.Generator) -> RGB:
    """Return what the editor of a kind makes of a picture."""
    if kind == "identical":
        return source
    if kind == "saved again":
        quality = int(rng.integers(60, 96))
        coded = cv2.imencode(".jpg", source[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
        return cv2.imdecode(coded, cv2.IMREAD_COLOR)[..., ::-1]
    side, colour = int(rng.integers(40, 121)), tuple(int(v) for v in rng.integers(0, 256, 3))
    x, y = (int(v) for v in rng.integers(0, SIDE - side, 2))
    edited = source.copy()
    cv2.circle(edited, (x + side // 2, y + side // 2), side // 2, colour, -1, cv2.LINE_AA)
    return edited


def command(folder: Path, out: Path) -> tuple[float, float, dict[str, bool]]:
    """Return seconds, CPU seconds and id → whether the run says that the pair changed."""
    options = ("--option", "rules=only", "--option", "no_edit=differences")
    program = (sys.executable, "-m", "editloupe", "judge", str(folder), "--protocol", "unicverify", *options)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run([*program, "--out", str(out), "--json"], check=True, capture_output=True)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = (json.loads(line) for line in (out / "findings.jsonl").read_text().splitlines())
    return seconds, cpu, {line["sample_id"]: line["value"] != 0 for line in lines}


if __name__ == "__main__":
    main()
