"""The list of samples and the list of runs in a real Chromium: many samples, addresses, sizes, axe-core."""

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


@pytest.fixture(params=["served", "files"])
def root(request: pytest.FixtureRequest, roots: dict[str, str]) -> str:
    return roots[request.param]


@pytest.fixture
def open_page(browser: Browser, root: str) -> Iterator[Callable[..., Page]]:
    watched: list[Watched] = []
    contexts = []

    def opened(address: str, *, width: int = 1440, height: int = 900, scheme: str = "light") -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        watched.append(Watched(page, root))
        page.goto(root + address)
        if "/index.html" in address or address.startswith("compare.html"):
            page.wait_for_selector("#filters:not([inert]):not([hidden])")
        return page

    yield opened
    trouble = [line for one in watched for line in one.trouble]
    for context in contexts:
        context.close()
    assert not trouble


def ids(page: Page) -> list[str]:
    return page.locator("#cards .name").all_inner_texts()


@pytest.mark.parametrize("width", [1440, 390])
def test_of_many_samples_those_in_view_are_in_the_page_and_scrolling_brings_the_others(
    open_page: Callable[..., Page], width: int
) -> None:
    page = open_page("large/index.html", width=width)
    cards = page.locator("#cards .card")
    assert page.locator("#found").inner_text() == "300 samples"
    assert 3 <= cards.count() <= 40 and ids(page)[0] == "edit-0000"
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    until(lambda: ids(page)[-1] == "edit-0299")
    assert cards.count() <= 40 and cards.last.get_attribute("aria-posinset") == "300"
    # The last card ends where the list does: the space above is as high as the cards that it stands for.
    last, box = cards.last.bounding_box(), page.locator("#cards").bounding_box()
    assert last is not None and box is not None
    assert abs(last["y"] + last["height"] - box["y"] - box["height"]) < 2
    page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
    until(lambda: "edit-0150" in ids(page))
    heights = cards.evaluate_all("all => [...new Set(all.map(card => Math.round(card.offsetHeight)))]")
    assert len(heights) == 1


@pytest.mark.parametrize("address", ["small/index.html", "compare.html"])
def test_pictures_have_200_px_and_six_samples_stand_on_a_screen(open_page: Callable[..., Page], address: str) -> None:
    page = open_page(address)
    page.wait_for_selector("#cards .pair img")
    cards = [card.bounding_box() for card in page.locator("#cards .card").all()]
    assert sum(box is not None and box["y"] + box["height"] <= 900 for box in cards) >= 6
    for picture in page.locator("#cards .pair img").all()[:12]:
        box = picture.bounding_box()
        assert box is not None and min(box["width"], box["height"]) >= 200
    # Filters in one line.
    tops = page.locator("#filters > *:visible").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect()).map(b => b.y + b.height / 2)"
    )
    assert max(tops) - min(tops) < 4


@pytest.mark.parametrize("filtered", [False, True])
def test_a_large_run_shows_its_first_samples_until_all_have_come_and_then_what_the_address_asks_for(
    browser: Browser, tmp_path: Path, filtered: bool
) -> None:
    # A server of its own: one that has made all rows before gives them at once.
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
        assert page.locator(".mean").count() == 0
        assert page.locator("#filters").evaluate("form => form.inert")
        assert ids(page)[:1] == ([] if filtered else ["edit-0000"])
        held.pop().continue_()
        until(lambda: page.locator("#found").inner_text() == ("1 of 201" if filtered else "201 samples"))
        assert page.locator(".mean").count() > 0
        assert ids(page)[0] == ("edit-0200" if filtered else "edit-0000")
        page.close()
        viewer.shutdown()


def test_samples_and_the_command_have_one_order_of_disagreement(
    open_page: Callable[..., Page], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = Site.of([RunReader(make(tmp_path_factory.mktemp("order") / "small", samples=3, editors=2))])
    comparison = found.numbers.comparison([found.runs[0].reader])
    assert not isinstance(comparison, str)
    wanted = list(dict.fromkeys(d.sample for d in comparison.disagreements))
    page = open_page("small/index.html#differ=judges&sort=-differ")
    until(lambda: page.locator("#found").inner_text() != "6 samples" or len(wanted) == 6)
    editors = page.locator("#cards .facts-line").all_inner_texts()
    shown = [next(key for key in wanted if key.endswith(f"/{id_}") and key.partition("/")[0] in facts)
             for id_, facts in zip(ids(page), editors, strict=True)]  # fmt: skip
    assert shown == wanted and len(wanted) > 1


def test_an_address_shows_the_same_samples_in_the_same_order_elsewhere(open_page: Callable[..., Page]) -> None:
    page = open_page("large/index.html")
    page.get_by_label("Differ", exact=True).select_option("judges")
    page.get_by_label("Sort", exact=True).select_option("disagreement")
    page.get_by_label("Judge", exact=True).select_option("gpt-4.1")
    page.locator(".further summary").click()
    page.get_by_label("IF", exact=True).select_option("Wrong Action")
    found, listed = page.locator("#found").inner_text(), ids(page)
    assert found.endswith("of 300")
    # Every sample that is shown has this label of this judge, whose line stands first.
    said = page.locator("#cards .answers li:first-child").all_inner_texts()
    assert said and all("gpt-4.1" in words and "Wrong Action" in words for words in said)
    other = open_page(f"large/index.html#{page.url.partition('#')[2]}")
    assert (other.locator("#found").inner_text(), ids(other)) == (found, listed)


def test_comparison_opens_with_the_samples_on_which_judges_differ(open_page: Callable[..., Page]) -> None:
    page = open_page("compare.html")
    assert "differ=judges" in page.url and "sort=-differ" in page.url
    assert page.locator("#cards .differs").count() > 4
    page.get_by_role("link", name="Statistics").click()
    page.wait_for_url("**/compared.html*")
    assert page.locator(".tables table").count() > 3
    assert page.locator(".crumbs li").all_inner_texts() == ["Runs", "Judges compared", "Statistics"]


def test_the_list_of_runs_is_completed_and_sorted_and_runs_are_chosen(browser: Browser, roots: dict[str, str]) -> None:
    page = browser.new_page()
    page.goto(roots["served"])
    until(lambda: page.locator("tr[data-wait]").count() == 0)
    assert page.locator("#runs .figure").count() == 2 * 3 * 3, "two metrics and their mean, of three judges, in two runs"
    names = page.locator("#runs tbody th a")
    page.get_by_role("button", name="Samples").click()
    assert names.all_inner_texts() == ["small", "large"]
    page.get_by_role("button", name="Samples").click()
    assert names.all_inner_texts() == ["large", "small"] and "sort=-Samples" in page.url
    for name in ("small", "large"):
        page.get_by_label(f"Compare {name}").check()
    page.get_by_role("link", name="compare their judges").click()
    page.wait_for_url("**/compare.html?run=*&run=*")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "address", ["index.html", "large/index.html", "large/report.html", "compare.html", "compared.html"]
)
def test_no_page_scrolls_sideways_and_text_of_plots_keeps_its_size(
    open_page: Callable[..., Page], address: str, scheme: str
) -> None:
    page = open_page(address, width=390, height=844, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for picture in page.locator(".report .plots img").all()[:2]:
        picture.scroll_into_view_if_needed()
        until(lambda p=picture: p.evaluate("i => i.naturalWidth") > 0)
        assert picture.evaluate("i => i.clientWidth / i.naturalWidth") >= 0.9


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1440, "light"), (1440, "dark")])
@pytest.mark.parametrize(
    "address",
    ["index.html", "small/index.html", "small/report.html", "compare.html", "compared.html", "a sample", "nowhere.html"],
)
def test_axe_finds_no_serious_fault(
    browser: Browser, roots: dict[str, str], address: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(roots["served"] + ("small/index.html" if address == "a sample" else address))
    if address == "a sample":
        page.locator("#cards .name").first.click()
        page.wait_for_url("**/small/samples/*.html")
        page.wait_for_load_state()
    until(lambda: page.locator("tr[data-wait]").count() == 0)
    for fold in page.locator("details > summary:visible").all()[:2]:
        fold.click()
    found = Axe().run(page).response["violations"]
    context.close()
    told = [
        (one["id"], one["impact"], [node["target"] for node in one["nodes"]][:4])
        for one in found
        if one["impact"] in ("serious", "critical") or one["id"] in ("empty-table-header", "scrollable-region-focusable")
    ]
    assert not told
