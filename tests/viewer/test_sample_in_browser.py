"""A sample's page in a real Chromium: its first screen, where it opens, judges beside each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from editloupe.viewer.serve import Viewer
from tests.conftest import final
from tests.viewer.test_browser import until
from tests.viewer.test_grid import OTHER, SAME, judge, page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

TARGET = (100, 80, 120, 100)
"""0.52 % of 320×240 px."""


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """The sample of a run by two judges that look at different places, with a target under 1 %; afterwards no error."""
    long = "The square is red. " * 90
    page_of(
        tmp_path,
        judge("strict", [SAME, final("Wrong Action", long)]),
        judge("lenient", [OTHER, final("Flawless Execution")]),
        box=TARGET,
    )
    site = Site.of([RunReader(tmp_path / "run", live=True)], live=True)
    with Viewer(site) as viewer:
        thread = threading.Thread(target=viewer.serve_forever, daemon=True)
        thread.start()
        shown = browser.new_page(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
        trouble: list[str] = []
        shown.on("pageerror", lambda error: trouble.append(str(error)))
        shown.on("console", lambda m: trouble.append(m.text) if m.type in ("error", "warning") else None)
        shown.goto(f"{viewer.url}samples/{site.runs[0].reader.samples()[0].slug}.html")
        shown.wait_for_selector(".verdict.open")
        yield shown
        shown.close()
        viewer.shutdown()
        thread.join(5)
    assert not trouble


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


def test_images_are_wide_and_open_at_a_small_target(page: Page) -> None:
    widths = [frame.bounding_box()["width"] for frame in page.locator(".frame").all()]  # type: ignore[index]
    assert len(widths) == 2 and min(widths) >= 580
    assert middle(page) == pytest.approx((110, 90), abs=0.5)
    # A third of the frame would be (1/3) / (20/240) = 4 times the whole image; 8 screen pixels an image pixel is the limit.
    assert scale(page) == pytest.approx(min(8, widths[0] / 320 * 4), rel=0.02)
    assert "the target" in page.locator("#readout").inner_text()
    page.keyboard.press("0")
    assert scale(page) == pytest.approx(widths[0] / 320, rel=0.01)


def test_z_goes_to_the_crop_of_the_step_and_back(page: Page) -> None:
    page.keyboard.press("0")
    before = scale(page)
    page.keyboard.press("z")
    assert middle(page) == pytest.approx((110, 90), abs=0.5)
    page.keyboard.press("z")
    assert scale(page) == pytest.approx(before, rel=0.01)
    # The first step's crop, with zoom_in's margin of 8 px: x 72 to 168, y 52 to 128.
    page.keyboard.press("j")
    page.keyboard.press("z")
    assert middle(page) == pytest.approx((120, 90), abs=0.5)
    assert "Crop 1" in page.locator("#readout").inner_text()
    page.keyboard.press("z")
    assert scale(page) == pytest.approx(before, rel=0.01)


def test_plus_zooms_on_the_pointer_else_on_the_target(page: Page) -> None:
    page.keyboard.press("0")
    for _ in range(3):
        page.keyboard.press("+")
    assert middle(page) == pytest.approx((110, 90), abs=0.5)
    page.keyboard.press("0")
    frame = page.locator(".frame").first.bounding_box()
    assert frame is not None
    page.mouse.move(frame["x"] + 0.9 * frame["width"], frame["y"] + 0.9 * frame["height"])
    where = page.locator("#readout").inner_text().split(" · ")[0]
    for _ in range(3):
        page.keyboard.press("+")
    # What is under the pointer stays there.
    page.mouse.move(frame["x"] + 0.9 * frame["width"] + 0.01, frame["y"] + 0.9 * frame["height"])
    assert page.locator("#readout").inner_text().split(" · ")[0] == where
    assert "Zoom" in page.locator("#readout").inner_text()


def test_gain_and_zoom_have_numbers_of_their_own(page: Page) -> None:
    page.keyboard.press("d")
    assert page.locator("#gained").inner_text() == "×4"
    page.locator("#gain").fill("9")
    assert page.locator("#gained").inner_text() == "×9"
    assert page.locator("#readout").inner_text().startswith("Zoom ")


def test_judges_stand_beside_each_other_with_the_first_difference(page: Page) -> None:
    shown = page.locator(".verdict.open")
    names = [name.split()[0] for name in shown.locator("h2").all_inner_texts()]
    assert names == ["strict", "lenient"], "two judges stand beside each other unasked"
    tops = [one.bounding_box()["y"] for one in shown.all()]  # type: ignore[index]
    assert tops[0] == pytest.approx(tops[1], abs=1)
    assert page.locator(".first-difference:visible").all_inner_texts() == ["First difference: the calls differ"] * 2
    page.keyboard.press("c")
    assert page.locator(".verdict.open").count() == 1


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_the_first_screen_shows_instruction_verdicts_reasons_and_people(page: Page, width: int, height: int) -> None:
    page.set_viewport_size({"width": width, "height": height})
    for part in ("#instruction", *(f"table.labels .{name} >> nth={n}" for name in ("cell", "why") for n in range(4))):
        box = page.locator(part).bounding_box()
        assert box is not None and box["y"] + box["height"] <= height, part
    people = page.locator(".said-by").first.bounding_box()
    assert people is not None and people["y"] + people["height"] <= height
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_long_thought_unfolds(page: Page) -> None:
    thought = page.locator(".verdict.main .thought").last
    button = thought.locator("xpath=following-sibling::button[1]")
    before = thought.bounding_box()["height"]  # type: ignore[index]
    button.click()
    assert button.get_attribute("aria-expanded") == "true"
    assert thought.bounding_box()["height"] > before  # type: ignore[index]
    assert thought.evaluate("e => e.scrollHeight <= e.clientHeight + 1")


def test_a_narrow_screen_stacks_images_and_labels(page: Page) -> None:
    page.set_viewport_size({"width": 420, "height": 900})
    until(lambda: page.evaluate("document.documentElement.scrollWidth") <= 420)
    first, second = (frame.bounding_box() for frame in page.locator(".frame").all())
    assert first is not None and second is not None and second["y"] > first["y"] + first["height"]
    assert first["width"] > 360
