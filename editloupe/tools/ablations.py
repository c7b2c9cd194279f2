"""Ablations: what tools show is hidden, or shown from elsewhere, to learn whether a judge uses what it sees.

The LMM does not learn of it. The tools' versions do, and with them the judge's id, the run and every heading.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, cast

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from editloupe import models
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError
from editloupe.findings import Observation
from editloupe.imaging.control_regions import find_control_regions, swap_regions
from editloupe.imaging.differences import Differences
from editloupe.nearest import did_you_mean
from editloupe.tools.base import Describes, Tool, Toolbox, ToolContext
from editloupe.tools.localize_differences import LocalizeDifferences, canvas_of
from editloupe.values import ImageRef, Json, View

_HIDDEN: Final = "hidden"
"""In a black view's params: the picture that it stands for."""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """One ablation."""

    description: str
    apply: Callable[[Toolbox], Toolbox]
    """Return the toolbox with it. Raises ConfigError where that cannot be."""


class BlackPictures:
    """A tool whose pictures are black, of the same sizes, under the same names; its text stays as it is.

    A later call that names such a picture works on what it hides, so that texts are those of a run without ablation.
    What is hidden is kept beside it in the trace.
    """

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.name, self.description, self.Args = tool.name, tool.description, tool.Args
        self.repeatable = bool(getattr(tool, "repeatable", False))

    @property
    def version(self) -> str:
        return f"{self._tool.version} +black"

    def prepare(self) -> None:
        """Load what the tool itself loads. Raises ConfigError."""
        models.prepare(self._tool)

    def describe(self) -> tuple[str, ...]:
        """Return what the tool itself works with."""
        return self._tool.describe() if isinstance(self._tool, Describes) else ()

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
            data=_marked(seen.data, "black-crops"),
        )


class ShamDifferences(LocalizeDifferences):
    """Shows as differences, in pictures and in the text, places where the two images are alike.

    As many as there are, of like sizes; what is said of the pictures as wholes stays. `data["sham"]` has the true places.
    """

    revision: ClassVar[str] = f"{LocalizeDifferences.revision}+sham"

    def observed(self, found: Differences, names: tuple[str, str], context: ToolContext) -> Observation:
        controls = find_control_regions(found, canvas_of(found.alignment, context).most_shown)
        seen = super().observed(swap_regions(found, controls), names, context)
        sham: list[Json] = [
            {
                "true_box": list(region.box.ints()),
                "shown_box": list(control.box.ints()),
                "busy": round(control.busy, 5),
                "mean_difference": round(control.mean, 2),
            }
            for region, control in zip(found.regions, controls, strict=True)
        ]
        return replace(seen, data=_marked({**seen.data, "sham": sham}, "sham-differences"))


def _with_sham(box: Toolbox) -> Toolbox:
    """Return the toolbox with sham differences.

    Raises ConfigError where localize_differences is not on offer, or another tool has its name.
    """
    tool: object = box.tools.get(LocalizeDifferences.name)
    if not isinstance(tool, LocalizeDifferences):
        found = f"the tools are {', '.join(box.tools)}" if tool is None else f"{type(tool).__name__} is another tool"
        raise ConfigError(f"ablation 'sham-differences' needs the tool {LocalizeDifferences.name!r}; {found}")
    sham = ShamDifferences(tool.upscaler, picture_budget=tool.picture_budget, marked=tool.marked)
    sham.reading = tool.reading
    return replace(box, tools={**box.tools, sham.name: cast(Tool, sham)})


# In the order in which they are applied: the sham places are chosen first, then all pictures are covered.
ABLATIONS: Final[Mapping[str, Ablation]] = {
    "sham-differences": Ablation(
        description="localize_differences shows places where nothing changed, and says that they differ", apply=_with_sham
    ),
    "black-crops": Ablation(
        description="what tools show is black; their texts stay",
        apply=lambda box: replace(box, tools={name: cast(Tool, BlackPictures(tool)) for name, tool in box.tools.items()}),
    ),
}
"""Name → ablation."""


def checked(names: Iterable[str]) -> tuple[str, ...]:
    """Return the named ablations, each once, in one order. Raises ConfigError for an unknown name."""
    wanted = set(names)
    for name in sorted(wanted - set(ABLATIONS)):
        raise ConfigError(
            f"there is no ablation {name!r}; {did_you_mean(name, ABLATIONS)}the ablations are: {', '.join(ABLATIONS)}"
        )
    return tuple(name for name in ABLATIONS if name in wanted)


def ablated(box: Toolbox, names: Sequence[str]) -> Toolbox:
    """Return the toolbox with these ablations. names: as `checked` returns them.

    Raises ConfigError where an ablation has nothing to work on.
    """
    for name in names:
        if not box.tools:
            raise ConfigError(f"ablation {name!r} changes what tools show, and there are no tools")
        box = ABLATIONS[name].apply(box)
    return box


def _marked(data: Mapping[str, Json], name: str) -> dict[str, Json]:
    before = data.get("ablations")
    return {**data, "ablations": [*(before if isinstance(before, list) else []), name]}


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
