"""Annotation in a real Chromium: by keys alone, a server that is killed, every kind of answer, small screens, axe-core."""

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
from tests.toys.install import install
from tests.viewer.browsing import until

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
    """Opens a page in a browser of its own; afterward no script has failed."""
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


def says(page: Page, words: str) -> None:
    """Waits until the page tells the rater something that begins with these words."""
    until(lambda: page.locator("#told").inner_text().startswith(words))


def shown(page: Page, position: str) -> None:
    """Waits for a question: "2 of 6"."""
    until(lambda: page.locator("#position").inner_text() == position)


def lines(run: Path) -> list[dict[str, Any]]:
    path = run / "people.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def test_the_example_folder_is_annotated_by_keys_alone(opened: Callable[..., Page], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with serving(EXAMPLES, "--set", "limit=3", "--raters", "anna,ben", "--out", run) as (url, _):
        page = opened(url)
        page.keyboard.press("Tab")  # the run's own name is no link here
        assert page.evaluate("document.activeElement.textContent").split()[:1] == ["anna"]
        # The focus can be seen.
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        shown(page, "1 of 6")
        assert page.locator(".about").first.inner_text().startswith("Nothing to fault")
        moves = "[...document.querySelectorAll('.layer')].map(layer => layer.style.transform)"
        page.keyboard.press("z")  # both pictures zoom to the target, and back
        assert len(set(page.evaluate(moves))) == 1 and "scale(1)" not in page.evaluate(moves)[0]
        page.keyboard.press("z")
        assert all("scale(1)" in one for one in page.evaluate(moves))
        for number, key in enumerate("1231", start=1):
            page.keyboard.press(key)
            shown(page, f"{number + 1} of 6")
            says(page, "Saved: ")
            assert len(lines(run)) == number  # on disk before the next question comes
        # Undo leads back to the last answer, and the new one takes its place.
        page.keyboard.press("u")
        shown(page, "4 of 6")
        says(page, "You said: Perfect Consistency. A new answer takes its place.")
        page.keyboard.press("c")
        page.keyboard.type("Blurred 1 here.")
        page.keyboard.press("Escape")
        page.keyboard.press("4")
        shown(page, "5 of 6")
        page.keyboard.press("s")
        page.keyboard.press("2")
        shown(page, "6 of 6")
        says(page, "Saved: skipped (A picture is broken)")
        page.keyboard.press("1")
        until(lambda: page.locator("#finished").is_visible())
        says(page, "You said: Perfect Consistency")  # keys are heard again once the question is there
        page.keyboard.press("p")
        shown(page, "5 of 6")
        says(page, "You said: skipped (A picture is broken)")
    assert [(line["label"], line["status"], line["reason"]) for line in lines(run)] == [
        ("Flawless Execution", "ok", ""),
        ("Single Anomaly", "ok", ""),
        ("Wrong Action", "ok", ""),
        ("Perfect Consistency", "ok", ""),
        ("Scene Collapse", "ok", "Blurred 1 here."),
        (None, "abstained", "A picture is broken"),
        ("Perfect Consistency", "ok", ""),
    ]
    assert all(line["seconds"] >= 0 for line in lines(run))


def test_what_could_not_be_saved_is_said_and_stays_in_front_of_the_rater(
    opened: Callable[..., Page], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    words = (EXAMPLES, "--set", "limit=3", "--out", run)
    with serving(*words, port=port) as (url, served):
        page = opened(f"{url}rate?rater=anna", quiet=True)
        shown(page, "1 of 6")
        page.keyboard.press("1")
        shown(page, "2 of 6")
        served.kill()
        served.wait(10)
    assert [line["label"] for line in lines(run)] == ["Flawless Execution"]
    page.keyboard.press("2")
    says(page, "Not saved: the server does not answer. Answer again.")
    assert len(lines(run)) == 1 and page.locator("#position").inner_text() == "2 of 6"
    with serving(*words, port=port):
        page.keyboard.press("2")
        shown(page, "3 of 6")
    assert [line["label"] for line in lines(run)] == ["Flawless Execution", "Single Anomaly"]


@pytest.fixture
def review(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A protocol with every kind of answer: keep, size, quality, stars, where, listed; name, once keep is answered."""
    run = tmp_path / "run"
    site = install(tmp_path / "site")
    with serving(EXAMPLES, "--set", "limit=1", "--protocol", "review", "--out", run, site=site) as (url, _):
        yield f"{url}rate?rater=anna", run


def test_every_widget_takes_keys(opened: Callable[..., Page], review: tuple[str, Path]) -> None:
    address, run = review
    page = opened(address, quiet=True)
    shown(page, "1 of 6")
    page.keyboard.press("1")
    shown(page, "2 of 7")  # the name is asked now
    page.keyboard.press("2")
    shown(page, "3 of 7")
    for said, then in (("62.5", "4 of 7"), (None, "5 of 7"), ("red mug", "6 of 7"), ("[[10, 20, 300, 400]]", "7 of 7")):
        if said is None:
            page.get_by_role("button", name="10", exact=True).click()
        else:
            page.keyboard.press("i")
            if said == "red mug":
                page.keyboard.type("one two three four")
                page.keyboard.press("Enter")
                until(lambda: "at most 3" in page.locator("#told").inner_text())
            page.locator("#field").fill(said)
            page.keyboard.press("Enter")
        shown(page, then)
    page.locator("#field").fill('{"object": "mug", "count": 1}')
    page.keyboard.press("Control+Enter")
    until(lambda: page.locator("#finished").is_visible())
    said = {one.finding.metric: str(one.finding.answer) for one in RunStore.read(run).people.values()}
    answers = {"keep": "yes", "size": "Medium", "quality": "62.5", "stars": "10", "name": "red mug"}
    assert said == {**answers, "where": "10, 20, 300, 400", "listed": '{"count":1,"object":"mug"}'}


def sound(page: Page) -> None:
    """Axe finds no fault at both sizes, light and dark, and nothing overflows."""
    from axe_playwright_python.sync_playwright import Axe

    for width, height, scheme in ((1440, 900, "light"), (390, 844, "dark")):
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        # Playwright runs axe past the page's own policy.
        found = Axe().run(page).response["violations"]
        assert [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_axe_finds_no_fault_and_nothing_overflows(opened: Callable[..., Page], review: tuple[str, Path]) -> None:
    address, _ = review
    page = opened(address.partition("rate")[0], quiet=True)
    sound(page)
    page.goto(address)
    for number in range(1, 7):
        shown(page, f"{number} of 6")
        sound(page)
        page.keyboard.press("n")
    for key, dialog in (("?", "#keys"), ("s", "#why")):
        page.keyboard.press(key)
        assert page.locator(dialog).is_visible()
        sound(page)
        page.keyboard.press("Escape")


NAMES = (
    "Unacceptable without complete retouching", "Acceptable after minor corrections", "Indistinguishable from a photograph",
)  # fmt: skip
WORDS = "Look at the borders, the light and the shadow. " * 60
LONG = (
    f'id = "house"\ntitle = "House"\n[criteria.neat]\nname = "Overall Acceptability"\nshort = "N"\nquestion = "{WORDS}"\n'
)
LONG += "".join(
    f'[[criteria.neat.levels]]\nname = "{name}"\nvalue = {value}\ndescription = "{WORDS}"\n'
    for value, name in enumerate(NAMES)
)


def test_on_a_small_screen_every_button_is_in_view_with_any_rubric(opened: Callable[..., Page], tmp_path: Path) -> None:
    rubric, run = tmp_path / "long.toml", tmp_path / "run"
    rubric.write_text(LONG)
    with serving(EXAMPLES, "--set", "limit=2", "--rubric", rubric, "--out", run) as (url, _):
        page = opened(f"{url}rate?rater=anna", width=390, height=844)
        shown(page, "1 of 2")
        for place in (".frame >> nth=0", ".frame >> nth=1", *(f".option >> nth={n}" for n in range(3)), "#skip"):
            at = page.locator(place).bounding_box()
            assert at is not None and at["y"] >= 0 and at["y"] + at["height"] <= 844, place
        # Labels break between words alone.
        assert all(one.evaluate("e => e.scrollWidth <= e.clientWidth") for one in page.locator(".option").all())
        page.get_by_role("button", name="Acceptable after minor corrections").tap()
        shown(page, "2 of 2")
        page.get_by_role("button", name="Skip").first.tap()
        page.get_by_role("button", name="I cannot tell").tap()
        until(lambda: page.locator("#finished").is_visible())
    assert [(line["label"], line["status"]) for line in lines(run)] == [
        ("Acceptable after minor corrections", "ok"), (None, "abstained"),
    ]  # fmt: skip
