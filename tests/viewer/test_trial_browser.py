"""The page of a trial in a real Chromium: plots that load, nothing that overflows, axe-core."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from editloupe.viewer.serve import Viewer
from tests.viewer.test_browser import Watched
from tests.viewer.test_trial import make

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("trial")
    runs = [make(folder / "one", "strict"), make(folder / "two", "mild", mode="plain")]
    with Viewer(Site.of([RunReader(run, live=True) for run in runs], live=True)) as viewer:
        thread = threading.Thread(target=viewer.serve_forever, daemon=True)
        thread.start()
        yield viewer.url
        viewer.shutdown()
        thread.join(5)


@pytest.mark.parametrize("width", [420, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("address", ["trial.html", "one/trial.html", "trial.html?run=two"])
def test_plots_load_nothing_overflows_and_axe_finds_no_fault(
    browser: Browser, root: str, address: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    watched = Watched(page, root)
    page.goto(root + address)
    pictures = page.locator(".drawn img")
    assert pictures.count() >= 3
    for picture in pictures.all():
        picture.scroll_into_view_if_needed()
        page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=picture.element_handle())
        # A phone is given the plot that was drawn for it.
        assert ("-narrow" in str(picture.evaluate("image => image.currentSrc"))) == (width == 420)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found = Axe().run(page).response["violations"]
    context.close()
    assert not [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found]
    assert not watched.trouble
