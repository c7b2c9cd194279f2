"""A list of items with boxes on a sample's page: what is said of each, where it lies, and that many of them stay usable."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from editloupe import plugins
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.config import JudgeConfig, RunConfig
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.viewer.export import export
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from tests.conftest import final, pngs
from tests.viewer.runs import MARKUP

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTH, HEIGHT = 320, 240
SPOTS = (
    {"op": "ADD", "object": "red kite", "box": [100, 100, 300, 300], "confidence": 0.912},
    {"op": "REMOVE", "object": MARKUP, "box": [500, 500, 800, 900], "confidence": 0.66},
    {"op": "EDIT", "object": "", "box": [350, 100, 450, 200]},
)
"""The judge says yes to the first, no to the second, and gives no answer to the third."""
DROPPED = {"entry": f"MOVE: cup {MARKUP}", "why": "'MOVE' is none of ADD, EDIT, REMOVE"}


def answer(request: Request) -> str:
    asked = request.messages[0].text
    return final("yes" if "op ADD" in asked else "no" if "op REMOVE" in asked else "perhaps")


def listing_run(folder: Path, samples: Mapping[str, Mapping[str, Any]]) -> Path:
    """A run of the protocol `spots`. samples: id → what its key lists."""
    info = folder / "site" / "spots-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: spots\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[editloupe.protocols]\nspots = tests.viewer.listing:Spots\n")
    data = folder / "data"
    data.mkdir()
    for name, png in zip(("before.png", "after.png"), pngs(1, spots=2), strict=True):
        (data / name).write_bytes(png)
    # The edited image is twice as large as the source.
    with Image.open(data / "after.png") as after:
        after.resize((2 * WIDTH, 2 * HEIGHT)).save(data / "after.png")
    rows = [
        {
            "id": id_,
            "source_file_name": "before.png",
            "edited_file_name": "after.png",
            "instruction": "Add a red kite.",
            "listed": listed,
        }
        for id_, listed in samples.items()
    ]
    (data / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "site"))
        plugins.forget()
        judge = JudgeConfig(backend=ScriptedLMM(answer, name="eye"))
        drive(open_setup(RunConfig(path=data, protocol="spots", judge=judge, concurrency=1)), folder / "run")
        # While the protocol is installed: pages score by it.
        export(Site.of([RunReader(folder / "run")]), folder / "pages")
    plugins.forget()
    return folder / "pages"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's pages as files."""
    tiles = [(70 * (n % 14) + 10, 65 * (n // 14) + 10) for n in range(1, 200)]
    crowd = [{"op": "EDIT", "object": "tile", "box": [x, y, x + 50, y + 50]} for x, y in tiles]
    return listing_run(
        tmp_path_factory.mktemp("listing"),
        {
            "three": {"spots": SPOTS, "dropped": [DROPPED]},
            "none": {"spots": []},
            "crowd": {"spots": [SPOTS[0], *crowd]},
            "blocked": {"spots": [{**SPOTS[0], "op": "BLOCKED"}]},
        },
    )


def page_of(pages: Path, id_: str) -> str:
    return next((pages / "samples").glob(f"{id_}*.html")).read_text(encoding="utf-8")


def words(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def entries(page: str) -> list[str]:
    listed = page.partition('<ol class="entries"')[2].partition("</ol>")[0]
    return re.findall(r"<li class=\"entry.*?</li>", listed, re.DOTALL)


def test_each_item_has_its_op_name_confidence_and_what_was_said_of_it(pages: Path) -> None:
    first, second, third = entries(page_of(pages, "three"))
    assert words(first) == "✓ 1 ADD red kite 0.91 confidence Spot asked for yes"
    assert words(second) == f"✗ 2 REMOVE {' '.join(MARKUP.split())} 0.66 confidence Spot asked for no"
    assert words(third) == "? 3 EDIT Spot asked for (unparsed)"
    told = [re.findall(r"told-(\w+)", entry)[0] for entry in (first, second, third)]
    assert told == ["yes", "no", "open"]


def test_the_counts_stand_above_the_list(pages: Path) -> None:
    counted = page_of(pages, "three").partition('class="facts counted"')[2].partition("</p>")[0]
    assert words(f"<p {counted}") == "Spot asked for ✓ 1 yes ✗ 1 no ? 1 not known"


def test_what_is_said_of_an_item_links_to_the_finding(pages: Path) -> None:
    page = page_of(pages, "three")
    for entry, number in zip(entries(page), (1, 2, 3), strict=True):
        address = re.findall(r'href="#(v[0-9a-f]{8})"', entry)[0]
        article = page.partition(f'<section class="verdict" id="{address}"')[2].partition("</h2>")[0]
        assert words(f"<p {article}").endswith(f"Spot asked for, spot {number}")


def test_a_page_of_many_findings_links_their_traces_instead_of_holding_them(pages: Path) -> None:
    crowd, three = page_of(pages, "crowd"), page_of(pages, "three")
    # The list and 200 questions, with a trace each; a page of a few findings still holds their events.
    assert crowd.count('<p class="raw"><a href="../traces/') == 201 and "Raw events <span" not in crowd
    assert 'href="../traces/' in three and "Raw events <span" in three
    assert len(crowd) < 1_500_000


def test_a_question_that_could_not_be_asked_says_so_in_the_list(pages: Path) -> None:
    (entry,) = entries(page_of(pages, "blocked"))
    assert words(entry) == "? 1 BLOCKED red kite 0.91 confidence Spot asked for (not_defined)"
    assert "told-open" in entry and 'title="there is nothing to ask about"' in entry


def test_the_list_comes_first_and_the_questions_about_items_last_by_number(pages: Path) -> None:
    page = page_of(pages, "crowd")
    asked = [words(row) for row in re.findall(r'<th scope="row">(.*?)</th>', page, re.DOTALL)]
    assert asked == ["spots", *(f"Spot asked for spot {n}" for n in range(1, 201))]
    shown, _, folded = page.partition('<details class="more-labels">')
    assert shown.count('<th scope="row">') == 1 and "200 more questions, about single items" in words(folded)


def test_a_box_is_drawn_on_both_images_in_the_pixels_of_each(pages: Path) -> None:
    page = page_of(pages, "three")
    mark = re.findall(r'data-entry="(v[0-9a-f]{8}-f1)"', page)[0]
    rects = re.findall(rf'<g class="mark found told-yes" data-mark="{mark}".*?<rect class="under" (.*?)/>', page)
    # [100, 100, 300, 300] in thousandths of 320×240 px and of 640×480 px. The edited image also lies over the source.
    assert set(rects) == {'x="32" y="24" width="64" height="48"', 'x="64" y="48" width="128" height="96"'}


def test_what_was_not_read_is_listed_with_the_reason(pages: Path) -> None:
    left_out = page_of(pages, "three").partition('class="left-out"')[2].partition("</details>")[0]
    assert words(f"<p {left_out}") == f"1 not read {' '.join(DROPPED['entry'].split())} {DROPPED['why']}"
    assert "left-out" not in page_of(pages, "crowd")


def test_texts_of_items_stay_texts(pages: Path) -> None:
    page = page_of(pages, "three")
    assert not any(tag in page for tag in ("<script>document", "<svg onload", "<img src=x"))


def test_an_empty_list_is_an_answer(pages: Path) -> None:
    page = page_of(pages, "none")
    assert not entries(page) and "nothing found" in words(page)


def test_the_table_of_samples_counts_items(pages: Path) -> None:
    script = (pages / "rows.js").read_text(encoding="utf-8")
    rows = json.loads(json.loads(script.removeprefix("window.editloupeRows = ").removesuffix(";\n")))["rows"]
    assert {row["id"]: row["answers"]["spots"][0]["name"] for row in rows} == {
        "three": "spots: 3",
        "none": "nothing found",
        "crowd": "spots: 200",
        "blocked": "spots: 1",
    }


# In a real browser ---------------------------------------------------------------------------------------------------


def opened(browser: Browser, pages: Path, id_: str, *, width: int = 1366) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900}, reduced_motion="reduce")
    page.goto(f"file://{next((pages / 'samples').glob(f'{id_}*.html'))}")
    page.wait_for_selector(".verdict.open")
    return page


@pytest.mark.browser
def test_an_entry_lights_its_box_and_a_box_its_entry(browser: Browser, pages: Path) -> None:
    page = opened(browser, pages, "three")
    lit = page.locator(".pane .lay > svg:not(.overlaid) .mark.lit")
    assert lit.count() == 0
    page.locator(".entry").nth(1).hover()
    assert lit.count() == 2 and "told-no" in (lit.first.get_attribute("class") or "")
    page.locator("h2").first.hover()
    assert lit.count() == 0
    page.locator(".entry a[data-mark]").first.focus()
    assert lit.count() == 2 and "told-yes" in (lit.first.get_attribute("class") or "")
    # Over the middle of the second box, in the edited image.
    page.locator(".pane.edited .frame").scroll_into_view_if_needed()
    frame = page.locator(".pane.edited .frame").bounding_box()
    assert frame is not None
    page.mouse.move(frame["x"] + 0.65 * frame["width"], frame["y"] + 0.7 * frame["height"])
    assert page.locator(".entry.lit").count() == 1
    assert "REMOVE" in (page.locator(".entry.lit").text_content() or "")
    page.mouse.move(frame["x"] + 0.02 * frame["width"], frame["y"] + 0.95 * frame["height"])
    assert page.locator(".entry.lit").count() == 0
    page.close()


@pytest.mark.browser
def test_a_question_about_an_item_shows_the_items_box(browser: Browser, pages: Path) -> None:
    page = opened(browser, pages, "three")
    shown = page.locator(".pane .lay > svg:not(.overlaid) .mark.chosen")
    assert shown.count() == 0
    page.locator(".entry").nth(1).locator("a[href^='#v']").click()
    assert page.locator(".verdict.open h2").inner_text() == "Spot asked for, spot 2"
    # On source and edited image, with the verdict's colour; no other box of the list stands there.
    assert shown.count() == 2 and all(shown.nth(n).is_visible() for n in range(2))
    assert "told-no" in (shown.first.get_attribute("class") or "")
    assert page.locator(".pane .lay > svg:not(.overlaid) .mark.found:visible").count() == 2
    page.keyboard.press("]")
    assert page.locator(".verdict.open h2").inner_text() == "Spot asked for, spot 3"
    assert "told-open" in (shown.first.get_attribute("class") or "")
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1366, 420])
def test_two_hundred_entries_stay_usable(browser: Browser, pages: Path, width: int) -> None:
    page = opened(browser, pages, "crowd", width=width)
    box = page.locator(".entries").bounding_box()
    folded = page.locator(".more-labels").bounding_box()
    assert box is not None and folded is not None
    assert box["height"] <= 640 and folded["height"] <= 160
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    # The last box, x 210 to 260 and y 920 to 970, scrolls its entry into the list and leaves the page where it is.
    page.locator(".pane.source .frame").scroll_into_view_if_needed()
    frame, box = page.locator(".pane.source .frame").bounding_box(), page.locator(".entries").bounding_box()
    assert frame is not None and box is not None
    top = page.locator("h1").bounding_box()
    page.mouse.move(frame["x"] + 0.235 * frame["width"], frame["y"] + 0.945 * frame["height"])
    last = page.locator(".entry").last
    assert "lit" in (last.get_attribute("class") or "")
    seen = last.bounding_box()
    assert seen is not None and box["y"] <= seen["y"] and seen["y"] + seen["height"] <= box["y"] + box["height"] + 1
    assert page.locator("h1").bounding_box() == top
    page.close()
