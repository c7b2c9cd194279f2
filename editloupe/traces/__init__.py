"""Traces: one append-only JSONL file a task. This package writes, reads and verifies them; replay lives in `runs`."""

from pathlib import Path

GALLERY = Path(__file__).parent / "gallery"
"""A small run folder of the package: short traces by the baseline and by scripts (see examples/make_gallery.py)."""
