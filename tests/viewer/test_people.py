"""People's own labels: what a sample's page offers, what the server takes and from whom, and where a label counts."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from editloupe.errors import ConfigError
from editloupe.figures.human_labels import read_people
from editloupe.runs import people
from editloupe.runs.merge import merge
from editloupe.runs.store import RunStore
from editloupe.viewer.export import export
from editloupe.viewer.pages import Site
from editloupe.viewer.people import Rating
from editloupe.viewer.reader import RunReader
from editloupe.viewer.serve import Viewer
from tests.viewer.runs import make_run

Run = Callable[..., tuple[int, str, str]]

METRIC = "instruction_following"


@pytest.fixture
def folder(run: Path, tmp_path: Path) -> Path:
    """A run of six samples. People rated every one: s02 "Wrong Action", the others "Flawless Execution"."""
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


@contextmanager
def serving(folder: Path, rater: str) -> Iterator[Viewer]:
    site = Site.of([RunReader(folder, live=True)], live=True, rating=Rating(rater=rater))
    with Viewer(site) as viewer:
        thread = threading.Thread(target=viewer.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield viewer
        viewer.shutdown()
        thread.join(5)


@pytest.fixture
def rated(folder: Path) -> Iterator[Viewer]:
    with serving(folder, "anna") as viewer:
        yield viewer


def slug_of(viewer: Viewer, id_: str) -> str:
    return next(s.slug for s in viewer.site.runs[0].reader.samples() if s.id == id_)


def send(viewer: Viewer, data: Any, *, sample: str = "s01", **headers: str | None) -> tuple[int, str]:
    """Send a label as the page does; headers: name with _ for -, None to leave one out."""
    assert viewer.site.rating is not None
    own = f"127.0.0.1:{viewer.server_address[1]}"
    given: dict[str, str | None] = {
        "Host": own,
        "Origin": f"http://{own}",
        "Content-Type": "application/json",
        "X-Editloupe-Token": viewer.site.rating.token,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    connection = http.client.HTTPConnection(*viewer.server_address[:2], timeout=10)
    try:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        connection.putrequest("POST", f"/samples/{slug_of(viewer, sample)}.label", skip_host=True)
        for name, value in {"Content-Length": str(len(body)), **given}.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def label(answer: str | None, note: str = "", **more: Any) -> dict[str, Any]:
    return {"metric": METRIC, "turn": 0, "part": "", "answer": answer, "note": note, **more}


def page_of(viewer: Viewer, id_: str) -> str:
    sample = viewer.site.runs[0].reader.sample(slug_of(viewer, id_))
    assert sample is not None
    return viewer.site.sample_page(viewer.site.runs[0], sample)


def words(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", markup).split())


def test_a_label_counts_where_people_are_read(rated: Viewer, folder: Path, editloupe: Run) -> None:
    assert send(rated, label("Wrong Action", "The square stays grey.")) == (200, '{"answer":"Wrong Action"}')
    store = RunStore.read(folder)
    assert store.problems == [] and not any(f.judge_id == people.person("anna").id for f in store.findings.values())
    (given,) = store.people.values()
    assert (given.rater, given.finding.label, given.finding.reason) == ("anna", "Wrong Action", "The square stays grey.")
    line = json.loads((folder / "people.jsonl").read_text())
    assert line["judge"]["kind"] == "human" and line["judge"]["backend"] == "human/anna"
    # The judge says "Flawless Execution" (4) of s01, anna "Wrong Action" (2), others "Flawless Execution": no majority now.
    assert store.samples["painter/s01"].human[METRIC] == {"human": "Flawless Execution", "anna": "Wrong Action"}
    found = read_people(store)
    assert found.ratings["painter", "s01", 0, ""][METRIC]["anna"] == "Wrong Action"
    code, out, _ = editloupe("compare", folder, "--format", "json", "--resamples", "100")
    assert code == 0 and '"raters": ["human", "anna"]' in " ".join(out.split())
    # The matrix: 2 of 3 steps apart, 67 of 100.
    rows = json.loads(rated.site.rows(rated.site.runs[0]))["rows"]
    assert [row["human"] for row in rows if row["id"] in ("s01", "s04")] == [66.67, 0.0]
    grid = words(page_of(rated, "s01").partition('<table class="labels">')[2].partition("</table>")[0])
    assert "anna person" in grid and "Wrong Action The square stays grey." in grid


def test_a_label_stands_in_compare(folder: Path, editloupe: Run, tmp_path: Path) -> None:
    other = make_run(tmp_path / "made", name="second")

    def exact() -> float:
        _, out, _ = editloupe("compare", folder, other, "--format", "json", "--resamples", "100")
        found = next(h for h in json.loads(out)["human_agreement"] if h["criterion"] == METRIC)
        return float(found["all"]["figures"]["exact"]["value"])

    # Of five judged samples, the judge differs from people on s02 and s03, of which it says "Wrong Action".
    assert exact() == pytest.approx(3 / 5)
    # The same person, named as in the data, corrects the label of s03.
    with serving(folder, "human") as viewer:
        assert send(viewer, label("Wrong Action"), sample="s03")[0] == 200
    assert exact() == pytest.approx(4 / 5)


def test_the_latest_label_counts_and_none_is_lost(rated: Viewer, folder: Path) -> None:
    for answer in ("Wrong Action", "Over Modification"):
        assert send(rated, label(answer))[0] == 200
    assert len((folder / "people.jsonl").read_text().splitlines()) == 2
    assert RunStore.read(folder).samples["painter/s01"].human[METRIC]["anna"] == "Over Modification"
    assert 'value="Over Modification" checked' in page_of(rated, "s01")
    # Who cannot tell takes the label back; the note stays.
    assert send(rated, label(None, "Too dark.")) == (200, '{"answer":null}')
    store = RunStore.read(folder)
    assert "anna" not in store.samples["painter/s01"].human[METRIC]
    assert [g.finding.status for g in store.people.values()] == ["abstained"]
    assert "(cannot tell) Too dark." in words(page_of(rated, "s01"))


def test_a_label_is_taken_while_the_run_is_being_judged(rated: Viewer, folder: Path) -> None:
    with FileLock(folder / "run.lock"):
        assert send(rated, label("Wrong Action"))[0] == 200
    assert len(RunStore.read(folder).people) == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (label("Rather good"), "expected one of Flawless Execution"),
        (label(3), "expected one of"),
        (label("Wrong Action", part="target 9"), "has no question"),
        (label("Wrong Action", turn=7), "has no question"),
        (label("Wrong Action", metric="beauty"), "has no question"),
        (label("Wrong Action", "x" * 4001), "at most 4,000 characters"),
        ([1], "expected a JSON object"),
    ],
)
def test_what_is_no_answer_is_refused_with_the_reason(rated: Viewer, folder: Path, data: Any, why: str) -> None:
    status, said = send(rated, data)
    assert status == 422 and why in json.loads(said)["error"]
    assert not (folder / "people.jsonl").exists()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": None},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
        {"X_Editloupe_Token": None},
        {"X_Editloupe_Token": "guess"},
        {"Content_Type": "text/plain"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
def test_only_the_servers_own_pages_may_send(rated: Viewer, folder: Path, headers: dict[str, str | None]) -> None:
    assert send(rated, label("Wrong Action"), **headers)[0] == 403
    assert not (folder / "people.jsonl").exists()


def test_a_body_is_bounded_and_must_be_json(rated: Viewer, folder: Path) -> None:
    assert send(rated, b"{" * 70_000)[0] == 413
    assert send(rated, b"{")[0] == 400
    assert not (folder / "people.jsonl").exists()


def test_a_server_for_others_takes_no_label(folder: Path) -> None:
    with Viewer(Site.of([RunReader(folder)], rating=Rating(rater="anna")), host="0.0.0.0") as server:
        assert server.refusal({}, "127.0.0.1") == "Labels are taken on loopback only."  # type: ignore[arg-type]


def test_files_and_servers_without_a_rater_offer_no_form(rated: Viewer, run: Path, tmp_path: Path) -> None:
    assert '<details class="people"' in page_of(rated, "s01")
    export(Site.of([RunReader(run)]), tmp_path / "pages")
    pages = [path.read_text(encoding="utf-8") for path in (tmp_path / "pages" / "samples").glob("*.html")]
    assert len(pages) == 6 and not any("label-form" in page or "data-token" in page for page in pages)


def test_a_run_that_cannot_be_written_says_so(rated: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    page = page_of(rated, "s01")
    assert "This run is read-only" in page and "label-form" not in page


def test_what_cannot_be_written_is_said(rated: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("editloupe.files.append", full)
    status, said = send(rated, label("Wrong Action"))
    assert status == 500 and "people.jsonl cannot be written: No space left on device" in said


def test_a_torn_line_and_a_changed_one_do_not_count(rated: Viewer, folder: Path) -> None:
    send(rated, label("Wrong Action"))
    path = folder / "people.jsonl"
    whole = path.read_bytes()
    # A writer that was killed leaves half a line; the next label cuts it off.
    path.write_bytes(whole + whole[:50])
    send(rated, label("Over Modification"), sample="s02")
    assert len(RunStore.read(folder).people) == 2
    path.write_bytes(path.read_bytes().replace(b'"value": 2.0', b'"value": 4.0'))
    store = RunStore.read(folder)
    assert [g.finding.sample_id for g in store.people.values()] == ["s02"]
    assert any("people.jsonl, line 1" in problem for problem in store.problems)


def test_labels_go_along_when_shards_are_merged(rated: Viewer, folder: Path, tmp_path: Path) -> None:
    send(rated, label("Wrong Action", "Grey."))
    for _ in range(2):
        merge(tmp_path / "whole", [folder])
    store = RunStore.read(tmp_path / "whole")
    assert [(g.rater, g.finding.reason) for g in store.people.values()] == [("anna", "Grey.")]
    assert len((tmp_path / "whole" / "people.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 81])
def test_a_rater_has_a_name(name: str) -> None:
    with pytest.raises(ConfigError, match="printable"):
        Rating(rater=name)
