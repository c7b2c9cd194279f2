"""editloupe from Python: images in memory, rows, functions as backends and tools, rubrics, streams, notebooks."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import editloupe
from editloupe import Box, Judge, Rubric, Run, Sample, load_samples, tool
from editloupe.backends.function import FunctionLMM
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Reply
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ImageError, RubricError, SampleError, ToolError
from editloupe.rubrics import load_rubric
from editloupe.runs.execute import execute
from editloupe.runs.setup import open_setup
from editloupe.testing import check_backend, check_tool
from editloupe.tools.base import ToolContext
from editloupe.values import ImageRef
from tests.conftest import draw_edits, final

BEFORE = np.full((60, 80, 3), 200, np.uint8)
AFTER = BEFORE.copy()
AFTER[10:30, 20:50] = (200, 30, 30)


def png(array: np.ndarray, **how: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, format="PNG", **how)
    return file.getvalue()


def edit(**more: Any) -> Sample:
    return Sample.from_images(BEFORE, AFTER, "Add a red box.", **more)


def says(label: str) -> Callable[[Any], str]:
    return lambda messages: final(label)


@pytest.mark.parametrize(
    "image",
    [
        AFTER,
        AFTER[::1, ::1].copy(order="F"),
        Image.fromarray(AFTER),
        png(AFTER),
        bytearray(png(AFTER)),
        {"bytes": png(AFTER), "path": None},
        np.dstack([AFTER, np.full(AFTER.shape[:2], 255, np.uint8)]),
        Image.fromarray(AFTER).convert("RGBA"),
        Image.fromarray(AFTER).convert("CMYK"),
    ],
    ids=["array", "column order", "PIL", "bytes", "bytearray", "datasets", "RGBA array", "RGBA", "CMYK"],
)
def test_an_image_in_memory_is_judged_as_its_pixels(image: Any) -> None:
    sample = Sample.from_images(BEFORE, image, "Add a red box.")
    assert sample.edited is not None and (sample.edited.width, sample.edited.height) == (80, 60)
    assert np.abs(ImageStore().array(sample.edited).astype(int) - AFTER).max() <= 1
    assert [finding.status for finding in Judge("baseline", mode="plain").judge(sample)] == ["ok", "ok"]


def test_a_grey_array_and_a_mask_and_a_reference_come_along() -> None:
    sample = edit(reference=AFTER, mask=BEFORE[:, :, 0], extra={"note": 7}, id="a", editor="e", edit_type="add")
    assert sample.key == "e/a" and sample.extra == {"note": 7} and sample.edit_type == "add"
    assert ImageStore().array(sample.masks["edit"]).shape == (60, 80, 3)
    assert sample.reference is not None


def test_alpha_of_a_pil_image_is_laid_on_white_as_a_files_is() -> None:
    clear = np.dstack([AFTER, np.zeros(AFTER.shape[:2], np.uint8)])
    sample = Sample.from_images(Image.fromarray(clear), AFTER, "x")
    assert (ImageStore().array(sample.source) == 255).all()
    assert "source: alpha composited on white" in sample.warnings


def test_a_path_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(png(AFTER))
    sample = Sample.from_images(BEFORE, tmp_path / "b.png", "x")
    assert sample.id == "b" and sample.edited is not None and sample.edited.data is None


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (AFTER / 255, r"edited: expected an H×W×3 uint8 array.*found shape \(60, 80, 3\), float64.*array \* 255"),
        (AFTER.transpose(2, 0, 1), r"transpose\(1, 2, 0\)"),
        (AFTER.astype(np.int64), "int64"),
        (np.zeros((0, 5, 3), np.uint8), r"shape \(0, 5, 3\)"),
        (7, "found int"),
        (None, "found NoneType"),
        ("https://example.org/a.png", "addresses are not opened"),
        (b"not an image", "edited"),
        ({"bytes": None, "path": None}, "the cell holds no image"),
        ("gone.png", "no such file"),
    ],
)
def test_what_is_no_image_is_named_with_what_to_do(image: Any, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        Sample.from_images(BEFORE, image, "x")


@pytest.mark.parametrize("instruction", ["", "  ", None, 7])
def test_an_instruction_must_be_words(instruction: Any) -> None:
    with pytest.raises(SampleError, match="expected what the editor was asked to do"):
        Sample.from_images(BEFORE, AFTER, instruction)


def test_images_in_memory_go_into_a_run_and_are_found_again(tmp_path: Path) -> None:
    with Judge("baseline", out=tmp_path / "run") as judge:
        judge.judge_all([edit(id="a"), edit(id="b")])
    run = Run.open(tmp_path / "run")
    assert [sample.id for sample in run.samples] == ["a", "b"]
    for sample in run.samples:
        assert ImageStore(tmp_path / "run" / "blobs").path(sample.source) is not None
    with Judge(ScriptedLMM([final("Wrong Action")]), out=tmp_path / "other", criteria="if") as judge:
        assert judge.judge(run.samples[0])[0].status == "ok"  # with the images that the first run keeps


def test_bytes_in_memory_are_not_written_beside_a_value_and_not_believed_from_one() -> None:
    image = edit().source
    assert image.data is not None and "data" not in image.to_json()
    assert ImageRef.from_json({**image.to_json(), "data": "Zm9v"}).data is None
    with pytest.raises(ImageError, match="its own bytes"):
        ImageStore().data(ImageRef(sha256="0" * 64, width=8, height=8, media_type="image/png", data=b"others"))


def test_a_row_of_usual_names_needs_no_map() -> None:
    row = {
        "id": 7,
        "source": BEFORE,
        "edited": Image.fromarray(AFTER),
        "prompt": "Add.",
        "model": "m",
        "tags": ["a"],
        "o": object(),
    }
    sample = Sample.from_row(row)
    assert (sample.id, sample.editor, sample.instruction, sample.extra) == ("7", "m", "Add.", {"tags": ["a"]})


def test_a_row_is_read_by_its_map() -> None:
    row = {"a": BEFORE, "b": {"bytes": png(AFTER)}, "c": "Add.", "kind": "add"}
    sample = Sample.from_row(row, {"source": "a", "edited": "b", "instruction": "c", "edit_type": "kind"})
    assert sample.edit_type == "add" and not sample.extra


@pytest.mark.parametrize(
    ("map", "message"),
    [
        ({"before": "a"}, "the map names 'before'; expected source"),
        ({"source": "z"}, "has no column 'z', which the map names for source; it has a, b"),
        ({"source": "a"}, "no column is known for edited"),
    ],
)
def test_a_map_that_does_not_fit_is_named(map: dict[str, str], message: str) -> None:
    with pytest.raises(SampleError, match=message):
        Sample.from_row({"a": BEFORE, "b": AFTER}, map)


def test_a_function_is_a_backend() -> None:
    seen: list[Any] = []

    def model(messages: Any) -> str:
        seen.append(messages)
        return final("Wrong Action")

    (finding,) = Judge(model, mode="plain", criteria="if").judge(edit())
    assert finding.label == "Wrong Action"
    content = seen[0][0]["content"]
    assert seen[0][0]["role"] == "user"
    assert [part["image"].size for part in content if part["type"] == "image"] == [(80, 60)] * 2
    assert [part["name"] for part in content if part["type"] == "image"] == ["Original Image", "Edited Image"]


def test_a_functions_name_and_source_are_its_identity() -> None:
    def model(messages: Any) -> str:
        return final("Wrong Action")

    def other(messages: Any) -> Reply:
        return Reply(text=final("Wrong Action"))

    assert FunctionLMM(model, name="m").uri == "function/m"
    assert FunctionLMM(model, name="m").version != FunctionLMM(other, name="m").version
    assert Judge(model, mode="plain").id != Judge(other, mode="plain").id
    check_backend(FunctionLMM(lambda messages: "a blue square", name="blue"))


def test_a_function_that_returns_something_else_is_named() -> None:
    finding, *_ = Judge(lambda messages: 7, mode="plain").judge(edit())  # type: ignore[arg-type,return-value]
    assert finding.status == "backend_failed" and finding.value is None
    assert "returned int; expected the reply's text" in finding.reason


def test_a_model_that_now_and_then_returns_nothing_loses_those_samples_alone() -> None:
    said = iter([final("Wrong Action"), None, final("Wrong Action")])
    judge = Judge(lambda messages: next(said), mode="plain", criteria="if")  # type: ignore[arg-type,return-value]
    assert [judge.judge(edit())[0].status for _ in range(3)] == ["ok", "backend_failed", "ok"]


def test_prose_alone_is_said_to_be_no_label_and_its_beginning_is_quoted() -> None:
    (finding,) = Judge(lambda messages: "I would call it a success.", mode="plain", criteria="if").judge(edit())
    assert finding.status == "unparsed"
    assert finding.reason == (
        "no label after 2 reminders: nothing stood in <Start Final Answer>…</Start Final Answer>; "
        "the last reply begins “I would call it a success.”"
    )
    (finding,) = Judge(lambda messages: "word " * 100, tools=["zoom_in"], criteria="if").judge(edit())
    assert finding.reason.startswith("no call and no label after 2 reminders: it held neither a tool call nor a label")
    assert finding.reason.endswith("word word…”")
    (finding,) = Judge(lambda messages: "", mode="plain", criteria="if").judge(edit())
    assert finding.reason == "no label after 2 reminders: it is empty (finish reason stop)"


def test_what_is_no_sample_is_named() -> None:
    with pytest.raises(ConfigError, match=r"expected a Sample, found numpy\.ndarray; make one with Sample\.from_images"):
        Judge("baseline").judge(AFTER)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"expected a Sample, found builtins\.str"):
        Judge("baseline").judge_all(["edited.png"])  # type: ignore[list-item]


def test_a_function_that_raises_is_a_failure_and_no_number() -> None:
    def broken(messages: Any) -> str:
        raise ValueError("no weights")

    (finding,) = Judge(broken, mode="plain", criteria="if").judge(edit())
    assert finding.status == "backend_failed" and "no weights" in finding.reason


@tool
def brightness(image: np.ndarray, box: Box | None = None, digits: int = 0) -> str:
    """Tell how bright an image is.

    This paragraph is for people.
    """
    part = image if box is None else image[slice(*box.ints()[1::2]), slice(*box.ints()[0::2])]
    return f"mean {part.mean():.{digits}f} of {part.shape[1]}×{part.shape[0]} px"


@tool(name="flip", repeatable=True)
def mirrored(image: Image.Image, context: ToolContext) -> tuple[str, Image.Image]:
    """Mirror an image."""
    if image.size[0] < 20:
        raise ToolError("the image is too small")
    return f"{context.crop_name(1)} is mirrored.", image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def calls(name: str, **parameters: Any) -> Callable[[Any], str]:
    import json

    call = json.dumps({"name": name, "parameters": parameters})

    def model(messages: Any) -> str:
        if len(messages) == 1:
            return f"<Start Thinking>.</Start Thinking><tool_call>{call}</tool_call>"
        return final(
            " ".join(part["text"] for part in messages[-1]["content"] if part["type"] == "text")[:0] or "Wrong Action"
        )

    return model


def observation(tmp_path: Path, name: str, **parameters: Any) -> Any:
    with Judge(calls(name, **parameters), tools=[brightness, mirrored], criteria="if", out=tmp_path / "run") as judge:
        judge.judge(edit())
    run = Run.open(tmp_path / "run")
    return run.trace(run.findings[0]).steps()[0].observations[0]


def test_a_function_is_a_tool(tmp_path: Path) -> None:
    seen = observation(tmp_path, "brightness", image="Edited Image", box=[250, 0, 500, 500], digits=1)
    part = AFTER[0:30, 20:40]
    assert seen.text == f"mean {part.mean():.1f} of 20×30 px" and not seen.error


def test_a_tool_may_show_a_picture(tmp_path: Path) -> None:
    seen = observation(tmp_path, "flip", image="Edited Image")
    assert seen.text == "Crop 1 is mirrored.\nCrop 1: 80×60 px."
    store = ImageStore(tmp_path / "run" / "blobs")
    assert np.array_equal(store.array(seen.images[0]), AFTER[:, ::-1])


def test_a_tool_that_crashes_says_why_to_people_and_not_to_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def broken(image: np.ndarray) -> str:
        """Tell a secret."""
        raise KeyError("weights")

    with Judge(calls("broken", image="Edited Image"), tools=[broken], criteria="if", out=tmp_path / "run") as judge:
        (finding,) = judge.judge(edit())
    assert finding.counts["tool_crashes"] == 1 and finding.status == "ok"
    assert "the tool broken crashed: KeyError: 'weights'" in caplog.text
    run = Run.open(tmp_path / "run")
    (first, _) = run.trace(run.findings[0]).steps()
    assert "KeyError: 'weights'" in first.note and "weights" not in first.observations[0].text
    config = RunConfig.make(
        path=draw_edits(tmp_path / "edits", 2),
        judge={"backend": FunctionLMM(calls("broken", image="Edited Image"), name="calls")},
        option={"criteria": ["if"]},
        tools=["broken"],
    )
    outcome = execute(open_setup(config, own_tools=(broken,)), tmp_path / "judged")
    (note,) = [note for note in outcome.notes if "crashed" in note]
    assert re.match(r"Tools crashed 2 times, in 2 of 2 findings, first in sample .+; `editloupe show`", note)


def test_wrong_arguments_are_answered_and_the_function_is_not_called(tmp_path: Path) -> None:
    seen = observation(tmp_path, "brightness", image="Edited Image", digits="many")
    assert seen.error and "digits" in seen.text


def test_what_the_model_reads_of_a_tool() -> None:
    assert brightness.description == "Tell how bright an image is."
    schema = brightness.Args.model_json_schema()
    assert set(schema["properties"]) == {"image", "box", "digits"} and schema["required"] == ["image"]
    assert mirrored.name == "flip" and set(mirrored.Args.model_json_schema()["properties"]) == {"image"}
    check_tool(mirrored)
    # It is still the function that it was.
    assert brightness(AFTER, digits=1).startswith("mean ")


def test_tools_are_part_of_the_judges_identity() -> None:
    def first() -> str:
        """Say one."""
        return "one"

    def second() -> str:
        """Say one."""
        return "two"

    ids = {Judge(says("x"), tools=[tool(name="say")(f)], criteria="if").id for f in (first, second)}
    assert len(ids) == 2


def test_a_function_whose_result_no_model_can_read_is_refused_when_it_is_made() -> None:
    def mean(image: np.ndarray) -> float:
        """Tell the mean."""
        return float(image.mean())

    def optional(image: np.ndarray) -> tuple[str, Image.Image] | None:
        """Show a picture, or nothing."""

    with pytest.raises(ConfigError, match=r"tool 'mean' returns float; expected str, PIL\.Image\.Image"):
        tool(mean)
    with pytest.raises(ConfigError, match="tool 'optional' returns NoneType"):
        tool(optional)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda image: "x", "expected a docstring"),
        (7, "expected names, functions with @tool"),
        ("no_such_tool", "unknown tool"),
    ],
)
def test_what_is_no_tool_is_named(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Judge("baseline", tools=[given])


def test_a_parameter_without_a_type_is_named() -> None:
    def looks(image) -> str:  # type: ignore[no-untyped-def]
        """Look."""
        return "x"

    with pytest.raises(ConfigError, match="the parameter 'image' needs a type"):
        tool(looks)


def test_a_rubric_is_a_value_a_mapping_or_a_file() -> None:
    levels = [{"name": "Bad", "value": 1, "description": "b"}, {"name": "Good", "value": 2, "description": "g"}]
    mapping = {
        "id": "taste",
        "title": "Taste",
        "criteria": {"looks": {"name": "Looks", "short": "L", "question": "Good?", "levels": levels}},
    }
    (finding,) = Judge(says("Good"), rubric=mapping, mode="plain").judge(edit())
    assert (finding.metric, finding.label) == ("looks", "Good")
    rubric = load_rubric("dlebench")
    assert isinstance(rubric, Rubric)
    by_value, by_name = (Judge("baseline", rubric=one, mode="plain").id for one in (rubric, "dlebench"))
    assert by_value == by_name
    looks = {**mapping["criteria"]["looks"], "levels": [{"name": "Bad", "description": "b"}, levels[1]]}  # type: ignore[index]
    with pytest.raises(RubricError, match=r"criteria.looks.levels\[0\].value: is missing"):
        Judge(says("Good"), rubric={**mapping, "criteria": {"looks": looks}})


def test_a_stream_yields_each_sample_as_it_ends_and_says_how_far_it_is() -> None:
    def endless() -> Iterator[Sample]:
        number = 0
        while True:
            yield edit(id=str(number))
            number += 1

    judge = Judge(says("Wrong Action"), mode="plain", criteria="if")
    told: list[Any] = []
    seen = []
    for sample, findings in judge.stream(endless(), concurrency=2, progress=told.append):
        seen.append((sample.id, findings[0].label))
        if len(seen) == 3:
            break
    assert {label for _, label in seen} == {"Wrong Action"}
    assert [one.done for one in told] == [1, 2, 3] and told[0].known is None


def test_progress_counts_failures_by_status() -> None:
    told: list[Any] = []
    Judge(says("Nonsense"), mode="plain", criteria="if").judge_all([edit(id="a"), edit(id="b")], progress=told.append)
    assert (told[-1].done, told[-1].known, told[-1].failed) == (2, 2, {"off_menu": 2})


def test_results_of_judge_all_stand_in_the_order_of_the_samples() -> None:
    one = edit(id="a")
    found = Judge(says("Wrong Action"), mode="plain", criteria="if").judge_all([one, edit(id="b"), one], concurrency=3)
    assert [findings[0].sample_id for findings in found] == ["a", "b", "a"]


def test_coroutines_judge_too() -> None:
    judge = Judge(says("Wrong Action"), mode="plain", criteria="if")

    async def both() -> tuple[str | None, list[str]]:
        first = await judge.ajudge(edit())
        return first[0].label, [sample.id async for sample, _ in judge.astream([edit(id="a"), edit(id="b")])]

    label, ids = asyncio.run(both())
    assert label == "Wrong Action" and sorted(ids) == ["a", "b"]


def test_a_run_gives_scores_and_traces_by_the_beginning_of_an_id(tmp_path: Path) -> None:
    with Judge("baseline", out=tmp_path / "run", criteria="if") as judge:
        judge.judge(edit(id="a"))
    run = Run.open(tmp_path / "run")
    (row,) = run.scores().to_dicts()
    assert (row["sample"], row["metric"], row["missing"]) == ("a", "instruction_following", None)
    finding = run.findings[0]
    assert run.trace(finding.task_id[:8]).header.task_id == finding.task_id
    with pytest.raises(ConfigError, match="no finding with a task id that begins with 'zz'"):
        run.trace("zz")


def test_a_printed_finding_is_a_line_and_a_printed_trace_a_line_for_each_act(tmp_path: Path) -> None:
    @tool
    def size(image: Image.Image) -> str:
        """Say how large an image is."""
        return f"{image.width}×{image.height}\n" + "x" * 1000

    call = '<tool_call>{"name": "size", "parameters": {"image": "Edited Image"}}</tool_call>'
    model = ScriptedLMM([call, final("Wrong Action")])
    with Judge(model, tools=[size], criteria="if", out=tmp_path / "run") as judge:
        judge.judge(edit(id="box"))
    run = Run.open(tmp_path / "run")
    assert str(run.findings[0]) == "box, instruction_following: Wrong Action"
    steps = run.trace(run.findings[0]).steps()
    assert [(step.thought, step.answer) for step in steps] == [("", None), ("I have seen enough.", "Wrong Action")]
    first, seen, second, last = str(run.trace(run.findings[0])).split("\n")
    assert (first, second, last) == (f"1. {call}", "2. " + " ".join(final("Wrong Action").split()), str(run.findings[0]))
    assert seen.startswith("size: 80×60 xxx") and len(seen) == 200


def test_a_notebook_shows_runs_traces_and_findings_with_their_pictures(tmp_path: Path) -> None:
    with Judge("baseline", out=tmp_path / "run", criteria="if") as judge:
        judge.judge(edit(id="<script>"))
    run = Run.open(tmp_path / "run")
    shown = run._repr_html_(), run.trace(run.findings[0])._repr_html_(), run.findings[0]._repr_html_()
    for html in shown:
        assert "<script>" not in html
        assert html.count("<div") == html.count("</div>")
    assert "Samples: 1. Answered: 1 of 1 questions." in shown[0]
    assert len(re.findall("data:image/jpeg;base64", shown[0])) == 2
    assert "Step 1" in shown[1] and "localize_differences" in shown[1] and "Crop 1" in shown[1]
    assert "instruction_following" in shown[2]


def test_a_failed_finding_shows_its_status_and_no_number() -> None:
    (finding,) = Judge(says("Nonsense"), mode="plain", criteria="if").judge(edit())
    assert "off menu" in finding._repr_html_()


def test_the_api_is_listed() -> None:
    assert {"Judge", "Run", "Sample", "tool"} <= set(dir(editloupe))
    for name in dir(editloupe):
        assert getattr(editloupe, name) is not None


Cli = Callable[..., tuple[int, str, str]]


def folder_of_three(folder: Path) -> Path:
    """Two edits, of which the first has a box and a rating, and a row without its output."""
    draw_edits(folder, 3)
    file = folder / "metadata.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[0] |= {"bboxes": [[20, 20, 44, 44]], "human_if": "Wrong Action"}
    rows[2]["edited_file_name"] = "edited/gone.png"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_function_judges_a_folder_and_is_compared_with_a_run_of_the_command_line(tmp_path: Path, editloupe: Cli) -> None:
    folder = folder_of_three(tmp_path / "edits")
    base, out = tmp_path / "base", tmp_path / "function"
    editloupe("judge", folder, "--mode", "plain", "--criteria", "if", "--out", base)
    edits = load_samples(folder)
    assert [sample.id for sample in edits] == ["s00", "s01"] and [row.id for row in edits.rejected] == ["s02"]
    assert len(edits.samples[0].targets) == 1 and edits.samples[0].human
    for _ in range(2):  # the second time goes on, and asks nothing
        with Judge(says("Wrong Action"), mode="plain", criteria="if", out=out) as judge:
            assert [one.label for (one,) in judge.judge_all(edits)] == ["Wrong Action"] * 2
    run = Run.open(out)
    assert [f.status for f in run.findings] == ["ok", "ok", "input_error"]
    assert [sample.content for sample in run.samples] == [sample.content for sample in Run.open(base).samples]
    code, said, warned = editloupe("compare", base, out)
    assert code == 0 and "2/3" in said and "other content" not in said + warned


def test_the_samples_of_a_run_are_judged_from_the_images_that_it_keeps(tmp_path: Path, editloupe: Cli) -> None:
    folder = folder_of_three(tmp_path / "edits")
    editloupe("judge", folder, "--criteria", "if", "--out", tmp_path / "base")
    for image in folder.rglob("*.png"):
        image.unlink()
    found = Judge(says("Wrong Action"), mode="plain", criteria="if").judge_all(Run.open(tmp_path / "base").samples)
    assert [one.status for (one,) in found] == ["ok", "ok"]
    assert [sample.id for sample in load_samples(tmp_path / "base")] == ["s00", "s01"]


def test_images_in_the_cells_of_a_table_are_read_when_they_are_judged(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    rows = {"source": [png(BEFORE)], "edited": [png(AFTER)], "instruction": ["Add a red box."]}
    polars.DataFrame(rows).write_parquet(tmp_path / "edits.parquet")
    (found,) = Judge(says("Wrong Action"), mode="plain", criteria="if").judge_all(
        list(load_samples(tmp_path / "edits.parquet"))
    )
    assert found[0].status == "ok", found[0].reason
