"""`PixelBaseline`: the backend that runs everywhere. It asks for the differences, measures them and answers."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from editloupe.answers import CANNOT_JUDGE
from editloupe.backends.base import BackendURI, Traits
from editloupe.baseline import verdicts
from editloupe.baseline.dialogue import EDITED, ORIGINAL, BaselineQuestion, ObservedRegion, read_request
from editloupe.baseline.instruction_parser import parse_instruction
from editloupe.baseline.phrase import target_phrase
from editloupe.baseline.region_features import ImagePair
from editloupe.baseline.verdicts import CONSISTENCY, FOLLOWING, PixelVerdict
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, ImageError
from editloupe.imaging.render import unmarked
from editloupe.replies import FINAL_ANSWER, THINKING, TOOL_CALL, neutralise
from editloupe.values import Box, ImageRef, Json

VERSION: Final = "7"
DESCRIBES: Final = "pixel baseline: rules on pixels, not an LMM"

_OPENING: Final = "This is a pixel baseline: rules on pixels, not an LMM."
_SMALL_PX: Final = 48.0
_PAIRS_KEPT: Final = 4
_MOST_PLACES: Final = 16
"""More places than this are no list of edits any more."""


def open_backend(uri: BackendURI) -> PixelBaseline:
    """Open the backend `baseline`. Raises ConfigError where the URI names a model or parameters: there are none."""
    if uri.model or uri.params:
        raise ConfigError(f"backend {str(uri)!r}: the baseline has neither models nor parameters; write 'baseline'")
    return PixelBaseline()


class PixelBaseline:
    """Judges by rules. Its answers depend on the request alone.

    The pairs of images that it compared last are kept, to save time.
    """

    uri: Final = "baseline"
    endpoint: Final = "in process"
    version: Final = VERSION
    traits: Final = Traits(describes=DESCRIBES, is_lmm=False)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pairs: OrderedDict[tuple[str, str, tuple[Box, ...], bool], _Compared] = OrderedDict()

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Return a tool call, a label or the name of an instruction's object, in the tags of the text protocol.

        Raises BackendError where an image cannot be decoded.
        """
        question = read_request(request)
        if question.to_be_named is not None:
            name = target_phrase(question.to_be_named)
            return _answer(name, "Named by rules on the words." if name else "No rule fits the instruction.")
        original, edited = question.original, question.edited
        unfit = _unfit(question)
        if unfit or original is None or edited is None:
            return _answer(None, unfit)
        left = question.tools - question.called
        if "localize_differences" in left:
            both: dict[str, Json] = {"comparison_image_1": ORIGINAL, "comparison_image_2": EDITED}
            return _call("First: where do the two images differ?", "localize_differences", both)
        verdict, thought = _judged(question, self._pair(original, edited, question, images))
        place = verdict.place
        if "zoom_in" in left and place is not None and min(place.width, place.height) < _SMALL_PX:
            width, height = original.width, original.height
            bbox = list(place.clipped(width=width, height=height).to_thousandths(width=width, height=height))
            reason = f"{thought} The place is small; a closer look before the verdict."
            return _call(reason, "zoom_in", {"target_image": EDITED, "bbox": bbox})
        return _answer(verdict.label, f"{thought} {verdict.reason}")

    def _pair(self, original: ImageRef, edited: ImageRef, question: BaselineQuestion, images: ImageStore) -> ImagePair:
        """Compare two pictures once, however many threads ask for them at a time."""
        key = (original.sha256, edited.sha256, question.covered, bool(question.marked))
        with self._lock:
            kept = self._pairs.setdefault(key, _Compared())
            self._pairs.move_to_end(key)
            while len(self._pairs) > _PAIRS_KEPT:
                self._pairs.popitem(last=False)
        # A second caller of the same waits for the first. An error is not kept.
        with kept.lock:
            try:
                if kept.pair is None:
                    first, second = (images.array(ref) for ref in (original, edited))
                    if question.marked:
                        first, second = unmarked(first), unmarked(second)
                    masks_1, masks_2 = ([_in_px(box, ref) for box in question.covered] for ref in (original, edited))
                    kept.pair = ImagePair(first, second, masks_1, masks_2)
            except ImageError as error:
                raise BackendError(f"baseline: an image of the request cannot be decoded: {error}") from error
            return kept.pair


@dataclass
class _Compared:
    """Two pictures, compared once the lock was held."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    pair: ImagePair | None = None


def _unfit(question: BaselineQuestion) -> str:
    """Return the reason why the baseline cannot answer the question; "" where it can."""
    if question.labels not in (FOLLOWING, CONSISTENCY):
        named = neutralise(", ".join(sorted(question.labels)))
        here = f"the labels here are others ({named})" if named else "this question asks for another kind of answer"
        return f"It knows the labels of DLEBench's Instruction Following and Visual Consistency only; {here}."
    missing = [a for a, ref in ((ORIGINAL, question.original), (EDITED, question.edited)) if ref is None]
    if missing:
        return f"It compares two images, and the request lacks {' and '.join(missing)}."
    return "" if question.instruction.strip() else "The request has no editing instruction."


def _judged(question: BaselineQuestion, pair: ImagePair) -> tuple[PixelVerdict, str]:
    """Return the verdict, and the thought before it: how the instruction was read and how many places count."""
    instruction = parse_instruction(question.instruction)
    if question.observed is None:
        places = [ObservedRegion(box=region.box) for region in pair.found.regions[:_MOST_PLACES]]
        source = "No observation is at hand, so the places were found on the full images"
    else:
        places = list(question.observed[:_MOST_PLACES])
        source = "The places are those of the observation"
    measured = verdicts.measure(
        pair,
        [p.box for p in places],
        crops={p.crop: p.box for p in places if p.crop},
        marked=[box.scaled(pair.size[0] / 1000, pair.size[1] / 1000) for box in question.marked],
        covered=bool(question.covered),
    )
    judge = verdicts.follow if question.labels == FOLLOWING else verdicts.consist
    count = f"{len(places)}, of which {len(measured.regions)} count"
    thought = f"Read from the instruction: {instruction.described}. {source}: {count}."
    return judge(instruction, measured), thought


def _in_px(box: Box, image: ImageRef) -> Box:
    """Return a box in thousandths as a box in px of the image."""
    return box.scaled(image.width / 1000, image.height / 1000)


def _call(thought: str, name: str, parameters: dict[str, Json]) -> Reply:
    body = json.dumps({"name": name, "parameters": parameters})
    return _reply(thought, f"<{TOOL_CALL}>\n{body}\n</{TOOL_CALL}>")


def _answer(label: str | None, thought: str) -> Reply:
    return _reply(thought, f"<{FINAL_ANSWER}>{label or CANNOT_JUDGE}</{FINAL_ANSWER}>")


def _reply(thought: str, act: str) -> Reply:
    text = f"<{THINKING}>{_OPENING} {thought}</{THINKING}>\n{act}"
    return Reply(text=text, model=f"pixel-baseline-{VERSION}")
