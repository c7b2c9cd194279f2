"""Files that a client may name: below one folder, and nowhere else."""

from __future__ import annotations

from pathlib import Path

from editloupe.errors import ImageError


def below(root: Path, path: object) -> Path:
    """Return the file that a path means, links followed.

    Raises ImageError for a file that is not below `root`, whether it exists or not.
    """
    if not isinstance(path, str) or "\0" in path:
        raise ImageError(f"path {path!r}: expected the path of an image file")
    try:
        found = (root / path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ImageError(f"path {path!r}: cannot be followed ({error})") from error
    if not found.is_relative_to(root):
        raise ImageError(f"path {path!r}: is outside {root}, below which alone images can be opened here")
    return found
