"""Several judges in one run: what is asked, what is reused, what stands in run.json and config.yaml; repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request, Sampling
from editloupe.errors import RunMismatch
from editloupe.figures.judged import judged_in
from editloupe.findings import JudgeSpec
from editloupe.protocols.repeats import Repeats
from editloupe.rubrics import rubric_path
from editloupe.runs.judges import JudgeEntry
from editloupe.runs.merge import merge
from editloupe.runs.outcome import Outcome
from editloupe.runs.recording import Live
from editloupe.runs.replay import Replay
from editloupe.runs.rescore import protocol_with, rescore, write_rescored
from editloupe.runs.store import RunStore
from editloupe.tools.base import open_toolbox
from editloupe.tools.localize_differences import LocalizeDifferences
from editloupe.traces.events import Note
from editloupe.traces.read import read_trace
from tests.conftest import LOOK, Edits, final
from tests.setups import open_with, run_over

BEST, WRONG = "Flawless Execution", "Wrong Action"


def talker(label: str = WRONG, *, name: str = "test") -> ScriptedLMM:
    return ScriptedLMM([LOOK, final(label)], name=name)


def run(lmm: ScriptedLMM, folder: Path, out: Path, *, name: str = "", **settings: Any) -> Outcome:
    setup = open_with(backend=lmm, name=name, **{"criteria": ("if",), **settings})
    entry = JudgeEntry(judge=setup.judge, name=name, options={"backend": lmm.uri})
    config = {"path": str(folder), "backend": lmm.uri}
    return run_over(setup, folder, out, config=config, concurrency=2, entries=[entry])


def findings(outcome: Outcome) -> list[tuple[str, int, str | None]]:
    return [(f.sample_id, f.repeat, f.label) for f in outcome.findings]


def test_a_run_in_which_tools_were_answered_before_replays_as_recorded(edits: Edits, tmp_path: Path):
    setup = open_with(backend=talker(), criteria=("if", "vc"))
    outcome = run_over(setup, edits(2), tmp_path / "run", config={})
    # The second criterion asks for what the first has seen.
    assert sorted(f.counts.get("cached_tools", 0) for f in outcome.findings) == [0, 0, 1, 1]
    store = RunStore.read(tmp_path / "run")
    for live in (Live(), Live(toolbox=open_toolbox(("localize_differences",)))):
        replay = Replay(folder=store.folder, live=live, run=store.identity)
        replayed = list(replay.tasks(store.current()))
        assert [(r.verdict, r.message) for r in replayed] == [("same", "")] * 4
        assert [r.finding and r.finding.counts for r in replayed] == [f.counts for f in store.current()]


def test_a_name_is_kept_and_belongs_to_one_judge_and_without_one_the_id_tells(edits: Edits, tmp_path: Path):
    folder, out = edits(1), tmp_path / "run"
    run(talker(), folder, out, name="cool")
    run(talker(), folder, out, name="warm", sampling=Sampling(temperature=1.0))
    assert list(RunStore.read(out).judge_names().values()) == ["cool", "warm"]
    # Named or not, it is the same judge.
    assert run(talker(), folder, out).reused == 1
    assert list(RunStore.read(out).judge_names().values()) == ["cool", "warm"]
    ids = [run(talker(), folder, tmp_path / "own", sampling=Sampling(temperature=t)).setup.judge.id for t in (0.0, 1.0)]
    assert list(RunStore.read(tmp_path / "own").judge_names().values()) == [f"scripted/test ({i[:6]})" for i in ids]
    lmm = talker()
    with pytest.raises(RunMismatch, match=r"a judge 'warm' already, .* sampling temperature: was 1\.0, is 0\.5"):
        run(lmm, folder, out, name="warm", sampling=Sampling(temperature=0.5))
    assert lmm.requests == []


# With the same URI but something else: nothing is reused.


def test_another_prompt_rubric_or_tool_version_is_refused_there_and_another_judge_elsewhere(
    edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, out, prompt, rubric = edits(1), tmp_path / "run", tmp_path / "mine.md", tmp_path / "dlebench.toml"
    ids = {run(talker(), folder, out).setup.judge.id}

    def refused(there: Path, told: str, **other: Any) -> None:
        lmm = talker()
        with pytest.raises(RunMismatch, match=told):
            run(lmm, folder, there, **other)
        assert lmm.requests == []
        elsewhere = run(lmm, folder, tmp_path / f"elsewhere-{len(ids)}", **other)
        assert (elsewhere.reused, len(lmm.requests)) == (0, 2)
        assert elsewhere.setup.judge.id not in ids
        ids.add(elsewhere.setup.judge.id)

    prompt.write_text("{{ criterion.question }}\n{{ instruction }}\n{{ images | join }}\n")
    refused(out, "--prompt: was not set, is mine.md", prompt=prompt)
    prompt.write_text("{{ criterion.question }}\n{{ instruction }} Look.\n{{ images | join }}\n")
    refused(tmp_path / "elsewhere-1", "--prompt: was another one of this name", prompt=prompt)
    built_in = rubric_path("dlebench")
    changed = built_in.read_text(encoding="utf-8").replace("Stop.", "Stop at once.").replace("stop", "stop now", 1)
    rubric.write_text(changed, encoding="utf-8")
    refused(out, "rubric", rubric=rubric)
    monkeypatch.setattr(LocalizeDifferences, "revision", "99")
    refused(out, r"version of the tool localize_differences: was .*, is \"99")


# Repeats.


def turns(*labels: str) -> ScriptedLMM:
    """A judge whose n-th repeat says the n-th label: by the seed, from 5."""

    def script(request: Request) -> str:
        return final(labels[(request.sampling.seed or 5) - 5])

    return ScriptedLMM(script)


def test_each_repeat_is_a_finding_with_a_trace_and_a_seed_of_its_own(edits: Edits, tmp_path: Path):
    folder, out, lmm = edits(2), tmp_path / "run", turns(BEST, WRONG, WRONG)
    warm = Sampling(temperature=1.0, seed=5)
    outcome = run(lmm, folder, out, sampling=warm, repeats=Repeats(count=3))
    assert findings(outcome) == [(s, i, label) for s in ("s00", "s01") for i, label in enumerate((BEST, WRONG, WRONG))]
    assert sorted(r.sampling.seed or 0 for r in lmm.requests) == [5, 5, 6, 6, 7, 7]
    assert len({f.trace for f in outcome.findings}) == 6
    assert len({f.judge_id for f in outcome.findings}) == 1
    second = read_trace(out / str(outcome.findings[1].trace))
    assert second.header.repeat == 1
    assert [e.text for e in second.events if isinstance(e, Note)] == ["repeat 2: seed 6"]
    # The median of 4, 2, 2 is 2, which is (2−1)/3·100.
    assert [(s.label, round(s.normalized or 0, 2), round(s.entropy or 0, 4)) for s in outcome.scores] == [
        (WRONG, 33.33, 0.9183)
    ] * 2


def test_merged_judges_keep_their_names_and_options(edits: Edits, tmp_path: Path):
    folder, shards, whole = edits(2), [tmp_path / "a", tmp_path / "b"], tmp_path / "whole"
    warm, rule = Sampling(temperature=1.0, seed=5), Repeats(count=3, by="majority")
    run(talker(), folder, shards[0], name="cool")
    run(turns(BEST, WRONG, WRONG), folder, shards[1], name="warm", sampling=warm, repeats=rule)
    merge(whole, shards)
    store = RunStore.read(whole)
    assert list(store.judge_names().values()) == ["cool", "warm"]
    config = yaml.safe_load((whole / "config.yaml").read_text())
    assert config["judges"] == {name: {"backend": "scripted/test"} for name in ("cool", "warm")}
    assert [len(store.current(id_)) for id_ in store.judges()] == [2, 6]
    scores = {j.title: [s.label for s in j.scores] for j in judged_in(store)}
    assert scores == {"cool": [WRONG, WRONG], "warm": [WRONG, WRONG]}
    assert [j.repeats.by for j in judged_in(store)] == ["majority"] * 2


def test_each_judge_is_rescored_by_its_own_answers(edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, out = edits(1), tmp_path / "run"
    run(talker(WRONG, name="a"), folder, out, name="strict")
    run(talker(BEST, name="b"), folder, out, name="kind")
    store = RunStore.read(out)
    protocol = protocol_with(store, {"rubric": "dlebench"})
    plan, seen = type(protocol).plan, []

    def watched(self: Any, group: Any, known: Any) -> Any:
        found = known.finding("instruction_following", group[0])
        seen.append(found and found.label)
        return plan(self, group, known)

    monkeypatch.setattr(type(protocol), "plan", watched)
    again = {store.judge_names()[one.before.judge_id]: one.now for one in rescore(store, protocol)}
    assert {name: now and now.label for name, now in again.items()} == {"strict": WRONG, "kind": BEST}
    whole = write_rescored(store, protocol, list(rescore(store, protocol)), tmp_path / "again")
    assert list(whole.judge_names().values()) == ["strict", "kind"]
    seen = seen[:4]
    # For each judge the plan begins with nothing known, and then knows its own answers alone.
    assert seen == [None, WRONG, None, BEST]


def test_a_replay_asks_each_repeat_with_its_seed_and_a_judge_with_a_prompt_comes_back(edits: Edits, tmp_path: Path):
    folder, out, prompt = edits(1), tmp_path / "run", tmp_path / "mine.md"
    prompt.write_text("{{ instruction }}: {% for level in criterion.levels %}{{ level.name }}, {% endfor %}\n")
    warm = Sampling(temperature=1.0, seed=5)
    outcome = run(turns(BEST, WRONG), folder, out, sampling=warm, repeats=Repeats(count=2), prompt=prompt)
    assert JudgeSpec.from_json(outcome.setup.judge.to_json()) == outcome.setup.judge
    store = RunStore.read(out)
    replay = Replay(folder=out, live=Live(), run=store.identity)
    assert [(r.verdict, r.message) for r in replay.tasks(store.current())] == [("same", "")] * 2
