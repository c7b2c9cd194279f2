"""How `run_0_2_0.tar.xz` was made, by version 0.2.0. Not to be run again: later versions read what this version wrote.

Six drawn edits, each asked twice of two judges with tools: the pixel baseline, and a model whose labels waver, which once
says something that cannot be read. Two people rated instruction following. The output of one edit is missing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from PIL import Image, ImageDraw

from tests.guards.old_run import PACKED
from tests.guards.scenarios import final
from tests.guards.wire import Asked, Call, Says, Wire, look

WALLS = {"sand": (214, 205, 188), "sky": (190, 208, 224), "mint": (192, 218, 198)}
LEVELS = {
    "Instruction Following": ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution"),
    "Visual Consistency": ("Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency"),
}
EDITS = {
    # wall, what is asked, edit type, mug and plate afterward, the model's labels of both repeats, people's labels
    "mug-sand": ("sand", "Change the color of the red mug to blue.", "Change Color", "blue", True, (4, 4), (3, 3)),
    "mug-sky": ("sky", "Change the color of the red mug to blue.", "Change Color", "red", True, (1, 2), (1, 1)),
    "mug-mint": ("mint", "Change the color of the red mug to blue.", "Change Color", "green", True, (3, 2), (4, 4)),
    "plate-sand": ("sand", "Remove the white plate.", "Removal Object", "red", False, (4, 3), (4, 3)),
    "plate-sky": ("sky", "Remove the white plate.", "Removal Object", "", True, (1, 1), (2, 2)),
    "plate-mint": ("mint", "Remove the white plate.", "Removal Object", None, None, (4, 4), (4, 4)),
}


def scene(wall: str, mug: str | None, plate: bool) -> Image.Image:
    image = Image.new("RGB", (160, 120), WALLS[wall])
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 66, 159, 119), fill=(138, 96, 62))
    if plate:
        draw.ellipse((90, 80, 130, 100), fill=(240, 240, 236))
    if mug:
        draw.rectangle((40, 50, 59, 73), fill={"red": (200, 40, 40), "blue": (40, 60, 200), "green": (40, 150, 60)}[mug])
    return image


def draw_edits(folder: Path) -> None:
    folder.mkdir(parents=True)
    rows = []
    for name, (wall, instruction, kind, mug, plate, _, people) in EDITS.items():
        scene(wall, "red", True).save(folder / f"{wall}.png")
        if plate is not None:
            scene(wall, mug, plate).save(folder / f"{name}.png")
        row = {"id": name, "source_file_name": f"{wall}.png", "instruction": instruction, "edit_type": kind}
        raters = zip(("ann", "ben"), people, strict=True)
        row |= {f"human_if_{who}": LEVELS["Instruction Following"][value - 1] for who, value in raters}
        rows.append(row | {"edited_file_name": f"{name}.png" if plate is not None else ""})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def says(asked: Asked) -> Says:
    """Look closer at one edit, answer the others at once."""
    criterion = next(name for name in LEVELS if f"Criterion: {name}" in asked.text)
    pictures = " ".join(part.text for part in asked.messages[0][1] if part.kind == "image")
    name = next(name for name in EDITS if LOOKS.get(name) == pictures)
    repeat = asked.settings.get("seed", 0) % 2
    if name == "mug-sand" and not asked.turn:
        return Call("zoom_in", {"target_image": "Edited Image", "bbox": [200, 350, 450, 700]})
    if name == "mug-mint" and criterion.startswith("Visual") and repeat:
        return "I would rather describe the picture."
    return final(LEVELS[criterion][EDITS[name][5][repeat] - 1])


LOOKS: dict[str, str] = {}
"""Edit → how its two pictures look on the wire."""


def main() -> None:
    work = Path(sys.argv[1])
    draw_edits(work / "edits")
    for name, (wall, *_) in EDITS.items():
        files = [work / "edits" / f"{wall}.png", work / "edits" / f"{name}.png"]
        LOOKS[name] = " ".join(look(file.read_bytes(), "image/png") for file in files if file.is_file())
    with Wire(says) as wire:
        uri = f"openai/guard?base_url={wire.address}/v1&env=none"
        words = ("--backend", "rules=baseline", "--backend", f"model={uri}", "--repeats", "2")
        command = [
            sys.executable,
            "-m",
            "editloupe",
            "judge",
            "edits",
            *words,
            "--out",
            "run_0_2_0",
            "--fail-on-error",
            "1",
        ]
        subprocess.run(command, cwd=work, check=True)
    run = work / "run_0_2_0"
    for name in ("cache", "report"):
        shutil.rmtree(run / name, ignore_errors=True)
    for path in (*run.glob("run.lock"), *run.glob("run.owner"), *run.glob("*.sqlite*")):
        path.unlink()
    # Without this machine's paths.
    for path in (p for p in run.iterdir() if p.is_file()):
        path.write_text(path.read_text(encoding="utf-8").replace(f"{work}/", ""), encoding="utf-8")
    with tarfile.open(PACKED, "w:xz") as packed:
        packed.add(run, "run_0_2_0", filter=nobodys)


def nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry that does not say who made it, nor when."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
