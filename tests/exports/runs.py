"""Runs to be exported: native tool calls, a label that is none, a backend that fails, several targets."""

from __future__ import annotations

import json
from pathlib import Path

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Reply, Request, ToolCall, Usage
from editloupe.config import JudgeConfig, RunConfig
from editloupe.errors import Unavailable
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from tests.conftest import final, pngs

ZOOM = {"target_image": "Edited Image", "bbox": [250, 250, 500, 500]}

INSTRUCTION = "Make square {} red."


def edits(folder: Path, *, count: int = 5, several: bool = False) -> Path:
    """`count` samples of an editor "painter", the last without an edited image. several: two targets each."""
    folder.mkdir(parents=True)
    rows = []
    for i in range(count):
        before, after = pngs(i, spots=1 + i % 3)
        (folder / f"before{i}.png").write_bytes(before)
        if i < count - 1:
            (folder / f"after{i}.png").write_bytes(after)
        row: dict[str, object] = {
            "id": f"s{i:02}",
            "editor": "painter",
            "source_file_name": f"before{i}.png",
            "edited_file_name": f"after{i}.png",
            "instruction": INSTRUCTION.format(i),
            "edit_type": "Change Color",
            "human_instruction_following": "Wrong Action",
        }
        if several:
            row["bboxes"] = [[20, 20, 44, 44], [120, 20, 144, 44]]
        rows.append(row)
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def native_run(folder: Path, *, name: str = "run") -> Path:
    """s00, s03: a zoom, then a label.   s01: no label of the rubric.   s02: the endpoint fails.   s04: no edited image."""
    backend = ScriptedLMM(_script, name=name, native_tools=True)
    judge = JudgeConfig(backend=backend, tool_protocol="native")
    drive(open_setup(RunConfig(path=edits(folder / "edits"), judge=judge, concurrency=1)), folder / name)
    return folder / name


def oracle_run(folder: Path) -> Path:
    """Two targets each: the first is done wrongly, the second flawlessly."""

    labels = iter(("Wrong Action", "Flawless Execution"))

    def script(request: Request) -> str:
        about_target = "Instruction Following" in request.messages[0].text
        return final(next(labels) if about_target else "Perfect Consistency")

    data = edits(folder / "edits", count=2, several=True)
    judge = JudgeConfig(backend=ScriptedLMM(script))
    drive(open_setup(RunConfig(path=data, judge=judge, option={"mode": "oracle"}, concurrency=1)), folder / "run")
    return folder / "run"


def _script(request: Request) -> str | Reply | Exception:
    asked = request.messages[0].text
    if INSTRUCTION.format(2) in asked:
        return Unavailable("HTTP 503, come again", status=503)
    if INSTRUCTION.format(1) in asked:
        return final("Splendid")
    if len(request.messages) == 1:
        return Reply(
            text="<Start Thinking>Closer.</Start Thinking>",
            reasoning="I should look.",
            tool_calls=(ToolCall(id="a", name="zoom_in", arguments=ZOOM),),
            finish="tools",
            model="script-1",
            usage=Usage(input_tokens=1200, output_tokens=34, image_tokens=800, cached_tokens=200),
            raw={"id": "resp-1"},
            sent={"temperature": 0, "max_tokens": 512},
        )
    label = "Flawless Execution" if "Instruction Following" in asked else "Perfect Consistency"
    return Reply(text=final(label, "Crop 1 shows it."), usage=Usage(input_tokens=1500, output_tokens=20), model="script-1")
