"""The matrix of samples and judges, its data, the list of runs, and the comparison of chosen runs. Without a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.judged_runs import make
from editloupe.backends.prices import ModelPrice, Prices
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Reply, Request, Usage
from editloupe.config import JudgeConfig, RunConfig
from editloupe.runs.judges import names_of
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.runs.store import RunStore
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from tests.conftest import final

LOST, WRONG, OVER, FLAWLESS = "Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution"


def judge(folder: Path, out: Path, answers: dict[str, Callable[[Request], str]]) -> Path:
    """Judge a folder by several named judges on one metric."""
    for name, script in answers.items():
        lmm = ScriptedLMM(lambda r, s=script: Reply(text=s(r), model="m", usage=Usage(input_tokens=1000)), name=name)
        config = JudgeConfig(backend=lmm, name=name)
        drive(open_setup(RunConfig(path=folder, judge=config, option={"criteria": "if"}, concurrency=1)), out)
    return out


def body(site: Site, address: str, query: str = "") -> str:
    """What lies at an address, in which a script's rows are JSON again."""
    found = site.at(address, query)
    assert found is not None, address
    text = found.body.decode()
    start = "window.editloupeRows = "
    return json.loads(text.removeprefix(start).removesuffix(";\n")) if text.startswith(start) else text


def data_of(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body(site, "rows.json"))
    return found


@pytest.fixture
def two(edits: Callable[..., Path], tmp_path: Path) -> Path:
    """Two samples, two judges: of one mind on s00, 67 points apart on s01, where a person says what the first says."""
    folder = edits(2)
    lines = [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines()]
    lines[1]["human_instruction_following"] = WRONG
    (folder / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    strict: Callable[[Request], str] = lambda r: final(WRONG if "square 1" in r.messages[0].text else FLAWLESS)  # noqa: E731
    return judge(folder, tmp_path / "two", {"strict": strict, "kind": lambda r: final(FLAWLESS)})


def test_a_cell_names_its_judge_and_a_row_says_how_far_its_judges_and_people_are_apart(two: Path) -> None:
    data = data_of(Site.of([RunReader(two)]))
    assert [one["name"] for one in data["judges"]] == ["strict", "kind"]
    first, second = data["rows"]
    assert [(c["by"], c["name"]) for c in second["answers"]["instruction_following"]] == [(0, WRONG), (1, FLAWLESS)]
    assert [c["name"] for c in second["people"]["instruction_following"]] == [WRONG] and first["people"] == {}
    # Values 2 and 4 of 1 to 4: (4 − 2) / 3 × 100; the score is the mean of 33.33 and 100.
    assert second["apart"] == {"instruction_following": 66.67} and second["human"] == 66.67
    assert (first["apart"], first["score"], second["score"]) == ({"instruction_following": 0.0}, 100.0, 66.67)
    assert (first["failed"], second["failed"]) == (0, 0)


def test_the_first_rows_of_a_large_run_are_there_without_reading_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site.of([RunReader(make(tmp_path / "run", samples=201), live=True)], live=True)
    with monkeypatch.context() as patched:
        patched.setattr(RunStore, "read", lambda folder: pytest.fail("the whole run was read"))
        first = json.loads(body(site, "first.js"))
        page = site.at("index.html")
    assert page is not None and b'"first.js"' in page.body
    whole = json.loads(body(site, "rows.json"))
    assert (first["of"], len(whole["rows"])) == (201, 201) and "of" not in whole
    # They are the same rows, and their columns have the same names. No mean is given that would be of them alone.
    assert first["rows"] == whole["rows"][: len(first["rows"])] and len(first["rows"]) >= 20
    assert (first["judges"], first["version"]) == (whole["judges"], whole["version"])
    assert first["overview"] == []
    # What has been made is given at once.
    assert json.loads(body(site, "first.js")) == whole


def test_the_overview_has_the_mean_of_all_samples_with_judged_of_asked(two: Path) -> None:
    strict, kind = data_of(Site.of([RunReader(two)]))["overview"]
    (mean,) = strict["rows"][0]["cells"]
    assert (mean["metric"], mean["text"], mean["judged"], mean["asked"]) == ("instruction_following", "66.67", 2, 2)
    assert (strict["judge"], kind["judge"], kind["rows"][0]["cells"][0]["value"]) == (0, 1, 100.0)


def test_a_failure_is_counted_and_has_no_score_and_no_distance(edits: Callable[..., Path], tmp_path: Path) -> None:
    run = judge(edits(1), tmp_path / "run", {"a": lambda r: "no tags", "b": lambda r: final(FLAWLESS)})
    (row,) = data_of(Site.of([RunReader(run)]))["rows"]
    assert row["failed"] == 1 and row["spread"] is None and row["score"] == 100.0
    failed = row["answers"]["instruction_following"][0]
    assert failed["status"] != "ok" and failed["value"] is None and failed["tone"] == "tone-none"


def test_a_run_without_a_finding_says_so_and_has_rows(two: Path) -> None:
    (two / "findings.jsonl").write_text("", encoding="utf-8")
    site = Site.of([RunReader(two)], listed=True)
    data = json.loads(body(site, "two/rows.json"))
    assert len(data["rows"]) == 2 and data["rows"][0]["score"] is None and data["rows"][0]["cost"] is None
    assert [one["rows"] for one in data["overview"]] == [[], []] and "holds no finding yet" in data["overview"][0][
        "problem"
    ]
    assert "nothing judged yet" in site.runs_page()


def test_judges_are_called_by_their_model_as_long_as_that_tells_them_apart() -> None:
    listed = {
        "a" * 16: {"backend": "openai/gpt-4.1?base_url=http://127.0.0.1:18401/v1"},
        "b" * 16: {"backend": "vllm/Qwen/Qwen3-VL-32B?base_url=http://x/v1"},
        "c" * 16: {"backend": "langchain/openai:gpt-4.1"},
        "d" * 16: {"backend": "vllm/org/Qwen3-VL-32B"},
        "e" * 16: {"backend": "google/gemini-2.5-pro", "name": "mine"},
        "f" * 16: {"backend": "baseline"},
    }
    assert list(names_of(listed).values()) == [
        "gpt-4.1", "vllm/Qwen/Qwen3-VL-32B", "openai:gpt-4.1", "vllm/org/Qwen3-VL-32B", "mine", "baseline",
    ]  # fmt: skip
    same = {id_: {"backend": "openai/gpt-4.1"} for id_ in ("0123456789", "abcdefghij")}
    assert list(names_of(same).values()) == ["openai/gpt-4.1 (012345)", "openai/gpt-4.1 (abcdef)"]


def test_a_thumbnail_shows_the_target_else_the_whole(tmp_path: Path) -> None:
    site = Site.of([RunReader(make(tmp_path / "run", samples=2))])
    with_target, without = site.runs[0].reader.samples()[1], site.runs[0].reader.samples()[0]
    assert with_target.sample is not None and not without.sample.targets  # type: ignore[union-attr]
    rows = {row["slug"]: row for row in data_of(site)["rows"]}
    assert re.fullmatch(r"[0-9a-f]{64}(-\d+){4}\.jpg", rows[with_target.slug]["thumbs"][0])
    assert re.fullmatch(r"[0-9a-f]{64}\.jpg", rows[without.slug]["thumbs"][0])


def test_the_list_of_runs_has_scores_coverage_cost_and_status(two: Path, tmp_path: Path) -> None:
    priced = make(tmp_path / "priced", samples=3)
    price = {"google/gemini-2.5-pro": ModelPrice(input=1000.0, output=0.0)}
    site = Site.of([RunReader(two), RunReader(priced)], prices=Prices(by_name=price))
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", site.runs_page()))
    assert "two complete strict IF 66.67 2/2" in page and "kind IF 100.00 2/2" in page
    third = [f for s in site.runs[1].reader.samples() for f in s.findings]
    known = [f for f in third if "gemini" in str(site.runs[1].reader.info.listed_judge(f.judge_id)["backend"])]
    usd = sum(f.usage.input_tokens or 0 for f in known) / 1000
    facts = site.numbers.facts(site.runs[1].reader)
    # The list prices of gpt-4.1 may be known here as well.
    assert facts.cost is not None and facts.cost >= usd - 1e-6
    assert site.numbers.facts(site.runs[0].reader).cost is None, "a script has no price"


def test_chosen_runs_share_a_matrix_in_which_each_judge_of_each_run_has_a_column(two: Path, edits, tmp_path: Path) -> None:
    other = judge(tmp_path / "edits", tmp_path / "again", {"strict": lambda r: final(LOST)})
    third = make(tmp_path / "third", samples=1)
    site = Site.of([RunReader(path) for path in (two, other, third)])
    assert site.at("compare.js", "run=again") is None, "one judge is compared with nobody"
    data = json.loads(body(site, "compare.js", "run=two&run=again"))
    # Runs of other data are refused, as `editloupe compare` does, and are not chosen together unasked.
    assert "have no sample in common" in body(site, "compare.html", "run=third&run=two")
    assert {run.folder for run in site.chosen()} in ({"third/"}, {"two/", "again/"})
    assert "?run=again&amp;run=two" in body(replace(site, live=True), "again/index.html")
    assert [one["name"] for one in data["judges"]] == ["strict · two", "kind", "strict · again"]
    assert [row["id"] for row in data["rows"]] == ["s00", "s01"]
    cells = [(c["by"], c["name"]) for c in data["rows"][1]["answers"]["instruction_following"]]
    assert cells == [(0, WRONG), (1, FLAWLESS), (2, LOST)]
    # Values 1 and 4 of 1 to 4.
    assert data["rows"][1]["apart"] == {"instruction_following": 100.0} and data["rows"][1]["at"] == "two/"


def test_tables_have_no_empty_head_and_can_be_scrolled_by_keyboard(two: Path) -> None:
    site = Site.of([RunReader(two)])
    pages = [body(site, f"{name}.html") for name in ("report", "index", "compared")] + [site.runs_page()]
    for page in pages:
        assert not re.search(r"<th[^>]*>\s*</th>", page)
        assert all('tabindex="0"' in tag for tag in re.findall(r'<div class="scroll"[^>]*>', page))
    assert re.findall(r'<div class="scroll"', pages[0])
