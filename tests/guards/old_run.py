"""The run of version 0.2.0, unpacked: two judges asked twice, people's labels, a missing output, an unreadable reply."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.guards.frozen import HERE

PACKED = HERE / "run_0_2_0.tar.xz"


def unpacked(folder: Path) -> Path:
    """Put the run into a folder; return where it is."""
    with tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data")
    return folder / "run_0_2_0"
