"""Makes editloupe/traces/gallery: a small run folder with short traces, which tests replay and readers open.

python docs/site/make_gallery.py [FOLDER]          # from the repository's root; without a folder, the package's gallery

Two drawn edits of 160×120 px, judged by the pixel baseline and by three scripts (no LMM): one that looks ever closer, one
that calls tools natively, one that makes the usual mistakes. Times differ with every making, and the rest only where the
tools, the prompts or the baseline do: then the gallery is to be made again, and its difference looked at.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from editloupe.backends.base import LMM  # noqa: E402
from editloupe.backends.scripted import Line, ScriptedLMM  # noqa: E402
from editloupe.baseline.backend import PixelBaseline  # noqa: E402
from editloupe.chat import Reply, Request, ToolCall, Usage  # noqa: E402
from editloupe.config import RunConfig  # noqa: E402
from editloupe.runs.run import drive  # noqa: E402
from editloupe.runs.setup import open_setup  # noqa: E402
from editloupe.traces import GALLERY  # noqa: E402
from editloupe.values import Json  # noqa: E402

ORIGINAL, EDITED = "Original Image", "Edited Image"
MUG, PLATE = (52, 46, 72, 70), (100, 62, 132, 74)


def main(gallery: Path = GALLERY) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = drawn(Path(folder))
        if gallery.exists():
            shutil.rmtree(gallery)
        judged(gallery, PixelBaseline(), data)
        looks, native = {"option": {"criteria": ("if",)}, "sample": ("mug-blue",)}, {"tool_protocol": "native"}
        judged(gallery, ScriptedLMM(closer, name="closer-look"), data, **looks)
        judged(gallery, ScriptedLMM(natively, name="native-calls", native_tools=True), data, judge=native, **looks)
        judged(gallery, ScriptedLMM(stumbling, name="stumbling"), data, **{**looks, "sample": ("plate-gone",)})
    (gallery / "run.lock").unlink(missing_ok=True)
    size = sum(path.stat().st_size for path in gallery.rglob("*") if path.is_file())
    print(f"{gallery}: {len(list(gallery.glob('traces/*/*/*.jsonl')))} traces, {size / 1024:.0f} KiB")


def judged(gallery: Path, lmm: LMM, data: Path, *, judge: Mapping[str, Any] | None = None, **options: Any) -> None:
    """One judge's verdicts, into the gallery."""
    config = RunConfig.make(path=data, judge={"backend": lmm, **(judge or {})}, concurrency=1, device="cpu", **options)
    drive(open_setup(config), gallery, config={})


def drawn(folder: Path) -> Path:
    """A table with a red mug and a white plate; the mug made blue, and the plate removed."""
    scene(MUG_COLOR["red"], plate=True).save(folder / "table.png")
    scene(MUG_COLOR["blue"], plate=True).save(folder / "mug-blue.png")
    scene(MUG_COLOR["red"], plate=False).save(folder / "plate-gone.png")
    rows = [
        {"id": "mug-blue", "instruction": "Change the color of the red mug to blue.", "edit_type": "Change Color"},
        {"id": "plate-gone", "instruction": "Remove the white plate.", "edit_type": "Removal Object"},
    ]
    lines = [row | {"source_file_name": "table.png", "edited_file_name": f"{row['id']}.png"} for row in rows]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


MUG_COLOR = {"red": (196, 44, 40), "blue": (40, 72, 190)}


def scene(mug: tuple[int, int, int], *, plate: bool) -> Image.Image:
    image = Image.new("RGB", (160, 120), (214, 205, 188))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 66, 159, 119), fill=(138, 96, 62))
    if plate:
        draw.ellipse(PLATE, fill=(240, 240, 236), outline=(180, 180, 176))
    draw.rectangle(MUG, fill=mug)
    draw.arc((68, 50, 80, 64), 270, 90, fill=mug, width=3)
    return image


def tag_call(name: str, **arguments: Json) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'parameters': arguments})}</tool_call>"


def said(thought: str, action: str) -> str:
    return f"<Start Thinking>{thought}</Start Thinking>\n{action}"


def label(name: str) -> str:
    return f"<Start Final Answer>{name}</Start Final Answer>"


def closer(request: Request) -> Line:
    """Differences, then ever closer."""
    return (
        said(
            "First I see where the two differ.",
            tag_call("localize_differences", comparison_image_1=ORIGINAL, comparison_image_2=EDITED),
        ),
        said(
            "One place, the mug. I look at it in both.",
            tag_call("zoom_in", target_image=ORIGINAL, bbox=[300, 350, 520, 620])
            + "\n"
            + tag_call("zoom_in", target_image=EDITED, bbox=[300, 350, 520, 620]),
        ),
        said(
            "Is the handle of Crop 3 still whole?",
            tag_call("enhancer", target_image="Crop 3", bbox=[500, 100, 1000, 700], scale=2),
        ),
        said("Crop 1 and Crop 4 show the mug blue, its shape and handle as before.", label("Flawless Execution")),
    )[turn(request)]


def natively(request: Request) -> Line:
    """The same through tool calling."""
    calls: tuple[tuple[str, dict[str, Json]], ...] = (
        ("localize_differences", {"comparison_image_1": ORIGINAL, "comparison_image_2": EDITED}),
        ("zoom_in", {"target_image": EDITED, "bbox": [300, 350, 520, 620]}),
    )
    at = turn(request)
    usage = Usage(input_tokens=900 + 600 * at, output_tokens=40, image_tokens=500 + 400 * at)
    if at < len(calls):
        name, arguments = calls[at]
        call = ToolCall(id=f"call_{at + 1}", name=name, arguments=arguments)
        return Reply(text="", reasoning="I look.", tool_calls=(call,), finish="tools", usage=usage, model="native-calls")
    return Reply(text=said("Crop 2 is blue.", label("Flawless Execution")), usage=usage, model="native-calls")


def stumbling(request: Request) -> Line:
    """A box outside the image, a tool that is not there, a reply without a form, and at last an answer."""
    return (
        said("I look.", tag_call("zoom_in", target_image=EDITED, bbox=[600, 500, 1200, 700])),
        said(
            "Once more.",
            tag_call("zoom_in", target_image=EDITED, bbox=[600, 500, 900, 700])
            + "\n"
            + tag_call("magnifier", target_image=EDITED),
        ),
        "The plate seems to be gone.",
        said("Crop 1 shows the bare table.", label("Flawless Execution")),
    )[turn(request)]


def turn(request: Request) -> int:
    return sum(message.role == "assistant" for message in request.messages)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
