"""Face consistency: whether the people of an edit are still the same (UnicEdit-10M, supplement, Section F)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

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


class FaceArgs(PairArgs):
    """The arguments. Nothing is aligned: faces are, each by its own landmarks."""

    face_score: float = Field(default=0.9, ge=0, le=1)
    """The least score of a face. 0.9 is OpenCV's own default."""
    face_side: int = Field(default=640, ge=32, le=4096)
    """px; a larger image is reduced to this longest side before faces are looked for."""
    face_match: Literal["cosine", "place"] = "cosine"
    """Which faces are compared. cosine: the pairs that are most alike together.   place: those that overlap most."""


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

        Raises MeasureError where the source or the edited image has no face, no two faces meet, or a picture is missing,
        and ModelAbsent without weights.
        """
        # The published figures know no mask.
        use = args if args.mask != "official" else args.model_copy(update={"mask": "none"})
        source, edited, mask = pictures(use, images)
        embedder: FaceEmbedder = models.get("faces")
        before = list(embedder(source, score=args.face_score, side=args.face_side))
        if not before:
            raise MeasureError(
                f"the source has no face with a score of {args.face_score:g} or more{_reduced(source, args)}"
            )
        seen = len(before)
        if mask is not None:
            kept = outside(mask, source.shape[:2], args.dilate)
            before = [face for face in before if _share(kept, face.box) > 0.5]
            if not before:
                raise MeasureError(f"{_faces(seen)} of the source, and none outside the mask; mask=none compares them")
        after = list(embedder(edited, score=args.face_score, side=args.face_side))
        if not after:
            raise MeasureError(
                f"the edited image has no face with a score of {args.face_score:g} or more{_reduced(edited, args)}, the "
                f"source has {_faces(len(before))}: lost, or no longer seen as a face, which is not a similarity of 0"
            )
        cosines = np.clip(_unit(before, embedder) @ _unit(after, embedder).T, -1, 1)
        pairs = _by_cosine(cosines) if args.face_match == "cosine" else _by_place(before, after, source, edited)
        if not pairs:
            raise MeasureError("no face of the edited image overlaps one of the source; face_match=cosine compares any")
        told = [f"{len(pairs)} of {_faces(len(before))} compared, matched by {args.face_match}"]
        lost, new, inside = len(before) - len(pairs), len(after) - len(pairs), seen - len(before)
        for count, what in ((lost, "not found again"), (new, "only in the edited image"), (inside, "inside the mask")):
            told += [f"{count} {what}"] if count else []
        told += [
            text.removeprefix(", ") for text in dict.fromkeys((_reduced(source, args), _reduced(edited, args))) if text
        ]
        return Measured(
            answer=Number(value=float(np.mean([cosines[i, j] for i, j in pairs]))),
            reason="; ".join(told),
            data={
                "match": args.face_match,
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


def _by_cosine(cosines: NDArray[np.float64]) -> list[tuple[int, int]]:
    rows, columns = linear_sum_assignment(cosines, maximize=True)
    return [(int(i), int(j)) for i, j in zip(rows, columns, strict=True)]


def _by_place(before: Sequence[Face], after: Sequence[Face], source: RGB, edited: RGB) -> list[tuple[int, int]]:
    """Pair faces whose boxes overlap, in shares of each image's sides, so that the overlaps are largest together."""
    first, second = ([_share_of(face.box, rgb) for face in faces] for faces, rgb in ((before, source), (after, edited)))
    overlaps = np.array([[one.iou(other) for other in second] for one in first])
    return [(i, j) for i, j in _by_cosine(overlaps) if overlaps[i, j] > 0]


def _share_of(box: Box, rgb: RGB) -> Box:
    height, width = rgb.shape[:2]
    return Box(*box.to_unit(width=width, height=height))


def _share(kept: NDArray[np.bool_], box: Box) -> float:
    """Return which share of a box's pixels counts."""
    part = kept[int(box.y0) : int(np.ceil(box.y1)), int(box.x0) : int(np.ceil(box.x1))]
    return float(part.mean())


def _reduced(rgb: RGB, args: FaceArgs) -> str:
    height, width = rgb.shape[:2]
    return f", looked for at {args.face_side} px of {width}×{height} px" if max(height, width) > args.face_side else ""


def _faces(count: int) -> str:
    return "1 face" if count == 1 else f"{count} faces"
