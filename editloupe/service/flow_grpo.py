"""The wire of flow-grpo's and Edit-R1's reward servers, for `editloupe serve --door flow-grpo`.

A client posts a pickle {"images": JPEG bytes, "ref_images": JPEG bytes, "prompts": texts, "metadatas": dicts} to
/mode/NAME, and gets a pickle {"scores": numbers from 0 to 1}. It repeats a request that got 500, and nothing else. The
wire has no token and no place for a failure: a request with an edit that was not judged gets 500, and its other answers are
kept for the repetition.
"""

from __future__ import annotations

import asyncio
import base64
import pickle
import pickletools
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from editloupe.errors import DataError, EditLoupeError, SampleError
from editloupe.service.doors import Door
from editloupe.service.edits import SentEdit, SentPicture
from editloupe.service.judging import Busy
from editloupe.values import digest

_FIELDS: Final = {"images": bytes, "ref_images": bytes, "prompts": str}
_PLAIN: Final = {
    "PROTO", "FRAME", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "APPEND", "APPENDS", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES",
    "BINBYTES", "BINBYTES8", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NONE", "NEWTRUE", "NEWFALSE",
    "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
}  # fmt: skip
"""Opcodes of dicts, lists, tuples, texts, bytes and numbers: none makes a class or calls a function."""


def read_request(body: bytes) -> list[SentEdit]:
    """Return the edits of a request. Nothing but plain opcodes is run. Raises SampleError, which says what was expected."""
    try:
        for opcode, value, _ in pickletools.genops(body):
            if opcode.name not in _PLAIN or (opcode.name == "LONG_BINPUT" and int(value or 0) > len(body)):
                raise SampleError(f"the pickle holds {opcode.name}; expected dicts, lists, texts, bytes and numbers alone")
        sent = pickle.loads(body)
    except (ValueError, EOFError, IndexError, TypeError, MemoryError, OverflowError, pickle.UnpicklingError) as error:
        raise SampleError(f"not a whole pickle: {type(error).__name__}: {str(error)[:200]}") from error
    if not isinstance(sent, dict):
        raise SampleError(f"expected a pickled dict, found {type(sent).__name__}")
    images, sources, prompts = (_list(sent, name, kind) for name, kind in _FIELDS.items())
    if not len(images) == len(sources) == len(prompts):
        counts = f"{len(images)} images, {len(sources)} ref_images and {len(prompts)} prompts"
        raise SampleError(f"{counts}; expected as many of each (a client that splits its images must split its prompts)")
    edits = []
    for prompt, *pictures in zip(prompts, sources, images, strict=True):
        source, edited = (SentPicture(base64=base64.b64encode(one).decode("ascii")) for one in pictures)
        try:
            edits.append(SentEdit(instruction=prompt, source=source, edited=edited))
        except ValidationError as error:
            raise SampleError(f"prompts: {error.errors()[0]['msg']}") from error
    return edits


def _list(sent: dict[Any, Any], name: str, kind: type) -> list[Any]:
    found = sent.get(name)
    if not isinstance(found, list | tuple) or not found or not all(isinstance(one, kind) for one in found):
        raise SampleError(f"{name}: expected a list of {kind.__name__}, one for each edit")
    return list(found)


def open_door(door: Door) -> Sequence[Route]:
    """Return the routes of the wire."""
    tries: Counter[str] = Counter()

    async def one(edit: SentEdit) -> float | str:
        """Return the reward of an edit, or why there is none. An edit without one is asked anew the next time."""
        key = digest([edit.instruction, edit.source.base64, edit.edited.base64])
        try:
            verdict = await door.judge(edit.model_copy(update={"repeat": tries[key]}))
        except (EditLoupeError, TimeoutError) as error:
            return f"{type(error).__name__}: {error}"
        if isinstance(verdict, str):
            tries[key] += 1
        return verdict

    async def scores(request: Request) -> Response:
        try:
            edits = await asyncio.to_thread(read_request, await request.body())
            with door.service.places(len(edits)):
                found = await asyncio.gather(*(one(edit) for edit in edits))
        except DataError as error:
            return Response(str(error), status_code=422, media_type="text/plain")
        except Busy as error:
            return Response(str(error), status_code=500, media_type="text/plain")
        told = _filled(edits, found) if door.group_mean else found
        why = [f"edit {number}: {reason}" for number, reason in enumerate(told) if isinstance(reason, str)]
        if why:
            return Response("\n".join(why[:20]), status_code=500, media_type="text/plain")
        return Response(pickle.dumps({"scores": told}), media_type="application/octet-stream")

    return [Route("/mode/{mode}", scores, methods=["POST"])]


def _filled(edits: Sequence[SentEdit], found: Sequence[float | str]) -> list[float | str]:
    """Give an edit without a score the mean of its group: the edits of one source and instruction that have one."""
    groups: dict[tuple[str, str | None], list[float]] = {}
    for edit, value in zip(edits, found, strict=True):
        groups.setdefault((edit.instruction, edit.source.base64), []).extend([value] if isinstance(value, float) else [])
    own = (groups[edit.instruction, edit.source.base64] for edit in edits)
    return [fmean(values) if isinstance(v, str) and values else v for v, values in zip(found, own, strict=True)]
