"""What all benchmarks have: their options, their tables, the page that shows these, and modules that are compiled once."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "README.md"


def options(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with this description as it stands, and the option --write."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put what is measured into the README.md beside the benchmark")
    return parser


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table. A column is aligned to the right if its title ends in a colon, which is not shown."""
    rule = "|".join("---:" if title.endswith(":") else "---" for title in columns)
    head, *lines = (f"| {' | '.join(map(str, row))} |" for row in ([title.rstrip(":") for title in columns], *rows))
    return "\n".join([head, f"|{rule}|", *lines])


def show(mark: str, text: str, *, write: bool, path: Path = PAGE) -> None:
    """Print what was measured.

    write: put it into a page as well, between `<!-- MARK: begin -->` and `<!-- MARK: end -->`.
    """
    print(text)
    if not write:
        return
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
