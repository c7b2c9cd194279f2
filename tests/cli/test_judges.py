"""Several judges as a user types them, against servers of our own on loopback that count what they are asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from editloupe.backends import openai as adapter
from editloupe.backends.retry import RetryPolicy
from editloupe.runs.store import RunStore
from tests.backends.loopback import Act, Body
from tests.backends.openai_server import Handler, OpenAIServer, fails, says, serving
from tests.conftest import LOOK, final

Edits = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed call is given up at once."""
    opened = partial(adapter.open_backend, policy=RetryPolicy(attempts=1, sleep=lambda seconds: None))
    monkeypatch.setattr(adapter, "open_backend", opened)


@pytest.fixture
def serve() -> Iterator[Callable[[Act], OpenAIServer]]:
    with serving() as start:
        yield start


Serve = Callable[[Act], OpenAIServer]


def looks(label: str) -> Act:
    """Calls a tool, reads the observation, answers."""

    def act(handler: Handler, body: Body) -> None:
        says(final(label) if len(body["messages"]) > 1 else LOOK)(handler, body)

    return act


def uri(server: OpenAIServer) -> str:
    return f"openai/m?base_url={server.url}&env=none"


def statuses(run: Path) -> dict[str, list[str]]:
    """Name of the judge → statuses, in the order of the samples."""
    store = RunStore.read(run)
    return {name: [f.status for f in store.current(id_)] for id_, name in store.judge_names().items()}


def test_a_fourth_judge_costs_no_call_of_the_three_before(editloupe: Run, serve: Serve, edits: Edits):
    servers = [serve(looks(label)) for label in ("Wrong Action", "Flawless Execution", "Over Modification", "Wrong Action")]
    folder = edits(3)
    judges = [word for server in servers for word in ("--backend", uri(server))]
    code, said, _ = editloupe("judge", folder, "--criteria", "if", *judges[:6])
    assert code == 0
    assert [len(s.seen) for s in servers] == [6, 6, 6, 0]
    assert [f"Judge {n} of 3:" in said for n in (1, 2, 3)] == [True] * 3
    # Values 2, 4 and 3 on 1..4; the tools ran for the first judge.
    assert "Judges side by side" in said
    assert said.count("Tools: 3 calls, 3 from cache.") == 2
    code, said, _ = editloupe("judge", folder, "--criteria", "if", *judges)
    assert code == 0
    assert [len(s.seen) for s in servers] == [6, 6, 6, 6]
    assert said.count("3 of 3 findings judged, 3 of them from before") == 3
    (run,) = Path("runs").iterdir()
    assert len(list((run / "report").glob("summary-*.json"))) == 4


def test_a_judge_joins_a_finished_run_and_both_can_be_run_again_from_its_config(
    editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path
):
    first, second, out = serve(looks("Wrong Action")), serve(looks("Flawless Execution")), tmp_path / "run"
    words = ("judge", edits(2), "--criteria", "if", "--out", out, "--backend")
    assert editloupe(*words, uri(first))[0] == 0
    before = yaml.safe_load((out / "config.yaml").read_text())
    assert (before["backend"], "judges" in before) == (uri(first), False)
    code, said, _ = editloupe(*words, uri(second))
    assert code == 0
    assert "Judges side by side" in said
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config["judges"] == {uri(s): {"backend": uri(s)} for s in (first, second)}
    code, said, _ = editloupe("judge", "--config", out / "config.yaml", "--trust", "--out", out, "--format", "json")
    events = [json.loads(line) for line in said.splitlines()]
    lines = [event for event in events if event["event"] not in ("progress", "finding")]
    assert [line["event"] for line in lines] == ["done", "done"]
    assert [line["reused"] for line in lines[:2]] == [2, 2]
    assert (code, len(first.seen), len(second.seen)) == (0, 4, 4)
    # config.yaml is that of the last invocation, with every judge that ever came.
    third = serve(looks("Wrong Action"))
    assert editloupe(*words, uri(third), "--limit", "1")[0] == 0
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert (len(config["judges"]), config["limit"]) == (3, 1)


def test_a_failing_judge_stops_no_other_and_retry_asks_all_of_them(
    editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path
):
    broken, fine, out = serve(fails(500, "out of memory")), serve(looks("Wrong Action")), tmp_path / "run"
    code, said, _ = editloupe(
        "judge", edits(2), "--criteria", "if", "--backend", uri(broken), "--backend", uri(fine), "--out", out
    )
    assert code == 3, "one judged nothing, the other all"
    assert "out of memory" in said
    assert list(statuses(out).values()) == [["backend_failed"] * 2, ["ok"] * 2]
    broken.script[:] = [looks("Wrong Action")]
    fine_before = len(fine.seen)
    code, _, told = editloupe("judge", out, "--retry", "--trust")
    assert (code, len(fine.seen)) == (0, fine_before)
    assert "warning" not in told
    assert list(statuses(out).values()) == [["ok"] * 2, ["ok"] * 2]


def test_judges_have_names_and_options_of_their_own(editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path):
    server, out = serve(looks("Wrong Action")), tmp_path / "run"
    file = tmp_path / "judges.yaml"
    file.write_text(
        f"cool: {uri(server)}\nwarm:\n  backend: {uri(server)}\n  temperature: 1\n  seed: 7\n  reply_tokens: 99\n"
        "pixels: baseline\n"
    )
    words = ("judge", edits(1), "--criteria", "if", "--judges-file", file, "--out", out)
    code, said, _ = editloupe(*words)
    assert code == 0
    sent = [{k: body.get(k) for k in ("temperature", "seed", "max_tokens")} for body in server.seen]
    assert sent[0] == {"temperature": 0.0, "seed": 0, "max_tokens": None}
    assert sent[2] == {"temperature": 1.0, "seed": 7, "max_tokens": 99}
    assert "Judge: warm, openai/m" in said.replace("\n", " ")
    assert list(statuses(out)) == ["cool", "warm", "pixels"]
    assert "warm, tool" in editloupe("report", out)[1]
    shown = editloupe("show", out)[1]
    assert "Judge: pixels, baseline (" in shown
    file.write_text(
        file.read_text()
        + f"other:\n  backend: {uri(server)}\n  seed: 5\nhot:\n  backend: {uri(server)}\n  temperature: 2\n"
    )
    before = len(server.seen)
    assert editloupe(*words)[0] == 0
    assert len(server.seen) == before + 4
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config["judges"]["warm"] == {"backend": uri(server), "temperature": 1, "seed": 7, "reply_tokens": 99}
    assert config["judges"]["other"] == {"backend": uri(server), "seed": 5}
    assert editloupe("judge", out, "--retry", "--trust")[0] == 0
    assert len(server.seen) == before + 4
    assert len(statuses(out)) == 5


def test_what_is_wrong_with_a_judge_is_said_before_anything_is_asked(editloupe: Run, edits: Edits, tmp_path: Path):
    folder, named = edits(1), "warm:\n  backend: baseline\n"
    for text, told in (
        (f"{named}  mode: plain\n", "judge 'warm': 'mode' is no option of a judge; expected some"),
        ("warm:\n  temperature: 1\n", "judge 'warm': expected a backend"),
        (f"{named}  seed: soon\n", "judge 'warm': seed: Input should be a valid integer; found 'soon'"),
        (f"{named}  temperature: true\n", "judge 'warm': temperature: Input should be a valid number; found True"),
        ("- baseline\n", "expected names of judges, each with its backend"),
        ("a: [1\n", "is not YAML"),
        ("a: baseline\nb: baseline\n", "a and b are the same judge"),
        ("a: baseline\nb: scripted/b.jsonl\na: scripted/a.jsonl\n", "judges.yaml, line 3: 'a' stands twice"),
        (f"{named}  seed: 1\n  seed: 2\n", "judges.yaml, line 4: 'seed' stands twice"),
        ("a: baseline\n'a ': {backend: baseline, seed: 1}\n", "several judges are called a; each needs a name"),
        ("a: nobody/m\nb: baseline\n", "nobody"),
    ):
        (tmp_path / "judges.yaml").write_text(text)
        code, said, complained = editloupe("judge", folder, "--judges-file", "judges.yaml", "--out", "run")
        assert (code, said) == (2, ""), text
        assert told in complained.replace("\n", " "), text
    assert not Path("run").exists()


def test_a_budget_is_that_of_all_judges_together(editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path):
    first, second = serve(looks("Wrong Action")), serve(looks("Wrong Action"))
    words = ("judge", edits(2), "--criteria", "if", "--concurrency", "1", "--out", tmp_path / "run")
    words += ("--backend", uri(first), "--backend", uri(second))
    # 14 tokens an answer: four answers of the first judge and one of the second are 70.
    code, said, _ = editloupe(*words, "--set", "run_tokens=70")
    assert (code, len(first.seen), len(second.seen)) == (5, 4, 1)
    assert "Stopped by the budget (tokens: 14 of 14 used)" in said
    # What the first has used up leaves nothing.
    code, _, told = editloupe(*words[:-4], *words[-2:], "--backend", uri(first), "--set", "run_tokens=42")
    assert (code, len(second.seen)) == (5, 4)
    assert "The budget is used up before" in told
    assert editloupe("judge", tmp_path / "run", "--retry", "--trust")[0] == 0


def test_repeats_from_the_command_line(editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path):
    labels = ["Flawless Execution", "Wrong Action", "Wrong Action"]

    def act(handler: Handler, body: Body) -> None:
        says(final(labels[body["seed"] - 1]))(handler, body)

    server, out = serve(act), tmp_path / "run"
    words = ("judge", edits(2), "--criteria", "if", "--backend", uri(server), "--out", out, "--repeats", "3")
    words += ("--temperature", "1", "--set", "seed=1")
    code, said, _ = editloupe(*words)
    said = " ".join(said.split())
    assert (code, len(server.seen)) == (0, 6)
    assert "6 of 6 findings judged" in said
    # The median of 4, 2 and 2; an entropy of −(1/3 log 1/3 + 2/3 log 2/3) = 0.918 bits.
    assert "33.33 (2/2)" in said
    assert "3 repeats a question, the median label counts. Repeats agree on 0 of 2 scores" in said
    assert "mean entropy of labels 0.92 bits" in said
    code, said, _ = editloupe(*words, "--set", "abstain_above=0.5")
    assert (code, len(server.seen)) == (0, 6)
    assert "– (0/2)" in said
    assert "Wrong Action ×2" in editloupe("show", out)[1]
    assert "repeat 3" in editloupe("show", out, "s00")[1]
    assert "3 repeats a question, the median label counts" in editloupe("report", out, "--format", "md")[1]
    assert editloupe("judge", out, "--retry", "--trust")[0] == 0
    assert len(server.seen) == 6
