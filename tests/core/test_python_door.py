"""editloupe from Python: images in memory, rows, functions as backends and tools, rubrics, streams, notebooks, names."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from PIL import Image

import editloupe as package
from editloupe import Box, Judge, Run, Sample, load_samples, tool
from editloupe.backends.base import open_backend, parse_uri
from editloupe.backends.function import FunctionLMM
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Reply
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ImageError, SampleError, ToolError
from editloupe.rubrics import load_rubric
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.testing import check_backend, check_tool
from editloupe.tools.base import ToolContext
from editloupe.values import ImageRef
from tests.conftest import Cli, draw_edits, final, png

ROOT = Path(__file__).parents[2]
BEFORE = np.full((60, 80, 3), 200, np.uint8)
AFTER = BEFORE.copy()
AFTER[10:30, 20:50] = (200, 30, 30)


def edit(**more: Any) -> Sample:
    return Sample.from_images(BEFORE, AFTER, "Add a red box.", **more)


def says(label: str) -> Callable[[Any], str]:
    return lambda messages: final(label)


def plain(model: Any, **more: Any) -> Judge:
    return Judge(model, mode="plain", criteria="if", **more)


def refusals(error: type[Exception], make: Callable[[Any], object], cases: Iterable[tuple[Any, str]]) -> list[object]:
    """The cases (what is given, what the error's message holds) that are not refused so, with what came of them."""
    failing: list[object] = []
    for given, told in cases:
        try:
            failing.append((given, told, make(given)))
        except error as found:
            if not re.search(told, str(found)):
                failing.append((given, told, found))
    return failing


def test_an_image_is_judged_as_its_pixels(tmp_path: Path) -> None:
    picture, file = Image.fromarray(AFTER), tmp_path / "b.png"
    file.write_bytes(png(AFTER))
    opaque = np.dstack([AFTER, np.full(AFTER.shape[:2], 255, np.uint8)])
    different: list[Any] = []
    for image in (
        AFTER, AFTER.copy(order="F"), picture, png(AFTER), bytearray(png(AFTER)), {"bytes": png(AFTER), "path": None},
        opaque, picture.convert("RGBA"), picture.convert("CMYK"), file, str(file),
    ):  # fmt: skip
        sample = Sample.from_images(BEFORE, image, "Add a red box.")
        ref, shown = sample.edited, ImageStore().array(sample.edited).astype(int)
        if (ref.width, ref.height, shown.shape) != (80, 60, AFTER.shape) or np.abs(shown - AFTER).max() > 1:
            different.append(image)
    assert different == []
    assert sample.id == "b" and sample.edited.data is None, "a file's bytes stay where they are"
    assert [finding.status for finding in Judge("baseline").judge(edit())] == ["ok", "ok"]
    # Alpha of a PIL image is laid on white as that of a file is.
    clear = Image.fromarray(np.dstack([AFTER, np.zeros(AFTER.shape[:2], np.uint8)]))
    sample = Sample.from_images(clear, AFTER, "x", mask=BEFORE[:, :, 0], reference=AFTER, extra={"note": 7}, editor="e")
    assert (ImageStore().array(sample.source) == 255).all()
    assert "source: alpha composited on white" in sample.warnings
    assert ImageStore().array(sample.masks["edit"]).shape == (60, 80, 3)
    assert sample.reference is not None and sample.extra == {"note": 7} and sample.key.startswith("e/")


def test_bytes_in_memory_are_not_written_beside_a_value_and_not_believed_from_one() -> None:
    image = edit().source
    assert image.data is not None and "data" not in image.to_json()
    assert ImageRef.from_json({**image.to_json(), "data": "Zm9v"}).data is None
    with pytest.raises(ImageError, match="its own bytes"):
        ImageStore().data(ImageRef(sha256="0" * 64, width=8, height=8, media_type="image/png", data=b"others"))


def test_what_is_no_image_no_instruction_no_sample_and_no_setting_is_named_with_what_to_do() -> None:
    floats = r"edited: expected an H×W×3 uint8 array.*found shape \(60, 80, 3\), float64.*array \* 255"
    images = (
        (AFTER / 255, floats), (AFTER.transpose(2, 0, 1), r"transpose\(1, 2, 0\)"), (AFTER.astype(np.int64), "int64"),
        (np.zeros((0, 5, 3), np.uint8), r"shape \(0, 5, 3\)"), (7, "found int"), (None, "found NoneType"),
        ("https://example.org/a.png", "addresses are not opened"), (b"not an image", "edited"),
        ({"bytes": None, "path": None}, "the cell holds no image"), ("gone.png", "no such file"),
    )  # fmt: skip
    assert refusals(ImageError, lambda image: Sample.from_images(BEFORE, image, "x"), images) == []
    words = [(given, "expected what the editor was asked to do") for given in ("", "  ", None, 7)]
    assert refusals(SampleError, lambda given: Sample.from_images(BEFORE, AFTER, given), words) == []
    settings = (({"criteria": []}, "no criterion"), ({"max_turns": -1}, "max_turns"), ({"criteria": ["beauty"]}, "beauty"))
    assert refusals(ConfigError, lambda given: Judge(**given), settings) == []
    judge = Judge("baseline")
    array = r"expected a Sample, found numpy\.ndarray; make one with Sample\.from_images"
    assert refusals(ConfigError, judge.judge, [(AFTER, array)]) == []
    assert refusals(ConfigError, judge.judge_all, [(["a.png"], r"expected a Sample, found builtins\.str")]) == []


def test_a_row_is_read_by_its_map_and_by_usual_names(tmp_path: Path) -> None:
    row = {"id": 7, "source": BEFORE, "edited": AFTER, "prompt": "Add.", "model": "m", "tags": ["a"], "o": object()}
    sample = Sample.from_row(row)
    assert (sample.id, sample.editor, sample.instruction, sample.extra) == ("7", "m", "Add.", {"tags": ["a"]})
    row = {"a": BEFORE, "b": {"bytes": png(AFTER)}, "c": "Add.", "kind": "add"}
    sample = Sample.from_row(row, {"source": "a", "edited": "b", "instruction": "c", "edit_type": "kind"})
    assert sample.edit_type == "add" and not sample.extra
    cases = (
        ({"before": "a"}, "the map names 'before'; expected source"),
        ({"source": "z"}, "has no column 'z', which the map names for source; it has a, b"),
        ({"source": "a"}, "no column is known for edited"),
    )
    assert refusals(SampleError, lambda map: Sample.from_row({"a": BEFORE, "b": AFTER}, map), cases) == []
    # Images in the cells of a table are read again when they are judged.
    cells = {"source": [png(BEFORE)], "edited": [png(AFTER)], "instruction": ["Add."]}
    polars.DataFrame(cells).write_parquet(tmp_path / "edits.parquet")
    ((found,),) = plain(says("Wrong Action")).judge_all(list(load_samples(tmp_path / "edits.parquet")))
    assert found.status == "ok", found.reason


def test_a_function_is_a_backend_whose_name_and_source_are_its_identity() -> None:
    seen: list[Any] = []

    def model(messages: Any) -> str:
        seen.append(messages)
        return final("Wrong Action")

    def other(messages: Any) -> Reply:
        return Reply(text=final("Wrong Action"))

    assert [plain(one).judge(edit())[0].label for one in (model, other)] == ["Wrong Action"] * 2
    ((message,),) = seen
    assert message["role"] == "user" and "Add a red box." in str(message["content"])
    pictures = [part for part in message["content"] if part["type"] == "image"]
    assert [part["name"] for part in pictures] == ["Original Image", "Edited Image"]
    assert all(np.array_equal(part["image"], right) for part, right in zip(pictures, (BEFORE, AFTER), strict=True))
    assert FunctionLMM(model, name="m").uri == "function/m"
    assert FunctionLMM(model, name="m").version != FunctionLMM(other, name="m").version
    assert len({plain(model).id, plain(other).id, plain(model, seed=1).id}) == 3
    check_backend(FunctionLMM(lambda messages: "a blue square", name="blue"))


def test_a_function_that_fails_is_a_failure_of_that_sample_alone_and_no_number() -> None:
    prose = "repeats the reply before it word for word: .*; found 'I would call it a success.'"
    acts: Any = (
        (7, "backend_failed", "returned int; expected the reply's text"), (None, "backend_failed", "returned NoneType"),
        (ValueError("no weights"), "backend_failed", "no weights"), (final("Wrong Action"), "ok", ""),
        ("I would call it a success.", "unparsed", prose),
        ("", "unparsed", r"no label after 2 reminders: it is empty \(finish reason stop\)"),
    )  # fmt: skip
    now: list[Any] = []

    def model(messages: Any) -> Any:
        if isinstance(now[-1], Exception):
            raise now[-1]
        return now[-1]

    judge, failing = plain(model), []
    for said, status, told in acts:
        now.append(said)
        (finding,) = judge.judge(edit())
        if (finding.status, finding.value is None) != (status, status != "ok") or not re.search(told, finding.reason):
            failing.append((said, finding))
    assert failing == []
    assert "unparsed" in finding._repr_html_()


@tool
def brightness(image: np.ndarray, box: Box | None = None, digits: int = 0) -> str:
    """Tell how bright an image is.

    This paragraph is for people.
    """
    part = image if box is None else image[slice(*box.ints()[1::2]), slice(*box.ints()[0::2])]
    return f"mean {part.mean():.{digits}f} of {part.shape[1]}×{part.shape[0]} px\n" + "x" * 1000


@tool(name="flip", repeatable=True)
def mirrored(image: Image.Image, context: ToolContext) -> tuple[str, Image.Image]:
    """Mirror an image."""
    if image.size[0] < 50:
        raise ToolError("the image is too small")
    return f"{context.crop_name(1)} is mirrored.", image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def broken(image: np.ndarray) -> str:
    """Tell a secret."""
    raise KeyError("weights")


def call(name: str, **parameters: Any) -> str:
    told = json.dumps({"name": name, "parameters": {"image": "Edited Image", **parameters}})
    return f"<tool_call>{told}</tool_call>"


def test_a_function_is_a_tool_and_a_notebook_shows_what_it_gave(tmp_path: Path) -> None:
    calls = (call("brightness", box=[250, 0, 500, 500], digits=1), call("flip"), call("brightness", digits="many"))
    tools = [brightness, mirrored]
    with Judge(ScriptedLMM([*calls, final("Wrong Action")]), tools=tools, criteria="if", out=tmp_path / "run") as judge:
        judge.judge(edit(id="<script>"))
    run = Run.open(tmp_path / "run")
    trace = run.trace(run.findings[0])
    (measured,), (picture,), (wrong,), () = (step.observations for step in trace.steps())
    assert measured.text.startswith(f"mean {AFTER[0:30, 20:40].mean():.1f} of 20×30 px") and not measured.error
    assert picture.text == "Crop 1 is mirrored.\nCrop 1: 80×60 px."
    assert np.array_equal(ImageStore(tmp_path / "run" / "blobs").array(picture.images[0]), AFTER[:, ::-1])
    assert wrong.error and "digits" in wrong.text
    assert [step.answer for step in trace.steps()] == [None, None, None, "Wrong Action"]
    # A printed finding is a line, a printed trace a line for each act.
    lines = str(trace).split("\n")
    assert lines[0] == f"1. {calls[0]}" and lines[1].startswith("brightness: mean") and len(lines[1]) == 200
    assert lines[-2:] == ["4. " + " ".join(final("Wrong Action").split()), "<script>, instruction_following: Wrong Action"]
    shown = run._repr_html_(), trace._repr_html_(), run.findings[0]._repr_html_()
    for html in shown:
        assert "<script>" not in html and html.count("<div") == html.count("</div>")
    assert "Samples: 1. Answered: 1 of 1 questions." in shown[0] and shown[0].count("data:image/jpeg;base64") == 2
    assert "Step 1" in shown[1] and "brightness" in shown[1] and "Crop 1" in shown[1] and "Wrong Action" in shown[2]


def test_a_tool_that_crashes_says_why_to_people_and_not_to_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lmm = ScriptedLMM(lambda request: call("broken") if len(request.messages) == 1 else final("Wrong Action"))
    config = RunConfig.make(
        path=draw_edits(tmp_path / "edits", 2), judge={"backend": lmm}, option={"criteria": ["if"]}, tools=["broken"]
    )
    outcome = drive(open_setup(config, own_tools=(tool(broken),)), tmp_path / "run")
    (note,) = [note for note in outcome.notes if "crashed" in note]
    assert re.match(r"Tools crashed \(counted: 2\), first in sample .+; `editloupe show`", note)
    assert "the tool broken crashed: KeyError: 'weights'" in caplog.text
    run = Run.open(tmp_path / "run")
    assert [(one.status, one.counts["tool_crashes"]) for one in run.findings] == [("ok", 1)] * 2
    first, _ = run.trace(run.findings[0]).steps()
    assert "KeyError: 'weights'" in first.note and "weights" not in first.observations[0].text


def test_what_the_model_reads_of_a_tool_and_what_is_no_tool() -> None:
    assert (brightness.description, mirrored.name) == ("Tell how bright an image is.", "flip")
    schema = brightness.Args.model_json_schema()
    assert set(schema["properties"]) == {"image", "box", "digits"} and schema["required"] == ["image"]
    assert set(mirrored.Args.model_json_schema()["properties"]) == {"image"}
    check_tool(mirrored)
    assert brightness(AFTER, digits=1).startswith("mean "), "it is still the function that it was"

    def looks(image) -> str:  # type: ignore[no-untyped-def]
        """Look."""

    cases = (
        (looks, "the parameter 'image' needs a type"), (lambda image: "x", "expected a docstring"),
        (7, "expected names, functions with @tool"), ("no_such_tool", "unknown tool"),
    )  # fmt: skip
    assert refusals(ConfigError, lambda given: Judge("baseline", tools=[given]), cases) == []
    ids = {Judge(says("x"), tools=[one]).id for one in (mirrored, tool(name="flip", repeatable=True)(broken))}
    assert len(ids) == 2, "a tool's source is part of the identity"


def test_a_rubric_is_a_value_a_mapping_or_a_file() -> None:
    levels = [{"name": "Bad", "value": 1, "description": "b"}, {"name": "Good", "value": 2, "description": "g"}]
    looks: dict[str, Any] = {"name": "Looks", "short": "L", "question": "Good?", "levels": levels}
    mapping = {"id": "taste", "title": "Taste", "criteria": {"looks": looks}}
    (finding,) = Judge(says("Good"), rubric=mapping, mode="plain").judge(edit())
    assert (finding.metric, finding.label, finding.value) == ("looks", "Good", 2)
    assert Judge("baseline", rubric=load_rubric("dlebench")).id == Judge("baseline", rubric="dlebench").id


def test_samples_are_judged_as_they_come_in_streams_and_coroutines() -> None:
    judge, told, seen = plain(says("Wrong Action")), list[Any](), list[Any]()
    endless = (edit(id=str(number)) for number in itertools.count())
    for sample, (finding,) in judge.stream(endless, concurrency=2, progress=told.append):
        seen.append((sample.id == finding.sample_id, finding.label))
        if len(seen) == 3:
            break
    assert seen == [(True, "Wrong Action")] * 3
    assert [(one.done, one.total) for one in told] == [(1, 0), (2, 0), (3, 0)]
    pair = [edit(id="a"), edit(id="b")]
    plain(says("Nonsense")).judge_all(pair, progress=told.append)
    assert (told[-1].done, told[-1].total, told[-1].failures) == (2, 2, {"unparsed": 2})

    async def both() -> tuple[str | None, list[str]]:
        assert judge.judge(edit())[0].label == "Wrong Action", "a cell of a notebook calls it amid a loop of events"
        return (await judge.ajudge(edit()))[0].label, [sample.id async for sample, _ in judge.astream(pair)]

    label, ids = asyncio.run(both())
    assert label == "Wrong Action" and sorted(ids) == ["a", "b"]


def test_results_stand_in_the_order_of_the_samples_and_a_run_keeps_each_once(tmp_path: Path) -> None:
    lmm, samples = ScriptedLMM([final("Wrong Action")]), [edit(id=f"s{number}") for number in (0, 1, 2, 1, 0)]
    with Judge(lmm, criteria="if", out=tmp_path / "run") as judge:
        found = judge.judge_all(samples, concurrency=3)
    with Judge(lmm, criteria="if", out=tmp_path / "run") as judge:
        judge.judge(samples[0])
    assert [one.sample_id for (one,) in found] == ["s0", "s1", "s2", "s1", "s0"]
    # A sample that comes twice is judged once, also by a later judge of the same run.
    assert len(lmm.requests) == len((tmp_path / "run" / "findings.jsonl").read_text().splitlines()) == 3
    run = Run.open(tmp_path / "run")
    assert [sample.id for sample in run.samples] == [one.sample_id for one in run.findings] == ["s0", "s1", "s2"]
    row = run.scores().to_dicts()[0]
    assert (row["sample"], row["metric"], row["missing"]) == ("s0", "instruction_following", None)
    task = run.findings[0].task_id
    assert run.trace(task[:8]).header.task_id == task
    assert refusals(ConfigError, run.trace, [("zz", "no finding with a task id that begins with 'zz'")]) == []
    # With the images that the run keeps.
    assert [one.status for (one,) in plain(says("Wrong Action")).judge_all(load_samples(tmp_path / "run"))] == ["ok"] * 3


def test_a_function_judges_a_folder_and_is_compared_with_a_run_of_the_command_line(tmp_path: Path, editloupe: Cli) -> None:
    base, out, folder = tmp_path / "base", tmp_path / "function", draw_edits(tmp_path / "edits", 3)
    (folder / "edited" / "s02.png").unlink()
    editloupe("judge", folder, "--mode", "plain", "--criteria", "if", "--out", base)
    edits = load_samples(folder)
    assert [sample.id for sample in edits] == ["s00", "s01"] and [row.id for row in edits.rejected] == ["s02"]
    with plain(says("Wrong Action"), out=out) as judge:
        assert [one.label for (one,) in judge.judge_all(edits)] == ["Wrong Action"] * 2
    run = Run.open(out)
    assert [f.status for f in run.findings] == ["ok", "ok", "input_error"]
    assert [sample.content for sample in run.samples] == [sample.content for sample in Run.open(base).samples]
    code, said, warned = editloupe("compare", base, out)
    assert code == 0 and "2/3" in said and "other content" not in said + warned


NOTEBOOK = """
import asyncio, sys
async def cell(text=sys.stdin.read()):
    exec(compile(text, "<cell>", "exec"), {"__name__": "__main__"})
asyncio.run(cell())
"""
"""A cell as a kernel runs it: amid a loop of events, in a program that is no file."""


# By default, its file runs with the first blocks of all pages, and a call amid a loop of events is made above.
@pytest.mark.parametrize(
    "way",
    ["an interpreter", pytest.param("a file", marks=pytest.mark.slow), pytest.param("a notebook", marks=pytest.mark.slow)],
)
def test_the_first_snippet_of_the_docs_runs_as_it_stands(way: str, tmp_path: Path) -> None:
    _, _, rest = (ROOT / "docs" / "python.md").read_text(encoding="utf-8").partition("```python\n")
    snippet, _, _ = rest.partition("```")
    script = tmp_path / "script.py"
    script.write_text(snippet, encoding="utf-8")
    # Whoever types ends a block with an empty line.
    typed = snippet.replace("\n)\n", "\n)\n\n") + "\n"
    words = {"a file": [str(script)], "a notebook": ["-c", NOTEBOOK], "an interpreter": ["-i", "-q"]}[way]
    given = typed if way == "an interpreter" else snippet
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *words], input=given, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0 and "Error" not in done.stderr, done.stderr
    assert done.stdout == "instruction_following Flawless Execution\nvisual_consistency Perfect Consistency\n"


def test_every_public_name_is_there_and_listed() -> None:
    listed = {name for names in package._WHERE.values() for name in names} | {"__version__"}
    assert set(package.__all__) == set(dir(package)) == listed >= {"Judge", "Run", "Sample", "tool", "load_samples"}
    for module, names in package._WHERE.items():
        assert all(getattr(package, name) is getattr(import_module(module), name) for name in names)
    assert refusals(AttributeError, lambda name: getattr(package, name), [("nope", "no attribute 'nope'")]) == []


def test_a_backend_uri_is_split_at_its_first_separator_and_holds_no_secret() -> None:
    for text, *parts in (
        ("baseline", "baseline", "", {}), ("openai/gpt-4.1", "openai", "gpt-4.1", {}),
        ("openai:gpt-4.1", "openai", "gpt-4.1", {}), ("openai/Qwen/Qwen3-VL-8B", "openai", "Qwen/Qwen3-VL-8B", {}),
        ("openai/m:free?base_url=http://h:1/v1", "openai", "m:free", {"base_url": "http://h:1/v1"}),
    ):  # fmt: skip
        uri = parse_uri(text)
        assert [uri.provider, uri.model, dict(uri.params)] == parts, text
    wrong = [(text, "") for text in ("", "/m", "openai/m?api_key=x", "openai/m?access_token=x")]
    assert refusals(ConfigError, parse_uri, wrong) == []


def test_a_broken_script_is_named_with_its_line(tmp_path: Path) -> None:
    def opened(line: str) -> None:
        (tmp_path / "s.jsonl").write_text(line + "\n")
        open_backend(f"scripted/{tmp_path / 's.jsonl'}")

    cases = (
        ("{", "line 1: not JSON"), ("3", "expected a string or an object"), ("{}", "text"),
        ('{"error": "x"}', r"or with error \(rate_limited"),
    )  # fmt: skip
    assert refusals(ConfigError, opened, cases) == []
