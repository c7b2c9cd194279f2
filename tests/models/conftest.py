"""What the tests of several kinds of models share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache of the hub, and no network."""
    from huggingface_hub import constants, file_download

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(file_download, "HF_HUB_CACHE", str(tmp_path / "hub"), raising=False)
    return tmp_path / "hub"
