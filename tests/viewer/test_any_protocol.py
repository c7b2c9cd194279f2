"""Pages, `show` and exports of runs by protocols of another package: turns, parts, roles, measures, records."""

from __future__ import annotations

import csv
import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.config import JudgeConfig, RunConfig
from editloupe.data.images import ImageStore
from editloupe.data.rows import Loaded
from editloupe.exports.episodes import Source
from editloupe.exports.findings import write_findings
from editloupe.exports.inspect_log import write_inspect
from editloupe.exports.otel import write_otel
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.traces import GALLERY
from editloupe.values import Sample, Turn
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader, slug
from tests.conftest import final
from tests.guards.old_run import unpacked

pytestmark = pytest.mark.usefixtures("toys")


@pytest.fixture(scope="module")
def edits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sample of two turns: 20 of 100 pixels become red, then all."""
    folder = tmp_path_factory.mktemp("edits")
    image = Image.new("RGB", (10, 10), (0, 0, 50))
    image.save(folder / "source.png")
    image.paste((255, 0, 50), (0, 0, 10, 2))
    image.save(folder / "first.png")
    image.paste((255, 0, 50), (0, 0, 10, 10))
    image.save(folder / "second.png")
    return folder


def judged(protocol: str, edits: Path, out: Path, answer: Callable[[str], str] | None, **more: Any) -> Path:
    def script(request: Request) -> str:
        assert answer is not None
        return final(answer(request.messages[0].text))

    judge = JudgeConfig(backend=None if answer is None else ScriptedLMM(script, name="eye"))
    images = ImageStore()
    turns = tuple(Turn(instruction=f"Do it, {n}.", edited=images.add_file(edits / f"{n}.png")) for n in ("first", "second"))
    sample = Sample(id="s", source=images.add_file(edits / "source.png"), turns=turns)
    setup = open_setup(RunConfig(path=edits, protocol=protocol, judge=judge, concurrency=1, **more))
    drive(setup, out, loaded=Loaded(format="toy", samples=(sample,), rejected=()))
    return out


@pytest.fixture(scope="module")
def turns(edits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Something is visible after both turns; the first is right, the second is not."""

    def answer(question: str) -> str:
        return "no" if "Is it right?" in question and "second" in question else "yes"

    return judged("turns", edits, tmp_path_factory.mktemp("turns") / "run", answer)


@pytest.fixture(scope="module")
def objects(edits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parser names two objects; one of them is there."""
    parser = ScriptedLMM([final('{"objects": ["cup", "spoon"]}')], name="parser")
    return judged(
        "objects", edits, tmp_path_factory.mktemp("objects") / "run",
        lambda question: "yes" if "cup" in question else "no", role={"parser": JudgeConfig(backend=parser)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def pixels(edits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judged("pixels", edits, tmp_path_factory.mktemp("pixels") / "run", None)


def rows_of(site: Site) -> list[dict[str, Any]]:
    found = site.at("rows.json")
    assert found is not None
    rows: list[dict[str, Any]] = json.loads(found.body)["rows"]
    return rows


def page_of(run: Path) -> str:
    site = Site.of([RunReader(run)])
    (sample,) = site.runs[0].reader.samples()
    return site.sample_page(site.runs[0], sample)


def row_of(run: Path) -> dict[str, Any]:
    site = Site.of([RunReader(run)])
    (line,) = rows_of(site)
    return line


def verdicts_of(page: str) -> dict[str, str]:
    """Heading → the verdict's part of the page, without markup."""
    parts = re.split(r'<section class="verdict"', page)[1:]
    words = [" ".join(html.unescape(re.sub(r"<[^>]*>", " ", part.partition(">")[2])).split()) for part in parts]
    headings = [re.findall(r'<h2>.*?<span class="dim">(.*?)</span>', part)[0] for part in parts]
    return dict(zip(headings, words, strict=True))


def test_two_turns_are_two_questions_on_pages_and_in_rows(turns: Path) -> None:
    found = verdicts_of(page_of(turns))
    assert list(found) == ["Visible, turn 1", "Right, turn 1", "Visible, turn 2", "Right, turn 2"]
    assert "Right, turn 1 yes" in found["Right, turn 1"] and "an intermediate question" in found["Right, turn 1"]
    assert "Right, turn 2 no" in found["Right, turn 2"] and "turn 2 yes" in found["Visible, turn 2"]
    line = row_of(turns)
    assert [(one["scope"], one["name"]) for one in line["answers"]["right"]] == [("turn 1", "yes"), ("turn 2", "no")]
    assert line["spread"] is None, "answers to two questions do not disagree"
    # Turn 2 is not right, so that the sample does not pass; nobody was asked that.
    (passed,) = line["answers"]["passed"]
    assert (passed["name"], passed["value"], passed["tone"]) == ("0", 0.0, "tone-0")
    scores = re.findall(r'<span class="fact own-score">(.*?)</span></span>', page_of(turns))
    assert [re.sub(r"<[^>]*>", " ", one).split() for one in scores] == [
        ["passed", "0"],
        ["passed", "turn", "1", "1"],
        ["passed", "turn", "2", "0"],
    ]
    # The question shows the edited image alone; the run keeps the source all the same.
    source, edited = line["thumbs"]
    assert source.endswith(".jpg") and edited.endswith(".jpg") and source != edited


def test_the_pages_of_both_edits_of_a_pair_show_both_edits_and_all_that_was_said(edits: Path, tmp_path: Path) -> None:
    judge = JudgeConfig(backend=ScriptedLMM(lambda request: final("first"), name="eye"))
    images = ImageStore()
    source = images.add_file(edits / "source.png")
    pair = tuple(
        Sample(
            id="s",
            editor=editor,
            source=source,
            turns=(Turn(instruction="Do it.", edited=images.add_file(edits / f"{name}.png")),),
        )
        for editor, name in (("a", "first"), ("b", "second"))
    )
    setup = open_setup(RunConfig(path=edits, protocol="arena", judge=judge, concurrency=1))
    drive(setup, tmp_path / "run", loaded=Loaded(format="toy", samples=pair, rejected=()))
    assert [len(row["thumbs"]) for row in rows_of(Site.of([RunReader(tmp_path / "run")]))] == [3, 3]
    for read_whole in (False, True):
        site = Site.of([RunReader(tmp_path / "run")])
        run = site.runs[0]
        if read_whole:
            run.reader.samples()
        for key, other in (("a/s", "b/s"), ("b/s", "a/s")):
            sample = run.reader.sample(slug(key))
            assert sample is not None and [one.key for one in sample.partners] == [other]
            page = site.sample_page(run, sample)
            shown = re.findall(r'<span class="what"[^>]*>(.*?)</span>', page)
            assert shown == ["Source", f"Edit of {key[0]}", f"Edit of {other[0]}"]
            (said,) = verdicts_of(page).values()
            assert "first" in said, (key, read_whole)


def test_two_parts_are_two_questions_and_a_role_and_a_record_are_shown(objects: Path) -> None:
    found = verdicts_of(page_of(objects))
    assert list(found) == ["Kept, cup", "Kept, spoon", "Objects"], "metrics come before intermediate questions"
    assert "Kept, cup yes" in found["Kept, cup"] and "Kept, spoon no" in found["Kept, spoon"]
    assert '{ "objects": [ "cup", "spoon" ] }' in found["Objects"]
    assert "role parser" in found["Objects"] and "no picture, the question is text alone" in found["Objects"]
    assert "Edited Image (after turn 2): whole" in found["Kept, cup"]
    # One of two is there: 0.5.
    score, *parts = row_of(objects)["answers"]["kept"]
    assert (score["name"], score["value"]) == ("score 0.5", 0.5)
    assert [(one["scope"], one["name"]) for one in parts] == [("cup", "yes"), ("spoon", "no")]


def test_a_measure_is_shown_with_name_version_arguments_pictures_and_value(pixels: Path) -> None:
    found = verdicts_of(page_of(pixels))
    # The last turn's image is all red: every pixel differs; the mean of its red channel is 255.
    assert list(found) == ["Share", "Red"]
    assert "Share 1 0 to 1, lower is better Measure toy-share version 1 above 8" in found["Share"]
    assert "Original Image: whole; Edited Image (after turn 2): whole" in found["Share"]
    assert "Red 255 of 255, higher is better Measure toy-red version 2" in found["Red"]
    share, red = (row_of(pixels)["answers"][name][0] for name in ("share", "red"))
    assert (share["value"], red["value"]) == (1.0, 255.0)
    # Less is better for the share; the other has no scale.
    assert (share["tone"], red["tone"]) == ("tone-0", "tone-plain")
    assert "own-score" not in page_of(pixels), "a score that is the measure's own number is not said twice"


def test_exports_keep_turns_parts_roles_and_measures_apart(
    turns: Path, objects: Path, pixels: Path, tmp_path: Path
) -> None:
    write_findings(Source(folder=turns), tmp_path / "f.csv")
    with (tmp_path / "f.csv").open(encoding="utf-8", newline="") as file:
        found = [(r["metric"], r["turn"], r["part"], r["label"]) for r in csv.DictReader(file)]
    assert found == [
        ("visible", "1", "", "yes"),
        ("right", "1", "", "yes"),
        ("visible", "2", "", "yes"),
        ("right", "2", "", "no"),
    ]
    write_findings(Source(folder=objects), tmp_path / "f.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "f.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(r["metric"], r["part"], r["kind"], r["backend"]) for r in rows] == [
        ("objects", "", "record", "scripted/parser"), ("kept", "cup", "choice", "scripted/eye"),
        ("kept", "spoon", "choice", "scripted/eye"),
    ]  # fmt: skip
    assert write_inspect(Source(folder=objects), tmp_path / "log.json") == tmp_path / "log.json"
    samples = json.loads((tmp_path / "log.json").read_text(encoding="utf-8"))["samples"]
    assert [s["id"] for s in samples] == ["s#objects", "s#kept@cup", "s#kept@spoon"]
    assert write_otel(Source(folder=pixels), tmp_path / "spans.jsonl") == 2
    lines = (tmp_path / "spans.jsonl").read_text(encoding="utf-8").splitlines()
    spans = [json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"] for line in lines]
    plain = [{a["key"]: next(iter(a["value"].values())) for a in s[0]["attributes"]} for s in spans]
    assert [(p["editloupe.criterion"], p["editloupe.value"], p["editloupe.role"]) for p in plain] == [
        ("share", 1.0, "measure"), ("red", 255.0, "measure"),
    ]  # fmt: skip


@pytest.mark.parametrize("made_by", ["this version", "0.2.0"])
def test_a_run_has_all_its_pages(made_by: str, tmp_path: Path) -> None:
    site = Site.of([RunReader(GALLERY if made_by == "this version" else unpacked(tmp_path))])
    for sample in site.runs[0].reader.samples():
        page = site.sample_page(site.runs[0], sample)
        assert page.count('<section class="verdict"') == len(sample.findings)
        assert "cannot be shown" not in page and "an intermediate question" not in page
    assert len(rows_of(site)) == len(site.runs[0].reader.samples())
