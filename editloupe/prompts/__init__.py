"""Render prompts: Markdown with Jinja2. A missing variable is an error, never an empty string.

A template is one file. Ours are named by folder and stem ("agent/format", "dlebench/judge"): the loop's, and a folder for
each paper. A stranger's package and a user name one of their own by the path of the .md file. Includes are not supported,
so that the digest of a template covers its whole text.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator

from editloupe.errors import ConfigError, did_you_mean
from editloupe.files import read_text
from editloupe.values import digest

if TYPE_CHECKING:
    from jinja2 import Environment, Template

__all__ = ["builtin_prompts", "prompt_digest", "render"]

_HERE: Final = Path(__file__).parent
MOST_CHARACTERS: Final = 1_000_000
"""Length of a rendered prompt. No model reads more."""


@lru_cache(maxsize=1)
def builtin_prompts() -> tuple[str, ...]:
    """Return the names of the templates that come with editloupe."""
    return tuple(sorted(path.relative_to(_HERE).with_suffix("").as_posix() for path in _HERE.rglob("*.md")))


@dataclass(frozen=True, kw_only=True)
class OwnTemplate:
    """A user's template with its text, so that a run that records it does not need the file again."""

    name: str
    """The file's name, for messages."""
    text: str

    @classmethod
    def read(cls, path: str | Path) -> OwnTemplate:
        """Read a .md file. Raises ConfigError if it cannot be read."""
        return cls(name=Path(path).name, text=_read(Path(path))[1])


def _own(value: Any) -> Any:
    """Return a template by its path, or as a run recorded it."""
    return value if value is None or isinstance(value, Mapping | OwnTemplate) else OwnTemplate.read(value)


TemplateOption: TypeAlias = Annotated[OwnTemplate | None, BeforeValidator(_own)]
"""An option of a protocol: the path of a user's template."""


def render(template: str | Path | OwnTemplate, /, **variables: object) -> str:
    """Return the text of a template with its variables filled in. Values are inserted as they are.

    template: a built-in name ("agent/format"), or the path of a .md file, or one that was read.
    Raises ConfigError with file, line and variable, and for a template of others that takes too long or too much memory.
    """
    ours = None if isinstance(template, OwnTemplate) else _ours(template)
    if ours is not None:
        return rendered(*ours, variables, trusted=True)
    shown, text = _read(template)
    from editloupe.prompts.bounded import render_bounded

    return render_bounded(shown, text, variables)


@lru_cache(maxsize=256)
def _ours(template: str | Path) -> tuple[str, str] | None:
    """Read a template that comes with editloupe once; None for any other."""
    return _read(template) if template in builtin_prompts() else None


def rendered(shown: str, text: str, variables: dict[str, object], *, trusted: bool = False) -> str:
    """Return a template's text with its variables filled in, in this process.

    shown: the template's name in messages.   text: the template.   trusted: whether it comes with editloupe, and needs no
    sandbox.   Raises ConfigError with line and variable.
    """
    from jinja2 import TemplateError, TemplateNotFound

    try:
        parts, size = [], 0
        for part in _compiled(shown, text, trusted).generate(**variables):
            size += len(part)
            if size > MOST_CHARACTERS:
                raise ConfigError(f"prompt {shown!r}: is longer than {MOST_CHARACTERS:,} characters when it is rendered")
            parts.append(part)
        return "".join(parts)
    except TemplateNotFound as error:
        raise ConfigError(
            f"prompt {shown!r}{_line(error.__traceback__, shown)}: includes {error.name!r}; a template must be one file"
        ) from error
    except RecursionError as error:
        raise ConfigError(f"prompt {shown!r}: nests too deep, or calls itself without end") from error
    except (TemplateError, ArithmeticError, AttributeError, LookupError, SyntaxError, TypeError, ValueError) as error:
        # Jinja2 passes on what an expression of the template raises; the template's author can fix it.
        hint = _hint(str(error), variables)
        raise ConfigError(f"prompt {shown!r}{_line(error.__traceback__, shown)}: {error}{hint}") from error


def prompt_digest(names: Iterable[str]) -> str:
    """Return the SHA-256 over the names and texts of built-in templates, in any order. Raises ConfigError."""
    return digest([[name, _read(name)[1]] for name in sorted(set(names))])


@cache
def _builtin_text(name: str) -> str:
    """Return the text of a built-in template, read once."""
    return (_HERE / f"{name}.md").read_text(encoding="utf-8-sig")


def _read(template: str | Path | OwnTemplate) -> tuple[str, str]:
    """Return (name for messages, text). Line ends are unified: a checkout with CRLF is the same prompt."""
    if isinstance(template, OwnTemplate):
        return template.name, template.text
    shown, known = str(template), ", ".join(builtin_prompts())
    if isinstance(template, str) and not template.endswith(".md"):
        if template in builtin_prompts():
            return f"{template}.md", _builtin_text(template)
        raise ConfigError(
            f"unknown prompt {shown!r}; built in: {known}; a prompt of your own is given by the path of its .md file"
        )
    return shown, read_text(Path(template), f"prompt {shown!r}:", error=ConfigError, if_missing=f"; built in: {known}")


@cache
def _environment(trusted: bool) -> Environment:
    # Jinja2 is imported at the first prompt: reports and the viewer's index render none.
    from jinja2 import DictLoader, Environment, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # The sandbox looks at every attribute that a template reads, which is most of the time of a prompt.
    return (Environment if trusted else ImmutableSandboxedEnvironment)(
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=False,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=DictLoader({}),
    )


@lru_cache(maxsize=64)
def _compiled(shown: str, text: str, trusted: bool) -> Template:
    """Compile a template once for each text, so that an edited file takes effect at once."""
    from jinja2 import Template, TemplateSyntaxError

    environment = _environment(trusted)
    try:
        # compile() and not from_string(): it takes a file name, by which tracebacks can be mapped to template lines.
        return Template.from_code(environment, environment.compile(text, shown, shown), {})
    except TemplateSyntaxError as error:
        raise ConfigError(f"prompt {shown!r}, line {error.lineno}: {error.message}") from error


def _line(trace: TracebackType | None, shown: str) -> str:
    """Return the line of an error in the template (", line 3"), from the traceback that Jinja2 maps to template lines."""
    lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == shown]
    return f", line {lines[-1]}" if lines else ""


def _hint(message: str, variables: dict[str, object]) -> str:
    """Return a hint at the variable that could be meant by an undefined one."""
    undefined = re.match(r"'(\w+)' is undefined", message)
    if undefined is None:
        return ""
    return f"; {did_you_mean(undefined.group(1), variables)}variables here: {', '.join(sorted(variables)) or 'none'}"
