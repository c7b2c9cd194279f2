"""What a comparison says about the whole picture, where a viewer could call it false."""

from __future__ import annotations

from editloupe.imaging.differences import LEAST_BLUR, Differences


def said(found: Differences) -> set[str]:
    """Return which claims the observation makes about the whole picture."""
    claims = {
        "regenerated": found.regenerated,
        "drawn again": found.drifted,
        "less sharp": max(found.blurs) >= LEAST_BLUR and not found.regenerated,
        "stretched": found.alignment.stretched,
        "unrelated": "unrelated" in found.whole_changes,
    }
    return {claim for claim, made in claims.items() if made}
