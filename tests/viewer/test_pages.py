"""What the pages say, and that no text of a run becomes markup. Without a browser."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.config import JudgeConfig, RunConfig
from editloupe.errors import ConfigError, StorageError
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.viewer.export import MARKER, export
from editloupe.viewer.numbers import RunFacts
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from editloupe.viewer.render import CSP, assets
from tests.conftest import LOOK, final
from tests.viewer.runs import CROP, SHOWN, TARGET, make_run


class Tags(HTMLParser):
    """Every tag with its attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def rows(folder: Path) -> dict[str, object]:
    script = (folder / "rows.js").read_text(encoding="utf-8")
    found: dict[str, object] = json.loads(json.loads(script.removeprefix("window.editloupeRows = ").removesuffix(";\n")))
    return found


def page(folder: Path, start: str) -> str:
    (path,) = (folder / "samples").glob(f"{start}*.html")
    return path.read_text(encoding="utf-8")


def test_every_sample_has_a_page_and_a_row(folder: Path) -> None:
    assert len(list((folder / "samples").glob("*.html"))) == 6
    found = rows(folder)["rows"]
    assert isinstance(found, list)
    assert [row["id"] for row in found[1:]] == ["s01", "s02", "s03", "s04", "s05"]
    # 80×60 px of 320×240 px.
    assert found[1]["area"] == 6.25
    assert [label["name"] for label in found[3]["answers"]["instruction_following"]] == ["Wrong Action"]


def test_no_text_of_a_run_becomes_markup(folder: Path) -> None:
    harmless = {"script", "img", "svg", "a", "title", "rect", "text", "g"}
    for path in [folder / "index.html", *(folder / "samples").glob("*.html")]:
        tags = Tags(path.read_text(encoding="utf-8"))
        for name, attributes in tags.tags:
            assert not any(attribute.startswith("on") for attribute in attributes), (path, name, attributes)
            assert "style" not in attributes
            for address in (attributes.get("href"), attributes.get("src")):
                assert address is None or not re.match(r"\s*(javascript|data|https?|//)", address, re.IGNORECASE), address
        assert all("src" in attributes for attributes in tags.named("script"))
        assert {"script"} <= {name for name, _ in tags.tags} & harmless
    hostile = page(folder, "editor-")
    assert SHOWN in "".join(Tags(hostile).words)
    assert "<svg onload" not in hostile and "<b>a square</b>" not in hostile


def test_nothing_is_loaded_from_elsewhere_and_the_policy_stands_in_every_page(folder: Path) -> None:
    for path in folder.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        policies = [m["content"] for m in Tags(text).named("meta") if m.get("http-equiv") == "Content-Security-Policy"]
        assert policies == [CSP]
        for attributes in Tags(text).named("link") + Tags(text).named("script") + Tags(text).named("img"):
            address = attributes.get("href") or attributes.get("src") or ""
            assert (path.parent / address).resolve().is_relative_to(folder.resolve())
            assert attributes.get("rel") == "stylesheet" or (path.parent / address).is_file()
    assert "unsafe" not in CSP and "http" not in CSP


def test_a_crop_is_drawn_on_its_parent_in_the_parents_pixels(folder: Path) -> None:
    text = page(folder, "painter-s01")
    x0, y0, x1, y1 = CROP
    assert f'<rect class="line" x="{x0}" y="{y0}" width="{x1 - x0}" height="{y1 - y0}"/>' in text
    x0, y0, x1, y1 = TARGET
    assert f'<rect class="line" x="{x0}" y="{y0}" width="{x1 - x0}" height="{y1 - y0}"/>' in text
    assert "1,234 tokens, 800 of images" in text
    assert 'alt="Crop 1, crop"' in text and ">Edited Image, x 72–168, y 52–128</a>" in text


def test_a_row_that_could_not_be_read_says_why(folder: Path) -> None:
    text = page(folder, "painter-s05")
    assert "after5.png: no such file; expected an image" in text
    assert "(input_error)" in text
    assert "compare" not in {attributes.get("id") for attributes in Tags(text).named("div")}


@pytest.mark.usefixtures("bare_plots")
def test_two_runs_have_their_list_and_their_comparison(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path, count=2, name="other")
    done = export(Site.of([RunReader(run), RunReader(other)]), tmp_path / "pages")
    # Samples, then each run's page and report, their list, and the judges compared with their statistics.
    assert done.pages == 6 + 2 + 2 + 2 + 1 + 2


def test_runs_of_one_name_and_of_awkward_names_have_folders_of_their_own(run: Path, tmp_path: Path) -> None:
    for name in ("static", "run-2", "…"):
        shutil.copytree(run, tmp_path / name)
    site = Site.of([RunReader(p) for p in (run, run, tmp_path / "run-2", tmp_path / "static", tmp_path / "…")])
    assert [r.folder for r in site.runs] == ["run/", "run-2/", "run-2-2/", "static-2/", "run-3/"]


def test_pages_are_not_written_over_other_files(run: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds other files"):
        export(Site.of([RunReader(run)]), tmp_path)


@pytest.mark.usefixtures("bare_plots")
def test_an_export_leaves_nothing_of_an_earlier_one_behind_and_nothing_of_others_away(run: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "pages", make_run(tmp_path, count=2, name="other")
    export(Site.of([RunReader(run), RunReader(other)]), out)
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    export(Site.of([RunReader(other)]), out)
    left = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    export(Site.of([RunReader(other)]), tmp_path / "fresh")
    fresh = tmp_path / "fresh"
    assert left == {"notes.txt", *(path.relative_to(fresh).as_posix() for path in fresh.rglob("*") if path.is_file())}
    # A name that leads out of the folder is not deleted.
    (tmp_path / "precious").write_text("mine", encoding="utf-8")
    (out / MARKER).write_text("../precious\n", encoding="utf-8")
    with pytest.raises(StorageError, match="leads out of its folder"):
        export(Site.of([RunReader(other)]), out)
    assert (tmp_path / "precious").exists()


def test_a_trace_that_leads_out_of_the_run_is_not_read(copy: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.jsonl"
    first = json.loads((copy / "findings.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    shutil.copy(copy / first["trace"], outside)
    (copy / "findings.jsonl").write_text(json.dumps(first | {"trace": "../outside.jsonl"}) + "\n", encoding="utf-8")
    reader = RunReader(copy)
    assert [e.findings for e in reader.samples() if e.findings] == []
    site = Site.of([reader])
    assert all("First thought" not in site.sample_page(site.runs[0], entry) for entry in reader.samples())


SCRIPT = b"<!DOCTYPE html><script>alert(document.domain)</script>"


@pytest.mark.usefixtures("bare_plots")
def test_pages_hold_no_file_of_a_run_that_is_neither_a_picture_nor_a_trace(run: Path, tmp_path: Path) -> None:
    copy, out = tmp_path / "copy", tmp_path / "pages"
    shutil.copytree(run, copy)
    lines = [json.loads(line) for line in (copy / "findings.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line["trace"]]
    # Files with the names of the pages' own, and of traces, that a finding calls its trace.
    names = ["static/run.js", "index.html", "rows.js", "static/x.jsonl", "traces/a/index.html", "traces/a/b/c.jsonl"]
    for line, name in zip(lines, names, strict=False):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(SCRIPT)
        line["trace"] = name
    assert len(lines) > len(names)
    (copy / "findings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    pictures = sorted((copy / "blobs").glob("*/*.png"))
    for picture, other in zip(
        pictures, (SCRIPT, b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"), strict=False
    ):
        picture.write_bytes(other)
    reader = RunReader(copy)
    export(Site.of([reader]), out)
    for name, data in assets().items():
        assert (out / "static" / name).read_bytes() == data
    written = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert [name for name, data in written.items() if b"alert(" in data] == []
    assert written.keys().isdisjoint(["static/x.jsonl", *names[3:]])
    # What is a picture or a trace is still there.
    assert (out / lines[-1]["trace"]).is_file()
    assert {path.read_bytes()[:4] for path in (out / "blobs").glob("*/*")} == {b"\x89PNG"}
    for name in names:
        found = Site.of([reader]).at(name)
        assert found is None or b"alert(" not in found.body
    assert Site.of([reader]).at(f"blobs/{pictures[0].parent.name}/{pictures[0].name}") is None


@pytest.mark.usefixtures("bare_plots")
def test_pages_are_written_through_no_link(run: Path, tmp_path: Path) -> None:
    out, outside = tmp_path / "pages", tmp_path / "outside"
    outside.mkdir()
    export(Site.of([RunReader(run)]), out)
    shutil.move(out / "static", outside / "static")
    (out / "static").symlink_to(outside / "static")
    before = {path.name: path.read_bytes() for path in (outside / "static").iterdir()}
    with pytest.raises(StorageError, match="static is a link or no folder"):
        export(Site.of([RunReader(run)]), out)
    assert {path.name: path.read_bytes() for path in (outside / "static").iterdir()} == before
    (out / "static").unlink()
    (out / "rows.js").unlink(missing_ok=True)
    (out / "rows.js").symlink_to(outside / "run.js")
    (outside / "run.js").write_text("precious")
    export(Site.of([RunReader(run)]), out)
    assert (outside / "run.js").read_text() == "precious" and not (out / "rows.js").is_symlink()


@pytest.mark.usefixtures("bare_plots")
def test_a_fork_stands_behind_what_it_continues(copy: Path, tmp_path: Path) -> None:
    finding = RunReader(copy).samples()[1].findings[0]
    events = [json.loads(line) for line in (copy / str(finding.trace)).read_text(encoding="utf-8").splitlines()]
    shared = [e["hash"] for e in events if e["kind"] == "message"][2]
    changes = {"backend": "scripted/<b>other</b>"}
    parent = {"trace": finding.trace, "head": shared, "step": 1, "tools": 1, "why": "fork", "changes": changes}
    # What follows the first observation, with another end.
    rest = [e for e in events if e["kind"] == "model_call" and e["ordinal"] == 1]
    refused = {"status": "refused", "answer": None, "kind": None, "label": None, "value": None}
    end = {"time": "", "kind": "finding", "finding": finding.to_json() | refused}
    name = f"forks/{finding.task_id[:2]}/{finding.task_id}.0.1.jsonl"
    (copy / name).parent.mkdir(parents=True)
    lines = [events[0] | {"parent": parent}, *rest, end]
    (copy / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    out = tmp_path / "pages"
    export(Site.of([RunReader(copy)]), out)
    text = page(out, "painter-s01")
    assert "Fork after step 1; backend: scripted/&lt;b&gt;other&lt;/b&gt;." in text
    cells = [t["href"] for t in Tags(text).named("a") if t.get("class") == "cell"]
    assert len(cells) == 3
    # Its own step is the second, since the first is its parent's.
    first, fork_id, last = (f'<section class="verdict" id="{str(cell)[1:]}"' for cell in cells)
    assert text.index(first) < text.index(fork_id)
    fork = text[text.index(fork_id) : text.index(last)]
    assert ">Step 2</a>" in fork and ">Step 1</a>" not in fork and "(refused)" in fork
    assert f'href="{cells[0]}">What it continues' in fork
    assert (out / name).is_file()


def test_a_damaged_trace_costs_its_own_lines_only(copy: Path) -> None:
    reader = RunReader(copy)
    entry = reader.samples()[1]
    trace = copy / str(entry.findings[0].trace)
    lines = trace.read_bytes().splitlines(keepends=True)
    trace.write_bytes(b"".join(lines[:-2]) + b"not json\n" + lines[-2][:40])
    site = Site.of([reader])
    text = site.sample_page(site.runs[0], entry)
    assert "not JSON" in text and "the last line is cut off" in text
    assert "First thought" in text


def test_a_picture_that_is_gone_is_said_to_be_gone(copy: Path) -> None:
    shutil.rmtree(copy / "blobs")
    site = Site.of([RunReader(copy)])
    text = site.sample_page(site.runs[0], site.runs[0].reader.samples()[1])
    assert "was not kept" in text and "<img" in text  # the loupe in the head is still there


def test_the_report_has_tables_and_pictures_of_its_plots(run: Path) -> None:
    site = Site.of([RunReader(run)])
    page = site.report_page(site.runs[0])
    assert "Mean of all samples" in page
    named = re.findall(r'src="plots/([\w-]+)\.svg"', page)
    narrow = re.findall(r'srcset="plots/([\w-]+)\.svg"', page)
    plots = site.numbers.plots(site.runs[0].reader)
    assert named and {*named, *narrow} == set(plots) and narrow == [f"{name}-narrow" for name in named]
    reader = site.runs[0].reader
    for name, width in ((named[0], 720), (f"{named[0]}-narrow", 350)):
        drawn = site.numbers.plot(reader, name)
        # Drawn when it is first looked at, and kept.
        assert drawn is not None and f'width="{width}"' in drawn and site.numbers.plot(reader, name) is drawn


def body(site: Site, address: str, query: str = "") -> str:
    found = site.at(address, query)
    assert found is not None, address
    return found.body.decode()


def test_judges_of_two_runs_over_one_folder_stand_beside_each_other(edits: Callable[..., Path], tmp_path: Path) -> None:
    folder = edits(2)
    scripts = {"quick": [final("Flawless Execution")], "careful": [LOOK, final("Wrong Action", "<b>Crop 1</b> shows it.")]}
    runs = []
    for name, lines in scripts.items():
        judge = JudgeConfig(backend=ScriptedLMM(lines, name=name))
        drive(open_setup(RunConfig(path=folder, judge=judge, option={"criteria": "if"})), tmp_path / name)
        runs.append(tmp_path / name)
    site = Site.of([RunReader(path) for path in runs])
    for own, other in (("quick", "careful"), ("careful", "quick")):
        (run,) = (run for run in site.runs if run.folder == f"{own}/")
        text = body(site, f"{own}/samples/{run.reader.samples()[1].slug}.html")
        assert text.count('<section class="verdict"') == 2, own
        assert "&lt;b&gt;Crop 1&lt;/b&gt; shows it." in text
        heads = re.findall(r'<th scope="col">(.*?)</th>', text)
        assert heads == ["Question", own, other]
        # What is another run's is addressed there.
        assert re.search(rf'href="\.\./\.\./{other}/traces/', text) and re.search(r'href="\.\./traces/', text)
        (page,) = set(re.findall(r'href="([^"]*compare\.html[^"]*)"', text))
        assert page == "../../compare.html"
    assert str(tmp_path) not in body(site, "compared.html"), "no page tells a path of the machine"
    assert str(tmp_path) not in body(site, "quick/report.html")
    name = next(iter(site.numbers.plots(site.runs[0].reader)))
    assert site.at(f"quick/plots/{name}.svg").type.startswith("image/svg+xml")  # type: ignore[union-attr]
    assert site.at("quick/plots/nothing.svg") is None


def test_runs_of_other_data_are_not_compared_and_the_page_says_why(edits: Callable[..., Path], tmp_path: Path) -> None:
    folder = edits(2)
    runs = []
    for name in ("then", "now"):
        judge = JudgeConfig(backend=ScriptedLMM([final("Flawless Execution")], name=name))
        drive(open_setup(RunConfig(path=folder, judge=judge, option={"criteria": "if"})), tmp_path / name)
        runs.append(tmp_path / name)
        rows = folder / "metadata.jsonl"
        rows.write_text(rows.read_text().replace("Make square 1 red.", "Make <b>square</b> 1 blue."))
    site = Site.of([RunReader(path) for path in runs])
    for page in ("compare.html", "compared.html"):
        text = body(site, page, "run=then&run=now")
        assert "judged different data: s01 differ in image" in text and "compare.js" not in text
    # Nor do their verdicts on the changed sample stand on one page.
    changed = site.runs[0].reader.samples()[1]
    assert body(site, f"then/samples/{changed.slug}.html").count('<section class="verdict"') == 1


def test_every_page_has_one_way_back_to_the_runs(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path, count=2, name="other")
    site = Site.of([RunReader(run), RunReader(other)])
    slug_ = site.runs[0].reader.samples()[1].slug
    ways = {
        "index.html": ["Runs"],
        "run/index.html": ["Runs", "run"],
        "run/report.html": ["Runs", "run", "Report"],
        f"run/samples/{slug_}.html": ["Runs", "run", "s01"],
    }
    for address, words in ways.items():
        crumbs = body(site, address).partition('aria-label="Where this is"')[2].partition("</nav>")[0]
        assert re.findall(r"<a [^>]*>(.*?)</a>", crumbs) == words, address
        for link in re.findall(r'href="([^"]*)"', crumbs):
            (tmp_path / address).parent.mkdir(parents=True, exist_ok=True)
            there = ((tmp_path / address).parent / link).resolve().relative_to(tmp_path).as_posix()
            assert site.at(there) is not None, (address, link)
    lost = site.missing()
    assert lost.status == 404 and b'<a href="/index.html">Back to Runs</a>' in lost.body


def test_the_newest_run_stands_first_with_how_long_it_took(run: Path, tmp_path: Path) -> None:
    older, newer = (make_run(tmp_path, count=2, name=name) for name in ("older", "newer"))
    os.utime(older / "findings.jsonl", (1_000_000, 1_000_000))
    site = Site.of([RunReader(older), RunReader(newer)])
    page = site.runs_page()
    assert re.findall(r'<th scope="row" data-sort="(\w+)"', page) == ["newer", "older"]
    assert re.findall(r'<td data-name="Protocol">(.*?)</td>', page) == ["dlebench, mode tool"] * 2
    reader = site.runs[0].reader
    one_by_one = sum(f.seconds for sample in reader.samples() for f in sample.findings)
    assert 0 < reader.wall_s() <= one_by_one
    # Of four scores one is asked for: a quarter is judged, and three times as long is left.
    facts = RunFacts(scores={}, cost=None, wall_s=20.0, scored=1, waiting=3, failed=0, problem="")
    assert (facts.judged, facts.left_s) == (25.0, 60.0)
