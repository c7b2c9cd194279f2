"""What the browser tests look with: a page that is watched, the pixels that are seen, and a wait."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from editloupe.viewer.serve import Viewer
from tests.viewer.runs import HEIGHT, WIDTH

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

BLUE, GREEN = (0x22, 0x8B, 0xE6), (0x12, 0xB8, 0x86)
"""The colors of a crop's and a target's box (--crop and --target in viewer.css)."""


@contextmanager
def served(*runs: Path, **more: Any) -> Iterator[Viewer]:
    """Serve runs on a free port of loopback. more: further arguments of `Site.of`."""
    with Viewer(Site.of([RunReader(run, live=True) for run in runs], live=True, **more)) as viewer:
        thread = threading.Thread(target=viewer.serve_forever, daemon=True)
        thread.start()
        yield viewer
        viewer.shutdown()
        thread.join(5)


@contextmanager
def watched(browser: Browser, roots: Sequence[str], **more: Any) -> Iterator[Page]:
    """Yield a page; in the end nothing may have gone wrong: no error, no dialog, no request to elsewhere."""
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, reduced_motion="reduce", **more
    )  # fmt: skip
    page, trouble = context.new_page(), list[str]()
    page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
    page.on("console", lambda m: trouble.append(f"console: {m.text}") if m.type in ("error", "warning") else None)
    page.on("dialog", lambda dialog: (trouble.append("a dialog"), dialog.dismiss()))
    page.on("request", lambda r: None if r.url.startswith(tuple(roots)) else trouble.append(f"request: {r.url}"))
    yield page
    context.close()
    assert not trouble, trouble


def until(true: Callable[[], bool], *, seconds: float = 30) -> None:
    """Waits until something holds. Playwright's own waiting evaluates text, which the pages' policy forbids."""
    for _ in range(round(50 * seconds)):
        if true():
            return
        time.sleep(0.02)
    assert true()


def ids(page: Page) -> list[str]:
    """The samples that are listed."""
    return page.locator("#cards .name").all_inner_texts()


def open_sample(page: Page, id_: str) -> None:
    """From the run's page to a sample's."""
    page.get_by_role("link", name=id_, exact=True).click()
    page.wait_for_selector(".verdict.open")


def pixels(page: Page) -> np.ndarray:
    """What is seen: H×W×3 uint8, a CSS pixel each."""
    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))


def is_color(seen: np.ndarray, x: float, y: float, color: tuple[int, int, int], *, near: int = 1) -> bool:
    """Whether some pixel within `near` px of (x, y) has that color."""
    cut = seen[round(y) - near : round(y) + near + 1, round(x) - near : round(x) + near + 1].astype(int)
    return bool((np.abs(cut - color).max(axis=2) < 40).any())


def check_box(page: Page, box: tuple[int, int, int, int], on: Locator, color: tuple[int, int, int]) -> None:
    """The four edges of a box of the 320×240 px image run through where they must on the element that shows it whole."""
    seen, frame = pixels(page), on.bounding_box()
    assert frame is not None
    scale_x, scale_y = frame["width"] / WIDTH, frame["height"] / HEIGHT
    x0, x1 = (frame["x"] + v * scale_x for v in (box[0], box[2]))
    y0, y1 = (frame["y"] + v * scale_y for v in (box[1], box[3]))
    # A third of the way along each edge: the middles may hold a label.
    u, v = x0 + 0.7 * (x1 - x0), y0 + 0.6 * (y1 - y0)
    for x, y in ((x0, v), (x1, v), (u, y0), (u, y1)):
        assert is_color(seen, x, y, color), (x, y, seen[round(y), round(x)])
    for x, y in ((x0 - 6, v), (x1 + 6, v), (u, y0 - 6), (u, y1 + 6)):
        assert not is_color(seen, x, y, color), (x, y)
