"""What the loaders' tests draw, for the loaders of papers."""

from tests.data.conftest import draw, write  # noqa: F401
