"""What an image editor is, and how it is found by name. No torch here.

An editor is an entry point of the group `editloupe.editors`: its name begins what `--set editor=…` is given, up to ":",
and its object opens it.

    [project.entry-points."editloupe.editors"]
    painter = "my_package.painter:open_painter"     # (name: str, device: str) -> the editor

`--set editor=painter:large` opens it as "painter:large". An opener finds weights and loads none. It returns one object
for the same name and device (`functools.cache`), and raises ConfigError for a name that it cannot use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, cast

from editloupe import plugins
from editloupe.data.images import RGB
from editloupe.errors import ModelAbsent

EXAMPLES: Final = "cmd:python edit.py {input} {output} {instruction}, or drawing"


class Editor(Protocol):
    """Edits an image by an instruction. It is called from several threads."""

    name: str
    """For messages."""
    version: str
    """Its part of a judge's identity: changes with the weights and with how they are used. It holds no secret."""

    def __call__(self, rgb: RGB, instruction: str, *, seed: int = 0) -> RGB:
        """Return the edited image as h×w×3 uint8 RGB, of any size.

        rgb: H×W×3 uint8, which stays as it is.   instruction: one sentence, in the words of a user.
        seed: differs from try to try; an editor that draws nothing at random leaves it aside.
        Raises EditError where there is no image, and ConfigError where it cannot be used at all.
        """


def open_editor(name: str | None, device: str) -> Editor:
    """Return an editor by name, found and not yet loaded.

    name: such as "cmd:python edit.py {input} {output} {instruction}"; its beginning names the entry point.
    Raises ModelAbsent for None, and ConfigError for a name that no entry point has or that its opener refuses.
    """
    if name is None:
        raise ModelAbsent(f"it needs an image editor; name one with --set editor=…, such as {EXAMPLES}")
    opener = cast("Callable[[str, str], Editor]", plugins.load("editors", name.partition(":")[0]))
    return opener(name, device)
