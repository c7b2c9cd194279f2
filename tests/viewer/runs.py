"""A run for the viewer's tests: a scripted judge with a look and a zoom at known places, and texts that want to be code."""

from __future__ import annotations

import json
from pathlib import Path

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Reply, Request, Usage
from editloupe.config import JudgeConfig, RunConfig
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from tests.conftest import final, pngs

MARKUP = (
    "<script>document.title='owned'</script> <img src=x onerror=\"document.title='owned'\"> "
    "[click](javascript:document.title='owned') ![pixel](http://127.0.0.1:1/pixel.png) "
    "'\"></title></textarea><svg onload=document.title='owned'> {{ 7 * 7 }} {% raw %}"
)
"""What a name, an instruction or a model may hold, and what must stay text."""

HOSTILE = f"{MARKUP} \u202ekcab\u202c \x1b[31m"
SHOWN = HOSTILE.replace("\x1b", "␛").replace("\u202e", r"\u202e").replace("\u202c", r"\u202c")
"""The same with characters that steer, which names may not hold."""

WIDTH, HEIGHT = 320, 240

ZOOM = '<tool_call>{"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [250, 250, 500, 500], "label": "<b>a square</b>"}}</tool_call>'  # noqa: E501

# bbox [250, 250, 500, 500] of 320×240 px is x 80 to 160, y 60 to 120; zoom_in adds max(8, 10 % of 80) = 8 px around it.
CROP = (72, 52, 168, 128)

TARGET = (100, 80, 180, 140)
TYPES = ("Change Color", "Removal Object")


def make_run(folder: Path, *, count: int = 6, name: str = "run") -> Path:
    """`count` samples; the first is hostile in every text, the last has no edited image."""
    data = folder / f"{name}-data"
    data.mkdir(parents=True)
    rows = []
    for i in range(count):
        before, after = pngs(i, spots=1 + i % 3)
        (data / f"before{i}.png").write_bytes(before)
        if i < count - 1:
            (data / f"after{i}.png").write_bytes(after)
        rows.append(
            {
                "id": f"s{i:02}" if i else f"s00 {MARKUP}",
                "editor": "painter" if i else f"editor {MARKUP}",
                "source_file_name": f"before{i}.png",
                "edited_file_name": f"after{i}.png",
                "instruction": f"Make square {i} red." if i else HOSTILE,
                "edit_type": TYPES[i % 2],
                "bbox": list(TARGET),
                "human_instruction_following": "Wrong Action" if i == 2 else "Flawless Execution",
            }
        )
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = RunConfig(path=data, judge=JudgeConfig(backend=ScriptedLMM(_script, name=name)), concurrency=1)
    drive(open_setup(config), folder / name)
    return folder / name


def _script(request: Request) -> str | Reply:
    """Zooms, then answers; the first criterion's labels differ from the second's."""
    turn = sum(message.role == "assistant" for message in request.messages)
    if turn == 0:
        text = f"<Start Thinking>First thought. {HOSTILE}</Start Thinking>\n{ZOOM}"
        return Reply(text=text, model="script", usage=Usage(input_tokens=1200, output_tokens=34, image_tokens=800))
    asked = request.messages[0].text
    if "Instruction Following" not in asked:
        return final("Perfect Consistency", thought=f"Nothing else changed. {HOSTILE}")
    return final("Wrong Action" if "square 3" in asked else "Flawless Execution", thought="Second thought.")
