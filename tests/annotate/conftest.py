"""The browser of the viewer's tests."""

from __future__ import annotations

from tests.viewer.conftest import browser

__all__ = ["browser"]
