"""`editloupe rank`: the order of edits by scores and by pairs, ties said as ties, and what has no verdict below."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.backends import scripted
from editloupe.backends.scripted import Line, ScriptedLMM
from editloupe.chat import Reply, Request
from tests.conftest import Cli, Edits, final, refused

IF_LABELS = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")
VC_LABELS = ("Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency")
WORDS = ("--instruction", "Paint the mug blue.", "--mode", "plain", "--backend", "scripted/x")


@pytest.fixture
def pictures(tmp_path: Path) -> dict[str, Path]:
    """A source and four edits p, q, r, s, each of one gray that says which it is."""
    made = {}
    for gray, name in enumerate(("source", "p", "q", "r", "s")):
        made[name] = tmp_path / f"{name}.png"
        Image.fromarray(np.full((16, 16, 3), 40 * gray, dtype=np.uint8)).save(made[name])
    return made


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch, pictures: dict[str, Path]) -> Callable[[Callable[..., Line]], ScriptedLMM]:
    """Makes scripted/x answer by (criterion, names of the edits shown)."""

    def use(answer: Callable[..., Line]) -> ScriptedLMM:
        from editloupe.data.images import ImageStore

        names = {ImageStore().add_file(path).sha256: name for name, path in pictures.items()}

        def script(request: Request) -> Line:
            first = request.messages[0]
            criterion = "if" if "Criterion: Instruction Following" in first.text else "vc"
            said = answer(criterion, *(names[part.image.sha256] for part in first.images[1:]))
            return said if isinstance(said, Reply) else final(str(said))

        lmm = ScriptedLMM(script)
        monkeypatch.setattr(scripted, "open_backend", lambda _: lmm)
        return lmm

    return use


def places(text: str) -> list[tuple[Any, ...]]:
    """(rank, tied, edit) of the only ranking."""
    (ranking,) = json.loads(text)["rankings"]
    return [(p["rank"], p["tied"], p["edit"]) for p in ranking["places"]]


def test_scores_rank_and_the_next_criterion_breaks_ties(editloupe: Cli, pictures, answering, tmp_path: Path):
    """IF 4 4 3 4 and VC 2 3 4 3: q and s tie before p, r is last whatever its VC."""
    values = {"if": {"p": 4, "q": 4, "r": 3, "s": 4}, "vc": {"p": 2, "q": 3, "r": 4, "s": 3}}
    lmm = answering(lambda c, e: (IF_LABELS if c == "if" else VC_LABELS)[values[c][e] - 1])
    edits = [pictures[name] for name in "pqrs"]
    words = ("rank", "--source", pictures["source"], *WORDS, *edits, "--out", tmp_path / "run")
    code, out, err = editloupe(*words, "--format", "json")
    assert code == 0, err
    assert places(out) == [(1, True, "q"), (1, True, "s"), (3, False, "p"), (4, False, "r")]
    assert len(lmm.requests) == 8
    # Other orders of the same verdicts ask nothing anew.
    assert places(editloupe("rank", tmp_path / "run", "--by", "vc,if", "--format", "json")[1]) == [
        (1, False, "r"),
        (2, True, "q"),
        (2, True, "s"),
        (4, False, "p"),
    ]
    # Overall: p (100 + 33.3) / 2, q and s (100 + 66.7) / 2, r (66.7 + 100) / 2: three tie until VC is looked at.
    assert places(editloupe("rank", tmp_path / "run", "--by", "overall,vc", "--format", "json")[1])[0] == (1, False, "r")
    assert len(lmm.requests) == 8
    code, out, _ = editloupe(*words)
    assert code == 0 and len(lmm.requests) == 8
    assert re.search(r" 1 = +q +100\.0 +66\.7", out), out
    written = json.loads((tmp_path / "run" / "report" / "ranking.json").read_text())
    assert written["by"] == ["instruction_following", "visual_consistency"]
    assert "| 3 | p | 100.0 | 33.3 |" in (tmp_path / "run" / "report" / "ranking.md").read_text()


PAIRS = {
    ("p", "q"): "p", ("p", "r"): "p", ("q", "r"): "tie", ("p", "s"): "first shown", ("q", "s"): "q", ("r", "s"): "refused",
}  # fmt: skip
"""What the judge says of each pair; of p and s always the one shown first, of r and s nothing where s comes first."""


def compare(c: str, first: str, second: str) -> Line | str:
    said = PAIRS[tuple(sorted((first, second)))]  # type: ignore[index]
    if said == "refused":
        return Reply(text="No.", finish="refusal") if first == "s" else "Edit A"
    if said in ("tie", "first shown"):
        return "Tie" if said == "tie" else "Edit A"
    return "Edit A" if said == first else "Edit B"


def test_pairs_are_asked_in_both_orders_and_won_only_where_both_agree(editloupe: Cli, pictures, answering, tmp_path: Path):
    """Copeland: p 2–1–0 → 2.5/3; q 1–1–1 → 1.5/3; r 0–1–1 and s 0–1–1, one open each → 0.5/2."""
    lmm = answering(compare)
    edits = [pictures[name] for name in "srqp"]
    words = ("rank", "--pairwise", "--by", "if", "--source", pictures["source"], *WORDS, *edits, "--out", tmp_path / "run")
    code, out, err = editloupe(*words, "--format", "json")
    assert code == 3, err
    assert places(out) == [(1, False, "p"), (2, False, "q"), (3, True, "s"), (3, True, "r")]
    (ranking,) = json.loads(out)["rankings"]
    found = {
        p["edit"]: (p["figures"]["instruction_following"], p["pairs"]["instruction_following"]) for p in ranking["places"]
    }
    assert found == {
        "p": (pytest.approx(2.5 / 3), {"wins": 2, "ties": 1, "losses": 0, "inconsistent": 1, "open": 0}),
        "q": (0.5, {"wins": 1, "ties": 1, "losses": 1, "inconsistent": 0, "open": 0}),
        "r": (0.25, {"wins": 0, "ties": 1, "losses": 1, "inconsistent": 0, "open": 1}),
        "s": (0.25, {"wins": 0, "ties": 1, "losses": 1, "inconsistent": 1, "open": 1}),
    }
    asked = sorted(tuple(part.alias for part in r.messages[0].images) for r in lmm.requests)
    assert asked == [("Original Image", "Edit A", "Edit B")] * 12
    # The run ranks its pairs again, and gives no mean of scores.
    code, again, _ = editloupe("rank", tmp_path / "run", "--format", "json")
    assert code == 0 and json.loads(again)["rankings"] == [ranking]
    err = refused(editloupe, "rank", tmp_path / "run", "--by", "overall")
    assert "pairs of edits have none" in err
    # Its questions, and where it lies, are settled.
    for option in (("--set", "limit=1"), ("--mode", "tool"), ("--out", "x"), ("--backend", "baseline"), ("--pairwise",)):
        assert f"{option[0]}: only with edits, not a run" in refused(editloupe, "rank", tmp_path / "run", *option), option
    # The refusal stands, and nothing is asked twice.
    code, out, _ = editloupe(*words)
    assert code == 3 and len(lmm.requests) == 12
    assert re.search(r" 1 +p +0\.83 \(2–1–0\)", out) and re.search(r" 3 = +s +0\.25 \(0–1–1, 1 open\)", out), out
    assert "of 6, 1 contradicted themselves and count as ties, 1 have no verdict" in " ".join(out.split())


def test_what_cannot_be_ranked_is_said_before_anything_is_asked(editloupe: Cli, edits: Edits):
    edits(2)
    for words, told in (
        (("edits",), "nothing to rank"),
        (("edits", "edits"), "2 paths are given"),
        (("edits/edited/s00.png", "--source", "edits/source/s00.png"), "go together"),
        (("edits", "--by", "beauty"), "no criterion 'beauty'"),
        (("edits", "--judge", "baseline"), "--judge: only with a run"),
        (
            ("edits/edited/s00.png", "--source", "x", "--instruction", "x", "--edited", "a=b"),
            "--edited: only with a folder",
        ),
        (("edits", "--pairwise"), "the pixel baseline cannot compare two edits"),
        (("edits/edited/s00.png", "--source", "no.png", "--instruction", "x"), "no such file"),
    ):
        assert told in refused(editloupe, "rank", *words)
    assert not Path("runs").exists()
