"""The matrix and the list of runs in a real Chromium: many rows, addresses that keep a view, small screens, axe-core."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from benchmarks.judged_runs import make
from editloupe.viewer.export import export
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from editloupe.viewer.serve import Viewer
from tests.viewer.test_browser import Watched, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Two runs of three judges, of 300 samples and of 6, served and as files."""
    folder = tmp_path_factory.mktemp("matrix")
    runs = [make(folder / "large", samples=300), make(folder / "small", samples=3, editors=2)]
    export(Site.of([RunReader(run) for run in runs]), folder / "pages")
    with Viewer(Site.of([RunReader(run, live=True) for run in runs], live=True)) as viewer:
        thread = threading.Thread(target=viewer.serve_forever, daemon=True)
        thread.start()
        yield {"served": viewer.url, "files": f"file://{folder}/pages/"}
        viewer.shutdown()
        thread.join(5)


@pytest.fixture(params=["served", "files"])
def root(request: pytest.FixtureRequest, roots: dict[str, str]) -> str:
    return roots[request.param]


@pytest.fixture
def open_page(browser: Browser, root: str) -> Iterator[Callable[..., Page]]:
    watched: list[Watched] = []
    contexts = []

    def opened(address: str, *, width: int = 1400, scheme: str = "light", whole: bool = True, **more: bool) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        watched.append(Watched(page, root))
        page.goto(root + address)
        if whole and "/index.html" in address:
            page.wait_for_selector("#filters:not([inert])")
        return page

    yield opened
    trouble = [line for one in watched for line in one.trouble]
    for context in contexts:
        context.close()
    assert not trouble


def ids(page: Page) -> list[str]:
    return page.locator("#table .name a").all_inner_texts()


def test_of_many_rows_those_in_view_are_in_the_page_and_scrolling_brings_the_others(open_page: Callable[..., Page]) -> None:
    page = open_page("large/index.html")
    rows = page.locator("#table tr.sample")
    assert page.locator("#found").inner_text() == "300 samples"
    assert 5 <= rows.count() <= 40 and ids(page)[0] == "edit-0000"
    page.locator("#window").evaluate("w => { w.scrollTop = w.scrollHeight; }")
    until(lambda: ids(page)[-1] == "edit-0299")
    assert rows.count() <= 40
    # The last row ends where the table does: the space above is as high as the rows that it stands for.
    last, table = rows.last.bounding_box(), page.locator("#table").bounding_box()
    assert last is not None and table is not None
    assert abs(last["y"] + last["height"] - table["y"] - table["height"]) < 2
    assert rows.last.get_attribute("aria-rowindex") == "301"
    page.locator("#window").evaluate("w => { w.scrollTop = w.scrollHeight / 2; }")
    until(lambda: "edit-0150" in ids(page))


@pytest.mark.parametrize("filtered", [False, True])
def test_a_large_run_shows_its_first_rows_until_all_have_come_and_then_what_the_address_asks_for(
    browser: Browser, tmp_path: Path, filtered: bool
) -> None:
    # A server of its own: one that has made the matrix before gives all of it at once.
    with Viewer(Site.of([RunReader(make(tmp_path / "run", samples=201), live=True)], live=True)) as viewer:
        thread = threading.Thread(target=viewer.serve_forever, daemon=True)
        thread.start()
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        held: list[Route] = []
        page.route("**/rows.json", lambda route: held.append(route))
        page.goto(f"{viewer.url}index.html{'#q=edit-0200' if filtered else ''}")
        until(lambda: page.title() and held)
        assert page.locator("#found").inner_text() == "Reading all samples…"
        # Nothing is counted, filtered or sorted yet: that would be about the first rows alone.
        assert page.locator(".mean strong").first.inner_text() == "…"
        assert page.locator("#filters").evaluate("form => form.inert")
        assert ids(page)[:1] == ([] if filtered else ["edit-0000"])
        page.get_by_role("button", name="Sample").click()
        assert "sort" not in page.url
        held.pop().continue_()
        until(lambda: page.locator("#found").inner_text() == ("1 of 201 samples" if filtered else "201 samples"))
        assert page.locator(".mean strong").first.inner_text() != "…"
        assert ids(page)[0] == ("edit-0200" if filtered else "edit-0000")
        page.reload()
        page.wait_for_selector("#table tr.sample")
        assert page.locator("#found").inner_text().endswith("201 samples") and not held
        page.close()
        viewer.shutdown()
        thread.join(5)


def test_a_few_rows_are_scrolled_by_the_page_alone_and_the_head_stays_in_sight(open_page: Callable[..., Page]) -> None:
    page = open_page("small/index.html")
    page.set_viewport_size({"width": 1400, "height": 600})
    window = page.locator("#window")
    assert window.evaluate("w => w.scrollHeight <= w.clientHeight") and page.locator("#table tr.sample").count() == 6
    assert page.evaluate("document.documentElement.scrollHeight > innerHeight")
    page.evaluate("scrollTo(0, document.getElementById('window').getBoundingClientRect().top + 200)")
    head, top = page.locator("#table thead").bounding_box(), page.locator(".top").bounding_box()
    assert head is not None and top is not None and head["y"] == pytest.approx(top["height"], abs=1)


@pytest.mark.parametrize("width", [1400, 1000])
def test_no_word_of_a_label_is_broken_however_many_judges_there_are(open_page: Callable[..., Page], width: int) -> None:
    page = open_page("compare.html", width=width)
    page.wait_for_selector("#table .chip")
    broken = page.evaluate("""() => [...document.querySelectorAll('#table .chip')].flatMap((chip) => {
        const text = chip.lastChild, found = [];
        for (const word of text.data.matchAll(/[a-z]+/gi)) {
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            if (range.getClientRects().length > 1) found.push(text.data);
        }
        return found;
    })""")
    assert broken == []
    assert page.locator("#table thead .of").count() >= 12


def test_rows_and_the_command_have_one_order_of_disagreement(
    open_page: Callable[..., Page], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = Site.of([RunReader(make(tmp_path_factory.mktemp("order") / "small", samples=3, editors=2))])
    comparison = found.numbers.comparison([found.runs[0].reader])
    assert not isinstance(comparison, str)
    wanted = list(dict.fromkeys(d.sample for d in comparison.disagreements))
    page = open_page("small/index.html#differ=judges&sort=-differ")
    until(lambda: page.locator("#found").inner_text() != "6 samples" or len(wanted) == 6)
    editors = page.locator("#table .facts-line").all_inner_texts()
    shown = [next(key for key in wanted if key.endswith(f"/{id_}") and key.partition("/")[0] in facts)
             for id_, facts in zip(ids(page), editors, strict=True)]  # fmt: skip
    assert shown == wanted and len(wanted) > 1


def test_captions_stay_in_a_narrow_window_while_their_tables_scroll(open_page: Callable[..., Page]) -> None:
    page = open_page("large/report.html", width=420)
    wide = page.locator(".tables .scroll").evaluate_all(
        "all => all.map((e) => [e.scrollWidth - e.clientWidth, e.querySelector('.told').getBoundingClientRect().right])"
    )
    assert wide and all(right <= 420 for _, right in wide) and any(more > 0 for more, _ in wide)


@pytest.mark.parametrize("width", [1400, 1300, 1000, 420])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_columns_of_three_judges_on_two_metrics_fit_the_window(
    browser: Browser, roots: dict[str, str], width: int, scheme: Literal["light", "dark"]
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(f"{roots['files']}small/index.html")
    assert page.locator("#window").evaluate("w => w.scrollWidth - w.clientWidth") == 0
    assert page.evaluate("document.documentElement.scrollWidth") == width
    # Nothing is cut off, no word is broken (the shape may stand above it), and the bars of a judge begin at one place.
    cut = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"
    assert page.locator("#table .labels, #table .apart, #table .spent").evaluate_all(cut) == []
    lines = "all => all.map(e => [e.offsetHeight / parseFloat(getComputedStyle(e).lineHeight), e.textContent])"
    chips = page.locator("#table .chip").evaluate_all(lines)
    assert chips and all(round(height) <= len(words.split()) + (width == 1000) for height, words in chips)
    lefts = page.locator(".judge-means").first.locator(".bars").evaluate_all("all => all.map(e => e.offsetLeft)")
    assert len(lefts) == 3 and len(set(lefts)) == 1
    page.close()


def test_judges_stand_under_each_metric_with_short_names_and_people_beside_them(open_page: Callable[..., Page]) -> None:
    page = open_page("large/index.html")
    heads = page.locator("#table thead tr").nth(1).locator("th").all_inner_texts()
    assert heads == ["gpt-4.1", "Qwen3-VL-32B", "gemini-2.5-pro", "people", "gpt-4.1", "Qwen3-VL-32B", "gemini-2.5-pro"]
    assert page.locator("#table thead .asked").all_inner_texts() == ["IF", "VC"]
    title = page.get_by_role("button", name="Qwen3-VL-32B").first.get_attribute("title") or ""
    assert "base_url=http://127.0.0.1:8000/v1" in title
    assert page.locator("#table th:visible").evaluate_all("all => all.every(th => th.innerText.trim())")


def test_an_address_shows_the_same_samples_in_the_same_order_elsewhere(open_page: Callable[..., Page]) -> None:
    page = open_page("large/index.html")
    page.get_by_label("Disagreement", exact=True).select_option("judges")
    page.get_by_label("Sort", exact=True).select_option("disagreement")
    page.get_by_text("More filters").click()
    page.get_by_label("Judge", exact=True).select_option("gpt-4.1")
    page.get_by_label("IF", exact=True).select_option("Wrong Action")
    found, listed = page.locator("#found").inner_text(), ids(page)
    assert found.endswith("of 300 samples")
    # Every row that is shown has this label of this judge, and a distance between judges.
    first = page.locator("#table tr.sample td.of:nth-child(4)").all_inner_texts()
    assert first and {words.strip() for words in first} == {"Wrong Action"}
    other = open_page(f"large/index.html#{page.url.partition('#')[2]}")
    assert (other.locator("#found").inner_text(), ids(other)) == (found, listed)
    # A head sorts by the answers of its judge, and stands in the address as well.
    page.get_by_role("button", name="gemini-2.5-pro").first.click()
    assert "sort=label.instruction_following%40gemini-2.5-pro" in page.url
    again = open_page(f"large/index.html#{page.url.partition('#')[2]}")
    assert ids(again) == ids(page)
    assert again.locator("th[aria-sort=ascending]").inner_text() == "gemini-2.5-pro"


def test_comparison_opens_with_the_samples_on_which_judges_differ_and_statistics_folded(
    open_page: Callable[..., Page],
) -> None:
    page = open_page("compare.html")
    assert "differ=judges" in page.url and "sort=-differ" in page.url
    assert "of 303 samples" in page.locator("#found").inner_text(), "three edits of editor-b are in one run alone"
    strong = page.locator("#table .apart").first.locator("strong").first.inner_text()
    assert float(strong) >= 66
    assert page.locator("#table .pair img").count() > 4
    assert not page.locator("#statistics").evaluate("d => d.open")
    page.locator("#statistics summary").first.click()
    until(lambda: page.locator("#statistics table").count() > 3, seconds=20)
    # An answer links to the sample in the run that it is of.
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Search").fill("edit-0001 editor-a")
    until(lambda: page.locator("#table tr.sample").count() == 1)
    page.locator("#table a.labels").first.click()
    page.wait_for_url("**/small/samples/*.html")


def test_the_list_of_runs_is_completed_and_sorted(open_page: Callable[..., Page]) -> None:
    page = open_page("index.html")
    until(lambda: page.locator("tr[data-wait]").count() == 0, seconds=20)
    assert "gpt-4.1" in page.locator("#runs .scored").first.inner_text()
    assert page.locator("#runs .figure").count() == 2 * 3 * 3, "two metrics and their mean, of three judges, in two runs"
    names = page.locator("#runs tbody th a")
    page.get_by_role("button", name="Samples").click()
    assert names.all_inner_texts() == ["small", "large"]
    page.get_by_role("button", name="Samples").click()
    assert names.all_inner_texts() == ["large", "small"] and "sort=-Samples" in page.url
    page.reload()
    assert names.all_inner_texts() == ["large", "small"]


def test_runs_are_chosen_for_comparison(browser: Browser, roots: dict[str, str]) -> None:
    page = browser.new_page()
    page.goto(roots["served"])
    page.get_by_label("Compare small").check()
    page.get_by_role("link", name="Judges compared").click()
    page.wait_for_url("**/compare.html?run=small*")
    assert "of 6 samples" in page.locator("#found").inner_text()
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("address", ["index.html", "large/index.html", "large/report.html", "compare.html"])
def test_screens_fit_420_px_and_text_of_plots_keeps_its_size(
    open_page: Callable[..., Page], address: str, scheme: str
) -> None:
    page = open_page(address, width=420, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    for picture in page.locator(".report .drawn img").all()[:3]:
        picture.scroll_into_view_if_needed()
        until(lambda p=picture: p.evaluate("i => i.naturalWidth") > 0, seconds=30)
        assert picture.evaluate("i => i.clientWidth / i.naturalWidth") == pytest.approx(1, abs=0.01)


def test_rows_of_a_small_screen_are_cards_of_one_height(open_page: Callable[..., Page]) -> None:
    page = open_page("large/index.html", width=420)
    heights = page.locator("#table tr.sample").evaluate_all("all => [...new Set(all.map(r => Math.round(r.offsetHeight)))]")
    assert len(heights) == 1
    card = page.locator("#table tr.sample").nth(1).inner_text()
    assert "Make the" in card and page.locator("#table tr.sample").nth(1).locator("td.of").count() == 7
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    until(lambda: ids(page)[-1] == "edit-0299")


@pytest.mark.parametrize("width", [420, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("address", ["index.html", "small/index.html", "small/report.html", "compare.html", "a sample"])
def test_axe_finds_no_serious_fault(
    browser: Browser, roots: dict[str, str], address: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(roots["served"] + ("small/index.html" if address == "a sample" else address))
    if address == "a sample":
        page.locator("#table .name a").first.click()
        page.wait_for_url("**/small/samples/*.html")
        page.wait_for_load_state()
    until(lambda: page.locator("tr[data-wait]").count() == 0, seconds=20)
    for fold in page.locator("details > summary").all()[:3]:
        fold.click()
    if page.locator("#statistics").count():
        until(lambda: page.locator("#statistics table").count() > 3, seconds=20)
    found = Axe().run(page).response["violations"]
    context.close()
    told = [
        (one["id"], one["impact"], [node["target"] for node in one["nodes"]][:4])
        for one in found
        if one["impact"] in ("serious", "critical") or one["id"] in ("empty-table-header", "scrollable-region-focusable")
    ]
    assert not told
