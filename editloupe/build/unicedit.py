"""`editloupe build unicedit`: a training set from a verified run, each edit with the instruction that says what was done.

The filter of UnicEdit-10M: what failed is dropped, what is left is restated, what occurs twice is written once. The
triplets go into Parquet files with UnicEdit-10M's columns and into an ImageFolder. Every row names the finding that it
rests on, and every edit that is not written is listed with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from pydantic import Field

from editloupe import files
from editloupe.answers import Record
from editloupe.build.base import LeftOut, counted, leaving_out, need
from editloupe.build.direct import DirectRecipe, Worked, WorkItem
from editloupe.build.places import ImagePlace
from editloupe.config import Number, Whole
from editloupe.data.images import RGB, ImageStore
from editloupe.data.write import METADATA
from editloupe.errors import ConfigError, ImageError, MeasureError, StorageError
from editloupe.figures.judged import protocol_of
from editloupe.findings import Finding
from editloupe.measures.base import Models, measured
from editloupe.protocols.base import Options, scored
from editloupe.protocols.repeats import Repeats
from editloupe.runs.store import RunStore
from editloupe.scores import NOT_JUDGED, Score
from editloupe.values import ImageRef, Json, Sample, json_line, sample_key

PROTOCOL: Final = "unicverify"
VERIFICATION: Final = "verification"
"""The question whose answer is {"is_changed": bool, "instruction": str}."""
CHANGED: Final = "is_changed"
"""The metric that says whether an edit changed anything: 1 or 0."""
ROWS: Final = 200
"""Rows of a Parquet file: their images are held in memory together."""
Filter: TypeAlias = Callable[[RGB], None]
"""Raises LeftOut for an image that does not pass; `failed` where a measure has no value."""
_CHINESE: Final = ("cn", "zh")
_CARD: Final = Path(__file__).with_name("unicedit_card.md")
"""README.md beside the Parquet files: it tells `datasets` which columns are images."""


class TripletSetOptions(Options):
    """What `editloupe build unicedit` offers: bounds of a quality filter."""

    least_aesthetic: Number | None = Field(default=None, ge=0)
    """Least score of the measure aesthetic that an edited image has."""
    most_persons: Whole | None = Field(default=None, ge=0)
    """Most persons that the detector sees in an edited image."""


_STAGES: Final = {
    "judged": "the verifier gave an answer",
    "changed": "the edit changed something",
    "restated": "the verifier said what was done",
    "kept": "the run holds both images",
    "quality": "the edited image is as the quality filter wants it, where one was asked for",
    "distinct": "source, instruction and edit occur for the first time",
}


class TripletSet(DirectRecipe):
    """Triplets of a verified run."""

    summary = (
        "Drop the edits of a verified run that failed, restate the instructions of the others, and write triplets for "
        "training: Parquet files as UnicEdit-10M has them, and an ImageFolder."
    )
    reads = "A run of the protocol unicverify, whose findings are taken as they are."
    weights = ("device", "detector", "aesthetic", "clip")
    Options = TripletSetOptions
    noun, unit = "triplet", "edit"
    passes = _STAGES

    def open(self) -> None:
        """Read what the path holds."""
        self._filter = _quality(self.options, self.models)
        with closing(RunStore.read(self.path)) as self._run:
            if self._run.protocol != PROTOCOL:
                raise ConfigError(
                    f"{self.path} is a run of the protocol {self._run.protocol!r}; expected one of {PROTOCOL!r}"
                )
        self._images = ImageStore(self._run.blobs, writes=False)

    def items(self, stopped: Callable[[], bool], tell: Callable[[str], None]) -> list[WorkItem]:
        """Return the edits of the run, each of which may become a triplet."""
        store = self._run
        findings = store.current()
        samples = [sample for key, sample in store.samples.items() if key not in store.rejected]
        repeats = Repeats.of_run(store.info, findings)
        scores = scored(protocol_of(store), samples, findings, repeats)
        changed = {score.key: score for score in scores if score.metric == CHANGED}
        answers = {finding.about.key: finding for finding in findings if finding.metric == VERIFICATION}
        first, items = dict[tuple[str, ...], str](), []
        for row in store.rejected.values():
            about = self._about(None, str(row["id"]), str(row["editor"]))
            message = " ".join(str(row.get("message") or "").split())
            items.append(WorkItem.refused(about, "input_error", message, at="judged"))
        for sample in samples:
            score, finding = changed.get(sample.key), answers.get(sample.key)
            about = self._about(finding, sample.id, sample.editor)
            items.append(WorkItem(about=about, make=partial(self._triplet, sample, score, finding, about, first)))
        return items

    def _about(self, finding: Finding | None, id_: str, editor: str) -> dict[str, Json]:
        """Return what an edit is called, and where what is known of it comes from."""
        said = {name: getattr(finding, name, None) for name in ("task_id", "judge_id", "repeat")}
        lineage: Json = {"run": self._run.identity, **said, "sample": _text(id_), "editor": _text(editor)}
        return {"key": _text(sample_key(editor, id_)), "lineage": lineage}

    def _triplet(
        self, sample: Sample, score: Score | None, finding: Finding | None, about: Mapping[str, Json],
        first: dict[tuple[str, ...], str],
    ) -> Mapping[str, Any]:  # fmt: skip
        """Return a row of the Parquet files, its images by reference.   first: those before.   Raises LeftOut."""
        restated, edited, key = _restated(score, finding), self._edited(sample), str(about["key"])
        same = sample.source.sha256, edited.sha256, " ".join(restated.casefold().split())
        if (earlier := first.setdefault(same, key)) != key:
            raise LeftOut("duplicate", f"the same as {earlier!r}", at="distinct")
        return {**about, "src_image": sample.source, "edit_image": edited, **_columns(sample, restated)}

    def _edited(self, sample: Sample) -> ImageRef:
        """Return the edited image, which passes the filter. Raises LeftOut."""
        images = self._images
        if sample.edited is None or not images.path(sample.edited) or not images.path(sample.source):
            raise LeftOut("no_image", "the run does not hold both images", at="kept")
        if self._filter is not None:
            with leaving_out("input_error", ImageError, at="judged"):
                self._filter(images.array(sample.edited))
        return sample.edited

    def write(self, worked: Worked) -> dict[str, Json]:
        """Write the triplets. Raises OSError and, for an image that is no longer what was judged, ImageError."""
        parquet, triplets = self.folder / "parquet", worked.written
        place = ImagePlace(folder=self.folder / "imagefolder", images=self._images)
        for path in parquet.glob("*"):
            path.unlink()
        for number, start in enumerate(range(0, len(triplets), ROWS)):
            _write_shard(triplets[start : start + ROWS], parquet / f"train-{number:05}.parquet", self._images)
        files.write_whole(parquet / "README.md", _CARD.read_bytes())
        rows = b"".join(json_line(_folder_row(one, place)) for one in triplets)
        files.write_whole(place.folder / METADATA, rows)
        place.clean()
        not_judged = sum(count for (stage, _), count in worked.lost.items() if stage == "judged")
        types = Counter(str(one["edit_subtask"]) for one in triplets)
        dropped = len(worked.left_out) - not_judged
        return {"dropped": dropped, "not_judged": not_judged, "subtasks": counted(types)}


def _quality(options: TripletSetOptions, models: Models) -> Filter | None:
    """Return a filter; None where none is asked for. Raises ConfigError where a model is needed and there is none."""
    least, most = options.least_aesthetic, options.most_persons
    if least is None and most is None:
        return None
    for kind in ("aesthetic", "clip") if least is not None else ():
        need(models, kind, "--set least_aesthetic=… needs the measure aesthetic: {reason}")
    if most is not None:
        need(models, "detect", "--set most_persons=… needs a detector: {reason}. Name one with --detector")

    def answer(measure: str, rgb: RGB, **args: Json) -> Any:
        try:
            return measured(measure, args, {"image": rgb}, models).answer
        except MeasureError as error:
            # What could not be measured is not judged.
            raise LeftOut(error.status, str(error), failed=error.status, at="judged") from error

    def passes(rgb: RGB) -> None:
        if least is not None and (score := answer("aesthetic", rgb).value) < least:
            raise LeftOut("low_aesthetic", f"{score:.3g}; expected {least:g} at least", at="quality")
        if most is not None:
            seen = answer("detections", rgb, phrase="person", box_threshold=0.35, text_threshold=0.25)
            if (persons := len(seen.data["detections"])) > most:
                raise LeftOut("too_many_persons", f"{persons}; expected {most} at most", at="quality")

    return passes


def _restated(score: Score | None, finding: Finding | None) -> str:
    """Return what was really done, in the verifier's words. Raises LeftOut."""
    if score is None or score.value is None:
        why = NOT_JUDGED if score is None or score.missing is None else score.missing
        raise LeftOut(why, "" if score is None else " ".join(score.reason.split()), at="judged")
    if not score.value:
        raise LeftOut("no_edit", at="changed")
    data: Any = finding.answer.data if finding is not None and isinstance(finding.answer, Record) else {}
    if restated := str(data.get("instruction") or "").strip():
        return restated
    raise LeftOut("no_instruction", at="restated")


def _columns(sample: Sample, restated: str) -> dict[str, Json]:
    """Return the columns of a row but for its key and images, as text that every program reads."""

    def said(*names: str) -> str | None:
        found = next((text for name in names if isinstance(text := sample.extra.get(name), str)), None)
        return None if found is None else _text(found)

    chinese = (said("language", "lang") or "").casefold().startswith(_CHINESE)
    return {
        "edit_task": said("edit_task", "task"),
        "edit_subtask": said("edit_subtask", "subtask") or (sample.edit_type and _text(sample.edit_type)),
        "prompt_en": None if chinese else _text(restated),
        "prompt_cn": _text(restated) if chinese else None,
        "original_instruction": _text(sample.instruction),
        "editor": _text(sample.editor),
    }


def _text(text: str) -> str:
    # Half a surrogate pair is no UTF-8.
    return text.encode("utf-8", "replace").decode()


def _write_shard(part: Sequence[Mapping[str, Any]], path: Path, images: ImageStore) -> None:
    import polars

    image = polars.Struct({"bytes": polars.Binary, "path": polars.String})
    source = polars.Struct(
        dict.fromkeys(("run", "task_id", "judge_id"), polars.String)
        | {"repeat": polars.Int64, "sample": polars.String, "editor": polars.String}
    )
    before = dict.fromkeys(("key", "edit_task", "edit_subtask"), polars.String)
    after = dict.fromkeys(("prompt_en", "prompt_cn", "original_instruction", "editor"), polars.String)
    schema: dict[str, Any] = {**before, "src_image": image, "edit_image": image, **after, "lineage": source}

    def cell(value: Any) -> Any:
        if not isinstance(value, ImageRef):
            return value
        ending = images.path(value)
        return {"bytes": images.data(value), "path": f"{value.sha256[:24]}{ending.suffix if ending else ''}"}

    frame = polars.DataFrame([{name: cell(row[name]) for name in schema} for row in part], schema=schema)
    try:
        with files.whole(path) as file:
            frame.write_parquet(file, compression="snappy", row_group_size=100)
    except polars.exceptions.PolarsError as error:  # a full disk among others
        raise StorageError(f"{path} cannot be written: {error}") from error


def _folder_row(one: Mapping[str, Any], place: ImagePlace) -> dict[str, Json]:
    """Return a row of the ImageFolder, its images placed. Raises OSError and ImageError."""
    return {
        "id": one["key"],
        "source_file_name": place.image(one["src_image"]),
        "edited_file_name": place.image(one["edit_image"]),
        "instruction": one["prompt_en"] or one["prompt_cn"],
        "language": "cn" if one["prompt_cn"] else "en",
        "edit_type": one["edit_subtask"],
        **{name: one[name] for name in ("original_instruction", "edit_task", "editor", "lineage")},
    }
