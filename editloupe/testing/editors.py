"""The contract of image editors, checked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from editloupe.data.images import RGB
from editloupe.errors import EditError
from editloupe.models.edit.base import Editor
from editloupe.testing.contracts import drawn_pair, requirement


def check_editor(
    editor: Editor,
    *,
    image: RGB | None = None,
    instruction: str = "Change the color of the blue square to red.",
    threads: int = 2,
) -> RGB:
    """Check that an image editor keeps its contract; returns what it makes of a plain image, for checks of your own.

    image: H×W×3 uint8 RGB; None takes a drawn one, 320×240 px.   threads: calls at once.
    It is really asked to edit, a few times.

    Checked: a name and a version; an image of h×w×3 uint8 that is not its input, which stays as it is; calls from several
    threads; a tall and a tiny image give an image or an EditError with a known kind, and nothing else.

    Raises AssertionError, which names the editor and what it broke.
    """
    require = requirement(f"editor {getattr(editor, 'name', editor)!r}")
    for field in ("name", "version"):
        value = getattr(editor, field, None)
        require(isinstance(value, str) and bool(value.strip()), f"{field} must be a text, found {value!r}")
    plain = drawn_pair()["Original Image"] if image is None else image

    def edited(rgb: RGB, seed: int) -> RGB | None:
        given = rgb.copy()
        try:
            made = editor(given, instruction, seed=seed)
        except EditError as error:
            known = error.kind in ("failed", "timed_out", "no_image") and bool(str(error))
            require(known, f"an EditError needs a known kind and a message, found {error.kind!r}, {str(error)!r}")
            return None
        except Exception as error:
            raise AssertionError(f"editor {editor.name!r} raised {error!r}; expected an image or an EditError") from error
        is_image = isinstance(made, np.ndarray) and made.ndim == 3 and made.shape[2] == 3 and made.dtype == np.uint8
        found = f"{made.dtype} of shape {made.shape}" if isinstance(made, np.ndarray) else f"a {type(made).__name__}"
        require(is_image and made.size > 0, f"it returned {found}; expected h×w×3 uint8")
        require(np.array_equal(given, rgb), "it changed the pixels that it was given")
        require(not np.shares_memory(given, made), "it returned the array that it was given; expected one of its own")
        return made

    first = edited(plain, 0)
    require(first is not None, f"it made no image of a plain one, asked to {instruction!r}")
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda seed: edited(plain, seed), range(1, threads + 1)))
    for rgb in (np.full((96, 24, 3), 90, np.uint8), np.full((8, 8, 3), 200, np.uint8)):
        edited(rgb, 0)
    assert first is not None
    return first
