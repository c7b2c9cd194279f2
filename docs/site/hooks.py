"""What mkdocs does beyond its configuration: generated pages, and links and fences that only this repository has."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]

_FENCE = re.compile(r"^(```\w+)[ \t][^\n]*$", re.MULTILINE)
"""A fence with a remark for the tests, such as `sh not-run: needs a key`."""
_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./((?!docs/)[^)#]+)(?:#[^)]*)?\)")
"""A link to a file of the repository that is no page."""
_OF_ROOT = re.compile(r"\]\(docs/([^)]+)\)")
"""A link of a page that lies in the repository's root."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made from the program, the changelog and the page for contributors."""
    from mkdocs.structure.files import File

    sys.path.insert(0, str(ROOT))
    from docs.site import reference

    pages = {
        "reference/commands.md": reference.commands_page(),
        "reference/python.md": reference.python_page(),
        "changelog.md": _of_root("CHANGELOG.md"),
        "contributing.md": _of_root("CONTRIBUTING.md"),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Show what the page means: fences by their language alone, files outside the site as their path."""
    plain = _FENCE.sub(r"\1", markdown)
    below = "/" in page.file.src_uri
    return plain if below else _OUTSIDE.sub(lambda found: f"{found[1]} (`{found[2]}`)", plain)


def _of_root(name: str) -> str:
    return _OF_ROOT.sub(r"](\1)", (ROOT / name).read_text(encoding="utf-8"))
