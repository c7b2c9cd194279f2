"""Draws examples/edits: four pictures, twelve edits of them, and labels that are known because the failures were put in.

python docs/site/draw_edits.py            # from the repository's root; the same bytes every time
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw

ROOT = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(ROOT.parent))

from benchmarks.drawing import RGB, Thing, render, sketched  # noqa: E402

WIDTH, HEIGHT = 512, 384
FOLDER = ROOT / "edits"

FLAWLESS, OVER, WRONG, MISSED = "Flawless Execution", "Over Modification", "Wrong Action", "Localization Failure"
PERFECT, SINGLE, MULTIPLE, COLLAPSE = "Perfect Consistency", "Single Anomaly", "Multiple Anomalies", "Scene Collapse"

_BEGIN, _END = "<!-- drawn: begin -->", "<!-- drawn: end -->"

Things = Mapping[str, Thing]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One source: its backdrop and its things by name. standing: whether things throw a shadow where they stand."""

    name: str
    ground: Callable[[], RGB]
    things: Things
    standing: bool = True


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One edit. changes: by name, the thing as it is afterward, None where it is gone; new names are added.

    style: what befell the whole picture.   about: what was done, for the README of the folder.
    """

    id: str
    picture: Picture
    target: str
    instruction: str
    edit_type: str
    changes: Mapping[str, Thing | None]
    following: str
    consistency: str
    about: str
    style: Callable[[RGB], RGB] | None = None


# Backdrops --------------------------------------------------------------------------------------------------------------


def kitchen() -> RGB:
    """A tiled wall with two wooden shelves."""
    image, pen, k = _canvas("#dfe8e4")
    for row in range(9):
        for column in range(10):
            x, y = column * 56 - (28 if row % 2 else 0), row * 44
            tone = 232 + (row * 7 + column * 5) % 9
            pen.rounded_rectangle(
                [v * k for v in (x + 2, y + 2, x + 54, y + 42)], 4 * k, fill=(tone - 6, tone + 2, tone - 2)
            )
    for top in (172, 330):
        pen.rectangle([0, top * k, WIDTH * k, (top + 16) * k], fill="#a9764a")
        pen.rectangle([0, top * k, WIDTH * k, (top + 4) * k], fill="#c4915f")
        pen.rectangle([0, (top + 16) * k, WIDTH * k, (top + 24) * k], fill="#c9d3cf")
    return _finished(image)


def harbour() -> RGB:
    """Morning sky, hills and a calm sea."""
    image, pen, k = _canvas("#ffffff")
    for y in range(HEIGHT):
        t = y / 210
        sky = (int(150 + 95 * t), int(200 + 25 * t), int(236 - 14 * t))
        depth = (y - 210) / 174
        sea = (int(92 - 46 * depth), int(158 - 52 * depth), int(180 - 36 * depth))
        pen.rectangle([0, y * k, WIDTH * k, (y + 1) * k], fill=sky if y < 210 else sea)
    pen.ellipse([v * k for v in (392, 36, 448, 92)], fill="#fff3c4")
    for color, peaks in (("#a8bccb", (60, 190, 340, 470)), ("#86a3ad", (0, 140, 260, 420))):
        for i, x in enumerate(peaks):
            height = 52 + 17 * ((i * 3 + len(color)) % 3)
            pen.polygon([v * k for v in (x - 110, 210, x, 210 - height, x + 110, 210)], fill=color)
    for i in range(46):
        x, y = (i * 137) % WIDTH, 222 + (i * 53) % 155
        pen.line([v * k for v in (x, y, x + 10 + y // 14, y)], fill=(148, 196, 208), width=k)
    return _finished(image)


def street() -> RGB:
    """Houses, a pavement and a road in the afternoon."""
    image, pen, k = _canvas("#ffffff")
    for y in range(HEIGHT):
        t = y / 250
        pen.rectangle([0, y * k, WIDTH * k, (y + 1) * k], fill=(int(196 + 44 * t), int(220 + 8 * t), int(240 - 26 * t)))
    x = -10
    for i, (width, top, tone) in enumerate(
        (
            (92, 84, "#c9a58a"),
            (74, 48, "#b3b9c4"),
            (100, 108, "#d8c39b"),
            (84, 62, "#a9b8a4"),
            (96, 94, "#c3a9b1"),
            (92, 56, "#b8ad9c"),
        )
    ):
        pen.rectangle([v * k for v in (x, top, x + width, 262)], fill=tone)
        pen.rectangle([v * k for v in (x, top, x + width, top + 7)], fill="#7d7671")
        for wy in range(top + 20, 214, 34):
            for wx in range(x + 13, x + width - 16, 26):
                pen.rectangle(
                    [v * k for v in (wx, wy, wx + 14, wy + 20)], fill="#f6ecc9" if (wx + wy + i) % 5 == 0 else "#7f94a5"
                )
        x += width
    pen.rectangle([v * k for v in (0, 258, WIDTH, 292)], fill="#c8c4bd")
    pen.rectangle([v * k for v in (0, 290, WIDTH, 295)], fill="#a09c96")
    pen.rectangle([v * k for v in (0, 295, WIDTH, HEIGHT)], fill="#6c6f76")
    for x in range(14, WIDTH, 84):
        pen.rectangle([v * k for v in (x, 346, x + 46, 351)], fill="#e4e0d2")
    return _finished(image)


def study() -> RGB:
    """A papered wall above a desk."""
    image, pen, k = _canvas("#e9dfcd")
    for x in range(0, WIDTH, 32):
        pen.rectangle([v * k for v in (x, 0, x + 12, 292)], fill="#e2d6c1")
    pen.rectangle([v * k for v in (0, 286, WIDTH, 296)], fill="#6f4a34")
    for y in range(296, HEIGHT):
        t = (y - 296) / (HEIGHT - 296)
        pen.rectangle([0, y * k, WIDTH * k, (y + 1) * k], fill=(int(146 - 30 * t), int(98 - 22 * t), int(68 - 18 * t)))
    pen.rectangle([v * k for v in (196, 40, 330, 150)], fill="#8d6b4f")
    pen.rectangle([v * k for v in (204, 48, 322, 142)], fill="#d4e2e4")
    pen.polygon([v * k for v in (204, 142, 246, 84, 282, 142)], fill="#8fa79a")
    pen.polygon([v * k for v in (252, 142, 290, 70, 322, 118, 322, 142)], fill="#76918a")
    return _finished(image)


def _canvas(color: str) -> tuple[Image.Image, ImageDraw.ImageDraw, int]:
    """An image three times as large, for smooth edges, its pen, and that factor."""
    image = Image.new("RGB", (WIDTH * 3, HEIGHT * 3), color)
    return image, ImageDraw.Draw(image), 3


def _finished(image: Image.Image) -> RGB:
    return np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.BOX), np.uint8)


# Pictures ---------------------------------------------------------------------------------------------------------------


_FOOT = {"car": 0.84, "hat": 0.92}
"""Where a thing stands in its square, as a part of its height; 0.96 for all others."""


def _on(line: float, kind: str, color: str, x: float, size: float) -> Thing:
    """A thing that stands on a line."""
    y = line - size * (_FOOT.get(kind, 0.96) - 0.5)
    return Thing(kind=kind, color=color, x=x, y=y, size=size, grain=int(x * 7 + size))


KITCHEN = Picture(
    name="kitchen",
    ground=kitchen,
    things={
        "red mug": _on(172, "mug", "red", 62, 44), "white plate": _on(172, "plate", "white", 128, 52),
        "yellow mug": _on(172, "mug", "yellow", 194, 44), "green bottle": _on(172, "bottle", "green", 262, 74),
        "purple box": _on(172, "box", "purple", 344, 50), "turquoise mug": _on(172, "mug", "turquoise", 432, 44),
        "orange apple 1": _on(330, "apple", "orange", 60, 36), "orange apple 2": _on(330, "apple", "orange", 110, 36),
        "orange apple 3": _on(330, "apple", "orange", 160, 36), "green apple": _on(330, "apple", "green", 222, 36),
        "blue plate": _on(330, "plate", "blue", 300, 54), "brown bottle": _on(330, "bottle", "brown", 376, 78),
        "pink box": _on(330, "box", "pink", 450, 46),
    },
)  # fmt: skip
HARBOUR = Picture(
    name="harbour",
    ground=harbour,
    standing=False,
    things={
        "orange balloon": Thing(kind="balloon", color="orange", x=92, y=70, size=56, grain=3),
        "pink kite": Thing(kind="kite", color="pink", x=230, y=58, size=46, grain=4),
        "green kite": Thing(kind="kite", color="green", x=322, y=104, size=42, grain=5),
        "white boat": Thing(kind="boat", color="white", x=168, y=214, size=40, grain=6),
        "black boat": Thing(kind="boat", color="black", x=404, y=220, size=42, grain=7),
        "blue boat": Thing(kind="boat", color="blue", x=76, y=268, size=58, grain=8),
        "red boat": Thing(kind="boat", color="red", x=300, y=274, size=66, grain=9),
        "yellow boat": Thing(kind="boat", color="yellow", x=440, y=318, size=66, grain=10),
        "orange fish": Thing(kind="fish", color="orange", x=190, y=344, size=34, grain=11),
    },
)
STREET = Picture(
    name="street",
    ground=street,
    things={
        "red balloon": Thing(kind="balloon", color="red", x=150, y=212, size=46, grain=2),
        "yellow sign": Thing(kind="sign", color="yellow", x=330, y=206, size=34, grain=3, text="CAFE 12"),
        "black hat": _on(290, "hat", "black", 54, 28), "purple umbrella": _on(290, "umbrella", "purple", 232, 54),
        "green box": _on(290, "box", "green", 432, 32),
        "red car": _on(338, "car", "red", 110, 66), "turquoise car": _on(338, "car", "turquoise", 262, 66),
        "yellow car": _on(376, "car", "yellow", 404, 74),
    },
)  # fmt: skip
STUDY = Picture(
    name="study",
    ground=study,
    things={
        "green clock": Thing(kind="clock", color="green", x=98, y=92, size=62, grain=2),
        "red badge": Thing(kind="badge", color="red", x=386, y=86, size=40, grain=3, form="star-shaped"),
        "blue badge": Thing(kind="badge", color="blue", x=442, y=118, size=38, grain=4),
        "orange lamp": _on(322, "lamp", "orange", 66, 104), "blue box": _on(330, "box", "blue", 176, 46),
        "white mug": _on(352, "mug", "white", 258, 40), "pink ball": _on(336, "ball", "pink", 330, 36),
        "purple bottle": _on(326, "bottle", "purple", 398, 66), "black hat": _on(346, "hat", "black", 462, 48),
    },
)  # fmt: skip


def edits() -> list[Edit]:
    """The twelve, in the order of metadata.jsonl."""
    kit, sea, road, desk = KITCHEN.things, HARBOUR.things, STREET.things, STUDY.things
    return [
        Edit(id="kitchen-mug", picture=KITCHEN, target="red mug", instruction="Change the color of the red mug to blue.",
             edit_type="Change Color", changes={"red mug": replace(kit["red mug"], color="blue")},
             following=FLAWLESS, consistency=PERFECT, about="as asked"),
        Edit(id="kitchen-mug-green", picture=KITCHEN, target="red mug",
             instruction="Change the color of the red mug to blue.",
             edit_type="Change Color", changes={"red mug": replace(kit["red mug"], color="green")},
             following=WRONG, consistency=PERFECT, about="green instead of blue"),
        Edit(id="kitchen-apple", picture=KITCHEN, target="green apple", instruction="Remove the green apple.",
             edit_type="Removal Object",
             changes={"green apple": None, "yellow mug": replace(kit["yellow mug"], color="pink")},
             following=FLAWLESS, consistency=SINGLE, about="the apple is gone, and the yellow mug is pink now"),
        Edit(id="kitchen-count", picture=KITCHEN, target="orange apple",
             instruction="Reduce the number of orange apples from 3 to 2.", edit_type="Change Count",
             changes={"orange apple 1": None, "orange apple 3": None},
             following=WRONG, consistency=PERFECT, about="one apple is left, not two"),
        Edit(id="harbour-boat", picture=HARBOUR, target="red boat",
             instruction="Change the color of the red boat to orange.",
             edit_type="Change Color", changes={"red boat": replace(sea["red boat"], color="orange", warp=0.09)},
             following=OVER, consistency=PERFECT, about="orange, but the hull and the sail are bent"),
        Edit(id="harbour-balloon", picture=HARBOUR, target="orange balloon",
             instruction="Replace the orange balloon with a purple kite.", edit_type="Replace Object",
             changes={"orange balloon": replace(sea["orange balloon"], kind="kite", color="purple"),
                      "white boat": None, "orange fish": replace(sea["orange fish"], color="black")},
             following=FLAWLESS, consistency=MULTIPLE, about="replaced, but a boat vanished and the fish is black now"),
        Edit(id="harbour-blue-boat", picture=HARBOUR, target="blue boat", instruction="Remove the blue boat on the left.",
             edit_type="Removal Object", changes={}, following=MISSED, consistency=PERFECT, about="nothing was done"),
        Edit(id="harbour-sketch", picture=HARBOUR, target="green kite",
             instruction="Change the color of the green kite to red.",
             edit_type="Change Color", changes={}, following=MISSED, consistency=COLLAPSE, style=sketched,
             about="the whole picture became a pencil sketch"),
        Edit(id="street-sign", picture=STREET, target="yellow sign",
             instruction="Change the text on the yellow sign from 'CAFE 12' to 'BOOKS 7'.", edit_type="Change OCR",
             changes={"yellow sign": replace(road["yellow sign"], text="BOOT 47")},
             following=WRONG, consistency=PERFECT, about="it reads BOOT 47, which a judge must be able to read"),
        Edit(id="street-car", picture=STREET, target="red car", instruction="Change the color of the red car to white.",
             edit_type="Change Color", changes={"turquoise car": replace(road["turquoise car"], color="white")},
             following=MISSED, consistency=SINGLE, about="the turquoise car became white instead"),
        Edit(id="study-clock", picture=STUDY, target="green clock",
             instruction="Change the shape of the green clock from round to square.", edit_type="Change Shape",
             changes={"green clock": replace(desk["green clock"], form="square")},
             following=FLAWLESS, consistency=PERFECT, about="as asked"),
        Edit(id="study-box", picture=STUDY, target="blue box", instruction="Change the material of the blue box to metal.",
             edit_type="Change Material",
             changes={"blue box": replace(desk["blue box"], material="metal", soft=0.1),
                      "white mug": replace(desk["white mug"], color="turquoise"), "red badge": None},
             following=OVER, consistency=MULTIPLE, about="metal, but blurred; the mug changed and a badge is missing"),
    ]  # fmt: skip


# Drawing and writing ----------------------------------------------------------------------------------------------------


def drawn(picture: Picture, things: Things) -> RGB:
    """The picture with these things, soft shadows under those that stand."""
    ground = picture.ground().astype(np.float64)
    if picture.standing:
        for thing in things.values():
            if thing.kind == "balloon":
                continue
            ground *= 1 - 0.32 * _shadow(thing)[..., None]
    return render(np.clip(np.rint(ground), 0, 255).astype(np.uint8), list(things.values()))


def after(edit: Edit) -> RGB:
    """The edited picture."""
    things = {name: thing for name, thing in {**edit.picture.things, **edit.changes}.items() if thing is not None}
    image = drawn(edit.picture, things)
    return image if edit.style is None else edit.style(image)


def _shadow(thing: Thing) -> np.ndarray:
    """Coverage 0..1 of the shadow at a thing's foot."""
    x0, y0, x1, _ = thing.box
    foot = y0 + thing.size * _FOOT.get(thing.kind, 0.96)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    axes = (max(2, int((x1 - x0) * 0.46)), max(2, int(thing.size * 0.07)))
    cv2.ellipse(mask, (round(thing.x), round(foot)), axes, 0, 0, 360, 255, -1)
    return cv2.GaussianBlur(mask, (0, 0), 2.2).astype(np.float64) / 255


def _save(image: RGB, name: str) -> None:
    Image.fromarray(image).save(FOLDER / "images" / name, optimize=True, compress_level=9)


def _row(edit: Edit) -> dict[str, object]:
    targets = [t for name, t in edit.picture.things.items() if name.startswith(edit.target)]
    corners = np.array([t.box for t in targets])
    box = [int(v) for v in (*corners[:, :2].min(axis=0), *corners[:, 2:].max(axis=0))]
    return {
        "id": edit.id,
        "source_file_name": f"images/{edit.picture.name}.png",
        "edited_file_name": f"images/{edit.id}.png",
        "instruction": edit.instruction,
        "edit_type": edit.edit_type,
        "bbox": box,
        "human_instruction_following": edit.following,
        "human_visual_consistency": edit.consistency,
    }


def _write_readme(made: list[Edit]) -> None:
    """The table of README.md, between its markers."""
    page = FOLDER / "README.md"
    lines = ["| id | instruction | what was done | Instruction Following | Visual Consistency |", "|---|---|---|---|---|"]
    lines += [f"| {e.id} | {e.instruction} | {e.about} | {e.following} | {e.consistency} |" for e in made]
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    page.write_text("\n".join([before + _BEGIN, "", *lines, "", _END]) + rest.partition(_END)[2], encoding="utf-8")


def main() -> None:
    (FOLDER / "images").mkdir(parents=True, exist_ok=True)
    for picture in (KITCHEN, HARBOUR, STREET, STUDY):
        _save(drawn(picture, picture.things), f"{picture.name}.png")
    made = edits()
    for edit in made:
        _save(after(edit), f"{edit.id}.png")
    _write_readme(made)
    rows = "".join(json.dumps(_row(edit), ensure_ascii=False) + "\n" for edit in made)
    (FOLDER / "metadata.jsonl").write_text(rows, encoding="utf-8")
    size = sum(p.stat().st_size for p in FOLDER.rglob("*") if p.is_file())
    print(f"{len(made)} edits of 4 pictures, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
