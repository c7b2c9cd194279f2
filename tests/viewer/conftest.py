"""One run, its pages served and written as files, for all tests of the viewer."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editloupe.viewer.export import export
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from editloupe.viewer.serve import Viewer
from tests.viewer.runs import make_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ARGUMENTS = [
    "--no-sandbox",  # the tests may run as root, where Chromium's sandbox does not start
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("viewer"))


@pytest.fixture(scope="session")
def server(run: Path) -> Iterator[Viewer]:
    """The run, served on a free port of loopback."""
    with Viewer(Site.of([RunReader(run, live=True)], live=True)) as viewer:
        thread = threading.Thread(target=viewer.serve_forever, daemon=True)
        thread.start()
        yield viewer
        viewer.shutdown()
        thread.join(5)


@pytest.fixture(scope="session")
def folder(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's pages as files."""
    out = tmp_path_factory.mktemp("export") / "pages"
    export(Site.of([RunReader(run)]), out)
    return out


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "no Chromium: set CHROMIUM, or install Debian's package chromium"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield found
        found.close()
