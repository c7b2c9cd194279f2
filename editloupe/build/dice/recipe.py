"""`editloupe build differences`: what DICE's detector and its coherence estimator are trained on, in the paper's stages.

Reproduced: stage 1, pairs of similar photographs (3.3, supplement); stage 2, inpainted photographs (3.3, supplement);
examples of coherence (3.4).
Differs: OpenCV removes where the paper takes LaMa; what replaces an object is drawn from the annotations' categories,
where the paper asks GPT-4o; the prompts are ours; JPEG has a quality of 50 to 95 with probability .5, since the paper's
"15 % and 50 % magnitude" may be either; nothing of one split is paired with an image of the other.
Not covered: GPT-4o's reasons, which people reviewed (a row takes the reason that the data has); the cut to a square.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import Field, field_validator

from editloupe.build.dice.coherence import Coherence
from editloupe.build.dice.inpainted import Inpainted
from editloupe.build.dice.pairs import Pairs
from editloupe.build.dice.rows import SplitSet
from editloupe.build.direct import DirectRecipe
from editloupe.config import Number, Whole
from editloupe.errors import ConfigError
from editloupe.measures.base import Models
from editloupe.protocols.base import Options

_STAGES: Final[Mapping[int, type[SplitSet]]] = {1: Pairs, 2: Inpainted, 3: Coherence}


class DifferenceSetOptions(Options):
    """What `editloupe build differences` offers."""

    stage: Whole | None = Field(default=None, ge=1, le=3)
    """1: pairs of similar photographs. 2: inpainted photographs. 3: differences that people annotated."""
    seed: Whole = Field(default=0, ge=0)
    """Seed of all that is drawn."""
    test_share: Number = Field(default=0.16, ge=0, lt=1)
    """Share of source images whose rows are for testing."""
    images: Path | None = None
    """Stages 1 and 2: folder of the annotated images. Default: that of the annotations."""
    least_area: Number = Field(default=0.03, gt=0, le=1)
    """Stage 2: least share of the image that an object's mask covers."""
    unchanged: Number = Field(default=0.2, ge=0, le=1)
    """Stage 2: share of images that stay as they are."""
    inpainter: str = "opencv"
    """Stage 2: what removes an object: opencv or diffusers:MODEL, which puts in another one, too."""
    jpeg: Number = Field(default=0.5, ge=0, le=1)
    """Stage 2: probability that an image is compressed, with a quality from 50 to 95."""

    @field_validator("images")
    @classmethod
    def _resolved(cls, path: Path | None) -> Path | None:
        return None if path is None else path.resolve()


class DifferenceSet(DirectRecipe):
    """Pairs with their differences, or judged differences."""

    summary = (
        "Make training data for DICE: pairs of images with their differences (--set stage=1 from similar photographs, "
        "--set stage=2 by inpainting), or judged differences for the coherence estimator (--set stage=3)."
    )
    reads = (
        "Stages 1 and 2: annotations of objects as COCO or LVIS have them (JSON). Stage 3: a folder of edits, or a run, "
        "with the column differences."
    )
    weights = ("device", "detector", "dino")
    Options = DifferenceSetOptions

    @classmethod
    def opened(cls, path: Path, options: Any, *, models: Models, folder: Path) -> DirectRecipe:
        """Return the stage that is named."""
        if options.stage is None:
            raise ConfigError("name the stage: --set stage=1 (similar photographs), 2 (inpainted ones) or 3 (coherence)")
        return _STAGES[options.stage](path, options, models=models, folder=folder)
