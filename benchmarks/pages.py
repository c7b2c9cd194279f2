"""Put measured tables into benchmarks/README.md, and let measured processes find their modules compiled."""

from __future__ import annotations

import os
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "README.md"


def put(mark: str, text: str, path: Path = PAGE) -> None:
    """Replace what stands in a page between `<!-- MARK: begin -->` and `<!-- MARK: end -->`."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    whole = path.read_text(encoding="utf-8")
    block = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    if not block.search(whole):
        raise SystemExit(f"{path} has no block between {begin} and {end}")
    path.write_text(block.sub(lambda _: f"{begin}\n\n{text.strip()}\n\n{end}", whole), encoding="utf-8")


def compiled_once(folder: Path) -> dict[str, str]:
    """Return the environment with which Python keeps compiled modules below `folder`, as an installed package has them.

    The first process compiles. An environment may forbid that, and each start would compile editloupe again.
    """
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
