"""Take the picture of the viewer in docs/viewer.md: judges the example folder and photographs one page.

    python examples/draw_viewer.py        needs Playwright (pip install 'editloupe[browser]') and a Chromium

CHROMIUM names the browser; else it is the one on the path.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from editloupe.config import RunConfig
from editloupe.runs.execute import execute
from editloupe.runs.setup import open_setup
from editloupe.viewer.export import export
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader

ROOT = Path(__file__).parents[1]


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        run, pages = Path(temporary) / "first", Path(temporary) / "pages"
        execute(open_setup(RunConfig(path=ROOT / "examples" / "edits")), run, config={})
        export(Site.of([RunReader(run)]), pages)
        path = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        page.goto(f"file://{pages}/index.html")
        page.get_by_role("link", name="kitchen-mug", exact=True).click()
        page.wait_for_selector(".verdict.open")
        for key in ("j", "j", "w"):
            page.keyboard.press(key)
        # The crop's place, whole, with the handle through the middle of the mug.
        page.locator(".turn.current .place").first.click()
        page.wait_for_timeout(300)
        page.mouse.move(5, 790)
        page.screenshot(path=ROOT / "docs" / "images" / "viewer.png")
        browser.close()


if __name__ == "__main__":
    main()
