"""A recipe becomes a set: its rows in the benchmark's layout and as an ImageFolder, the funnel, and what was left out."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from editloupe import files
from editloupe.build.base import Answered, Built, Reviewed, SetTold, counted, need
from editloupe.build.engine import REVIEWED, SetRecipe, SetRow
from editloupe.build.people import REVIEW, SEEN, TO_REVIEW, with_reviews
from editloupe.build.places import ImagePlace
from editloupe.data.images import ImageStore
from editloupe.data.rows import Loaded
from editloupe.data.write import METADATA
from editloupe.measures.base import Models
from editloupe.values import Json, json_line

IMAGEFOLDER: Final = "imagefolder"
LEFT_OUT: Final = "left_out.jsonl"


class SetBuilder:
    """The builder of a recipe. `review` is there where people look through its sets."""

    def __init__(self, recipe: type[SetRecipe]) -> None:
        self._recipe = recipe
        self.summary, self.protocol = recipe.summary, recipe.name
        self.Options, self.weights = recipe.Options, recipe.weights
        if recipe.review is not None:
            self.review = recipe.review.name

    def check(self, options: Any, models: Models) -> None:
        """Raise ConfigError for options that cannot be met, and where a model is needed and there is none."""
        for kind, advice in self._recipe(options).needed().items():
            need(models, kind, advice)

    def load(self, path: Path, options: Any, *, store: ImageStore, folder: Path) -> Loaded:
        """Return a sample for each image, or for each row of the metadata. Raises DataError where there is no image."""
        return self._recipe(options).loaded(path, store)

    def reviewed(self, loaded: Loaded, reviews: Sequence[Reviewed]) -> Loaded:
        """Return the images with the verdicts on their rows, as far as they are of this set."""
        assert self._recipe.review is not None
        return with_reviews(loaded, reviews, self._recipe.review())

    def write(self, run: Answered, options: Any, *, folder: Path) -> Built:
        """Write the rows in the order of the images, and what was left out with its reason."""
        made = _Made(run, self._recipe(options))
        with files.writing(folder):
            _write_benchmark(made, ImagePlace(folder=folder, images=run.images))
            folders = {IMAGEFOLDER: made.kept, **({TO_REVIEW: made.waiting} if made.recipe.review else {})}
            for name, rows in folders.items():
                _write_imagefolder(made.recipe, rows, ImagePlace(folder=folder / name, images=run.images), run.identity)
            files.write_whole(folder / LEFT_OUT, b"".join(map(json_line, _left_out(made))), below=folder)
        return _built(made)


class _Made:
    """All that came of a run's images."""

    def __init__(self, run: Answered, recipe: SetRecipe) -> None:
        self.run, self.recipe = run, recipe
        self.images = [recipe.drafted(sample, known) for sample, known in run.known()]
        self.rows = [row for one in self.images for row in one.rows]
        """What may become rows, in the order of the images."""
        self.looked = any(REVIEW in one.sample.extra for one in self.images)
        """Whether people were asked about it."""
        whole = [row for row in self.rows if row.lost is None]
        self.kept = [row for row in whole if row.passed or not self.looked]
        self.waiting = [row for row in whole if not row.passed] if recipe.review else []
        """Whole rows that people have not passed."""


def _write_benchmark(made: _Made, place: ImagePlace) -> None:
    """Write the benchmark's file with its images."""
    recipe = made.recipe
    lines = [line for number, row in enumerate(made.kept) for line in recipe.lines(row, place, number)]
    if recipe.file.endswith(".csv"):
        told = io.StringIO()
        table = csv.DictWriter(told, recipe.header, lineterminator="\n")
        table.writeheader()
        table.writerows(lines)
        data = told.getvalue().encode("utf-8", "replace")
    elif recipe.file.endswith(".jsonl"):
        data = b"".join(map(json_line, lines))
    else:
        text = ",\n".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines)
        data = f"[\n{text}\n]\n".encode()
    files.write_whole(place.folder / recipe.file, data, below=place.folder)
    place.clean(recipe.folders)


def _write_imagefolder(recipe: SetRecipe, rows: Sequence[SetRow[Any]], place: ImagePlace, run: str) -> None:
    """Write a row each, with the findings that it rests on, and its images."""
    lines = []
    for number, row in enumerate(rows):
        source = row.sample.source
        columns: dict[str, Json] = {
            "id": row.id,
            "source_file_name": place.image(source),
            "image": source.path.name if source.path else None,
            **recipe.columns(row, place, number),
            "lineage": {"run": run, "sample": row.sample.id, "task_ids": list(row.rests_on())},
        }
        lines.append(json_line(columns | ({SEEN: recipe.seen(row)} if recipe.review else {})))
    files.write_whole(place.folder / METADATA, b"".join(lines), below=place.folder.parent)
    place.clean()


def _left_out(made: _Made) -> Iterator[dict[str, Json]]:
    """Yield each image without a row, and each row that is not kept, with the reason."""
    recipe = made.recipe
    for image in made.run.rejected:
        yield {"image": image.id, "stage": "read", "why": image.kind, "detail": image.message}
    for drafted in made.images:
        if drafted.lost is not None:
            yield {"image": drafted.sample.id, **drafted.lost.to_json()}
        for other in drafted.others:
            yield {"image": drafted.sample.id, **other}
        for row in drafted.rows:
            if row.lost is not None:
                yield {"image": row.sample.id, "id": row.id, **recipe.about(row), **row.lost.to_json()}
    for row in made.waiting if made.looked else ():
        where: dict[str, Json] = {"image": row.sample.id, "id": row.id, **recipe.about(row)}
        verdict = row.verdict(recipe.seen(row))
        detail = verdict.detail if verdict else "no person has answered all questions about it"
        yield {**where, "stage": REVIEWED, "why": row.waits, "detail": detail}


def _built(made: _Made) -> Built:
    """Return the funnel of the rows, and what else is said of the set."""
    recipe, run = made.recipe, made.run
    passes = {step.name: step.passes for step in recipe.steps()}
    lost = Counter((row.lost.at, row.lost.why) for row in made.rows if row.lost is not None)
    others = Counter((str(o["stage"]), str(o["why"])) for one in made.images for o in one.others if o["stage"] in passes)
    lost.update(others)
    refused = Counter[str](row.kind for row in run.rejected)
    refused.update(image.lost.why for image in made.images if image.lost is not None)
    read = len(run.rejected) + len(made.images)
    told = recipe.told(made.rows, made.kept)
    left = ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in sorted(refused.items()))
    told.notes.insert(0, f"Images: {read:,}" + (f"; left out: {left}" if left else ""))
    told.counts |= {"images": {"read": read, "left_out": counted(refused)}}
    if recipe.review is not None:
        if made.looked:
            passes[REVIEWED] = "people passed it"
            lost.update((REVIEWED, row.waits) for row in made.waiting)
        _tell_waiting(told, made, recipe.review.name)
    return Built(
        read=len(made.rows) + others.total(),
        written=len(made.kept),
        noun=recipe.noun,
        unit=recipe.unit,
        passes=passes,
        lost=lost,
        **vars(told),
    )


def _tell_waiting(told: SetTold, made: _Made, protocol: str) -> None:
    """Add what to do about rows that nobody has passed."""
    waiting = made.waiting
    told.counts |= {"reviewed": made.looked, "to_review": len(waiting)}
    if waiting:
        split = sum(row.waits == "people_disagree" for row in waiting)
        told.notes.append(
            f"Rows that wait for people: {len(waiting):,}, on {split:,} of which they disagree ({TO_REVIEW}). Let people "
            f"answer {protocol} with `editloupe annotate`, and give their run by --review."
        )
