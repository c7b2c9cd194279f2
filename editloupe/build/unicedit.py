"""A training set from a verified run: edits that changed something, each with the instruction that says what was done.

The filter of UnicEdit-10M: what failed is dropped, what is left is restated, what occurs twice is written once. `curate`
decides, from the run alone; `write` puts the triplets into Parquet files with UnicEdit-10M's columns and into an
ImageFolder. Every row names the finding that it rests on, and every edit that is not written is listed with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from editloupe import files
from editloupe.answers import Record
from editloupe.build.base import Built, LeftOut, counted, json_text
from editloupe.build.places import ImagePlace
from editloupe.build.quality import QualityFilter
from editloupe.data.images import ImageStore
from editloupe.data.write import METADATA
from editloupe.errors import ConfigError, ImageError, StorageError
from editloupe.findings import Finding
from editloupe.protocols.base import make_protocol, scored
from editloupe.protocols.repeats import Repeats
from editloupe.runs.store import RunStore
from editloupe.scores import NOT_JUDGED, Score
from editloupe.values import ImageRef, Json, Sample, json_line, sample_key

PROTOCOL: Final = "unicverify"
VERIFICATION: Final = "verification"
"""The question whose answer is {"is_changed": bool, "instruction": str}."""
CHANGED: Final = "is_changed"
"""The metric that says whether an edit changed anything: 1 or 0."""
VERIFIER_ONLY: Final[Mapping[str, Json]] = {"matching": "none", "no_edit": "lmm"}
"""Options by which the protocol asks for no more than a set needs: no comparison of instructions, no measures."""

FUNNEL: Final = "funnel.json"
LEFT_OUT: Final = "left_out.jsonl"
RUN: Final = "run"
"""Folder of the verifier's run, where this command made it."""
ROWS: Final = 200
"""Rows of a Parquet file: their images are held in memory together."""
_CHINESE: Final = ("cn", "zh")
_CARD: Final = Path(__file__).with_name("unicedit_card.md")
"""README.md beside the Parquet files: it tells `datasets` which columns are images."""
STAGES: Final[Mapping[str, str]] = {
    "judged": "the verifier gave an answer",
    "changed": "the edit changed something",
    "restated": "the verifier said what was done",
    "kept": "the run holds both images",
    "quality": "the edited image is as the quality filter wants it, where one was asked for",
    "distinct": "source, instruction and edit occur for the first time",
}
"""What an edit must pass, in this order."""


@dataclass(frozen=True, kw_only=True)
class Triplet:
    """One row of the training set."""

    sample: Sample
    edited: ImageRef
    columns: Mapping[str, Json]
    """Of the Parquet files, without the images."""


@dataclass(frozen=True, kw_only=True)
class Curated:
    """A run, divided. Each of its edits is in one of the two."""

    folder: Path
    """The run."""
    triplets: tuple[Triplet, ...]
    left_out: tuple[Mapping[str, Json], ...]
    """The edits that are not written, as left_out.jsonl has them: key, stage, why, detail and lineage."""

    def built(self) -> Built:
        """Return the funnel. `read` is `written` + `dropped` + `not_judged`."""
        lost = Counter((str(one["stage"]), str(one["why"])) for one in self.left_out)
        not_judged = sum(count for (stage, _), count in lost.items() if stage == "judged")
        types = Counter(str(one.columns["edit_subtask"]) for one in self.triplets)
        return Built(
            read=len(self.triplets) + len(self.left_out),
            written=len(self.triplets),
            noun="triplet",
            unit="edit",
            passes=STAGES,
            lost=lost,
            counts={"dropped": len(self.left_out) - not_judged, "not_judged": not_judged, "subtasks": counted(types)},
        )


def curate(store: RunStore, quality: QualityFilter | None = None) -> Curated:
    """Divide the edits of a run of the protocol unicverify. Raises ConfigError for a run of another protocol.

    quality: what an edited image must be like; None takes all.
    """
    if store.protocol != PROTOCOL:
        raise ConfigError(f"{store.folder} is a run of the protocol {store.protocol!r}; expected one of {PROTOCOL!r}")
    findings = store.current()
    samples = [sample for key, sample in store.samples.items() if key not in store.rejected]
    scores = scored(make_protocol(store.protocol, store.options()), samples, findings, Repeats.of_run(store.info, findings))
    changed = {score.key: score for score in scores if score.metric == CHANGED}
    answers = {finding.about.key: finding for finding in findings if finding.metric == VERIFICATION}
    by_task = {finding.task_id: finding for finding in findings}
    images, triplets, left_out = ImageStore(store.blobs, writes=False), list[Triplet](), list[Mapping[str, Json]]()
    for row in store.rejected.values():
        key = sample_key(str(row["editor"]), str(row["id"]))
        lost = LeftOut("input_error", str(row.get("message") or ""), at="judged")
        left_out.append(
            {"key": key, **lost.to_json(), "lineage": _lineage(None, store, str(row["id"]), str(row["editor"]))}
        )
    first: dict[tuple[str, str, str], str] = {}
    taken: set[str] = set()
    for sample in samples:
        key = _key(sample, taken)
        score, finding = changed.get(sample.key), answers.get(sample.key)
        if finding is None and score is not None:
            # A rule on pixels may have settled it.
            finding = next((by_task[id_] for id_ in score.findings if id_ in by_task), None)
        lineage = _lineage(finding, store, sample.id, sample.editor)
        try:
            restated, edited = _restated(score, finding), _edited(sample, images, quality)
            same = sample.source.sha256, edited.sha256, " ".join(restated.casefold().split())
            if (earlier := first.setdefault(same, key)) != key:
                raise LeftOut("duplicate", f"the same as {earlier!r}", at="distinct")
            columns = {"key": key, **_columns(sample, restated), "lineage": lineage}
            triplets.append(Triplet(sample=sample, edited=edited, columns=columns))
        except LeftOut as error:
            told = {**error.to_json(), "detail": " ".join(str(error).split())}
            left_out.append({"key": key, **told, "lineage": lineage})
    return Curated(folder=store.folder, triplets=tuple(triplets), left_out=tuple(left_out))


def _restated(score: Score | None, finding: Finding | None) -> str:
    """Return what was really done, in the verifier's words. Raises LeftOut."""
    if score is None or score.value is None:
        why = NOT_JUDGED if score is None or score.missing is None else score.missing
        raise LeftOut(why, "" if score is None else score.reason, at="judged")
    if not score.value:
        raise LeftOut("no_edit", at="changed")
    data: Any = finding.answer.data if finding is not None and isinstance(finding.answer, Record) else {}
    if restated := str(data.get("instruction") or "").strip():
        return restated
    raise LeftOut("no_instruction", at="restated")


def _edited(sample: Sample, images: ImageStore, quality: QualityFilter | None) -> ImageRef:
    """Return the edited image, which passes the filter. Raises LeftOut."""
    if sample.edited is None or not images.path(sample.edited) or not images.path(sample.source):
        raise LeftOut("no_image", "the run does not hold both images", at="kept")
    try:
        if quality is not None:
            quality.passed(images.array(sample.edited))
    except LeftOut as error:
        # What could not be measured is not judged.
        raise error.kept("judged" if error.failed else "quality") from None
    except ImageError as error:
        raise LeftOut("input_error", str(error), at="judged") from error
    return sample.edited


def _key(sample: Sample, taken: set[str]) -> str:
    """Return what the data calls the edit (its column `key`, else the sample's own key), with a number if it is taken."""
    found = sample.extra.get("key")
    own = name = _text(found if isinstance(found, str) and found else sample.key)
    number = 1
    while name in taken:
        number += 1
        name = f"{own}-{number}"
    taken.add(name)
    return name


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


def _lineage(finding: Finding | None, store: RunStore, sample_id: str, editor: str) -> dict[str, Json]:
    """Return where a row comes from: the run's identity, and of its findings which one."""
    said = {name: getattr(finding, name, None) for name in ("task_id", "judge_id", "repeat")}
    return {"run": store.identity, **said, "sample": _text(sample_id), "editor": _text(editor)}


def _text(text: str) -> str:
    # Half a surrogate pair is no UTF-8.
    return text.encode("utf-8", "replace").decode()


def write(
    curated: Curated,
    out: Path,
    *,
    run: str,
    stopped: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Json] | None:
    """Write the set and return its funnel; None if it was stopped. The same call again continues.

    Every file is written whole or not at all, `funnel.json` last.
    run: what the funnel calls the run.
    Raises StorageError and, for an image that is no longer what was judged, ImageError.
    """
    images = ImageStore(curated.folder / "blobs", writes=False)
    funnel: dict[str, Json] = {"run": run, **curated.built().funnel()}
    parquet, place = out / "parquet", ImagePlace(folder=out / "imagefolder", images=images)
    lines, triplets = list[bytes](), curated.triplets
    with files.writing(out):
        (out / FUNNEL).unlink(missing_ok=True)
        for path in parquet.glob("*"):
            path.unlink()
        for number, start in enumerate(range(0, len(triplets), ROWS)):
            if stopped():
                return None
            part = triplets[start : start + ROWS]
            _write_shard(part, parquet / f"train-{number:05}.parquet", images)
            lines += [json_line(_folder_row(one, place)) for one in part]
            tell(f"{len(lines):,} of {len(triplets):,} rows")
        files.write_whole(parquet / "README.md", _CARD.read_bytes())
        files.write_whole(place.folder / METADATA, b"".join(lines))
        place.clean()
        files.write_whole(out / LEFT_OUT, b"".join(map(json_line, curated.left_out)))
        files.write_whole(out / FUNNEL, json_text(funnel))
    return funnel


def _write_shard(part: Sequence[Triplet], path: Path, images: ImageStore) -> None:
    import polars

    image = polars.Struct({"bytes": polars.Binary, "path": polars.String})
    source = polars.Struct(
        dict.fromkeys(("run", "task_id", "judge_id"), polars.String)
        | {"repeat": polars.Int64, "sample": polars.String, "editor": polars.String}
    )
    before = dict.fromkeys(("key", "edit_task", "edit_subtask"), polars.String)
    after = dict.fromkeys(("prompt_en", "prompt_cn", "original_instruction", "editor"), polars.String)
    schema: dict[str, Any] = {**before, "src_image": image, "edit_image": image, **after, "lineage": source}

    def cell(ref: ImageRef) -> dict[str, Any]:
        ending = images.path(ref)
        return {"bytes": images.data(ref), "path": f"{ref.sha256[:24]}{ending.suffix if ending else ''}"}

    table = [{**one.columns, "src_image": cell(one.sample.source), "edit_image": cell(one.edited)} for one in part]
    frame = polars.DataFrame([{name: row[name] for name in schema} for row in table], schema=schema)
    try:
        with files.whole(path) as file:
            frame.write_parquet(file, compression="snappy", row_group_size=100)
    except polars.exceptions.PolarsError as error:  # a full disk among others
        raise StorageError(f"{path} cannot be written: {error}") from error


def _folder_row(one: Triplet, place: ImagePlace) -> dict[str, Json]:
    """Return a row of the ImageFolder, its images placed. Raises OSError and ImageError."""
    text = one.columns
    return {
        "id": text["key"],
        "source_file_name": place.image(one.sample.source),
        "edited_file_name": place.image(one.edited),
        "instruction": text["prompt_en"] or text["prompt_cn"],
        "language": "cn" if text["prompt_cn"] else "en",
        "edit_type": text["edit_subtask"],
        **{name: text[name] for name in ("original_instruction", "edit_task", "editor", "lineage")},
    }
