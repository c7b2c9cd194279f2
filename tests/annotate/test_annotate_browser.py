"""Annotation in a real Chromium: by keys alone, two raters, a server that is killed, boxes, small screens, axe-core."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from editloupe.runs.store import RunStore
from tests.protocols import giebench_data
from tests.toys.install import install
from tests.viewer.test_browser import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

EXAMPLES = Path(__file__).parents[2] / "examples" / "edits"


@contextmanager
def serving(*words: str | Path, port: int = 0, site: Path | None = None) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command as a user gives it, and the address that it names."""
    path = os.pathsep.join(filter(None, [str(site or ""), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "editloupe", "annotate", *map(str, words), "--port", str(port)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as served:
        try:
            assert served.stdout is not None
            told = []
            for line in served.stdout:
                told.append(line)
                if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                    break
            else:
                raise AssertionError("".join(told))
            yield found[0], served
        finally:
            served.send_signal(signal.SIGINT)
            served.wait(20)


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page in a browser of its own; afterwards no script has failed."""
    contexts, trouble = [], []

    def open_page(
        address: str, *, width: int = 1400, height: int = 900, scheme: str = "light", quiet: bool = False
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce", has_touch=width < 500
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        if not quiet:
            # What a page was still loading when its server ended is no fault of the page.
            wrong = ("error", "warning")
            page.on("console", lambda m: trouble.append(m.text) if m.type in wrong and "net::ERR" not in m.text else None)
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not trouble


def told(page: Page) -> str:
    return page.locator("#told").inner_text()


def says(page: Page, words: str) -> None:
    """Waits until the page tells the rater something that begins with these words."""
    until(lambda: told(page).startswith(words))


def shown(page: Page, position: str) -> None:
    """Waits for a question: "2 of 6"."""
    until(lambda: page.locator("#position").inner_text() == position)


def lines(run: Path) -> list[dict[str, Any]]:
    path = run / "people.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def test_the_example_folder_is_annotated_by_keys_alone(opened: Callable[..., Page], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with serving(EXAMPLES, "--limit", "3", "--raters", "anna,ben", "--out", run) as (url, _):
        page = opened(url)
        page.keyboard.press("Tab")  # the link over the head
        while page.evaluate("document.activeElement.textContent").split()[:1] != ["anna"]:
            page.keyboard.press("Tab")
        # The focus can be seen.
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        shown(page, "1 of 6")
        assert page.locator(".about").first.inner_text().startswith("Nothing to fault")
        for number, key in enumerate("1231", start=1):
            page.keyboard.press(key)
            shown(page, f"{number + 1} of 6")
            says(page, "Saved: kitchen-")
            assert len(lines(run)) == number  # on disk before the next question comes
        page.keyboard.press("u")
        shown(page, "4 of 6")
        says(page, "Taken back. The question is open again.")
        page.keyboard.press("c")
        page.keyboard.type("Blurred 1 here.")
        page.keyboard.press("Escape")
        page.keyboard.press("4")
        shown(page, "5 of 6")
        page.keyboard.press("s")
        page.keyboard.press("2")
        shown(page, "6 of 6")
        says(page, "Saved: kitchen-apple, skipped (A picture is broken)")
        page.keyboard.press("1")
        until(lambda: page.locator("#finished").is_visible())
        assert "All 6 questions are done" in page.locator("#finished").inner_text()
        page.keyboard.press("p")
        shown(page, "5 of 6")
        assert told(page) == "You said: skipped (A picture is broken)"
        page.keyboard.press("?")
        assert page.locator("#keys").is_visible()
        page.keyboard.press("Escape")
    said = [(line["label"], line["status"], line["reason"], line.get("retracted", False)) for line in lines(run)]
    assert said == [
        ("Flawless Execution", "ok", "", False),
        ("Single Anomaly", "ok", "", False),
        ("Wrong Action", "ok", "", False),
        ("Perfect Consistency", "ok", "", False),
        ("Perfect Consistency", "ok", "", True),
        ("Scene Collapse", "ok", "Blurred 1 here.", False),
        (None, "abstained", "A picture is broken", False),
        ("Perfect Consistency", "ok", "", False),
    ]
    assert all(line["seconds"] >= 0 for line in lines(run))


def test_two_raters_in_two_browsers_lose_nothing_and_see_nothing_of_each_other(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with serving(EXAMPLES, "--limit", "3", "--raters", "anna,ben", "--out", run) as (url, _):
        pages = [opened(f"{url}annotate.html?rater={rater}") for rater in ("anna", "ben")]
        for page in pages:
            shown(page, "1 of 6")
        for _ in range(6):
            for page, key in zip(pages, "12", strict=True):
                page.keyboard.press(key)
            for page in pages:
                until(lambda page=page: told(page).startswith("Saved"))  # type: ignore[misc]
                assert page.locator(".option[aria-pressed=true]").count() == 0 or page.locator("#finished").is_visible()
            counts = {page.locator("#count").inner_text() for page in pages}
            assert len(counts) == 1
        assert counts == {"6 of 6 answered"}
    people = RunStore.read(run).people.values()
    said = {rater: {one.finding.label for one in people if one.rater == rater} for rater in ("anna", "ben")}
    assert said == {
        "anna": {"Flawless Execution", "Perfect Consistency"},
        "ben": {"Over Modification", "Single Anomaly"},
    }
    assert len(people) == 12


def test_a_server_that_is_killed_loses_nothing_that_was_said_to_be_saved(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    words = (EXAMPLES, "--limit", "3", "--out", run)
    with serving(*words, port=port) as (url, served):
        page = opened(f"{url}annotate.html?rater=anna", quiet=True)
        shown(page, "1 of 6")
        page.keyboard.press("1")
        shown(page, "2 of 6")
        served.kill()
        served.wait(10)
    assert [line["label"] for line in lines(run)] == ["Flawless Execution"]
    page.keyboard.press("2")
    until(lambda: page.locator("#unsaved").is_visible())
    notice = page.locator("#unsaved").inner_text()
    assert notice.startswith("Not saved yet: 1 answer, kept in this browser") and "the server does not answer" in notice
    assert len(lines(run)) == 1
    kept = page.evaluate("Object.values(localStorage).filter(text => text.includes('Single Anomaly')).length")
    assert kept == 1
    with serving(*words, port=port):
        # Sent again by itself, to a server whose token is another one.
        until(lambda: len(lines(run)) == 2, seconds=15)
        shown(page, "3 of 6")
        assert not page.locator("#unsaved").is_visible()
        assert page.evaluate("Object.keys(localStorage).filter(name => name.startsWith('editloupe:annotate')).length") == 0
    assert [line["label"] for line in lines(run)] == ["Flawless Execution", "Single Anomaly"]


def test_what_waits_in_the_browser_is_sent_when_the_page_is_opened_again(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with serving(EXAMPLES, "--limit", "1", "--out", run) as (url, _):
        page = opened(f"{url}annotate.html?rater=anna", quiet=True)
        shown(page, "1 of 2")
        page.route("**/answer", lambda route: route.abort())
        page.keyboard.press("3")
        until(lambda: page.locator("#unsaved").is_visible())
        assert lines(run) == []
        page.unroute("**/answer")
        page.goto(f"{url}index.html")
        page.goto(f"{url}annotate.html?rater=anna")
        until(lambda: len(lines(run)) == 1)
        shown(page, "2 of 2")
    assert [line["label"] for line in lines(run)] == ["Wrong Action"]


def refusing(page: Page, status: int, text: str) -> None:
    """From now on the server seems to answer what is saved with this."""
    page.route("**/answer", lambda route: route.fulfill(status=status, content_type="text/plain", body=text))


def test_two_tabs_keep_what_waits_of_both(opened: Callable[..., Page], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with serving(EXAMPLES, "--limit", "1", "--out", run) as (url, _):
        one = opened(f"{url}annotate.html?rater=anna", quiet=True)
        other = one.context.new_page()
        other.goto(f"{url}annotate.html?rater=anna")
        for page in (one, other):
            shown(page, "1 of 2")
            refusing(page, 500, "no space left")
        other.keyboard.press("n")
        shown(other, "2 of 2")
        for page, key in ((one, "1"), (other, "2")):
            page.keyboard.press(key)
            until(lambda page=page: "(no space left)" in page.locator("#unsaved").inner_text())  # type: ignore[misc]
        other.close()
        one.unroute("**/answer")
        one.reload()
        until(lambda: len(lines(run)) == 2)
    assert {line["label"] for line in lines(run)} == {"Flawless Execution", "Single Anomaly"}


def test_of_several_that_wait_one_needs_a_decision_and_the_rest_is_sent(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with serving(EXAMPLES, "--limit", "1", "--out", run) as (url, _):
        one, other = (opened(f"{url}annotate.html?rater=anna", quiet=True) for _ in range(2))
        for page in (one, other):
            shown(page, "1 of 2")
        refusing(one, 500, "no space left")
        one.keyboard.press("1")
        until(lambda: one.locator("#unsaved").is_visible())
        one.keyboard.press("n")
        shown(one, "2 of 2")
        one.keyboard.press("2")
        until(lambda: "2 answers" in one.locator("#unsaved").inner_text())
        other.keyboard.press("3")
        until(lambda: len(lines(run)) == 1)
        one.unroute("**/answer")
        until(lambda: one.locator("#meanwhile").is_visible(), seconds=15)
        one.keyboard.press("Escape")  # keeps what is stored
        until(lambda: len(lines(run)) == 2)
        until(lambda: one.locator("#unsaved").is_hidden())
    assert [line["label"] for line in lines(run)] == ["Wrong Action", "Single Anomaly"]


def test_a_waiting_answer_that_is_refused_later_is_told_and_holds_up_no_other(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with serving(EXAMPLES, "--limit", "1", "--out", run) as (url, _):
        page = opened(f"{url}annotate.html?rater=anna", quiet=True)
        shown(page, "1 of 2")
        refusing(page, 500, "no space left")
        for key, more in (("1", "1 answer,"), ("2", "2 answers,")):
            page.keyboard.press(key)
            until(lambda more=more: more in page.locator("#unsaved").inner_text())  # type: ignore[misc]
            page.keyboard.press("n")
            shown(page, "2 of 2")
        page.goto(f"{url}index.html")
        page.evaluate("""() => {
            const [name, text] = Object.entries(localStorage).find(([name]) => name.startsWith('editloupe:annotate'));
            localStorage.setItem(name, text.replace(/"task_id":"/, '"task_id":"old'));
        }""")
        page.unroute("**/answer")
        page.goto(f"{url}annotate.html?rater=anna")
        until(lambda: len(lines(run)) == 1)
        shown(page, "1 of 2")
        words = page.locator("#unsaved").inner_text()
        assert words.startswith("Not stored: kitchen-mug, Instruction Following: “Flawless Execution”. ")
        assert "the question was changed since this page was made" in words
    assert [line["label"] for line in lines(run)] == ["Single Anomaly"]


def test_a_page_of_one_run_saves_nothing_into_another(opened: Callable[..., Page], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    one, other = tmp_path / "one", tmp_path / "other"
    with serving(EXAMPLES, "--limit", "1", "--out", one, port=port) as (url, _):
        page = opened(f"{url}annotate.html?rater=anna", quiet=True)
        shown(page, "1 of 2")
    with serving(EXAMPLES, "--limit", "1", "--out", other, port=port):
        page.keyboard.press("2")
        until(lambda: "another run is served at this address now" in page.locator("#unsaved").inner_text())
    with serving(EXAMPLES, "--limit", "1", "--out", one, port=port):
        until(lambda: len(lines(one)) == 1, seconds=15)
    assert lines(other) == []


def test_a_page_answers_again_after_the_next_question_could_not_be_loaded(
    opened: Callable[..., Page], review: tuple[str, Path]
) -> None:
    address, run = review
    page = opened(address, quiet=True)
    shown(page, "1 of 6")
    page.route("**/queue.json*", lambda route: route.abort())
    page.keyboard.press("1")  # from which a further question follows
    until(lambda: told(page).startswith("The next question cannot be loaded: the server does not answer. Saved: "))
    page.unroute("**/queue.json*")
    page.keyboard.press("2")
    shown(page, "2 of 7")
    (given,) = RunStore.read(run).people.values()
    assert len(lines(run)) == 2 and str(given.finding.answer) == "no"


def test_a_second_tab_tells_what_was_stored_and_asks(opened: Callable[..., Page], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with serving(EXAMPLES, "--limit", "1", "--out", run) as (url, _):
        one, other = (opened(f"{url}annotate.html?rater=anna", quiet=True) for _ in range(2))
        for page in (one, other):
            shown(page, "1 of 2")
        one.keyboard.press("1")
        shown(one, "2 of 2")
        other.keyboard.press("2")
        until(lambda: other.locator("#meanwhile").is_visible())
        words = other.locator("#meanwhile-words").inner_text()
        assert "stored is “Flawless Execution”. You said “Over Modification”." in words
        other.keyboard.press("Enter")  # keeps what is stored
        shown(other, "2 of 2")
        assert len(lines(run)) == 1
        other.keyboard.press("p")
        shown(other, "1 of 2")
        assert told(other) == "You said: Flawless Execution"
        one.keyboard.press("p")
        shown(one, "1 of 2")
        one.keyboard.press("3")
        until(lambda: len(lines(run)) == 2)
        other.keyboard.press("4")
        until(lambda: other.locator("#meanwhile").is_visible())
        other.get_by_role("button", name="Store mine").click()
        until(lambda: len(lines(run)) == 3)
    assert [line["label"] for line in lines(run)] == ["Flawless Execution", "Wrong Action", "Localization Failure"]


def test_a_key_that_comes_too_early_answers_nothing(opened: Callable[..., Page], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with serving(EXAMPLES, "--limit", "2", "--out", run) as (url, _):
        page = opened(f"{url}annotate.html?rater=anna")
        shown(page, "1 of 4")
        # Three presses before the next question is there: the first one counts, for the question that was seen.
        for_each = (
            "for (const key of '123') document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))"
        )
        page.evaluate(f"() => {{ {for_each} }}")
        shown(page, "2 of 4")
        assert [line["label"] for line in lines(run)] == ["Flawless Execution"]
        assert not page.locator("#meanwhile").is_visible()
        # The focus goes on at the new question, also from a button that is gone.
        page.locator(".option").nth(1).focus()
        page.keyboard.press("Space")
        shown(page, "3 of 4")
        assert page.evaluate("document.activeElement.id") == "question"


def test_pictures_move_together_and_zoom_to_the_target(opened: Callable[..., Page], tmp_path: Path) -> None:
    with serving(EXAMPLES, "--limit", "1", "--out", tmp_path / "run") as (url, _):
        page = opened(f"{url}annotate.html?rater=anna")
        shown(page, "1 of 2")

        def moves() -> list[str]:
            return page.evaluate(
                "[...document.querySelectorAll('.pane:not([hidden]) .stack > img')].map(e => e.style.transform)"
            )

        assert len(moves()) == 2 and len(set(moves())) == 1
        before = moves()
        page.keyboard.press("z")
        assert len(set(moves())) == 1 and moves() != before and "the target" in page.locator("#readout").inner_text()
        page.keyboard.press("z")
        assert moves() == before
        assert page.locator(".lay .mark.target").first.is_visible() is False  # a judge sees no outline either
        page.keyboard.press("t")
        assert page.locator(".lay .mark.target").first.is_visible()
        for key, mode in (("w", "swipe"), ("b", "blink"), ("d", "difference"), ("a", "side")):
            page.keyboard.press(key)
            assert page.locator("#compare").get_attribute("data-mode") == mode
        page.keyboard.press("+")
        assert len(set(moves())) == 1 and moves() != before


@pytest.fixture
def review(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A protocol with every kind of answer: keep, size, quality, stars, where, listed; name, once keep is answered."""
    run = tmp_path / "run"
    site = install(tmp_path / "site")
    with serving(EXAMPLES, "--limit", "1", "--protocol", "review", "--out", run, site=site) as (url, _):
        yield f"{url}annotate.html?rater=anna", run


def test_every_widget_takes_keys(opened: Callable[..., Page], review: tuple[str, Path]) -> None:
    address, run = review
    page = opened(address, quiet=True)
    shown(page, "1 of 6")
    page.keyboard.press("1")
    shown(page, "2 of 7")  # the name is asked now
    page.keyboard.press("2")
    shown(page, "3 of 7")
    page.keyboard.type("62.5")
    page.keyboard.press("Enter")
    shown(page, "4 of 7")
    page.keyboard.press("x")
    shown(page, "5 of 7")
    page.keyboard.press("i")
    page.keyboard.type("one two three four")
    page.keyboard.press("Enter")
    until(lambda: "at most 3" in told(page))
    assert page.locator("#position").inner_text() == "5 of 7"
    page.locator("#text").fill("red mug")
    page.keyboard.press("Enter")
    shown(page, "6 of 7")
    page.keyboard.press("x")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Control+Enter")
    shown(page, "7 of 7")
    page.keyboard.press("i")
    page.locator("#text").fill('{"object": "mug"}')
    page.keyboard.press("Control+Enter")
    until(lambda: "'count' is a required property" in told(page))
    page.locator("#text").fill('{"object": "mug", "count": 1}')
    page.keyboard.press("Control+Enter")
    until(lambda: page.locator("#finished").is_visible())
    said = {one.finding.metric: str(one.finding.answer) for one in RunStore.read(run).people.values()}
    assert said == {
        "keep": "yes",
        "size": "Medium",
        "quality": "62.5",
        "stars": "10",
        "name": "red mug",
        # 200 thousandths about the middle, 4 to the right, and 4 higher.
        "where": "404, 400, 604, 604",
        "listed": '{"count":1,"object":"mug"}',
    }


def test_a_question_stands_above_its_answers_and_its_rules_are_folded(opened: Callable[..., Page], tmp_path: Path) -> None:
    giebench_data.write(tmp_path / "gie", [giebench_data.row(0, evaluation_question="What color is the mug now?")])
    giebench_data.draw(tmp_path / "outputs" / "0.png")
    data = (tmp_path / "gie", "--edited", f"toy={tmp_path / 'outputs'}", "--protocol", "giebench")
    with serving(*data, "--out", tmp_path / "run") as (url, _):
        page = opened(f"{url}annotate.html?rater=anna")
        shown(page, "1 of 1")
        assert "What color is the mug now?" in page.locator("#asked").inner_text()
        assert not page.locator("#prompt").is_visible()
        page.keyboard.press("g")
        until(lambda: "Exactly one option is counted." in page.locator("#prompt").inner_text())


def test_boxes_are_drawn_with_the_pointer_also_where_the_picture_is_zoomed(
    opened: Callable[..., Page], review: tuple[str, Path]
) -> None:
    address, run = review
    page = opened(address, quiet=True)
    shown(page, "1 of 6")
    for number in range(2, 6):
        page.keyboard.press("n")
        shown(page, f"{number} of 6")
    frame = page.locator(".pane[data-pane='1'] .frame")

    def drag(x0: float, y0: float, x1: float, y1: float) -> None:
        at = frame.bounding_box()
        assert at is not None
        page.mouse.move(at["x"] + x0 * at["width"], at["y"] + y0 * at["height"])
        page.mouse.down()
        page.mouse.move(at["x"] + x1 * at["width"], at["y"] + y1 * at["height"], steps=4)
        page.mouse.up()

    drag(0.1, 0.2, 0.5, 0.6)
    for _ in range(2):
        page.locator("[data-zoom=in]").click()
    # 1.5 × 1.5 times, about the target, which is in view: a drag of a share of the frame is less of the picture.
    drag(0.25, 0.25, 0.75, 0.75)
    rows = [
        [float(field.input_value()) for field in row.locator("input").all()] for row in page.locator(".box-rows li").all()
    ]
    assert rows[0] == pytest.approx([100, 200, 500, 600], abs=4)
    assert [rows[1][2] - rows[1][0], rows[1][3] - rows[1][1]] == pytest.approx([500 / 2.25] * 2, abs=4)
    page.get_by_role("button", name="Remove box 1").click()
    page.get_by_role("button", name=re.compile("Save boxes")).click()
    shown(page, "6 of 6")
    (one,) = RunStore.read(run).people.values()
    assert list(one.finding.answer.boxes[0]) == pytest.approx(rows[1])  # type: ignore[union-attr]
    # The boxes are there again when the question is.
    page.keyboard.press("p")
    shown(page, "5 of 6")
    assert page.locator(".box-rows li").count() == 1 and page.locator(".lay .mark.found").count() == 1


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (1400, "dark"), (420, "light"), (420, "dark")])
def test_axe_finds_no_fault_and_nothing_overflows(
    opened: Callable[..., Page], review: tuple[str, Path], width: int, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    address, _ = review
    page = opened(address.partition("annotate")[0], width=width, scheme=scheme, quiet=True)

    def sound() -> None:
        found = Axe().run(page).response["violations"]
        assert [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width

    sound()
    page.goto(address)
    for number in range(1, 7):
        shown(page, f"{number} of 6")
        sound()
        page.keyboard.press("n")
    for key, dialog in (("?", "#keys"), ("s", "#why")):
        page.keyboard.press(key)
        assert page.locator(dialog).is_visible()
        sound()
        page.keyboard.press("Escape")


def test_a_small_screen_is_answered_by_touch(opened: Callable[..., Page], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with serving(EXAMPLES, "--limit", "1", "--out", run) as (url, _):
        page = opened(f"{url}annotate.html?rater=anna", width=420, height=860)
        shown(page, "1 of 2")
        # Both pictures, and every answer, are in view without scrolling.
        for place in (".pane[data-pane='0'] .frame", ".pane[data-pane='1'] .frame", ".option:last-child"):
            at = page.locator(place).bounding_box()
            assert at is not None and at["y"] + at["height"] <= 860
        page.get_by_role("button", name="Wrong Action").tap()
        shown(page, "2 of 2")
        page.get_by_role("button", name="Skip").first.tap()
        page.get_by_role("button", name="I cannot tell").tap()
        until(lambda: page.locator("#finished").is_visible())
    assert [(line["label"], line["status"]) for line in lines(run)] == [("Wrong Action", "ok"), (None, "abstained")]


def test_who_settles_is_shown_what_the_raters_said(opened: Callable[..., Page], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with serving(EXAMPLES, "--limit", "1", "--raters", "anna,ben", "--out", run) as (url, _):
        for rater, keys in (("anna", "11"), ("ben", "21")):
            page = opened(f"{url}annotate.html?rater={rater}")
            for number, key in enumerate(keys, start=1):
                shown(page, f"{number} of 2")
                page.keyboard.press(key)
            until(lambda page=page: page.locator("#finished").is_visible())  # type: ignore[misc]
    with serving(run, "--adjudicate") as (url, _):
        page = opened(url)
        shown(page, "1 of 1")
        assert page.locator(".votes li").all_inner_texts() == ["Rater 1 Flawless Execution", "Rater 2 Over Modification"]
        page.keyboard.press("2")
        until(lambda: page.locator("#finished").is_visible())
    assert (lines(run)[-1]["rater"], lines(run)[-1]["label"]) == ("adjudicated", "Over Modification")
