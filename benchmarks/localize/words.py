"""What a comparison says about the whole picture, where a viewer could call it false."""

from __future__ import annotations

from editloupe.imaging.differences import Differences


def said(found: Differences) -> set[str]:
    """Return which claims the observation makes about the whole picture."""
    claims = {
        "regenerated": found.regenerated,
        "drawn again": found.drifted,
        "stretched": found.alignment.stretched,
    }
    return {claim for claim, made in claims.items() if made}
