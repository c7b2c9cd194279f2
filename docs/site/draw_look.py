"""Draws docs/images/look.png: a source image, the edited image, and the crop that the judge looked at.

    python docs/site/draw_look.py

The crop is the real observation of `localize_differences` in a run of the embedded baseline over one of the examples.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from editloupe import ImageStore, Judge, load_sample
from editloupe.traces.events import ToolResult
from editloupe.traces.read import read_trace
from editloupe.values import View

HERE = Path(__file__).parents[2] / "examples"
INSTRUCTION = "Change the color of the red boat to orange."
HEIGHT, GAP, CAPTION = 330, 16, 30
INK, PAPER, RED = (40, 40, 40), (255, 255, 255), (220, 0, 0)


def main() -> None:
    """Judge, then put the three pictures side by side with their captions."""
    source, edited = (HERE / "edits" / "images" / name for name in ("harbour.png", "harbour-boat.png"))
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge("baseline", criteria=["if"], out=folder)
        (finding,) = judge.judge(load_sample(source, edited, INSTRUCTION))
        trace = read_trace(Path(folder) / str(finding.trace))
        seen = next(e for e in trace.events if isinstance(e, ToolResult) and e.aliases)
        views = [View.from_json(v) for v in seen.observation["views"]]
        crop = Image.fromarray(ImageStore(Path(folder) / "blobs").array(views[0].image))
    before, after = Image.open(source).convert("RGB"), Image.open(edited).convert("RGB")
    for image, view in zip((before, after), views[:2], strict=True):
        ImageDraw.Draw(image).rectangle(view.region.ints(), outline=RED, width=2)
    captions = ["Original Image", "Edited Image", f"Crop 1, what the judge sees: {finding.label}"]
    pictures = [im.resize((round(im.width * HEIGHT / im.height), HEIGHT)) for im in (before, after, crop)]
    width = sum(p.width for p in pictures) + GAP * (len(pictures) + 1)
    sheet = Image.new("RGB", (width, HEIGHT + 2 * GAP + 2 * CAPTION), PAPER)
    draw, font, x = ImageDraw.Draw(sheet), ImageFont.load_default(size=18), GAP
    draw.text((GAP, GAP // 2), f"“{INSTRUCTION}”", fill=INK, font=font)
    for picture, caption in zip(pictures, captions, strict=True):
        sheet.paste(picture, (x, GAP + CAPTION))
        draw.text((x, GAP + CAPTION + HEIGHT + 6), caption, fill=INK, font=font)
        x += picture.width + GAP
    target = HERE.parent / "docs" / "images" / "look.png"
    target.parent.mkdir(exist_ok=True)
    sheet.save(target, optimize=True)


if __name__ == "__main__":
    main()
