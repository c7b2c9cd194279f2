"""One small run of every protocol, and of every command that writes one, made by the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.conftest import LOOK, Cli, draw_edits, final, scripted
from tests.data import benchmarks
from tests.protocols import edival_files, giebench_data, probe_files, unicbench_files

_OBJECTS = {"object": "mug", "color": "red", "material": None, "text": None, "count": 1, "foreground": True}
_DIFFERENCE = {"op": "EDIT", "object": "square", "box": [100, 200, 300, 400]}
_EDIT = {
    "type": "Change Color",
    "target": "speck",
    "instruction": "Paint the speck blue.",
    "source_caption": "It is gray.",
    "reference_caption": "It is blue.",
}
_WRITTEN = {
    "fits": True,
    "instruction": "Paint the square blue.",
    "question": "Which color has the square?",
    "options": ["Red", "Blue"],
    "answer": "Blue",
}
_TASK = {"object": "square", "action": "paint red"}

_SAYS = {
    "label": final("Flawless Execution"),
    "looks": (LOOK, final("Flawless Execution", "Crop 1 shows it.")),
    "option": final("Red"),
    "yes": final("yes"),
    "write": final(json.dumps(_WRITTEN)),
    "target": final("square"),
    "answer": final("Red"),
    "score": final('{"score": 7, "reason": "It is red."}'),
    "objects": final(json.dumps({"objects": [_OBJECTS]})),
    "words": final("spoon"),
    "edit": final(json.dumps(_EDIT)),
    "differences": final(json.dumps({"differences": [_DIFFERENCE]})),
    "verified": final(json.dumps({"is_changed": True, "instruction": "Paint a square red."})),
    "tasks": final(json.dumps({"reference": [_TASK], "restated": [_TASK], "pairs": [[1, 1]]})),
}
"""Script → what the model says, and says again when it is reminded."""


def every_run(editloupe: Cli, at: Path) -> dict[str, Path]:
    """Make the runs in the folder `at`, where the program runs. Return name → run folder."""
    for name, said in _SAYS.items():
        lines = said if isinstance(said, tuple) else (said,) * 3
        scripted(at / f"{name}.jsonl", *lines)
    data = draw_edits(at / "edits", 2)
    rows = (data / "metadata.jsonl").read_text(encoding="utf-8")
    broken = {"id": "broken", "source_file_name": "nope.png", "edited_file_name": "nope.png", "instruction": "Nothing."}
    (data / "broken.jsonl").write_text(rows + json.dumps(broken) + "\n", encoding="utf-8")
    (at / "judges.yaml").write_text(
        "first:\n  backend: baseline\nsecond:\n  backend: scripted/looks.jsonl\n  temperature: 0.5\n", encoding="utf-8"
    )
    rows_gie = [giebench_data.row(n) for n in range(2)]
    giebench_data.write(at / "gie", rows_gie)
    for n in range(2):
        giebench_data.draw(at / "omni" / f"{n}.png", spot=(200, 0, 0))
    unic = unicbench_files.rows(1)
    unicbench_files.write(at / "unic", unic)
    unicbench_files.edit(at / "bagel", unic)
    edival_files.write(at / "chains", edival_files.lines())
    edival_files.edit(at / "painter")

    def run(name: str, *words: str | Path) -> None:
        code, said, failed = editloupe(*words, *(("--out", at / name) if words[0] != "merge" else ()))
        assert code in (0, 1, 3), f"{words}\n{said}\n{failed}"
        assert (at / name / "run.json").exists(), f"{words} wrote no run\n{said}\n{failed}"

    def judge(name: str, path: str | Path, *words: str) -> None:
        run(name, "judge", path, *words)

    judge("dlebench", data / "broken.jsonl", "--judges-file", "judges.yaml", "--repeats", "2", "--temperature", "0.5")
    judge("plain", data, "--mode", "plain", "--backend", "scripted/label.jsonl")
    judge("measures", data, "--protocol", "measures")
    probe_files.draw_probes(at / "known", ("flawless", "no_edit"))
    judge("probes", at / "known", "--protocol", "probes", "--backend", "scripted/label.jsonl")
    judge("pairwise", data, "--protocol", "pairwise")
    judge("targets", data, "--protocol", "targets")
    judge("giebench", "gie", "--protocol", "giebench", "--edited", "omni=omni", "--backend", "scripted/option.jsonl")
    judge("unicbench", "unic", "--protocol", "unicbench", "--edited", "bagel=bagel", "--backend", "scripted/score.jsonl")
    roles = ("--set", "role.verify=scripted/verified.jsonl", "--set", "role.parse=scripted/tasks.jsonl")
    judge("unicverify", data, "--protocol", "unicverify", *roles)
    roles = ("--set", "option.detector=lmm", "--set", "role.detector=scripted/differences.jsonl")
    judge("dice", data, "--protocol", "dice", *roles, "--backend", "scripted/yes.jsonl")
    judge("edival", "chains", "--protocol", "edival", "--edited", "painter=painter", "--backend", "scripted/yes.jsonl")
    roles = ("--set", "role.decompose=scripted/objects.jsonl", "--set", "role.instruct=scripted/words.jsonl")
    judge("edival-build", data, "--protocol", "edival-build", "--set", "grounding=none", *roles)
    roles = ("--set", "role.describe=scripted/words.jsonl", "--set", "role.instruct=scripted/edit.jsonl")
    words = ("--set", "grounding=given", "--set", "editor=drawing", "--out", at / "small")
    named = sorted((data / "source").iterdir())
    boxed = [{"image": f"edits/source/{one.name}", "bbox": [20, 20, 44, 44], "target_name": "speck"} for one in named]
    (at / "boxed.jsonl").write_text("".join(json.dumps(one) + "\n" for one in boxed), encoding="utf-8")
    code, said, failed = editloupe("build", "dlebench", at / "boxed.jsonl", *roles, *words)
    assert code == 0, said + failed
    shutil.copytree(at / "small" / "run", at / "dlebench-build")
    judge("dlebench-review", at / "small" / "to_review", "--protocol", "dlebench-review", "--backend", "scripted/yes.jsonl")
    benchmarks.imgedit(at / "imgedit")
    benchmarks.write(at / "replies/bagel/result.json", {"1082": "A: 4\nB: 4\nC: 5", "673": "A: 4"})
    run("published", "import", "imgedit", at / "replies", "--data", at / "imgedit")
    roles = tuple(
        word for role in ("write", "target", "answer") for word in ("--set", f"role.{role}=scripted/{role}.jsonl")
    )
    words = ("--set", "masks=given", "--set", "edits=1", "--set", "option.seed=1", "--out", at / "asked")
    code, said, failed = editloupe("build", "giebench", data / "source", *roles, *words)
    assert code == 0, said + failed
    shutil.copytree(at / "asked" / "run", at / "giebench-build")
    judge("giebench-review", at / "asked" / "to_review", "--protocol", "giebench-review", "--backend", "scripted/yes.jsonl")
    judge("recorded", data, "--backend", f"recorded/{at / 'plain'}", "--mode", "plain")
    run("rescored", "replay", at / "dlebench", "--rubric", "dlebench")
    edited = sorted((data / "edited").glob("*.png"))
    run("ranked", "rank", "--source", next((data / "source").glob("*.png")), "--instruction", "Paint it.", *edited)
    shutil.copytree(at / "plain", at / "shard")
    run("merged", "merge", at / "merged", at / "plain", at / "shard")
    code, said, failed = editloupe(
        "replay", at / "plain", "s00", "--criterion", "if", "--at", "0", "--backend", "scripted/label.jsonl"
    )
    assert code == 0, said + failed
    return {path.parent.name: path.parent for path in at.glob("*/run.json")}
