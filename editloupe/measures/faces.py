"""Face consistency: whether the people of an edit are still the same (UnicEdit-10M, supplement, Section F)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.optimize import linear_sum_assignment

from editloupe.answers import Number
from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.imaging.masked import outside
from editloupe.measures.base import BaseMeasure, Measured
from editloupe.measures.pair import PairArgs, pictures
from editloupe.models.faces import Face, FaceEmbedder
from editloupe.scores import Interval, Metric
from editloupe.values import Box

_SIDE: Final = 640
"""px; a larger image is reduced to this longest side before faces are looked for."""


class FaceArgs(PairArgs):
    """The arguments. Nothing is aligned: faces are, each by its own landmarks."""

    face_score: float = Field(default=0.9, ge=0, le=1)
    """The least score of a face. 0.9 is OpenCV's own default."""


class FaceConsistency(BaseMeasure):
    """The cosine of a face's vectors before and after the edit, -1 to 1, the mean over matched faces (higher is better).

    A face that is not found again has no cosine. It is said in the reason, and it is not part of the mean.
    """

    name = "face"
    Args = FaceArgs
    needs = ("faces",)
    metric = Metric(id="face", name="Face consistency", short="Face", domain=Interval(low=-1, high=1))

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the mean cosine. With a mask, faces of the source that lie mostly inside it are left out.

        Raises MeasureError where the source or the edited image has no face or a picture is missing, and ModelAbsent
        without weights.
        """
        # The published figures know no mask.
        use = args if args.mask != "official" else args.model_copy(update={"mask": "none"})
        source, edited, mask = pictures(use, images)
        embedder: FaceEmbedder = models.get("faces")
        before = list(embedder(source, score=args.face_score, side=_SIDE))
        if not before:
            raise MeasureError(f"the source has no face with a score of {args.face_score:g} or more{_reduced(source)}")
        seen = len(before)
        if mask is not None:
            kept = outside(mask, source.shape[:2], args.dilate)
            before = [face for face in before if _share(kept, face.box) > 0.5]
            if not before:
                raise MeasureError(f"{_faces(seen)} of the source, and none outside the mask; mask=none compares them")
        after = list(embedder(edited, score=args.face_score, side=_SIDE))
        if not after:
            raise MeasureError(
                f"the edited image has no face with a score of {args.face_score:g} or more{_reduced(edited)}, the "
                f"source has {_faces(len(before))}: lost, or no longer seen as a face, which is not a similarity of 0"
            )
        cosines = np.clip(_unit(before, embedder) @ _unit(after, embedder).T, -1, 1)
        # The pairs that are most alike together.
        pairs = [(int(i), int(j)) for i, j in zip(*linear_sum_assignment(cosines, maximize=True), strict=True)]
        told = [f"{len(pairs)} of {_faces(len(before))} compared, matched by cosine"]
        lost, new, inside = len(before) - len(pairs), len(after) - len(pairs), seen - len(before)
        for count, what in ((lost, "not found again"), (new, "only in the edited image"), (inside, "inside the mask")):
            told += [f"{count} {what}"] if count else []
        told += [text.removeprefix(", ") for text in dict.fromkeys((_reduced(source), _reduced(edited))) if text]
        return Measured(
            answer=Number(value=float(np.mean([cosines[i, j] for i, j in pairs]))),
            reason="; ".join(told),
            data={
                "match": "cosine",
                "faces": {"source": len(before), "edited": len(after), "matched": len(pairs), "inside_mask": inside},
                "pairs": [
                    {"source": list(before[i].box), "edited": list(after[j].box), "cosine": float(cosines[i, j])}
                    for i, j in pairs
                ],
            },
        )


def _unit(faces: Sequence[Face], embedder: FaceEmbedder) -> NDArray[np.float64]:
    """Return the vectors as rows of length 1. Raises MeasureError for a vector without a direction."""
    vectors = np.stack([face.vector for face in faces]).astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise MeasureError(f"{embedder.name} gives a vector without a direction")
    return np.asarray(vectors / lengths)


def _share(kept: NDArray[np.bool_], box: Box) -> float:
    """Return which share of a box's pixels counts."""
    part = kept[int(box.y0) : int(np.ceil(box.y1)), int(box.x0) : int(np.ceil(box.x1))]
    return float(part.mean())


def _reduced(rgb: RGB) -> str:
    height, width = rgb.shape[:2]
    return f", looked for at {_SIDE} px of {width}×{height} px" if max(height, width) > _SIDE else ""


def _faces(count: int) -> str:
    return "1 face" if count == 1 else f"{count} faces"
