"""What the embedded judge says of known edits, and the digests by which its tasks, judges and messages are known.

expected/labels.json: dataset → mode → sample → metric → label, or "(status)" where there is none.
expected/digests.json: `ids` of judges, tasks and first messages, and sha256 of `texts`: the first message, and all of them.
Ids change where what they hash does; labels and texts only where prompts, tools or rules change on purpose.
EDITLOUPE_GOLDEN=write writes them anew, for what was judged.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from editloupe.traces import GALLERY
from tests.golden.test_golden import HERE, WRITE

EXAMPLES = HERE.parents[1] / "examples" / "edits"
REAL = HERE.parents[2] / "shared" / "data" / "real-edits"
SOME = ("kitchen-mug-green", "kitchen-apple", "harbour-boat", "street-sign")
"""A recolouring gone wrong, a removal, an edit of too much, and a text: enough for every day; `slow` takes all twelve."""

real = pytest.mark.skipif(not REAL.is_dir(), reason="the real edit pairs are not here (shared/data/real-edits)")
Tree: TypeAlias = dict[str, Any]
Program: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("mode", ["tool", "plain", "oracle"])
@pytest.mark.parametrize("only", [SOME, pytest.param((), marks=pytest.mark.slow)], ids=["some", "all"])
def test_examples_keep_their_labels_ids_and_message_texts(
    mode: str, only: tuple[str, ...], tmp_path: Path, editloupe: Program
):
    run = judged(EXAMPLES, mode, tmp_path, editloupe, only)
    holds("labels.json", ["examples/edits", mode], labels(run))
    holds("digests.json", ["examples/edits", mode, "texts"], texts(run))
    holds("digests.json", ["examples/edits", mode, "ids"], ids(run))


# Without boxes around the targets there is no oracle mode.
@real
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["tool", "plain"])
def test_real_edits_keep_their_labels(mode: str, tmp_path: Path, editloupe: Program):
    holds("labels.json", ["real-edits", mode], labels(judged(REAL, mode, tmp_path, editloupe)))


def test_the_gallery_keeps_its_labels_ids_and_message_texts():
    holds("labels.json", ["gallery"], labels(GALLERY))
    holds("digests.json", ["gallery", "texts"], texts(GALLERY))
    holds("digests.json", ["gallery", "ids"], ids(GALLERY))


def judged(data: Path, mode: str, tmp_path: Path, editloupe: Program, only: tuple[str, ...] = ()) -> Path:
    """The run folder of the embedded judge in this mode."""
    run = tmp_path / "run"
    words = [word for name in only for word in ("--sample", name)]
    code, _, err = editloupe("judge", data, "--backend", "baseline", "--mode", mode, *words, "--out", run)
    # 3: it abstains where pixels cannot tell.
    assert code in (0, 3), err
    return run


def rows(run: Path) -> Iterator[tuple[str, str, Tree]]:
    """Sample, metric and finding of each line; names of several judges are told apart by their id's beginning."""
    found = [json.loads(line) for line in (run / "findings.jsonl").read_text(encoding="utf-8").splitlines()]
    several = len({row["judge_id"] for row in found}) > 1
    backends = {key: judge["backend"] for key, judge in json.loads((run / "run.json").read_bytes())["judges"].items()}
    for row in found:
        sample = f"{row['editor']}/{row['sample_id']}" if row["editor"] else row["sample_id"]
        yield sample, row.get("metric", row.get("criterion")) + (f" by {backends[row['judge_id']]}" if several else ""), row


def labels(run: Path) -> Tree:
    tree: Tree = defaultdict(dict)
    for sample, metric, row in rows(run):
        tree[sample][metric] = row["label"] if row["status"] == "ok" else f"({row['status']})"
    return dict(tree)


def ids(run: Path) -> Tree:
    tree: Tree = defaultdict(dict)
    for sample, metric, row in rows(run):
        first = messages(run, row)[0]
        tree[sample][metric] = {"judge": row["judge_id"], "task": row["task_id"], "first message": first["hash"]}
    return dict(tree)


def texts(run: Path) -> Tree:
    tree: Tree = defaultdict(dict)
    for sample, metric, row in rows(run):
        said = [
            "".join(part["text"] for part in event["message"]["parts"] if part["type"] == "text")
            for event in messages(run, row)
        ]
        tree[sample][metric] = {"first": sha256(said[0]), "all": sha256("\0".join(said))}
    return dict(tree)


def messages(run: Path, row: Tree) -> list[Tree]:
    """The message events of a finding's trace, in their order."""
    (path,) = run.glob(f"traces/{row['judge_id']}/*/{row['task_id']}.{row['repeat']}.jsonl")
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [event for event in events if event["kind"] == "message"]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def holds(name: str, where: list[str], found: Tree) -> None:
    """Fail unless an expected file says the same of every sample found; with EDITLOUPE_GOLDEN=write, make it say so."""
    path = HERE / "expected" / name
    whole: Tree = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    expected = whole
    for key in where:
        expected = expected.setdefault(key, {})
    if WRITE:
        expected.update(found)
        path.write_text(json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    assert found == {sample: expected.get(sample) for sample in found}
