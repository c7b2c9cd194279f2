"""Photographs that are alike: an encoder's vectors, kept so that a further call takes them, and the nearest of each."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from editloupe import files
from editloupe.build.base import LeftOut
from editloupe.build.dice.photos import Photos
from editloupe.build.dice.rows import Split
from editloupe.models.features.base import Features
from editloupe.values import Json, digest

Floats = NDArray[np.float32]
FEATURES: Final = "features"
"""Folder of the encoder's vectors."""
_CHUNK: Final = 256
"""Images in a file of vectors."""
_BATCH: Final = 32
_ROWS: Final = 512
_COLUMNS: Final = 4096
"""Images that are compared at once."""


def similar_pairs(
    features: Floats,
    categories: Sequence[frozenset[int]],
    splits: Sequence[Split],
    *,
    above: float,
    differing_below: int,
    partners: int,
) -> list[tuple[int, int, float]]:
    """Return (i, j, cosine) with i < j: each image with its nearest `partners` of the same split, every pair once.

    features: n×D, of length 1.   categories: of each image.
    above: least cosine.   differing_below: categories that one of the two shows alone are fewer; at least one is common.
    Images are compared in blocks, so that memory does not grow with n².
    """
    count, sizes = len(features), np.array([len(one) for one in categories])
    known = {number: place for place, number in enumerate(sorted(set().union(*categories)))}
    places = [known[number] for one in categories for number in sorted(one)]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    shows = csr_matrix((np.ones(len(places), np.int32), places, starts), shape=(count, max(1, len(known))))
    test = np.array([split == "test" for split in splits])
    found: dict[tuple[int, int], float] = {}
    for top in range(0, count, _ROWS):
        rows = np.arange(top, min(top + _ROWS, count))
        best = np.full((len(rows), partners), -np.inf, np.float32)
        who = np.full((len(rows), partners), -1)
        for left in range(0, count, _COLUMNS):
            others = np.arange(left, min(left + _COLUMNS, count))
            cosine = features[rows] @ features[others].T
            fits = (cosine > above) & (test[rows][:, None] == test[others]) & (rows[:, None] != others)
            if not fits.any():
                continue
            common = (shows[rows] @ shows[others].T).toarray()
            differing = sizes[rows][:, None] + sizes[others] - 2 * common
            fits &= (common >= 1) & (differing < differing_below)
            values = np.concatenate([best, np.where(fits, cosine, -np.inf)], axis=1)
            names = np.concatenate([who, np.broadcast_to(others, fits.shape)], axis=1)
            for place in range(partners):
                # Of equals the first, whatever the blocks.
                top_one = values.argmax(axis=1)[:, None]
                best[:, place] = np.take_along_axis(values, top_one, axis=1)[:, 0]
                who[:, place] = np.take_along_axis(names, top_one, axis=1)[:, 0]
                np.put_along_axis(values, top_one, -np.inf, axis=1)
        for row, (those, close) in enumerate(zip(who, best, strict=True)):
            for other, value in zip(those, close, strict=True):
                if np.isfinite(value):
                    i, j = sorted((int(rows[row]), int(other)))
                    found[i, j] = float(value)
    return [(i, j, value) for (i, j), value in sorted(found.items())]


def features(
    photos: Photos, encoder: Features, folder: Path, stopped: Callable[[], bool], tell: Callable[[str], None]
) -> tuple[list[int], Floats, dict[int, LeftOut]] | None:
    """Return the places of the images that can be read, their vectors, of length 1, and what is wrong with the others.

    None where it was stopped. Raises StorageError.
    """
    usable: list[int] = []
    vectors: list[Floats] = [np.zeros((0, 1), np.float32)]
    bad: dict[int, LeftOut] = {}
    for start in range(0, len(photos.images), _CHUNK):
        if stopped():
            return None
        tell(f"Looking at image {start + 1:,} of {len(photos.images):,}")
        named: dict[int, Json] = {}
        for place in range(start, min(start + _CHUNK, len(photos.images))):
            try:
                named[place] = photos.ref(photos.images[place]).sha256
            except LeftOut as fault:
                bad[place] = fault
        places = list(named)
        file = folder / FEATURES / f"{digest([encoder.version, photos.crop, list(named.values())])[:32]}.npy"
        kept = _kept_vectors(file, len(places))
        if kept is None:
            kept, damaged = _vectors(encoder, photos, places)
            places = [place for place in places if place not in damaged]
            bad |= damaged
            if not damaged:
                held = io.BytesIO()
                np.save(held, kept.astype(np.float16), allow_pickle=False)
                with files.writing(folder):
                    files.write_whole(file, held.getvalue(), below=folder)
        kept = kept.astype(np.float16).astype(np.float32)
        usable += places
        if places:
            vectors.append(kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-12))
    return usable, np.concatenate(vectors[1:] or vectors), dict(sorted(bad.items()))


def _vectors(encoder: Features, photos: Photos, places: Sequence[int]) -> tuple[Floats, dict[int, LeftOut]]:
    """Return the vectors of images, and those that cannot be decoded or encoded."""
    found: list[Floats] = []
    bad: dict[int, LeftOut] = {}
    for some in _in_batches(places):
        pictures = []
        for place in some:
            try:
                pictures.append(np.ascontiguousarray(photos.pixels(photos.images[place])))
            except LeftOut as error:
                bad[place] = error
        if pictures:
            found += encoder(pictures, [None] * len(pictures))
    return np.stack(found) if found else np.zeros((0, 1), np.float32), bad


def _in_batches(places: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(places), _BATCH):
        yield places[start : start + _BATCH]


def _kept_vectors(file: Path, count: int) -> Floats | None:
    """Return the vectors that a call before has kept; None where there are none."""
    try:
        found = np.load(io.BytesIO(files.read_bytes(file)), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return np.asarray(found, np.float32) if found.ndim == 2 and len(found) == count else None
