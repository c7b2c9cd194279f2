"""Ablations: what tools show is hidden, to learn whether a judge uses what it sees.

The LMM does not learn of it. The tools' versions do, and with them the judge's id, the run and every heading.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from editloupe import models
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, did_you_mean
from editloupe.findings import Observation
from editloupe.tools.base import Tool, Toolbox, ToolContext, works_with
from editloupe.values import ImageRef, Json, View

_HIDDEN: Final = "hidden"
"""In a black view's params: the picture that it stands for."""


ABLATIONS: Final[Mapping[str, str]] = {"black-crops": "what tools show is black; their texts stay"}
"""Name → what it does."""


class BlackPictures:
    """A tool whose pictures are black, of the same sizes, under the same names; its text stays as it is.

    A later call that names such a picture works on what it hides, so that texts are those of a run without ablation.
    What is hidden is kept beside it in the trace.
    """

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.name, self.description, self.Args = tool.name, tool.description, tool.Args
        self.repeatable, self.computes = (bool(getattr(tool, name, False)) for name in ("repeatable", "computes"))

    @property
    def version(self) -> str:
        return f"{self._tool.version} +black"

    def prepare(self) -> None:
        """Load what the tool itself loads. Raises ConfigError."""
        models.prepare(self._tool)

    def describe(self) -> tuple[str, ...]:
        """Return what the tool itself works with."""
        return works_with(self._tool)

    def __call__(self, args: Any, context: ToolContext) -> Observation:
        views = {name: replace(view, image=_hidden(view) or view.image) for name, view in context.views.items()}
        seen = self._tool(args, replace(context, views=views))
        if not seen.views:
            return seen
        black = {image: _black(image, context.images) for image in seen.images}
        # A picture cut from a hidden one has the black one as its recorded origin.
        covers = {hidden: view.image for view in context.views.values() if (hidden := _hidden(view)) is not None}

        def covered(view: View) -> View:
            params: dict[str, Json] = {**view.params, _HIDDEN: view.image.to_json()}
            origin = covers.get(view.origin, view.origin)
            return replace(view, image=black[view.image], origin=origin, params=params)

        return replace(
            seen,
            views=tuple(covered(view) for view in seen.views),
            kept=(*seen.views, *seen.kept),
            data={**seen.data, "ablations": ["black-crops"]},
        )


def checked(names: Iterable[str]) -> tuple[str, ...]:
    """Return the named ablations, each once, in one order. Raises ConfigError for an unknown name."""
    wanted = set(names)
    if unknown := sorted(wanted - set(ABLATIONS)):
        near = did_you_mean(unknown[0], ABLATIONS)
        raise ConfigError(f"there is no ablation {unknown[0]!r}; {near}the ablations are: {', '.join(ABLATIONS)}")
    return tuple(name for name in ABLATIONS if name in wanted)


def ablated(box: Toolbox, names: Sequence[str]) -> Toolbox:
    """Return the toolbox with these ablations. names: as `checked` returns them."""
    if not names:
        return box
    return replace(box, tools={name: cast(Tool, BlackPictures(tool)) for name, tool in box.tools.items()})


def _hidden(view: View) -> ImageRef | None:
    hidden = view.params.get(_HIDDEN)
    return ImageRef.from_json(hidden) if isinstance(hidden, Mapping) else None


def _black(image: ImageRef, store: ImageStore) -> ImageRef:
    """Return a black picture of the same size.

    A text chunk says what it stands for. Otherwise two pictures could be one file, which has one name in a conversation.
    """
    note = PngInfo()
    note.add_text("Description", f"black in place of {image.sha256}")
    buffer = io.BytesIO()
    Image.new("RGB", (image.width, image.height)).save(buffer, format="PNG", pnginfo=note)
    return store.add_bytes(buffer.getvalue(), name="black picture")
