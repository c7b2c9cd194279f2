"""A recipe becomes a set: its rows in the benchmark's layout and as an ImageFolder, the funnel, and what was left out."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from editloupe import files, plugins
from editloupe.build.base import LEFT_OUT, Built, counted
from editloupe.build.direct import DirectRecipe
from editloupe.build.engine import REVIEWED, SetRecipe, SetRow
from editloupe.build.people import REVIEW, SEEN, TO_REVIEW
from editloupe.build.places import ImagePlace
from editloupe.data.images import ImageStore
from editloupe.data.write import METADATA
from editloupe.errors import ConfigError
from editloupe.findings import Finding
from editloupe.protocols.base import known_of
from editloupe.runs.outcome import Outcome
from editloupe.values import Json, json_line

IMAGEFOLDER: Final = "imagefolder"


def open_builder(name: str) -> type[SetRecipe] | type[DirectRecipe]:
    """Return a recipe. Raises UnknownPlugin, and ConfigError for an object that is none."""
    found: Any = plugins.load("builders", name)
    if isinstance(found, type) and issubclass(found, SetRecipe | DirectRecipe):
        return found
    described = plugins.described("builders", name)
    raise ConfigError(f"{described} is no recipe: expected a SetRecipe or a DirectRecipe; see docs/protocols.md")


def write_set(outcome: Outcome, folder: Path) -> Built:
    """Write what a recipe's run gives: the rows in the order of the images, and what was left out with its reason.

    Each file is written whole. The same findings give the same files. Raises StorageError.
    """
    made = _Made(outcome)
    with files.writing(folder):
        _write_benchmark(made, ImagePlace(folder=folder, images=made.store))
        folders = {IMAGEFOLDER: made.kept, **({TO_REVIEW: made.waiting} if made.recipe.review else {})}
        for name, rows in folders.items():
            _write_imagefolder(made, rows, ImagePlace(folder=folder / name, images=made.store))
        files.write_whole(folder / LEFT_OUT, b"".join(map(json_line, _left_out(made))), below=folder)
    return _built(made)


class _Made:
    """All that came of a run's images."""

    def __init__(self, outcome: Outcome) -> None:
        recipe = outcome.setup.protocol
        assert isinstance(recipe, SetRecipe)
        self.recipe, self.identity, self.rejected = recipe, outcome.store.identity, outcome.loaded.rejected
        self.store = ImageStore(outcome.store.blobs, writes=False)
        findings: dict[str, list[Finding]] = {}
        for finding in outcome.findings:
            findings.setdefault(finding.sample_key, []).append(finding)
        samples = outcome.loaded.samples
        self.images = [recipe.drafted(sample, known_of(findings.get(sample.key, ()))) for sample in samples]
        self.rows = [row for one in self.images for row in one.rows]
        """What may become rows, in the order of the images."""
        self.looked = any(REVIEW in sample.extra for sample in samples)
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


def _write_imagefolder(made: _Made, rows: Sequence[SetRow[Any]], place: ImagePlace) -> None:
    """Write a row each, with the findings that it rests on, and its images."""
    recipe, lines = made.recipe, []
    for number, row in enumerate(rows):
        source = row.sample.source
        columns: dict[str, Json] = {
            "id": row.id,
            "source_file_name": place.image(source),
            "image": source.path.name if source.path else None,
            **recipe.columns(row, place, number),
            "lineage": {"run": made.identity, "sample": row.sample.id, "task_ids": list(row.rests_on())},
        }
        lines.append(json_line(columns | ({SEEN: recipe.seen(row)} if recipe.review else {})))
    files.write_whole(place.folder / METADATA, b"".join(lines), below=place.folder.parent)
    place.clean()


def _left_out(made: _Made) -> Iterator[dict[str, Json]]:
    """Yield each image without a row, and each row that is not kept, with the reason."""
    recipe = made.recipe
    for image in made.rejected:
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
    """Return the funnel of the rows, and what else is counted."""
    recipe, waiting, notes = made.recipe, len(made.waiting), []
    passes = {step.name: step.passes for step in recipe.steps()}
    lost = Counter((row.lost.at, row.lost.why) for row in made.rows if row.lost is not None)
    others = Counter((str(o["stage"]), str(o["why"])) for one in made.images for o in one.others if o["stage"] in passes)
    lost.update(others)
    refused = Counter[str](row.kind for row in made.rejected)
    refused.update(image.lost.why for image in made.images if image.lost is not None)
    images: Json = {"read": len(made.rejected) + len(made.images), "left_out": counted(refused)}
    counts = {**recipe.counts(made.rows, made.kept), "images": images}
    if recipe.review is not None:
        counts |= {"reviewed": made.looked, "to_review": waiting}
        if made.looked:
            passes[REVIEWED] = "people passed it"
            lost.update((REVIEWED, row.waits) for row in made.waiting)
        if waiting:
            split = sum(row.waits == "people_disagree" for row in made.waiting)
            notes.append(
                f"Rows that wait for people: {waiting:,}, on {split:,} of which they disagree ({TO_REVIEW}). Let people "
                f"answer {recipe.review.name} with `editloupe annotate`, and give their run by --review."
            )
    return Built(
        read=len(made.rows) + others.total(),
        written=len(made.kept),
        noun=recipe.noun,
        unit=recipe.unit,
        passes=passes,
        lost=lost,
        counts=counts,
        notes=notes,
    )
