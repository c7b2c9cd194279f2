"""A training set from a verified run: edits that changed something, each with the instruction that says what was done.

The filter of UnicEdit-10M: what failed is dropped, what is left is restated, what occurs twice is written once. `curate`
decides, from the run alone; `write` puts the triplets into Parquet files with UnicEdit-10M's columns and into an
ImageFolder. Every row names the finding that it rests on, and every edit that is not written is listed with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from editloupe import files
from editloupe.answers import Record
from editloupe.build.base import Built, LeftOut, json_text, stages_of
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
ROWS: Final = 1000
"""Most rows of a Parquet file."""
_BYTES: Final = 2**28
"""Bytes of images after which a Parquet file ends: all of one is held in memory."""
_CHINESE: Final = ("cn", "zh")
_CARD: Final = Path(__file__).with_name("unicedit_card.md")
"""README.md beside the Parquet files: it tells `datasets` which columns are images."""

COLUMNS: Final = (
    "key", "edit_task", "edit_subtask", "src_image", "edit_image", "prompt_en", "prompt_cn", "original_instruction",
    "editor", "lineage",
)  # fmt: skip
"""Of a Parquet file. The first seven are UnicEdit-10M's."""
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

    key: str
    """Unique in the set."""
    sample: Sample
    edited: ImageRef
    restated: str
    """What was really done, in the verifier's words."""
    finding: Finding
    """The verification that it rests on."""


@dataclass(frozen=True, kw_only=True)
class Curated:
    """A run, divided. Each of its edits is in one of the two."""

    folder: Path
    """The run."""
    identity: str
    """Digest of what makes the run the same run: what rows call it."""
    triplets: tuple[Triplet, ...]
    left_out: tuple[Mapping[str, Json], ...]
    """The edits that are not written, as left_out.jsonl has them: key, stage, why, detail and lineage."""

    def built(self) -> Built:
        """Return the funnel. `read` is `written` + `dropped` + `not_judged`."""
        lost = Counter((str(one["stage"]), str(one["why"])) for one in self.left_out)
        not_judged = sum(count for (stage, _), count in lost.items() if stage == "judged")
        return Built(
            read=len(self.triplets) + len(self.left_out),
            written=len(self.triplets),
            noun="triplet",
            unit="edit",
            stages=stages_of(STAGES, lost),
            counts={
                "dropped": len(self.left_out) - not_judged,
                "not_judged": not_judged,
                "renamed_keys": sum(one.key != _key(one.sample) for one in self.triplets),
                "subtasks": dict(sorted(Counter(str(_subtask(one.sample)) for one in self.triplets).items())),
            },
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
        id_, editor = str(row["id"]), str(row["editor"])
        lost = LeftOut("input_error", str(row.get("message") or ""), at="judged")
        left_out.append(_line(sample_key(editor, id_), lost, _lineage(None, store.identity, id_, editor)))
    first: dict[tuple[str, str, str], str] = {}
    for sample, key in zip(samples, unique_keys(samples), strict=True):
        score, finding = changed.get(sample.key), answers.get(sample.key)
        if finding is None and score is not None:
            # A rule on pixels may have settled it.
            finding = next((by_task[id_] for id_ in score.findings if id_ in by_task), None)
        try:
            one = _triplet(key, sample, score, finding, images, quality)
            same = sample.source.sha256, one.edited.sha256, " ".join(one.restated.casefold().split())
            if (earlier := first.setdefault(same, key)) != key:
                raise LeftOut("duplicate", f"the same as {earlier!r}", at="distinct")
            triplets.append(one)
        except LeftOut as error:
            left_out.append(_line(key, error, _lineage(finding, store.identity, sample.id, sample.editor)))
    return Curated(folder=store.folder, identity=store.identity, triplets=tuple(triplets), left_out=tuple(left_out))


def _triplet(
    key: str,
    sample: Sample,
    score: Score | None,
    finding: Finding | None,
    images: ImageStore,
    quality: QualityFilter | None,
) -> Triplet:
    """Return the row of an edit. Raises LeftOut, with its stage, for one that does not pass all stages but the last."""
    if score is None or score.value is None:
        why = NOT_JUDGED if score is None or score.missing is None else score.missing
        raise LeftOut(why, "" if score is None else score.reason, at="judged")
    if not score.value:
        raise LeftOut("no_edit", at="changed")
    data = finding.answer.data if finding is not None and isinstance(finding.answer, Record) else None
    said = data.get("instruction") if isinstance(data, Mapping) else None
    restated = said.strip() if isinstance(said, str) else ""
    if finding is None or not restated:
        raise LeftOut("no_instruction", at="restated")
    gone = [role for role, ref in (("source", sample.source), ("edited", sample.edited)) if not ref or not images.path(ref)]
    if gone or sample.edited is None:
        raise LeftOut("no_image", f"the run does not hold the {' and '.join(gone)} image", at="kept")
    if quality is not None:
        try:
            quality.passed(images.array(sample.edited))
        except LeftOut as error:
            # What could not be measured is not judged.
            raise error.kept("judged" if error.failed else "quality") from error
        except ImageError as error:
            raise LeftOut("input_error", str(error), at="judged") from error
    return Triplet(key=key, sample=sample, edited=sample.edited, restated=restated, finding=finding)


def _line(key: str, lost: LeftOut, lineage: Json) -> dict[str, Json]:
    """Return a line of left_out.jsonl.   key: as the edit would be called in the set."""
    return {"key": key, **lost.to_json(), "detail": " ".join(str(lost).split()), "lineage": lineage}


def unique_keys(samples: Sequence[Sample]) -> list[str]:
    """Return a name for each sample that no other has: the data's own key, or KEY-2, KEY-3, … for further ones."""
    own = [_key(sample) for sample in samples]
    taken, seen, found = set(own), set[str](), list[str]()
    for key in own:
        name = key if key not in seen else next(n for i in count(2) if (n := f"{key}-{i}") not in taken)
        seen.add(key)
        taken.add(name)
        found.append(name)
    return found


def _key(sample: Sample) -> str:
    """What the data calls the edit: its column `key`, else the sample's own key."""
    key = sample.extra.get("key")
    return key if isinstance(key, str) and key else sample.key


def _said(sample: Sample, *names: str) -> str | None:
    """Return the first of these columns of the data that is a text."""
    return next((text for name in names if isinstance(text := sample.extra.get(name), str)), None)


def _subtask(sample: Sample) -> str | None:
    return _said(sample, "edit_subtask", "subtask") or sample.edit_type


def columns(row: Triplet, run: str) -> dict[str, Json]:
    """Return the columns of a row but for its images, as text that every program reads."""
    sample = row.sample
    chinese = (_said(sample, "language", "lang") or "").casefold().startswith(_CHINESE)
    return {
        "key": _text(row.key),
        "edit_task": _text(_said(sample, "edit_task", "task")),
        "edit_subtask": _text(_subtask(sample)),
        "prompt_en": None if chinese else _text(row.restated),
        "prompt_cn": _text(row.restated) if chinese else None,
        "original_instruction": _text(sample.instruction),
        "editor": _text(sample.editor),
        "lineage": _lineage(row.finding, run, sample.id, sample.editor),
    }


def _lineage(finding: Finding | None, run: str, sample_id: str, editor: str) -> dict[str, Json]:
    """Return where a row comes from: the run's identity, and of its findings which one."""
    said = {name: getattr(finding, name, None) for name in ("task_id", "judge_id", "repeat")}
    return {"run": run, **said, "sample": _text(sample_id), "editor": _text(editor)}


def _text(text: str | None) -> str | None:
    # Half a surrogate pair is no UTF-8.
    return None if text is None else text.encode("utf-8", "replace").decode()


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
    lines = list[bytes]()
    with files.writing(out):
        (out / FUNNEL).unlink(missing_ok=True)
        for path in parquet.glob("train-*.parquet"):
            path.unlink()
        for number, part in enumerate(shards(curated.triplets, images)):
            if stopped():
                return None
            _write_shard(part, parquet / f"train-{number:05}.parquet", images, curated.identity)
            lines += [json_line(_folder_row(one, place, curated.identity)) for one in part]
            tell(f"{len(lines):,} of {len(curated.triplets):,} rows in {number + 1:,} Parquet files")
        files.write_whole(parquet / "README.md", _CARD.read_bytes())
        files.write_whole(place.folder / METADATA, b"".join(lines))
        place.clean()
        files.write_whole(out / LEFT_OUT, b"".join(map(json_line, curated.left_out)))
        for left in [left for folder in (out, parquet, place.folder) for left in folder.glob(f"{files.PART}*")]:
            left.unlink()  # of a process that was killed
        files.write_whole(out / FUNNEL, json_text(funnel))
    return funnel


def shards(triplets: Sequence[Triplet], images: ImageStore) -> Iterator[tuple[Triplet, ...]]:
    """Yield what goes into each Parquet file: at most `ROWS`, and no more images than memory should hold."""
    part: list[Triplet] = []
    size = 0
    for triplet in triplets:
        paths = [images.path(ref) for ref in (triplet.sample.source, triplet.edited)]
        more = sum(path.stat().st_size for path in paths if path is not None)
        if part and (len(part) == ROWS or size + more > _BYTES):
            yield tuple(part)
            part, size = [], 0
        part.append(triplet)
        size += more
    if part:
        yield tuple(part)


def _write_shard(part: Sequence[Triplet], path: Path, images: ImageStore, run: str) -> None:
    import polars

    image = polars.Struct({"bytes": polars.Binary, "path": polars.String})
    texts = ("run", "task_id", "judge_id", "sample", "editor")
    source = polars.Struct({**dict.fromkeys(texts, polars.String), "repeat": polars.Int64})
    kinds = {"src_image": image, "edit_image": image, "lineage": source}
    schema = {name: kinds.get(name, polars.String) for name in COLUMNS}

    def cell(ref: ImageRef) -> dict[str, Any]:
        ending = images.path(ref)
        return {"bytes": images.data(ref), "path": f"{ref.sha256[:24]}{ending.suffix if ending else ''}"}

    table = [{**columns(one, run), "src_image": cell(one.sample.source), "edit_image": cell(one.edited)} for one in part]
    frame = polars.DataFrame([{name: row[name] for name in schema} for row in table], schema=schema)
    try:
        with files.whole(path) as file:
            frame.write_parquet(file, compression="snappy", row_group_size=100)
    except polars.exceptions.PolarsError as error:  # a full disk among others
        raise StorageError(f"{path} cannot be written: {error}") from error


def _folder_row(one: Triplet, place: ImagePlace, run: str) -> dict[str, Json]:
    """Return a row of the ImageFolder, its images placed. Raises OSError and ImageError."""
    text = columns(one, run)
    return {
        "id": text["key"],
        "source_file_name": place.image(one.sample.source),
        "edited_file_name": place.image(one.edited),
        "instruction": text["prompt_en"] or text["prompt_cn"],
        "original_instruction": text["original_instruction"],
        "edit_task": text["edit_task"],
        "edit_type": text["edit_subtask"],
        "language": "cn" if text["prompt_cn"] else "en",
        "editor": text["editor"],
        "lineage": text["lineage"],
    }
