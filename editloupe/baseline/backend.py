"""`PixelBaseline`: the backend that runs everywhere. It asks for the differences, measures them and answers."""

from __future__ import annotations

import json
from typing import Final

from editloupe.answers import CANNOT_JUDGE
from editloupe.backends.base import BackendURI, Traits
from editloupe.baseline.reading import EDITED, ORIGINAL, AskedEdit, asked_for, object_of, read_request
from editloupe.baseline.rules import CONSISTENCY, FOLLOWING, Changes, Ruling, consist, follow
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, ImageError
from editloupe.imaging.differences import FAINT, localize
from editloupe.imaging.render import unmarked
from editloupe.imaging.standing import place
from editloupe.replies import FINAL_ANSWER, THINKING, TOOL_CALL, neutralise

VERSION: Final = "8"
_SMALL_PX: Final = 48.0


def open_backend(uri: BackendURI) -> PixelBaseline:
    """Open the backend `baseline`. Raises ConfigError where the URI names a model or parameters: there are none."""
    if uri.model or uri.params:
        raise ConfigError(f"backend {str(uri)!r}: the baseline has neither models nor parameters; write 'baseline'")
    return PixelBaseline()


class PixelBaseline:
    """Judges by rules. Its answers depend on the request alone."""

    uri: Final = "baseline"
    endpoint: Final = "in process"
    version: Final = VERSION
    traits: Final = Traits(describes="pixel baseline: rules on pixels, not an LMM", is_lmm=False)

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Return a tool call, a label or the name of an instruction's object, in the tags of the text protocol.

        Raises BackendError where an image cannot be decoded.
        """
        question = read_request(request)
        if question.naming:
            return _said("Named by rules on the words.", FINAL_ANSWER, object_of(question.instruction) or CANNOT_JUDGE)
        if unfit := _unfit(question):
            return _said(unfit, FINAL_ANSWER, CANNOT_JUDGE)
        if "localize_differences" in question.tools:
            both = {"comparison_image_1": ORIGINAL, "comparison_image_2": EDITED}
            call = json.dumps({"name": "localize_differences", "parameters": both})
            return _said("First: where do the two images differ?", TOOL_CALL, call)
        verdict, thought = _judged(question, images)
        small = [one.box for one in verdict.places[:1] if min(one.box.width, one.box.height) < _SMALL_PX]
        if small and "zoom_in" in question.tools:
            original = question.images[ORIGINAL]
            bbox = small[0].to_thousandths(width=original.width, height=original.height)
            call = json.dumps({"name": "zoom_in", "parameters": {"target_image": EDITED, "bbox": bbox}})
            return _said(f"{thought} The place is small; a closer look before the verdict.", TOOL_CALL, call)
        return _said(f"{thought} {verdict.reason}", FINAL_ANSWER, verdict.label or CANNOT_JUDGE)


def _unfit(question: AskedEdit) -> str:
    """Return the reason why the baseline cannot answer the question; "" where it can."""
    if question.labels not in (set(FOLLOWING), set(CONSISTENCY)):
        named = neutralise(", ".join(sorted(question.labels)) or "none")
        return f"It knows the labels of DLEBench's Instruction Following and Visual Consistency only, not these: {named}."
    if missing := [alias for alias in (ORIGINAL, EDITED) if alias not in question.images]:
        return f"It compares two images, and the request lacks {' and '.join(missing)}."
    return "" if question.instruction.strip() else "The request has no editing instruction."


def _judged(question: AskedEdit, images: ImageStore) -> tuple[Ruling, str]:
    """Return the verdict, and the thought before it: how the instruction was read and how many places count."""
    refs = [question.images[alias] for alias in (ORIGINAL, EDITED)]
    try:
        first, second = (unmarked(images.array(ref)) if question.marked else images.array(ref) for ref in refs)
    except ImageError as error:
        raise BackendError(f"baseline: an image of the request cannot be decoded: {error}") from error
    covered = [[box.scaled(ref.width / 1000, ref.height / 1000) for box in question.covered] for ref in refs]
    found = localize(first, second, masks_1=covered[0], masks_2=covered[1])
    places = tuple(place(found, region.box) for region in found.regions if region.mean >= FAINT)
    seen = Changes(found=found, places=places, crops=question.crops, covered=bool(question.covered))
    asked = asked_for(question.instruction)
    verdict = (follow if FOLLOWING[0] in question.labels else consist)(asked, seen)
    read = ", ".join(filter(None, (asked.kind or "of no kind that it knows", asked.of, asked.to and f"to {asked.to}")))
    return verdict, f"The edit asked for: {read}. Places that differ clearly: {len(seen.places)}."


def _said(thought: str, tag: str, body: str) -> Reply:
    text = f"<{THINKING}>This is a {PixelBaseline.traits.describes}. {thought}</{THINKING}>\n<{tag}>{body}</{tag}>"
    return Reply(text=text, model=f"pixel-baseline-{VERSION}")
