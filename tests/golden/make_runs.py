"""How the run folders in tests/golden/runs_v1 were made, by version 0.1.0 (schema version 1).

DO NOT RUN THIS AGAIN FOR runs_v1. Those folders are what users of version 0.1.0 have on disk; later versions must read
them as they are. The script documents their content, and makes folders of a later schema elsewhere:

    python -m tests.golden.make_runs FOLDER

It draws ten edits of six rooms (160×120 px) and calls `editloupe judge` on them. The scripted judges come in as a plug-in
of the group `editloupe.backends`, since a script file says the same of every sample and these answer by sample.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageDraw

from editloupe.backends.base import BackendURI
from editloupe.backends.scripted import Line, ScriptedLMM
from editloupe.chat import Reply, Request, Usage
from editloupe.errors import Rejected

ROOT = Path(__file__).resolve().parents[2]

# ---- The edits -------------------------------------------------------------------------------------------------------

WALLS = ("sand", "sky", "mint", "rose", "lilac", "grey")
RGB = {
    "sand": (214, 205, 188),
    "sky": (190, 208, 224),
    "mint": (192, 218, 198),
    "rose": (222, 196, 196),
    "lilac": (206, 194, 220),
    "grey": (200, 200, 200),
}
SIDES = (3, 8, 14, 20, 30, 40)
"""Side of each room's mug, px: 0.05 %, 0.33 %, 1.0 %, 2.1 %, 4.7 % and 8.3 % of the image."""

MUGS = {"red": (196, 44, 40), "blue": (40, 72, 190), "green": (50, 150, 70)}
PLATE = (100, 62, 132, 74)
BOWL = (128, 88, 152, 108)


def mug_box(room: int) -> tuple[int, int, int, int]:
    side = SIDES[room]
    return (40, 80 - side, 40 + side, 80)


def scene(room: int, *, mug: str | None = "red", plate: bool = True, bowl: bool = True) -> Image.Image:
    image = Image.new("RGB", (160, 120), RGB[WALLS[room]])
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 66, 159, 119), fill=(138, 96, 62))
    if plate:
        draw.ellipse(PLATE, fill=(240, 240, 236), outline=(180, 180, 176))
    if bowl:
        draw.rectangle(BOWL, fill=(230, 170, 60))
    if mug is not None:
        x0, y0, x1, y1 = mug_box(room)
        draw.rectangle((x0, y0, x1 - 1, y1 - 1), fill=MUGS[mug])
    return image


EDITS: Mapping[str, tuple[int, str, str, Image.Image]] = {
    # Right, nothing happened, another colour, and the bowl gone with it.
    "mug-sand": (0, "Change Color", "Change the color of the red mug in the sand room to blue.", scene(0, mug="blue")),
    "mug-sky": (1, "Change Color", "Change the color of the red mug in the sky room to blue.", scene(1)),
    "mug-mint": (2, "Change Color", "Change the color of the red mug in the mint room to blue.", scene(2, mug="green")),
    "mug-rose": (
        3,
        "Change Color",
        "Change the color of the red mug in the rose room to blue.",
        scene(3, mug="blue", bowl=False),
    ),
    "plate-sand": (0, "Removal Object", "Remove the white plate in the sand room.", scene(0, plate=False)),
    "plate-sky": (1, "Removal Object", "Remove the white plate in the sky room.", scene(1, mug=None)),
    "plate-mint": (2, "Removal Object", "Remove the white plate in the mint room.", scene(2, plate=False)),
    "plate-rose": (3, "Removal Object", "Remove the white plate in the rose room.", scene(5)),
    "mug-lilac": (
        4,
        "Replace Object",
        "Replace the red mug in the lilac room with a green one.",
        scene(4, mug="green"),
    ),
    "bowls-grey": (5, "Change Count", "Reduce the number of bowls in the grey room from 1 to 0.", scene(5, bowl=False)),
}
"""id → room, edit type, instruction, edited image."""

TARGETS = {"mug": "mug", "plate": PLATE, "bowls": BOWL}

PEOPLE = {
    # Values 1 to 4 of two raters, by instruction following.
    "mug-sand": (4, 4),
    "mug-sky": (1, 1),
    "mug-mint": (2, 2),
    "mug-rose": (4, 3),
    "plate-sand": (4, 4),
    "plate-sky": (1, 1),
    "plate-mint": (4, 4),
    "plate-rose": (1, 2),
    "mug-lilac": (3, 4),
    "bowls-grey": (4, 4),
}

IF = {1: "Localization Failure", 2: "Wrong Action", 3: "Over Modification", 4: "Flawless Execution"}
VC = {1: "Scene Collapse", 2: "Multiple Anomalies", 3: "Single Anomaly", 4: "Perfect Consistency"}


def draw_edits(folder: Path) -> None:
    """The folder `edits`: every edit with its target's box, and what two people say of it."""
    folder.mkdir()
    rows = []
    for name, (room, edit_type, instruction, edited) in EDITS.items():
        scene(room).save(folder / f"room-{WALLS[room]}.png")
        edited.save(folder / f"{name}.png")
        target = TARGETS[name.split("-")[0]]
        rows.append(
            {
                "id": name,
                "source_file_name": f"room-{WALLS[room]}.png",
                "edited_file_name": f"{name}.png",
                "instruction": instruction,
                "edit_type": edit_type,
                "bbox": mug_box(room) if target == "mug" else target,
            }
        )
    write_rows(folder / "metadata.jsonl", rows)
    ann, ben = ({name: IF[values[i]] for name, values in PEOPLE.items()} for i in (0, 1))
    rated = [row | {"human_if_ann": ann[row["id"]], "human_if_ben": ben[row["id"]]} for row in rows]
    write_rows(folder / "rated.jsonl", rated)
    # Two editors: each one's outputs under the ids of the rows; the second did nothing to the sand room's mug.
    for editor in ("alpha", "beta"):
        (folder / editor).mkdir()
        for name, (_, _, _, edited) in EDITS.items():
            edited.save(folder / editor / f"{name}.png")
    scene(0).save(folder / "beta" / "mug-sand.png")
    # The mug and the bowl of one room are two targets of one edit.
    two = [row | {"bboxes": [row["bbox"], BOWL]} if row["id"] == "mug-rose" else row for row in rows]
    for row in two:
        if "bboxes" in row:
            del row["bbox"]
    write_rows(folder / "targets.jsonl", two)
    # An output that is not there, one that is no image, and a row with a box outside its image.
    (folder / "torn.png").write_bytes((folder / "mug-sand.png").read_bytes()[:200])
    spoilt = {
        "plate-mint": {"edited_file_name": ""},
        "plate-rose": {"edited_file_name": "torn.png"},
        "mug-lilac": {"bbox": [10, 10, 400, 400]},
    }
    write_rows(folder / "spoilt.jsonl", [row | spoilt.get(row["id"], {}) for row in rows])


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


# ---- The judges ------------------------------------------------------------------------------------------------------

STRICT = dict(zip(EDITS, (4, 1, 2, 3, 4, 1, 4, 1, 3, 4), strict=True))
LENIENT = dict(zip(EDITS, (4, 2, 2, 4, 4, 1, 4, 3, 4, 4), strict=True))
STEPS = (3, 0, -1, 1)
"""By repeat: how far a wavering judge's label is from the strict one's; only the even samples waver."""


def final(label: str) -> str:
    return (
        f"<Start Thinking>I look at the {label!r} case.</Start Thinking>\n<Start Final Answer>{label}</Start Final Answer>"
    )


def sample_of(request: Request) -> str:
    return next(name for name, (_, _, instruction, _) in EDITS.items() if instruction in request.messages[0].text)


def answer(request: Request, value: int) -> Reply:
    levels = IF if "Criterion: Instruction Following" in request.messages[0].text else VC
    usage = Usage(input_tokens=1000 + 10 * len(request.messages), output_tokens=20 + value, image_tokens=600)
    return Reply(text=final(levels[value]), usage=usage, model="golden")


def strict(request: Request) -> Line:
    return answer(request, STRICT[sample_of(request)])


def lenient(request: Request) -> Line:
    """Says nothing that can be read of one sample."""
    name = sample_of(request)
    return "I cannot tell." if name == "plate-mint" else answer(request, LENIENT[name])


def wavering(request: Request) -> Line:
    name = sample_of(request)
    step = STEPS[(request.sampling.seed or 0) % len(STEPS)] if list(EDITS).index(name) % 2 == 0 else 0
    return answer(request, min(4, max(1, STRICT[name] + step)))


def looking(request: Request) -> Line:
    """Differences, a box outside the image, a closer look, and a label."""
    calls: tuple[dict[str, object], ...] = (
        {
            "name": "localize_differences",
            "parameters": {"comparison_image_1": "Original Image", "comparison_image_2": "Edited Image"},
        },
        {"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [600, 500, 1200, 700]}},
        {"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [200, 500, 400, 700]}},
    )
    turn = sum(message.role == "assistant" for message in request.messages)
    if turn < len(calls):
        text = f"<Start Thinking>I look.</Start Thinking>\n<tool_call>{json.dumps(calls[turn])}</tool_call>"
        return Reply(text=text, usage=Usage(input_tokens=900 + 400 * turn, output_tokens=40), model="golden")
    return answer(request, STRICT[sample_of(request)])


def failing(request: Request) -> Line:
    """Each sample ends in a way of its own; a reminder changes nothing."""
    endings: dict[str, Line] = {
        "mug-sand": final("Localisation failure"),
        "mug-sky": final("Splendid"),
        "mug-mint": "I would rather describe the picture.",
        "mug-rose": final(IF[4]) + "\n" + final(IF[1]),
        "plate-sand": Reply(text="I cannot help with that.", finish="refusal"),
        "plate-sky": Reply(text="", finish="filter"),
        "bowls-grey": Rejected("the endpoint took no images today"),
    }
    return endings[sample_of(request)]


SCRIPTS: dict[str, Callable[[Request], Line]] = {
    "strict": strict,
    "lenient": lenient,
    "wavering": wavering,
    "looking": looking,
    "failing": failing,
}


class GoldenLMM(ScriptedLMM):
    """A script that counts as a model, so that tokens and prices have a meaning."""

    def __init__(self, name: str) -> None:
        super().__init__(SCRIPTS[name], name=name)
        self.traits = replace(self.traits, is_lmm=True)

    @property
    def uri(self) -> str:
        return f"golden/{self._name}"


def open_backend(uri: BackendURI) -> GoldenLMM:
    """The backend of `golden/NAME`."""
    return GoldenLMM(uri.model)


# ---- The runs --------------------------------------------------------------------------------------------------------

SHORT = """Criterion: {{ criterion.name }}
Editing Instruction: {{ instruction }}
Labels: {% for level in criterion.levels | reverse %}{{ level.name }}; {% endfor %}
"""
"""A question of one's own (`--prompt`), which keeps the traces small."""

TWO_JUDGES = "strict judge: golden/strict\nlenient judge: golden/lenient\n"
FOUR = ("mug-sand", "mug-sky", "plate-sky", "mug-rose")

RUNS: Mapping[str, tuple[str, ...]] = {
    # The agent with tools: the pixel baseline on four edits, and a script that calls tools on one of them.
    "baseline_tool": (
        "edits --backend baseline " + " ".join(f"--sample {name}" for name in FOUR),
        "edits --backend golden/looking --criteria if --sample mug-sand",
    ),
    # Two named judges, one look each; one of them fails on one sample.
    "scripted_two_judges": ("edits --judges-file judges.yaml --prompt short.md --mode plain --fail-on-error 0.5",),
    # About known boxes: two editors, one edit with two targets.
    "oracle_with_targets": (
        "edits/targets.jsonl --mode oracle --edited alpha=edits/alpha --edited beta=edits/beta "
        "--sample mug-sand --sample mug-rose",
    ),
    # Each question four times; what wavers too much has no score.
    "repeats": (
        "edits --backend golden/wavering --prompt short.md --mode plain --criteria if --repeats 4 "
        "--aggregate-repeats median --abstain-above 1.6 --temperature 0.7 --limit 5 --fail-on-error 0.5",
    ),
    # Two people's labels in the samples.
    "with_human": (
        "edits/rated.jsonl --judges-file judges.yaml --prompt short.md --mode plain --criteria if --fail-on-error 0.5",
    ),
    # No output, a torn image, a rejected row, and replies that are no answer.
    "missing_and_rejected": (
        "edits/spoilt.jsonl --backend golden/failing --prompt short.md --mode plain --criteria if --fail-on-error 1",
    ),
}


def main() -> None:
    (target,) = (Path(word).absolute() for word in sys.argv[1:])
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        draw_edits(work / "edits")
        (work / "short.md").write_text(SHORT, encoding="utf-8")
        (work / "judges.yaml").write_text(TWO_JUDGES, encoding="utf-8")
        plugin = work / "site" / "golden_judges-1.dist-info"
        plugin.mkdir(parents=True)
        (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: golden-judges\nVersion: 1\n", encoding="utf-8")
        (plugin / "entry_points.txt").write_text(
            "[editloupe.backends]\ngolden = tests.golden.make_runs:open_backend\n", encoding="utf-8"
        )
        for name, commands in RUNS.items():
            for command in commands:
                judge(command, target / name, work)
            strip(target / name, work)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"{target}: {size / 1024:.0f} KiB")


def judge(command: str, out: Path, work: Path) -> None:
    """`editloupe judge COMMAND --out OUT`, on every machine with the same tools."""
    words = [sys.executable, "-m", "editloupe", "judge", *command.split(), "--out", str(out)]
    paths = os.pathsep.join((str(work / "site"), str(ROOT)))
    env = os.environ | {"PYTHONPATH": paths, "EDITLOUPE_READER": "off", "HF_HUB_OFFLINE": "1", "COLUMNS": "120"}
    print("editloupe judge", command)
    done = subprocess.run(
        [*words, "--device", "cpu", "--reader", "off", "--concurrency", "1"], cwd=work, env=env, check=False
    )
    print("exit", done.returncode)


def strip(run: Path, work: Path) -> None:
    """Leave what a run is read from, without this machine's paths."""
    for name in ("cache", "report"):
        shutil.rmtree(run / name, ignore_errors=True)
    for path in (*run.glob("run.lock"), *run.glob("run.owner"), *run.glob("*.sqlite*")):
        path.unlink()
    for path in (p for p in run.iterdir() if p.is_file()):
        path.write_text(path.read_text(encoding="utf-8").replace(f"{work}/", ""), encoding="utf-8")


if __name__ == "__main__":
    main()
