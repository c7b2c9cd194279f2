"""Keeps what tools returned in a run: an equal call on equal images runs once.

A run that asks several questions of an edit, several judges or several repeats makes the same first calls again: a detector
on a CPU takes seconds each time. An answer is kept under the tool's name and version, its arguments, the images that they
name (name and View, hence the pixels' digest), the number of pictures shown before (an observation speaks of "Crop 2"),
whether the conversation has made the call before, how the backend counts and reduces pictures, and the kind of device.

Only answers of tools with `repeatable = True` are kept: they depend on nothing else. Errors are never kept.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from editloupe import files, models
from editloupe.data.images import ImageStore
from editloupe.errors import ToolError
from editloupe.findings import Observation
from editloupe.models.devices import open_device
from editloupe.tools.arguments import validated
from editloupe.tools.base import Tool, Toolbox, ToolContext
from editloupe.values import Json, digest, parse_json

_SCHEMA = 2


class ToolCache:
    """Answers of tools in a folder, for all threads of a process. Several processes may share the folder.

    device: as the tools' settings name it.
    `ran` and `hits` count the calls that were run, and those that were answered from the folder.
    """

    def __init__(self, folder: Path, *, device: str = "auto") -> None:
        self._folder, self._device = folder, device
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
        args: BaseModel | None = None
        if tool is not None and getattr(tool, "repeatable", False):
            # The toolbox takes a box in another dress, and says what to write instead of px.
            with contextlib.suppress(ToolError):
                args = validated(tool.name, tool.Args, arguments)
        if tool is None or args is None:
            self._count(hit=False)
            return box.call(name, arguments, context), False
        key = self._key(tool, arguments, args, context)
        with self._lock:
            busy = self._busy.setdefault(key, threading.Lock())
        # A second caller of the same waits for the first, instead of doing the same work beside it.
        with busy:
            try:
                kept = self._kept(key, context.images)
                self._count(hit=kept is not None)
                made = kept or tool(args, context)
                if kept is None and not made.error:
                    self._keep(key, tool.name, made)
            finally:
                with self._lock:
                    self._busy.pop(key, None)
        return made, kept is not None

    def _key(self, tool: Tool, arguments: Mapping[str, Json], args: BaseModel, context: ToolContext) -> str:
        models.prepare(tool)
        where = self._device
        if where == "auto":
            # Where nothing has imported torch, everything computes on the CPU.
            where = open_device(where).name if "torch" in sys.modules else "cpu"
        given = context.spelled(args.model_dump(mode="json"))
        named = sorted({v for v in given.values() if isinstance(v, str) and v in context.views})
        # As the conversation has written the call down, and as the tool spells it.
        calls = (arguments, args.model_dump(mode="json", exclude_unset=True))
        return digest(
            {
                "schema": _SCHEMA,
                "tool": tool.name,
                "version": tool.version,
                "device": where.partition(":")[0],
                "arguments": given,
                "images": {name: context.views[name].to_json() for name in named},
                "masks": {name: [list(box) for box in context.masks(name)] for name in named},
                "pictures": [context.image_tokens.rule, context.max_image_side, context.crops],
                "repeated": [context.written(tool.name, call) in context.past_calls for call in calls],
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
