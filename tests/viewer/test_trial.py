"""The pages of a trial: where they are, what they hold, and that a run without probes has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.viewer.export import export
from editloupe.viewer.pages import Response, Site
from editloupe.viewer.reader import RunReader
from tests.build.probe_runs import full_set, probe, run_of, said


def make(folder: Path, judge: str, *, failures: tuple[str, ...] = ("flawless", "wrong_colour"), mode: str = "tool") -> Path:
    """A run over probes in which every fifth verdict is missing."""
    rows = full_set(4, failures)
    findings = [f for i, row in enumerate(rows) for f in said(row, "(refused)" if i % 5 == 0 else "")]
    return run_of(folder, {judge: findings}, rows, mode=mode)


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [make(tmp_path / "one", "strict"), make(tmp_path / "two", "mild", mode="plain")]


def text(found: Response | None) -> str:
    assert found is not None
    return found.body.decode()


def test_a_run_over_probes_has_a_page_with_plots_and_their_tables(runs: list[Path]) -> None:
    site = Site.of([RunReader(runs[0])])
    assert 'href="trial.html"' in text(site.at("index.html"))
    page = text(site.at("trial.html"))
    for words in (
        "accuracy on plain probes",
        "refused",
        "accuracy by failure and area",
        "truth in rows, verdicts in columns",
    ):
        assert words in page
    for name in ("trial-radar", "trial-radar-narrow", "trial-heat-1-visual-consistency"):
        assert f"trial/{name}.svg" in page and text(site.at(f"trial/{name}.svg")).startswith("<svg")
    assert site.at("trial/other.svg") is None


def test_several_runs_are_on_trial_together_or_as_chosen(runs: list[Path]) -> None:
    site = Site.of([RunReader(run) for run in runs])
    assert 'href="trial.html"' in text(site.at("index.html"))
    both, one = text(site.at("trial.html")), text(site.at("trial.html", "run=two"))
    assert "strict, tool" in both and "mild, plain" in both
    assert "strict, tool" not in one and "mild, plain" in one and "trial/trial-radar.svg?run=two" in one
    assert "strict" not in text(site.at("trial/trial-radar.svg", "run=two"))
    assert "strict, tool" in text(site.at("one/trial.html"))


def test_runs_of_other_probes_say_so(tmp_path: Path, runs: list[Path]) -> None:
    other = make(tmp_path / "other", "third", failures=("no_edit",))
    site = Site.of([RunReader(runs[0]), RunReader(other)])
    page = text(site.at("trial.html", "run=one&run=other"))
    assert "judged different sets of probes" in page
    # A way out: each by itself.
    assert 'href="one/trial.html"' in page and 'href="other/trial.html"' in page


def test_runs_of_the_set_with_the_most_runs_are_on_trial_together(tmp_path: Path, runs: list[Path], run: Path) -> None:
    other = make(tmp_path / "other", "third", failures=("no_edit",))
    # Another set and a run without probes stand beside them.
    site = Site.of([RunReader(one) for one in (run, other, *runs)])
    assert 'href="trial.html"' in text(site.at("index.html"))
    page = text(site.at("trial.html"))
    assert "strict, tool" in page and "mild, plain" in page and "third, tool" not in page
    assert "third" not in text(site.at("trial/trial-radar.svg"))


def test_a_run_without_probes_has_no_such_page(run: Path) -> None:
    site = Site.of([RunReader(run)])
    assert site.at("trial.html") is None and "trial.html" not in text(site.at("index.html"))


def test_names_from_outside_are_text(tmp_path: Path) -> None:
    rows = [probe("p0", scene="<script>"), probe("p1")]
    folder = run_of(tmp_path / "run", {"<b>bold</b>": [f for row in rows for f in said(row)]}, rows)
    site = Site.of([RunReader(folder)])
    for address in ("trial.html", "trial/trial-radar.svg"):
        assert "<b>" not in text(site.at(address)) and "&lt;b&gt;" in text(site.at(address))


def test_exported_pages_have_them(runs: list[Path], tmp_path: Path) -> None:
    export(Site.of([RunReader(run) for run in runs]), tmp_path / "pages")
    for name in (
        "trial.html",
        "trial/trial-radar.svg",
        "one/trial.html",
        "two/trial/trial-heat-1-visual-consistency-narrow.svg",
    ):
        assert (tmp_path / "pages" / name).is_file()
