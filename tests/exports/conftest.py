"""Runs that several tests only read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exports.runs import native_run, oracle_run


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return native_run(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return oracle_run(tmp_path_factory.mktemp("oracle"))
