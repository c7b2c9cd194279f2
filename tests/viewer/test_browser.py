"""The pages in a real Chromium, each test twice: served, and from files. `make test-browser` runs them.

Playwright drives the Chromium that CHROMIUM names, or the one on the path; it needs no browser of its own.
"""

from __future__ import annotations

import io
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image

from editloupe import plugins
from editloupe.config import JudgeConfig, RunConfig
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.viewer.export import export
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from editloupe.viewer.serve import Viewer
from tests.protocols.test_installed import draw
from tests.toys.install import install
from tests.viewer.runs import CROP, HEIGHT, SHOWN, TARGET, WIDTH

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser

BLUE, GREEN = (0x22, 0x8B, 0xE6), (0x12, 0xB8, 0x86)
"""The colours of a crop's and a target's box (--crop and --target in viewer.css)."""


@pytest.fixture(params=["served", "files"])
def root(request: pytest.FixtureRequest, server: Viewer, folder: Path) -> str:
    """The address below which the pages lie."""
    return server.url if request.param == "served" else f"file://{folder}/"


class Watched:
    """A page, and what it did that it should not: errors, requests to elsewhere, dialogs."""

    def __init__(self, page: Page, root: str) -> None:
        self.page = page
        self.trouble: list[str] = []
        page.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        page.on("console", lambda m: self.trouble.append(f"console: {m.text}") if m.type in ("error", "warning") else None)
        page.on("dialog", lambda dialog: (self.trouble.append("a dialog"), dialog.dismiss()))
        page.on(
            "requestfailed",
            lambda r: self.trouble.append(f"failed: {r.url}") if "ERR_ABORTED" not in str(r.failure) else None,
        )
        page.on("request", lambda r: None if r.url.startswith(root) else self.trouble.append(f"request: {r.url}"))


@pytest.fixture
def open_page(browser: Browser, root: str) -> Iterator[Callable[..., Page]]:
    """Opens a page below the root, at a desk's size unless told otherwise; afterwards nothing may have gone wrong."""
    watched: list[Watched] = []
    contexts = []

    def opened(address: str = "index.html", *, width: int = 1366, height: int = 900, scheme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        watched.append(Watched(page, root))
        page.goto(root + address)
        return page

    yield opened
    trouble = [line for one in watched for line in one.trouble]
    for context in contexts:
        context.close()
    assert not trouble


def until(true: Callable[[], bool], *, seconds: float = 30) -> None:
    """Waits until something holds. Playwright's own waiting evaluates text, which the pages' policy forbids."""
    for _ in range(round(20 * seconds)):
        if true():
            return
        time.sleep(0.05)
    assert true()


def sample_page(page: Page, id_: str) -> None:
    """From the run's page to a sample's."""
    page.get_by_role("link", name=id_, exact=True).click()
    page.wait_for_selector(".verdict.open")


def cell(page: Page, words: str) -> Locator:
    """A label in the grid, by its question or what it says."""
    return page.locator("a.cell").filter(has_text=words)


def pixels(page: Page) -> np.ndarray:
    """What is seen: H×W×3 uint8, a CSS pixel each."""
    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))


def is_colour(seen: np.ndarray, x: float, y: float, colour: tuple[int, int, int], *, near: int = 1) -> bool:
    """Whether some pixel within `near` px of (x, y) has that colour."""
    cut = seen[round(y) - near : round(y) + near + 1, round(x) - near : round(x) + near + 1].astype(int)
    return bool((np.abs(cut - colour).max(axis=2) < 40).any())


def check_box(page: Page, box: tuple[int, int, int, int], on: Locator, colour: tuple[int, int, int]) -> None:
    """The four edges of a box of the 320×240 px image run through where they must on the element that shows it whole."""
    seen, frame = pixels(page), on.bounding_box()
    assert frame is not None
    scale_x, scale_y = frame["width"] / WIDTH, frame["height"] / HEIGHT
    x0, x1 = (frame["x"] + v * scale_x for v in (box[0], box[2]))
    y0, y1 = (frame["y"] + v * scale_y for v in (box[1], box[3]))
    # A third of the way along each edge: the middles may hold a label.
    u, v = x0 + 0.7 * (x1 - x0), y0 + 0.6 * (y1 - y0)
    for x, y in ((x0, v), (x1, v), (u, y0), (u, y1)):
        assert is_colour(seen, x, y, colour), (x, y, seen[round(y), round(x)])
    for x, y in ((x0 - 6, v), (x1 + 6, v), (u, y0 - 6), (u, y1 + 6)):
        assert not is_colour(seen, x, y, colour), (x, y)


def test_a_run_is_filtered_sorted_and_a_sample_opened(open_page: Callable[..., Page]) -> None:
    page = open_page()
    rows = page.locator("#cards .card")
    assert rows.count() == 6
    assert page.locator("#found").text_content() == "6 samples"
    page.get_by_label("Search").fill("square 3")
    until(lambda: rows.count() == 1)
    assert "s03" in (rows.first.text_content() or "")
    page.get_by_role("button", name="Clear").click()
    until(lambda: rows.count() == 6)
    page.locator(".further summary").click()
    page.get_by_label("IF", exact=True).select_option("Wrong Action")
    until(lambda: rows.count() == 1)
    page.get_by_label("IF", exact=True).select_option("")
    page.get_by_label("Differ", exact=True).select_option("human")
    until(lambda: rows.count() == 2)
    page.get_by_label("Sort", exact=True).select_option("score")
    assert page.locator("#cards .name").all_inner_texts() == ["s03", "s02"]
    # The filters are in the address, so that they can be kept and sent.
    address = page.url
    assert "differ=human" in address and "sort=score" in address
    page.reload()
    assert page.locator("#cards .name").all_inner_texts() == ["s03", "s02"]
    sample_page(page, "s03")
    assert page.locator("#instruction").text_content() == "Make square 3 red."
    # Next and previous go through what was listed, in that order.
    assert page.locator("#position").text_content() == "1 of 2 listed"
    page.keyboard.press("n")
    page.wait_for_url("**/painter-s02-*.html")
    assert page.locator("#following").is_hidden()
    page.keyboard.press("u")
    page.wait_for_url("**/index.html#*differ=human*")
    assert rows.count() == 2


def test_thumbnails_are_seen(open_page: Callable[..., Page]) -> None:
    page = open_page()
    seen = page.locator("#cards .pair img")
    until(lambda: all(seen.nth(n).evaluate("i => i.naturalWidth") > 20 for n in range(4)))


def test_boxes_lie_where_the_pixels_are(open_page: Callable[..., Page]) -> None:
    page = open_page()
    sample_page(page, "s01")
    check_box(page, TARGET, page.locator(".pane.source .frame"), GREEN)
    # The crops are those of the step in view: none at the head of the page, until all are asked for.
    crops = page.locator(".pane.edited .lay > svg:not(.overlaid) .mark.crop:visible")
    assert crops.count() == 0
    page.locator(".boxes").get_by_label("All crops").check()
    check_box(page, CROP, page.locator(".pane.edited .frame"), BLUE)
    page.locator(".boxes").get_by_label("All crops").uncheck()
    page.locator(".verdict.open .turn h3 a").first.click()
    until(lambda: crops.count() == 1)
    page.locator(".verdict.open .turn h3 a").last.click()
    until(lambda: crops.count() == 0)


def test_zoom_is_the_same_on_both_sides_to_the_pixel(open_page: Callable[..., Page]) -> None:
    page = open_page()
    sample_page(page, "s01")
    frames = page.locator(".pane .frame")
    frame = frames.nth(1).bounding_box()
    assert frame is not None
    base = frame["width"] / WIDTH
    page.locator(".verdict.open .place-of").first.click()
    box = page.evaluate("""() => {
        const layers = [...document.querySelectorAll('.pane .lay')].map(l => l.getBoundingClientRect());
        return layers.map(l => [l.width, l.height]);
    }""")
    assert box[0] == pytest.approx(box[1], abs=0.1)  # the columns may differ by a fraction of a pixel
    zoom = box[0][0] / frame["width"]
    # focusOn shows the box at 60 % of the frame: the larger share, 96/320 of the width or 76/240 of the height, is 0.3167.
    assert zoom == pytest.approx(0.6 / (76 / 240), rel=0.01)
    seen = pixels(page)
    frame = frames.nth(1).bounding_box()
    assert frame is not None
    middle_x, middle_y = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
    half_x, half_y = 48 * base * zoom, 38 * base * zoom
    for x, y in ((middle_x - half_x, middle_y + 20), (middle_x + half_x, middle_y + 20), (middle_x, middle_y + half_y)):
        assert is_colour(seen, x, y, BLUE, near=2)
    page.keyboard.press("0")
    assert page.locator(".pane .lay").first.bounding_box() == pytest.approx(frames.first.bounding_box(), abs=0.1)
    page.keyboard.press("1")
    width = page.locator(".pane .lay").first.evaluate("e => e.getBoundingClientRect().width")
    assert width == pytest.approx(max(WIDTH, frames.first.evaluate("e => e.getBoundingClientRect().width")), abs=0.5)


def test_swipe_shows_the_edited_image_on_the_right_of_the_handle(open_page: Callable[..., Page]) -> None:
    page = open_page(height=1400)
    sample_page(page, "s01")
    page.locator(".boxes").get_by_label("Target").uncheck()
    page.keyboard.press("w")
    frame = page.locator(".pane.source .frame").bounding_box()
    assert frame is not None
    assert page.locator(".pane.edited").is_hidden()
    # The first spot is red at x 20 to 44, y 20 to 44 of the edited image, grey noise in the source.
    spot = (frame["x"] + 32 / WIDTH * frame["width"], frame["y"] + 32 / HEIGHT * frame["height"])
    assert not is_colour(pixels(page), *spot, (255, 0, 0))
    grip = page.locator(".grip").bounding_box()
    assert grip is not None
    page.mouse.move(grip["x"] + grip["width"] / 2, frame["y"] + frame["height"] - 30)
    page.mouse.down()
    page.mouse.move(frame["x"] + 0.02 * frame["width"], frame["y"] + frame["height"] - 30, steps=5)
    page.mouse.up()
    assert is_colour(pixels(page), *spot, (255, 0, 0))
    # The same with the keyboard alone.
    page.get_by_label("Swipe", exact=True).and_(page.locator("input")).focus()
    page.keyboard.press("End")
    assert not is_colour(pixels(page), *spot, (255, 0, 0))


def test_difference_and_blink(open_page: Callable[..., Page]) -> None:
    page = open_page(height=1400)
    sample_page(page, "s01")
    page.locator(".boxes").get_by_label("Target").uncheck()
    page.keyboard.press("d")
    frame = page.locator(".pane.source .frame").bounding_box()
    assert frame is not None
    seen = pixels(page)
    spot = (round(frame["x"] + 32 / WIDTH * frame["width"]), round(frame["y"] + 32 / HEIGHT * frame["height"]))
    calm = (round(frame["x"] + 0.8 * frame["width"]), round(frame["y"] + 0.8 * frame["height"]))
    assert seen[spot[1], spot[0]].max() > 200
    assert seen[calm[1], calm[0]].max() < 12
    page.keyboard.press("b")
    assert "edited" in (page.locator("#readout").text_content() or "")
    assert is_colour(pixels(page), *spot, (255, 0, 0))


def test_steps_and_verdicts_by_keyboard_and_by_address(open_page: Callable[..., Page], root: str) -> None:
    page = open_page()
    sample_page(page, "s02")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.locator(".turn.current h3 a").text_content() == "Step 2"
    address = page.url
    assert address.endswith("-s2")
    page.keyboard.press("k")
    assert page.locator(".turn.current h3 a").text_content() == "Step 1"
    page.keyboard.press("]")
    assert "Visual Consistency" in page.locator(".verdict.open h2").inner_text()
    assert page.locator("a.cell[aria-current=true]").count() == 1
    # A link to one step opens its verdict and the step.
    again = open_page(address.removeprefix(root))
    assert again.locator(".turn.current h3 a").text_content() == "Step 2"
    assert "Instruction Following" in again.locator(".verdict.open h2").inner_text()
    again.keyboard.press("?")
    assert again.locator("dialog").is_visible()
    again.keyboard.press("Escape")
    # From label to label with the arrow keys.
    again.locator("a.cell[aria-current=true]").focus()
    again.keyboard.press("ArrowRight")
    assert again.evaluate("document.activeElement.getAttribute('aria-current')") == "true"
    assert "Visual Consistency" in again.locator(".verdict.open h2").inner_text()


def test_a_hostile_run_does_nothing(open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.locator("#cards .name").first.click()
    page.wait_for_selector(".verdict.open")
    page.wait_for_timeout(300)
    assert "owned" not in page.evaluate("document.title.split('·').pop()")
    assert page.title().startswith("s00 <script>")
    assert page.locator("#instruction").text_content() == SHOWN
    for details in page.locator("details").all():
        details.evaluate("d => d.open = true")
    for link in page.locator("a[href]").all():
        address = link.evaluate("a => a.href")
        assert address.startswith(("http://127.0.0.1", "file://")), address
    assert page.locator("main script, main iframe, main object, main embed, main [onload], main [onerror]").count() == 0


def test_the_policy_stops_what_escaping_would_have_let_through(browser: Browser, root: str) -> None:
    page = browser.new_page()
    page.goto(f"{root}index.html")
    page.evaluate("""() => {
        const div = document.createElement('div');
        document.body.append(div);
        div.innerHTML = '<img src="nowhere.png" onerror="window.owned = 1">';
        const script = document.createElement('script');
        script.textContent = 'window.owned = 2';
        document.body.append(script);
    }""")
    page.wait_for_timeout(200)
    assert page.evaluate("window.owned") is None
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1366, "dark")])
def test_pages_fit_the_screen(open_page: Callable[..., Page], width: int, scheme: str) -> None:
    page = open_page(width=width, height=800, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sample_page(page, "s01")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(18, 22, 26)") == (scheme == "dark")


def test_every_picture_has_words_and_every_control_a_name(open_page: Callable[..., Page]) -> None:
    page = open_page()
    for _ in range(2):
        assert page.locator("img:not([alt])").count() == 0
        unnamed = page.evaluate("""() => [...document.querySelectorAll('button, a, input, select')].filter(e =>
            e.checkVisibility() && !(e.innerText || e.ariaLabel || e.title || e.labels?.[0]?.innerText
                || e.querySelector('img[alt]:not([alt=""])')?.alt)).map(e => e.outerHTML)""")
        assert unnamed == []
        if page.locator("#cards").count():
            sample_page(page, "s01")


def test_an_image_opens_at_its_own_size(open_page: Callable[..., Page]) -> None:
    page = open_page()
    sample_page(page, "s01")
    with page.context.expect_page() as opened:
        page.locator(".pane.source figcaption a").click()
    picture = opened.value
    picture.wait_for_load_state()
    assert picture.evaluate("[document.images[0].naturalWidth, document.images[0].naturalHeight]") == [WIDTH, HEIGHT]


def test_a_sample_reads_without_script(browser: Browser, root: str, folder: Path) -> None:
    (path,) = (folder / "samples").glob("painter-s01-*.html")
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1366, "height": 900})
    page = context.new_page()
    page.goto(f"{root}samples/{path.name}")
    assert page.locator(".verdict").count() == 2
    assert page.locator(".verdict").last.is_visible()
    check_box(page, TARGET, page.locator(".pane.source .frame"), GREEN)
    context.close()


@pytest.fixture(scope="session")
def other_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of runs by protocols of another package, as files: numbers, turns in two waves, measures."""
    site = install(tmp_path_factory.mktemp("site"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setenv("TOY_CALLS", str(site / "calls.txt"))
        plugins.forget()
        folders = {}
        for protocol in ("stars", "turns", "pixels", "places"):
            at = tmp_path_factory.mktemp(protocol)
            backend = None if protocol in ("pixels", "places") else "toy/judge"
            data = draw(at / "data", "turns" if protocol == "places" else protocol)
            config = RunConfig(path=data, protocol=protocol, judge=JudgeConfig(backend=backend))
            drive(open_setup(config), at / "run")
            export(Site.of([RunReader(at / "run")]), at / "pages")
            folders[protocol] = at / "pages"
    plugins.forget()
    return folders


@pytest.fixture
def open_other(browser: Browser, other_folders: dict[str, Path]) -> Iterator[Callable[[str], Page]]:
    """Opens the run page of a toy protocol; afterwards nothing may have gone wrong."""
    watched: list[Watched] = []

    def opened(protocol: str) -> Page:
        root = f"file://{other_folders[protocol]}/"
        watched.append(Watched(browser.new_page(), root))
        watched[-1].page.goto(f"{root}index.html")
        return watched[-1].page

    yield opened
    for one in watched:
        one.page.close()
    assert not [line for one in watched for line in one.trouble]


def test_numbers_and_what_is_made_of_them_are_shown(open_other: Callable[[str], Page]) -> None:
    page = open_other("stars")
    # Nobody was asked for O, the geometric mean: √(8·2) = 4.
    first = page.locator("#cards .card").first
    assert first.locator(".asked").all_inner_texts() == ["follows", "keeps", "O"]
    assert first.locator(".chip").all_inner_texts() == ["8", "2", "4"]
    # The source was never asked about; the run keeps it all the same.
    assert first.locator(".pair img").count() == 2
    sample_page(page, "c")
    assert page.locator(".own-score").inner_text().split() == ["overall", "(unparsed)"]
    page.keyboard.press("]")
    assert page.locator(".verdict.open .label").inner_text().split("\n") == ["5", "0 to 10, higher is better"]


def test_a_chain_is_a_strip_of_turns_with_what_was_found_on_each(open_other: Callable[[str], Page]) -> None:
    page = open_other("places")
    sample_page(page, "b")
    turns = page.locator(".strip > li")
    assert turns.count() == 4 and "y [changed=yes right=no]" in turns.nth(2).inner_text()
    # The panes show source and last turn, until a turn is chosen.
    what = page.locator(".pane .what")
    assert what.all_inner_texts() == ["Source", "After turn 3"]
    turns.nth(2).get_by_role("button", name="Compare").click()
    assert what.all_inner_texts() == ["After turn 1", "After turn 2"]
    images = [page.locator(f".pane.{side} .stack > img").get_attribute("src") for side in ("source", "edited")]
    assert images == [turns.nth(n).locator("img").get_attribute("src") for n in (1, 2)]
    # The open answer's box is drawn; a link to a place on another image shows the turn that made it.
    cell(page, "squares, turn 3").click()
    page.locator(".verdict.open .places-named summary").click()
    page.get_by_role("link", name="square, x 24–32, y 0–8").click()
    assert what.all_inner_texts() == ["After turn 2", "After turn 3"]
    found = page.locator(".pane.edited .lay .mark.found:visible")
    assert found.count() == 1 and found.locator("rect").first.get_attribute("x") == "24"
    page.get_by_role("button", name="Swipe", exact=True).click()
    assert page.locator(".over img").get_attribute("src") == turns.nth(3).locator("img").get_attribute("src")


def test_a_measure_says_what_it_is_and_what_its_number_means(open_other: Callable[[str], Page]) -> None:
    page = open_other("pixels")
    assert "Tools absent" not in page.locator("main").inner_text()
    sample_page(page, "a")
    said = " ".join(page.locator(".verdict.open").inner_text().split())
    # 8 × 8 of 64 × 32 pixels are another colour.
    assert "0.03125 0 to 1, lower is better" in said and "toy-share" in said and "above 8" in said
    assert page.get_by_role("button", name="Swipe", exact=True).is_visible()


def test_a_run_under_way_is_followed(browser: Browser, run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    findings = copy / "findings.jsonl"
    lines = findings.read_bytes().splitlines(keepends=True)
    findings.write_bytes(b"".join(lines[:-1]))
    lock = FileLock(copy / "run.lock")
    with lock, Viewer(Site.of([RunReader(copy, live=True)], live=True)) as viewer:
        thread = threading.Thread(target=viewer.serve_forever, daemon=True)
        thread.start()
        page, sample = browser.new_page(), browser.new_page()
        page.goto(viewer.url)
        assert page.locator("#live").is_visible()
        assert "9 of 11 questions" in page.locator("#counts").inner_text()
        entry = next(e for e in viewer.site.runs[0].reader.samples() if len(e.findings) == 1)
        sample.goto(f"{viewer.url}samples/{entry.slug}.html")
        assert sample.locator("a.cell").count() == 1
        time.sleep(1)  # the page asks once at the start, and then sees what has changed
        with findings.open("ab") as file:
            file.write(lines[-1])
        until(lambda: sample.locator("a.cell").count() == 2)
        until(lambda: "10 of 12 questions" in page.locator("#counts").inner_text())
        lock.release()
        until(lambda: page.locator("#live").is_hidden())
        page.close()
        sample.close()
        viewer.shutdown()
