"""One run, its pages served and written as files, for all tests of the viewer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from editloupe.viewer.export import export
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from editloupe.viewer.serve import Viewer
from tests.conftest import bare_plot
from tests.viewer.browsing import served
from tests.viewer.runs import make_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("viewer"))


@pytest.fixture(scope="session")
def server(run: Path) -> Iterator[Viewer]:
    """The run, served on a free port of loopback."""
    with served(run) as viewer:
        yield viewer


@pytest.fixture(scope="session")
def folder(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's pages as files, with empty plots: drawing them takes most of the time of an export."""
    out = tmp_path_factory.mktemp("export") / "pages"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("editloupe.viewer.numbers.draw", bare_plot)
        export(Site.of([RunReader(run)]), out)
    return out


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """The run, to be changed."""
    return Path(shutil.copytree(run, tmp_path / "copy"))
