"""`editloupe build differences`: what DICE's detector and its coherence estimator are trained on, in the paper's stages.

Reproduced: stage 1, pairs of similar photographs (3.3, supplement); stage 2, inpainted photographs (3.3, supplement);
examples of coherence (3.4).
Differs: OpenCV removes where the paper takes LaMa; what replaces an object is drawn from the annotations' categories,
where the paper asks GPT-4o; the prompts are ours; JPEG has a quality of 50 to 95 with probability .5, since the paper's
"15 % and 50 % magnitude" may be either; nothing of one split is paired with an image of the other.
Not covered: GPT-4o's reasons, which people reviewed; a row takes the reason that the data has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from editloupe.build.base import Built
from editloupe.build.dice.coherence import Coherence
from editloupe.build.dice.inpainted import Inpainted
from editloupe.build.dice.options import DifferenceSetOptions
from editloupe.build.dice.pairs import Pairs
from editloupe.build.dice.rows import SplitFolder
from editloupe.build.direct import DoneJournal, work
from editloupe.data.images import ImageStore
from editloupe.measures.base import Models

STAGES: Final[Mapping[int, Any]] = {1: Pairs, 2: Inpainted, 3: Coherence}


class DifferenceSet:
    """The builder."""

    summary: ClassVar[str] = (
        "Make training data for DICE: pairs of images with their differences (--stage 1 from similar photographs, "
        "--stage 2 by inpainting), or judged differences for the coherence estimator (--stage 3)."
    )
    protocol: ClassVar[None] = None
    reads: ClassVar[str] = (
        "Stages 1 and 2: annotations of objects as COCO or LVIS have them (JSON). Stage 3: a folder of edits, or a run, "
        "with the column differences."
    )
    weights: ClassVar[Sequence[str]] = ("device", "detector", "dino")
    Options: ClassVar[type[DifferenceSetOptions]] = DifferenceSetOptions

    def build(
        self,
        path: Path,
        options: DifferenceSetOptions,
        *,
        models: Models,
        folder: Path,
        stopped: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> Built | None:
        """Build a stage. Raises as `DirectBuilder.build`."""
        assert options.stage is not None
        out = SplitFolder(folder, ImageStore())
        making = STAGES[options.stage](path, options, out, models)
        items = making.items(stopped, tell)
        worked = None if items is None else work(items, DoneJournal(folder), unit=making.unit, stopped=stopped, tell=tell)
        if items is None or worked is None:
            return None
        out.write(worked.written, [*making.left_out, *worked.left_out])
        told = making.told(worked)
        told.counts |= {"stage": options.stage, "seed": options.seed}
        return worked.built(len(items), making.stages, told, noun=making.noun, unit=making.unit)
