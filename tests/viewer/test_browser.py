"""The pages in a real Chromium. `make test-browser` runs these tests.

Playwright drives the Chromium that CHROMIUM names, or the one on the path; it needs no browser of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from benchmarks.judged_runs import make
from editloupe.config import JudgeConfig, RunConfig
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.viewer.export import export
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from tests.conftest import final
from tests.protocols.test_installed import draw
from tests.viewer.browsing import BLUE, GREEN, check_box, ids, is_color, open_sample, pixels, served, until, watched
from tests.viewer.runs import CROP, HEIGHT, SHOWN, TARGET, WIDTH
from tests.viewer.test_grid import OTHER, SAME, judge, page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.browser

SMALL = (100, 80, 120, 100)
"""0.52 % of 320×240 px."""


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[dict[str, str]]:
    """`files`: the hostile run's pages.   `two`: a large run and a small one of three judges, served.

    `beside`: a sample that two judges looked at in different places, with a target under 1 %, served.
    """
    at = tmp_path_factory.mktemp("served")
    strict = judge("strict", [SAME, final("Wrong Action", "The square is red. " * 90)])
    page_of(at, strict, judge("lenient", [OTHER, final("Flawless Execution")]), box=SMALL)
    runs = make(at / "large", samples=201), make(at / "small", samples=3, editors=2)
    with served(*runs) as two, served(at / "run") as beside:
        yield {"files": f"file://{folder}/", "two": two.url, "beside": beside.url}


@pytest.fixture(scope="module")
def watched_page(browser: Browser, roots: dict[str, str]) -> Iterator[Page]:
    with watched(browser, list(roots.values())) as page:
        yield page


@pytest.fixture
def page(watched_page: Page) -> Page:
    """The module's page, as wide as a desk's."""
    watched_page.set_viewport_size({"width": 1440, "height": 900})
    return watched_page


@pytest.fixture
def beside(page: Page, roots: dict[str, str]) -> Page:
    """The sample of two judges."""
    page.goto(f"{roots['beside']}index.html")
    open_sample(page, "s")
    return page


def test_a_run_is_filtered_sorted_and_its_samples_walked_through(page: Page, roots: dict[str, str]) -> None:
    page.goto(f"{roots['files']}index.html")
    assert page.locator("#found").text_content() == "6 samples" and len(ids(page)) == 6
    until(lambda: page.locator("#cards .pair img").first.evaluate("i => i.naturalWidth") > 20)
    page.get_by_label("Search").fill("square 3")
    until(lambda: ids(page) == ["s03"])
    page.get_by_role("button", name="Clear").click()
    until(lambda: len(ids(page)) == 6)
    page.locator(".further summary").click()
    page.get_by_label("IF", exact=True).select_option("Wrong Action")
    until(lambda: ids(page) == ["s03"])
    page.get_by_label("IF", exact=True).select_option("")
    page.get_by_label("Differ", exact=True).select_option("human")
    page.get_by_label("Sort", exact=True).select_option("score")
    # The filters are in the address, so that they can be kept and sent.
    assert "differ=human" in page.url and "sort=score" in page.url
    page.reload()
    assert ids(page) == ["s03", "s02"]
    open_sample(page, "s03")
    assert page.locator("#instruction").text_content() == "Make square 3 red."
    # Next and previous go through what was listed, in that order.
    assert page.locator("#position").text_content() == "1 of 2 listed"
    page.keyboard.press("n")
    page.wait_for_url("**/painter-s02-*.html")
    assert page.locator("#following").is_hidden()
    page.keyboard.press("u")
    page.wait_for_url("**/index.html#*differ=human*")
    assert len(ids(page)) == 2


def test_of_many_samples_those_in_view_are_in_the_page(page: Page, roots: dict[str, str]) -> None:
    page.goto(f"{roots['two']}large/index.html")
    until(lambda: page.locator("#found").inner_text() == "201 samples")
    cards = page.locator("#cards .card")
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("scrollTo(0, 0)")
        until(lambda: ids(page)[0] == "edit-0000")
        assert 3 <= cards.count() <= 40
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        until(lambda: ids(page)[-1] == "edit-0200")
        assert cards.count() <= 40 and cards.last.get_attribute("aria-posinset") == "201"
        # The last card ends where the list does: the space above is as high as the cards that it stands for.
        last, box = cards.last.bounding_box(), page.locator("#cards").bounding_box()
        assert last is not None and box is not None
        assert abs(last["y"] + last["height"] - box["y"] - box["height"]) < 2


def test_a_large_run_shows_its_first_samples_until_all_have_come(browser: Browser, tmp_path: Path) -> None:
    # A server of its own: one that has made all rows before gives them at once.
    with served(make(tmp_path / "run", samples=201)) as viewer, watched(browser, [viewer.url]) as page:
        held: list[Route] = []
        page.route("**/rows.json", lambda route: held.append(route))
        page.goto(f"{viewer.url}index.html")
        until(lambda: page.title() and bool(held))
        assert page.locator("#found").inner_text() == "Reading all samples…" and ids(page)[0] == "edit-0000"
        # Nothing is counted, filtered or sorted yet: that would be about the first rows alone.
        assert page.locator(".mean").count() == 0 and page.locator("#filters").evaluate("form => form.inert")
        page.evaluate("history.replaceState(null, '', '#q=edit-0200')")
        held.pop().continue_()
        until(lambda: page.locator("#found").inner_text() == "1 of 201")
        assert page.locator(".mean").count() > 0 and ids(page) == ["edit-0200"]


def test_pictures_have_200_px_six_samples_a_screen_and_filters_one_line(page: Page, roots: dict[str, str]) -> None:
    for address in ("small/index.html", "compare.html"):
        page.goto(f"{roots['two']}{address}")
        page.wait_for_selector("#cards .pair img")
        cards = [card.bounding_box() for card in page.locator("#cards .card").all()]
        assert sum(box is not None and box["y"] + box["height"] <= 900 for box in cards) >= 6
        sizes = page.locator("#cards .pair img").evaluate_all("all => all.map(i => [i.clientWidth, i.clientHeight])")
        assert min(map(min, sizes[:12])) >= 200
        tops = page.locator("#filters > *:visible").evaluate_all(
            "all => all.map(e => e.getBoundingClientRect()).map(b => b.y + b.height / 2)"
        )
        assert max(tops) - min(tops) < 4


def test_comparison_opens_with_the_order_of_the_command(page: Page, roots: dict[str, str], tmp_path: Path) -> None:
    found = Site.of([RunReader(make(tmp_path / "small", samples=3, editors=2))])
    comparison = found.numbers.comparison([found.runs[0].reader])
    assert not isinstance(comparison, str)
    wanted = list(dict.fromkeys(d.sample for d in comparison.disagreements))
    page.goto(f"{roots['two']}compare.html?run=small")
    until(lambda: "differ=judges" in page.url and "sort=-differ" in page.url)
    editors = page.locator("#cards .facts-line").all_inner_texts()
    shown = [
        next(key for key in wanted if key.endswith(f"/{id_}") and key.partition("/")[0] in facts)
        for id_, facts in zip(ids(page), editors, strict=True)
    ]
    assert shown == wanted and len(wanted) > 1 and page.locator("#cards .differs").count() > 4
    page.get_by_role("link", name="Statistics").click()
    page.wait_for_url("**/compared.html*")
    assert page.locator(".tables table").count() > 3
    assert page.locator(".crumbs li").all_inner_texts()[-2:] == ["Judges compared", "Statistics"]


def test_the_list_of_runs_is_completed_sorted_and_chosen_from(page: Page, roots: dict[str, str]) -> None:
    page.goto(roots["two"])
    until(lambda: page.locator("tr[data-wait]").count() == 0)
    assert page.locator("#runs .figure").count() == 2 * 3 * 3, "two metrics and their mean, of three judges, in two runs"
    names = page.locator("#runs tbody th a")
    for order, words in ((["small", "large"], "sort=Samples"), (["large", "small"], "sort=-Samples")):
        page.get_by_role("button", name="Samples").click()
        assert names.all_inner_texts() == order and words in page.url
    for name in ("small", "large"):
        page.get_by_label(f"Compare {name}").check()
    page.get_by_role("link", name="compare their judges").click()
    page.wait_for_url("**/compare.html?run=*&run=*")


def test_boxes_lie_where_the_pixels_are_and_zoom_is_one_on_both_sides(page: Page, roots: dict[str, str]) -> None:
    page.goto(f"{roots['files']}index.html")
    open_sample(page, "s01")
    check_box(page, TARGET, page.locator(".pane.source .frame"), GREEN)
    # The crops are those of the step in view: none at the head of the page, until all are asked for.
    crops = page.locator(".pane.edited .lay > svg:not(.overlaid) .mark.crop:visible")
    assert crops.count() == 0
    page.locator(".boxes").get_by_label("All crops").check()
    check_box(page, CROP, page.locator(".pane.edited .frame"), BLUE)
    page.locator(".boxes").get_by_label("All crops").uncheck()
    page.locator(".verdict.open .turn h3 a").first.click()
    until(lambda: crops.count() == 1)
    page.locator(".verdict.open .place-of").first.click()
    sizes = page.locator(".pane .lay").evaluate_all("all => all.map(l => l.getBoundingClientRect().width)")
    frame = page.locator(".pane .frame").first.bounding_box()
    assert frame is not None and sizes[0] == pytest.approx(sizes[1], abs=0.1)
    # focusOn shows the box at 60 % of the frame: the larger share, 96/320 of the width or 76/240 of the height, is 0.3167.
    assert sizes[0] / frame["width"] == pytest.approx(0.6 / (76 / 240), rel=0.01)
    page.keyboard.press("0")
    assert page.locator(".pane .lay").first.bounding_box() == pytest.approx(frame, abs=0.1)
    with page.context.expect_page() as opened:
        page.locator(".pane.source figcaption a").click()
    opened.value.wait_for_load_state()
    assert opened.value.evaluate("[document.images[0].naturalWidth, document.images[0].naturalHeight]") == [WIDTH, HEIGHT]
    opened.value.close()


def test_swipe_difference_and_blink_compare_the_two_images(page: Page, roots: dict[str, str]) -> None:
    page.set_viewport_size({"width": 1366, "height": 1400})
    page.goto(f"{roots['files']}index.html")
    open_sample(page, "s01")
    page.locator(".boxes").get_by_label("Target").uncheck()
    page.keyboard.press("w")
    frame = page.locator(".pane.source .frame").bounding_box()
    grip = page.locator(".grip").bounding_box()
    assert frame is not None and grip is not None and page.locator(".pane.edited").is_hidden()
    # The first spot is red at x 20 to 44, y 20 to 44 of the edited image, gray noise in the source.
    spot = (frame["x"] + 32 / WIDTH * frame["width"], frame["y"] + 32 / HEIGHT * frame["height"])
    assert not is_color(pixels(page), *spot, (255, 0, 0))
    page.mouse.move(grip["x"] + grip["width"] / 2, frame["y"] + frame["height"] - 30)
    page.mouse.down()
    page.mouse.move(frame["x"] + 0.02 * frame["width"], frame["y"] + frame["height"] - 30, steps=5)
    page.mouse.up()
    assert is_color(pixels(page), *spot, (255, 0, 0))
    # The same with the keyboard alone.
    page.get_by_label("Swipe", exact=True).and_(page.locator("input")).focus()
    page.keyboard.press("End")
    assert not is_color(pixels(page), *spot, (255, 0, 0))
    page.keyboard.press("d")
    seen = pixels(page)
    assert seen[round(spot[1]), round(spot[0])].max() > 200
    assert seen[round(frame["y"] + 0.8 * frame["height"]), round(frame["x"] + 0.8 * frame["width"])].max() < 12
    page.locator("#gain").fill("9")
    assert page.locator("#gained").inner_text() == "×9"
    page.keyboard.press("b")
    assert "edited" in page.locator("#readout").inner_text() and is_color(pixels(page), *spot, (255, 0, 0))


def test_steps_and_verdicts_by_keyboard_and_by_address(page: Page, roots: dict[str, str]) -> None:
    page.goto(f"{roots['files']}index.html")
    open_sample(page, "s02")
    step, heading = page.locator(".turn.current h3 a"), page.locator(".verdict.open h2")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert step.text_content() == "Step 2" and page.url.endswith("-s2")
    # A link to one step opens its verdict and the step.
    page.reload()
    assert step.text_content() == "Step 2" and "Instruction Following" in heading.inner_text()
    page.keyboard.press("k")
    assert step.text_content() == "Step 1"
    page.keyboard.press("]")
    assert "Visual Consistency" in heading.inner_text()
    # From label to label with the arrow keys.
    page.locator("a.cell[aria-current=true]").focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-current')") == "true"
    assert "Instruction Following" in heading.inner_text()
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")


def test_a_hostile_run_does_nothing(page: Page, roots: dict[str, str]) -> None:
    page.goto(f"{roots['files']}index.html")
    page.locator("#cards .name").first.click()
    page.wait_for_selector(".verdict.open")
    page.wait_for_load_state("networkidle")
    assert page.title().startswith("s00 <script>") and page.locator("#instruction").text_content() == SHOWN
    addresses = page.locator("a[href]").evaluate_all("all => all.map(a => a.href)")
    assert addresses and all(address.startswith("file://") for address in addresses)
    assert page.locator("main script, main iframe, main object, main embed, main [onload], main [onerror]").count() == 0


def test_the_policy_stops_what_escaping_would_have_let_through(browser: Browser, roots: dict[str, str]) -> None:
    page = browser.new_page()
    for root in (roots["files"], roots["beside"]):
        page.goto(f"{root}index.html")
        page.evaluate("""() => {
            const div = document.createElement('div'), script = document.createElement('script');
            document.body.append(div);
            div.innerHTML = '<img src="nowhere.png" onerror="window.owned = 1">';
            script.textContent = 'window.owned = 2';
            document.body.append(script);
        }""")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("window.owned") is None
    page.close()


def test_a_sample_reads_without_script(browser: Browser, roots: dict[str, str], folder: Path) -> None:
    (path,) = (folder / "samples").glob("painter-s01-*.html")
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1366, "height": 900})
    page = context.new_page()
    page.goto(f"{roots['files']}samples/{path.name}")
    assert page.locator(".verdict").count() == 2 and page.locator(".verdict").last.is_visible()
    check_box(page, TARGET, page.locator(".pane.source .frame"), GREEN)
    context.close()


def middle(page: Page) -> tuple[float, float]:
    """The point of the source, in px, in the middle of its frame."""
    found = page.evaluate("""() => {
        const frame = document.querySelector('.frame'), at = frame.getBoundingClientRect();
        const shown = frame.querySelector('.lay').getBoundingClientRect();
        return [(at.x + at.width / 2 - shown.x) / shown.width * 320, (at.y + at.height / 2 - shown.y) / shown.height * 240];
    }""")
    return found[0], found[1]


def scale(page: Page) -> float:
    """Screen pixels an image pixel."""
    return float(page.locator(".lay").first.evaluate("e => e.getBoundingClientRect().width")) / 320


def test_a_page_opens_at_a_small_target_and_z_goes_to_a_crop_and_back(beside: Page) -> None:
    widths = beside.locator(".frame").evaluate_all("all => all.map(f => f.clientWidth)")
    assert len(widths) == 2 and min(widths) >= 580
    assert middle(beside) == pytest.approx((110, 90), abs=0.5)
    # A third of the frame would be (1/3) / (20/240) = 4 times the whole image; 8 screen pixels an image pixel is the limit.
    assert scale(beside) == pytest.approx(min(8, widths[0] / 320 * 4), rel=0.02)
    assert "the target" in beside.locator("#readout").inner_text()
    beside.keyboard.press("0")
    whole = scale(beside)
    assert whole == pytest.approx(widths[0] / 320, rel=0.01)
    # The first step's crop, with zoom_in's margin of 8 px: x 72 to 168, y 52 to 128.
    beside.keyboard.press("j")
    beside.keyboard.press("z")
    assert middle(beside) == pytest.approx((120, 90), abs=0.5) and "Crop 1" in beside.locator("#readout").inner_text()
    beside.keyboard.press("z")
    assert scale(beside) == pytest.approx(whole, rel=0.01)
    for _ in range(3):
        beside.keyboard.press("+")
    assert middle(beside) == pytest.approx((110, 90), abs=0.5)


def test_two_judges_stand_beside_each_other_and_a_long_thought_unfolds(beside: Page) -> None:
    shown = beside.locator(".verdict.open")
    assert [name.split()[0] for name in shown.locator("h2").all_inner_texts()] == ["strict", "lenient"]
    tops = shown.evaluate_all("all => all.map(v => v.getBoundingClientRect().y)")
    assert tops[0] == pytest.approx(tops[1], abs=1)
    thought = beside.locator(".verdict.main .thought").last
    button = thought.locator("xpath=following-sibling::button[1]")
    before = thought.evaluate("e => e.clientHeight")
    button.click()
    assert button.get_attribute("aria-expanded") == "true" and thought.evaluate("e => e.clientHeight") > before
    beside.keyboard.press("c")
    assert shown.count() == 1


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_the_first_screen_shows_instruction_verdicts_reasons_and_people(beside: Page, width: int, height: int) -> None:
    beside.set_viewport_size({"width": width, "height": height})
    parts = ("#instruction", *(f"table.labels .{name} >> nth={n}" for name in ("cell", "why") for n in range(4)))
    for part in (*parts, ".said-by >> nth=0"):
        box = beside.locator(part).bounding_box()
        assert box is not None and box["y"] + box["height"] <= height, part
    first, second = (frame.bounding_box() for frame in beside.locator(".frame").all())
    assert first is not None and second is not None
    assert (second["y"] > first["y"] + first["height"]) == (width == 390), "a narrow screen has one above the other"


SMALL_RUN = ["index.html", "small/index.html", "small/report.html", "compare.html?run=small", "compared.html?run=small"]
PAGES = {"two": [*SMALL_RUN, "nowhere.html"], "beside": ["index.html", "a sample"]}


@pytest.mark.parametrize(("root", "address"), [(root, address) for root in PAGES for address in PAGES[root]])
def test_no_page_has_a_serious_fault_of_access_or_scrolls_sideways(
    browser: Browser, roots: dict[str, str], root: str, address: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(bypass_csp=True)
    page.goto(roots[root] + ("index.html" if address == "a sample" else address))
    if address == "a sample":
        open_sample(page, "s")
    until(lambda: page.locator("tr[data-wait]").count() == 0)
    for fold in page.locator("details > summary:visible").all()[:2]:
        fold.click()
    found = []
    for width, height in ((1440, 900), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            found += [
                (width, scheme, one["id"], [node["target"] for node in one["nodes"]][:4])
                for one in Axe().run(page).response["violations"]
                if one["impact"] in ("serious", "critical") or one["id"] == "scrollable-region-focusable"
            ]
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.close()
    assert not found and paper == "rgb(18, 22, 26)"


@pytest.mark.usefixtures("toys")
def test_a_chain_is_a_strip_of_turns_with_what_was_found_on_each(browser: Browser, tmp_path: Path) -> None:
    config = RunConfig(path=draw(tmp_path / "data", "turns"), protocol="places", judge=JudgeConfig(backend=None))
    drive(open_setup(config), tmp_path / "run")
    export(Site.of([RunReader(tmp_path / "run")]), tmp_path / "pages")
    with watched(browser, [root := f"file://{tmp_path}/pages/"]) as page:
        page.goto(f"{root}index.html")
        open_sample(page, "b")
        turns, what = page.locator(".strip > li"), page.locator(".pane .what")
        assert turns.count() == 4 and "y [changed=yes right=no]" in turns.nth(2).inner_text()
        # The panes show source and last turn, until a turn is chosen.
        assert what.all_inner_texts() == ["Source", "After turn 3"]
        turns.nth(2).get_by_role("button", name="Compare").click()
        assert what.all_inner_texts() == ["After turn 1", "After turn 2"]
        # The open answer's box is drawn; a link to a place on another image shows the turn that made it.
        page.locator("a.cell").filter(has_text="squares, turn 3").click()
        page.locator(".verdict.open .places-named summary").click()
        page.get_by_role("link", name="square, x 24–32, y 0–8").click()
        assert what.all_inner_texts() == ["After turn 2", "After turn 3"]
        box = page.locator(".pane.edited .lay .mark.found:visible")
        assert box.count() == 1 and box.locator("rect").first.get_attribute("x") == "24"


def test_a_run_under_way_is_followed(browser: Browser, run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    findings = copy / "findings.jsonl"
    lines = findings.read_bytes().splitlines(keepends=True)
    findings.write_bytes(b"".join(lines[:-1]))
    lock = FileLock(copy / "run.lock")
    with lock, served(copy) as viewer, watched(browser, [viewer.url]) as page:
        page.goto(viewer.url)
        assert page.locator("#live").is_visible() and "9 of 11 questions" in page.locator("#counts").inner_text()
        with findings.open("ab") as file:
            file.write(lines[-1])
        until(lambda: "10 of 12 questions" in page.locator("#counts").inner_text())
        lock.release()
        until(lambda: page.locator("#live").is_hidden())
