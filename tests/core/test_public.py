"""The public door: names, plug-ins, backend URIs, the Python API, LangGraph Studio's factory."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from PIL import Image

import editloupe
from editloupe import Judge, load_sample, plugins
from editloupe.backends.base import open_backend, parse_uri
from editloupe.backends.scripted import ScriptedLMM
from editloupe.errors import ConfigError, ImageError, SampleError, UnknownPlugin
from editloupe.tools.base import BUILT_IN_TOOLS, open_toolbox
from tests.conftest import LOOK, final, pixels

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two image files."""
    before, after = pixels(1, spots=1)
    Image.fromarray(before).save(tmp_path / "before.png")
    Image.fromarray(after).save(tmp_path / "after.png")
    return tmp_path / "before.png", tmp_path / "after.png"


def test_every_public_name_is_there_and_listed():
    assert set(editloupe.__all__) == {name for names in editloupe._WHERE.values() for name in names} | {"__version__"}
    for name in editloupe.__all__:
        assert getattr(editloupe, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = editloupe.nope


def test_built_ins_come_through_the_door_that_plug_ins_use():
    assert {"baseline", "openai", "scripted"} <= set(plugins.names("backends"))
    assert {"zoom_in", "localize_differences", "enhancer"} <= set(plugins.names("tools"))
    assert {"dlebench", "pairwise"} <= set(plugins.names("protocols"))
    with pytest.raises(
        UnknownPlugin,
        match="unknown tool 'magic'; known here: detect_object, enhancer, grounding, localize_differences, zoom_in",
    ):
        plugins.load("tools", "magic")


def test_the_papers_tools_that_are_not_installed_are_declared_absent():
    box = open_toolbox()
    assert set(box.tools) | set(box.absent) == set(BUILT_IN_TOOLS)
    assert set(box.absent) == {"grounding", "detect_object"}


@pytest.mark.parametrize(
    ("text", "provider", "model", "params"),
    [
        ("baseline", "baseline", "", {}),
        ("openai/gpt-4.1", "openai", "gpt-4.1", {}),
        ("openai:gpt-4.1", "openai", "gpt-4.1", {}),
        ("openai/Qwen/Qwen3-VL-8B", "openai", "Qwen/Qwen3-VL-8B", {}),
        ("openai/m:free?base_url=http://h:1/v1", "openai", "m:free", {"base_url": "http://h:1/v1"}),
    ],
)
def test_a_backend_uri_is_split_at_its_first_separator(text: str, provider: str, model: str, params: dict[str, str]):
    uri = parse_uri(text)
    assert (uri.provider, uri.model, dict(uri.params)) == (provider, model, params)


@pytest.mark.parametrize("text", ["", "/m", "openai/m?api_key=x", "openai/m?access_token=x"])
def test_a_uri_without_a_provider_or_with_a_secret_is_refused(text: str):
    with pytest.raises(ConfigError):
        parse_uri(text)


def test_the_python_api_judges_two_files(pair: tuple[Path, Path]):
    sample = load_sample(*pair, "Make it red.", editor="mine")
    lmm = ScriptedLMM([LOOK, final("Wrong Action")])
    (only,) = Judge(lmm, criteria=["if"]).judge(sample)
    assert (only.label, only.sample_id, only.editor, only.trace) == ("Wrong Action", "after", "mine", None)


def test_judge_all_keeps_the_order_of_the_samples_and_out_is_a_run(pair: tuple[Path, Path], tmp_path: Path):
    from editloupe.runs.store import RunStore

    samples = [load_sample(*pair, "Make it red.", id=f"s{i}") for i in (0, 1, 2, 1, 0)]
    lmm = ScriptedLMM([final("Wrong Action")])
    with Judge(lmm, criteria="if", out=tmp_path / "out") as judge:
        findings = judge.judge_all(samples, concurrency=3)
    assert [f[0].sample_id for f in findings] == ["s0", "s1", "s2", "s1", "s0"]
    assert len(lmm.requests) == 3, "a sample that comes twice is judged once"
    run = RunStore.read(tmp_path / "out")
    assert [f.sample_id for f in run.current()] == ["s0", "s1", "s2"]
    assert all((tmp_path / "out" / str(f.trace)).is_file() for f in run.current())
    with Judge(lmm, criteria="if", out=tmp_path / "out") as judge:
        judge.judge(samples[0])
    assert len(lmm.requests) == 3, "a later judge goes on with the same run"


def test_settings_that_cannot_work_are_refused():
    for wrong in ({"criteria": []}, {"max_turns": -1}, {"criteria": ["beauty"]}, {"backend": "nope"}):
        with pytest.raises(ConfigError):
            Judge(**wrong)  # type: ignore[arg-type]


def test_the_baseline_judges_through_the_same_door(pair: tuple[Path, Path]):
    findings = Judge("baseline").judge(load_sample(*pair, "Make the grey square red."))
    assert [f.metric for f in findings] == ["instruction_following", "visual_consistency"]
    assert all(f.status == "ok" for f in findings)


def test_files_that_cannot_be_a_sample_say_why(pair: tuple[Path, Path], tmp_path: Path):
    with pytest.raises(ImageError, match="no such file"):
        load_sample(tmp_path / "nope.png", pair[1], "Make it red.")
    with pytest.raises(SampleError, match="instruction is empty"):
        load_sample(*pair, "  ")
    with pytest.raises(ConfigError, match="option mode: Input should be 'tool', 'oracle' or 'plain'; found 'fast'"):
        Judge(mode="fast")  # type: ignore[arg-type]


def test_langgraph_json_names_a_factory_that_builds_and_runs_from_uris(pair: tuple[Path, Path], tmp_path: Path):
    where = json.loads((ROOT / "langgraph.json").read_text())["graphs"]["judge"]
    file, _, name = where.partition(":")
    module = importlib.import_module(".".join(Path(file).with_suffix("").parts))
    graph = getattr(module, name)()
    script = tmp_path / "replies.jsonl"
    script.write_text(json.dumps(LOOK) + "\n" + json.dumps(final("Single Anomaly")) + "\n")
    question = {"source": str(pair[0]), "edited": str(pair[1]), "instruction": "Make it red.", "criterion": "vc"}
    answered = graph.invoke(question, context={"backend": f"scripted/{script}"})
    assert (answered["status"], answered["label"], answered["turns"]) == ("ok", "Single Anomaly", 1)
    swapped = graph.invoke(question, context={"backend": "baseline"})
    assert swapped["status"] == "ok"
    with pytest.raises(ConfigError, match="'edited': expected a text, it is missing"):
        graph.invoke({"source": "x"})


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1: not JSON"),
        ("3", "expected a string or an object"),
        ('{"error": "x"}', "with error \\(rate_limited, .*found {.error.: .x.}"),
        ("{}", "text"),
    ],
)
def test_a_broken_script_is_named_with_its_line(line: str, told: str, tmp_path: Path):
    (tmp_path / "s.jsonl").write_text(line + "\n")
    with pytest.raises(ConfigError, match=told):
        open_backend(f"scripted/{tmp_path / 's.jsonl'}")
