"""The visual tools, and the doors to them: `open_session` to call them from Python, `as_langchain` for LangChain's agents.

Nothing is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from editloupe.tools.langchain import as_langchain
    from editloupe.tools.session import Session, open_session
    from editloupe.tools.settings import ToolSettings

_WHERE = {
    "Session": "editloupe.tools.session",
    "ToolSettings": "editloupe.tools.settings",
    "as_langchain": "editloupe.tools.langchain",
    "open_session": "editloupe.tools.session",
}

__all__ = ["Session", "ToolSettings", "as_langchain", "open_session"]


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'editloupe.tools' has no attribute {name!r}")
