"""`compare` of answers that are no ordered labels: numbers, options, yes or no by turns. Figures by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.values import Sample, Turn
from tests.conftest import final
from tests.setups import open_with, run_over

Program = Callable[..., tuple[int, str, str]]


pytestmark = pytest.mark.usefixtures("toys")


def asked(request: Request) -> int:
    """Which sample a question is about: "Make square 3 red."."""
    found = re.search(r"square (\d+)", request.messages[0].text)
    assert found is not None
    return int(found[1])


def judged(protocol: str, data: Path | Loaded, folder: Path, answers: Mapping[str, list[str]]) -> list[Path]:
    """Runs of judges that answer sample by sample."""
    for name, said in answers.items():
        lmm = ScriptedLMM(lambda request, said=said: final(said[asked(request)]), name=name)
        run_over(open_with(backend=lmm, protocol=protocol, tools=()), data, folder / name)
    return [folder / name for name in answers]


def figures(found: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: figure["value"] for name, figure in found["figures"].items()}


def with_rows(folder: Path, more: Callable[[int], dict[str, Any]]) -> Path:
    """The edits with further columns."""
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines()]
    text = "".join(json.dumps(row | more(number)) + "\n" for number, row in enumerate(rows))
    (folder / "metadata.jsonl").write_text(text)
    return folder


def test_numbers_have_correlations_and_errors_in_their_unit(edits: Callable[..., Path], tmp_path: Path, editloupe: Program):
    data = with_rows(edits(4), lambda i: {"human_follows": [1, 4, 8, 10][i]})
    runs = judged("stars", data, tmp_path, {"a": ["0", "4", "8", "10"], "b": ["2", "5", "6.5", "9"]})
    code, text, err = editloupe("compare", *runs, "--format", "json", "--resamples", "100")
    assert code == 0, err
    found = json.loads(text)
    pair = next(p for p in found["pairs"] if p["criterion"] == "follows")
    # Differences −2, −1, 1.5, 1; both in the same order.
    assert set(pair["figures"]) == {"spearman", "pearson", "mae", "bias"}
    assert figures(pair)["mae"] == pytest.approx(5.5 / 4)
    assert figures(pair)["bias"] == pytest.approx(-0.5 / 4)
    assert figures(pair)["spearman"] == pytest.approx(1.0)
    # On 0 to 100: ten times as much.
    assert pair["difference"]["value"] == pytest.approx(-5 / 4)
    assert pair["confusion"] == []
    human = {
        h["judge"].partition(",")[0]: figures(h["all"]) for h in found["human_agreement"] if h["criterion"] == "follows"
    }
    assert human["a"]["mae"] == pytest.approx(1 / 4)
    assert "kappa" not in human["a"]
    code, text, err = editloupe("compare", *runs, "--resamples", "100", "--out", "out")
    assert code == 0, err
    assert "Spearman ρ" in text and "Quadratic κ" not in text
    assert Path("out/agreement-follows.svg").exists()


def test_options_have_no_order_and_two_wrong_ones_are_not_the_same(
    edits: Callable[..., Path], tmp_path: Path, editloupe: Program
):
    """a: x y z x, b: x z z y. Equal in 2 of 4; by chance 2·1 + 1·1 + 1·2 of 16: κ = (8 − 5) / (16 − 5)."""

    def question(i: int) -> dict[str, Any]:
        return {"question": f"Which is square {i}?", "options": ["x", "y", "z"], "answer": "x", "human_accuracy": "X"}

    data = with_rows(edits(4), question)
    runs = judged("choice", data, tmp_path, {"a": ["x", "y", "z", "x"], "b": ["x", "z", "z", "y"]})
    code, text, err = editloupe("compare", *runs, "--format", "json", "--resamples", "100")
    assert code == 0, err
    found = json.loads(text)
    (pair,) = found["pairs"]
    assert set(pair["figures"]) == {"exact", "kappa", "alpha_nominal"}
    assert figures(pair)["exact"] == 0.5
    assert figures(pair)["kappa"] == pytest.approx(3 / 11)
    # Accuracy 1/2 and 1/4.
    assert [s["mean"]["value"] for s in found["summaries"]] == [50.0, 25.0]
    assert [figures(h["all"])["exact"] for h in found["human_agreement"]] == [0.5, 0.25]
    # Both wrong, but not alike: y and z on the second.
    assert [d["labels"] for d in found["disagreements"] if d["sample"] == "s01"] == [{"a": "y", "b": "z"}]
    code, text, err = editloupe("compare", *runs, "--resamples", "100")
    assert code == 0, err
    assert "Cohen κ" in text and "Quadratic κ" not in text


def test_turns_are_questions_of_their_own(tmp_path: Path, edits: Callable[..., Path], editloupe: Program):
    """Two turns of one sample and the sample as a whole: a says yes and yes, b yes and no."""
    folder, images = edits(2), ImageStore()
    source, *edited = (images.add_file(path) for path in sorted(folder.rglob("*.png"))[:3])
    turns = tuple(Turn(instruction=f"Make square {i} red.", edited=image) for i, image in enumerate(edited))
    data = Loaded(format="turns", samples=(Sample(id="two", source=source, turns=turns),), rejected=())
    runs = judged("turns", data, tmp_path, {"a": ["yes", "yes"], "b": ["yes", "no"]})
    human = tmp_path / "human.csv"
    human.write_text("item,turn,passed\ntwo,1,yes\ntwo,2,no\n")
    code, text, err = editloupe("compare", *runs, "--human", human, "--format", "json", "--resamples", "100")
    assert code == 0, err
    found = json.loads(text)
    (pair,) = found["pairs"]
    assert (pair["common"], figures(pair)["exact"]) == (3, pytest.approx(1 / 3))
    assert [(d["sample"], d.get("turn", 0)) for d in found["disagreements"]] == [("two", 0), ("two", 2)]
    assert [figures(h["all"])["exact"] for h in found["human_agreement"]] == [0.5, 1.0]
    code, text, err = editloupe("compare", runs[0], "--human", human, "--format", "json", "--resamples", "100")
    assert code == 0, err
    (metric,) = json.loads(text)["human_agreement"]
    # Yes, yes against yes, no: one hit, one false alarm. The sample as a whole has no human label.
    assert figures({"figures": metric["all"]["figures"]})["f1"] == pytest.approx(2 / 3)
    assert metric["all"]["figures"]["exact"]["asked"] == 2
