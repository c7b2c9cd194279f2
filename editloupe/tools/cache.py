"""Keeps what tools returned in a run: an equal call on equal images runs once.

An answer is kept under the tool's name and version, its arguments, the images that they name (name and View, hence the
pixels' digest), whether the conversation has made the call before, how the backend counts and reduces pictures, and the
kind of device. Names count, since an
observation speaks of "Crop 2": the same picture under another name is another call. The numbers of the pictures that a call
itself makes do not count: they are filled in for the conversation that gets the answer.

Only answers of tools with `repeatable = True` are kept: they depend on nothing else. Errors are never kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from pydantic import BaseModel

from editloupe import files, models
from editloupe.data.images import ImageStore
from editloupe.errors import ToolError
from editloupe.findings import Observation
from editloupe.models.devices import device_class
from editloupe.tools.arguments import validated
from editloupe.tools.base import Tool, Toolbox, ToolContext
from editloupe.values import Json, canonical_json, digest, parse_json

_SCHEMA = 1
_BLANK = re.compile("\ue000(\\d+)\ue001")


class ToolCache:
    """Answers of tools in a folder, for all threads of a process. Several processes may share the folder.

    device: as the tools' settings name it.   shared: whether an equal call of another process is waited for, too.
    `ran` and `hits` count the calls that were run, and those that were answered from the folder.
    """

    def __init__(self, folder: Path, *, device: str = "auto", shared: bool = False) -> None:
        self._folder, self._device, self._shared = folder, device, shared
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}
        self.ran = self.hits = 0

    def call(
        self, box: Toolbox, name: str, arguments: Mapping[str, Json], context: ToolContext
    ) -> tuple[Observation, bool]:
        """Return what `Toolbox.call` does, and True if it was answered from the folder.

        Raises what `Toolbox.call` raises, and keeps nothing then.
        """
        tool = box.tools.get(name)
        if tool is None or not getattr(tool, "repeatable", False):
            self._count(hit=False)
            return box.call(name, arguments, context), False
        try:
            args = validated(tool.name, tool.Args, arguments)
        except ToolError:
            # The toolbox takes a box in another dress, and says what to write instead of px.
            self._count(hit=False)
            return box.call(name, arguments, context), False
        key = self._key(tool, arguments, args, context)
        with self._lock:
            busy = self._busy.setdefault(key, threading.Lock())
        # A second caller of the same waits for the first, instead of doing the same work beside it.
        with busy, self._alone(key):
            try:
                kept = self._kept(key, context.images)
                self._count(hit=kept is not None)
                made = kept or tool(args, _Unnumbered(**{**vars(context), "crops": 0}))
                if kept is None and not made.error:
                    self._keep(key, tool.name, made)
            finally:
                with self._lock:
                    self._busy.pop(key, None)
        return _named(made, context), kept is not None

    @contextlib.contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        """Hold off other processes that make a call of that key; not where the file system has no locks."""
        if not self._shared:
            yield
            return
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                lock = self._folder / "locks" / key[:3]
                file = stack.enter_context(files.append(lock, below=self._folder.parent.parent, lock=True))
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _key(self, tool: Tool, arguments: Mapping[str, Json], args: BaseModel, context: ToolContext) -> str:
        models.prepare(tool)  # only what is loaded says where it computes
        names = {name.casefold(): name for name in context.views}

        def spelt(values: Mapping[str, Json]) -> dict[str, Json]:
            return {k: names.get(v.strip().casefold(), v) if isinstance(v, str) else v for k, v in values.items()}

        given = spelt(args.model_dump(mode="json"))
        named = sorted({v for v in given.values() if isinstance(v, str) and v in context.views})
        # As the conversation has written the call down, and as the tool spells it.
        calls = [spelt(arguments), spelt(args.model_dump(mode="json", exclude_unset=True))]
        return digest(
            {
                "schema": _SCHEMA,
                "tool": tool.name,
                "version": tool.version,
                "device": device_class(self._device),
                "arguments": given,
                "images": {name: context.views[name].to_json() for name in named},
                "masks": {name: [list(box) for box in context.masks(name)] for name in named},
                "pictures": [context.image_tokens.rule, context.max_image_side],
                "repeated": [canonical_json({"name": tool.name, "arguments": c}) in context.past_calls for c in calls],
            }
        )

    def _kept(self, key: str, images: ImageStore) -> Observation | None:
        """Return the answer of that key; None where there is none, the file is damaged, or one of its pictures is gone."""
        try:
            data = parse_json(files.read_bytes(self._folder / key[:2] / f"{key}.json"))
            found = Observation.from_json(data["observation"])
        except (OSError, ValueError, KeyError, TypeError, AssertionError):
            return None
        pictures = {view.image for view in (*found.views, *found.kept)}
        return found if all(images.path(image) is not None for image in pictures) else None

    def _keep(self, key: str, tool: str, made: Observation) -> None:
        text = json.dumps({"tool": tool, "observation": made.to_json()}, ensure_ascii=False, separators=(",", ":"))
        # What cannot be kept is asked again. A full disk shows in the trace, which must be written.
        with contextlib.suppress(OSError):
            path = self._folder / key[:2] / f"{key}.json"
            # RUN/cache/tools: no part of it may be a link.
            files.write_whole(path, text.encode("utf-8", "backslashreplace"), below=self._folder.parent.parent)

    def _count(self, *, hit: bool) -> None:
        with self._lock:
            self.hits += hit
            self.ran += not hit


@dataclass(frozen=True, kw_only=True)
class _Unnumbered(ToolContext):
    """A context in which the pictures to come have no number yet, so that the answer fits every conversation."""

    def crop_name(self, number: int) -> str:
        return f"\ue000{number}\ue001"


def _named(made: Observation, context: ToolContext) -> Observation:
    """Return the answer with the names that its pictures get in this conversation."""

    def filled(value: Json) -> Json:
        if isinstance(value, str):
            return _BLANK.sub(lambda found: context.crop_name(int(found[1])), value)
        if isinstance(value, Mapping):
            # The text read in a crop stands under the crop's name.
            return {cast(str, filled(name)): filled(item) for name, item in value.items()}
        return [filled(item) for item in value] if isinstance(value, list | tuple) else value

    return replace(made, text=cast(str, filled(made.text)), data=cast(Mapping[str, Json], filled(dict(made.data))))
