"""Judges as a user types them, one or several, against servers of our own on loopback that count what they are asked."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from editloupe import Judge
from editloupe.backends import google, openai
from editloupe.backends.retry import RetryPolicy
from editloupe.errors import Unavailable
from editloupe.runs.store import RunStore
from tests.backends.loopback import Act, Body
from tests.backends.openai_server import Handler, OpenAIServer, fails, says, serving
from tests.conftest import LOOK, Cli, Edits, final, refused


@pytest.fixture(autouse=True)
def hasty(editloupe: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed call is tried once more, at once."""
    for module in (openai, google):
        policy = RetryPolicy(attempts=2, sleep=lambda seconds: None)
        monkeypatch.setattr(module, "open_backend", partial(module.open_backend, policy=policy))
    for name in ("OPENAI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "sk-of-a-test")


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


def test_a_fourth_judge_costs_no_call_of_the_three_before(editloupe: Cli, serve: Serve, edits: Edits):
    servers = [serve(looks(label)) for label in ("Wrong Action", "Flawless Execution", "Over Modification", "Wrong Action")]
    folder = edits(3)
    judges = [word for server in servers for word in ("--backend", uri(server))]
    code, said, _ = editloupe("judge", folder, "--criteria", "if", *judges[:6])
    assert code == 0
    assert [len(s.seen) for s in servers] == [6, 6, 6, 0]
    assert [f"Judge {n} of 3:" in said for n in (1, 2, 3)] == [True] * 3
    # Values 2, 4 and 3 on 1..4; the tools ran for the first judge.
    assert said.count("Judges side by side") == said.count("All tables: ") == 1
    assert said.splitlines()[-1].startswith("Look at the verdicts: editloupe view runs/")
    assert said.count("Tools: 3 calls, 3 from cache.") == 2
    code, said, _ = editloupe("judge", folder, "--criteria", "if", *judges)
    assert code == 0
    assert [len(s.seen) for s in servers] == [6, 6, 6, 6]
    assert said.count("3 of 3 findings judged, 3 of them from before") == 3
    (run,) = Path("runs").iterdir()
    assert len(list((run / "report").glob("summary-*.json"))) == 4
    assert {path.name for path in (run / "traces").iterdir()} == set(RunStore.read(run).judges())


def test_a_judge_joins_a_finished_run_and_both_can_be_run_again_from_its_config(
    editloupe: Cli, serve: Serve, edits: Edits, tmp_path: Path
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
    assert config["judges"] == {uri(s): {"backend": uri(s)} for s in (first, second)} and "backend" not in config
    code, said, _ = editloupe("judge", "--config", out / "config.yaml", "--trust", "--out", out, "--format", "json")
    assert [done["reused"] for line in said.splitlines() if (done := json.loads(line))["event"] == "done"] == [2, 2]
    assert (code, len(first.seen), len(second.seen)) == (0, 4, 4)


def test_a_failing_judge_stops_no_other_and_retry_asks_all_of_them(
    editloupe: Cli, serve: Serve, edits: Edits, tmp_path: Path
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


def test_judges_have_names_and_options_of_their_own(editloupe: Cli, serve: Serve, edits: Edits, tmp_path: Path):
    server, out = serve(looks("Wrong Action")), tmp_path / "run"
    file = tmp_path / "judges.yaml"
    file.write_text(
        f"cool: {uri(server)}\nwarm:\n  backend: {uri(server)}\n  temperature: 1\n  seed: 7\n  reply_tokens: 99\n"
        "pixels: baseline\n"
    )
    words = ("judge", edits(1), "--criteria", "if", "--judges-file", file, "--out", out)
    assert editloupe(*words)[0] == 0
    sent = [{k: body.get(k) for k in ("temperature", "seed", "max_tokens")} for body in server.seen]
    assert sent[0] == {"temperature": 0.0, "seed": 0, "max_tokens": None}
    assert sent[2] == {"temperature": 1.0, "seed": 7, "max_tokens": 99}
    assert list(statuses(out)) == ["cool", "warm", "pixels"]
    assert "warm, tool" in editloupe("report", out)[1]
    shown = editloupe("show", out)[1]
    assert "Judge: pixels, baseline (" in shown
    before = len(server.seen)
    assert editloupe("judge", out, "--retry", "--trust")[0] == 0
    assert len(server.seen) == before


def test_what_is_wrong_with_a_judge_is_said_before_anything_is_asked(editloupe: Cli, edits: Edits, tmp_path: Path):
    folder, named = edits(1), "warm:\n  backend: baseline\n"
    for text, told in (
        (f"{named}  mode: plain\n", "judge 'warm': 'mode' is no option of a judge; expected some"),
        ("warm:\n  temperature: 1\n", "judge 'warm': expected a backend"),
        (f"{named}  seed: soon\n", "judge 'warm': seed: Input should be a valid integer; found 'soon'"),
        ("a: baseline\nb: baseline\n", "a and b are the same judge"),
        ("a: baseline\nb: scripted/b.jsonl\na: scripted/a.jsonl\n", "judges.yaml, line 3: 'a' stands twice"),
        ("a: baseline\n'a ': {backend: baseline, seed: 1}\n", "several judges are called a; each needs a name"),
        ("a: nobody/m\nb: baseline\n", "nobody"),
    ):
        (tmp_path / "judges.yaml").write_text(text)
        code, said, complained = editloupe("judge", folder, "--judges-file", "judges.yaml", "--out", "run")
        assert (code, said) == (2, ""), text
        assert told in complained.replace("\n", " "), text
    assert not Path("run").exists()


def test_a_budget_is_that_of_all_judges_together(editloupe: Cli, serve: Serve, edits: Edits, tmp_path: Path):
    first, second = serve(looks("Wrong Action")), serve(looks("Wrong Action"))
    words = ("judge", edits(2), "--criteria", "if", "--concurrency", "1", "--out", tmp_path / "run")
    words += ("--backend", uri(first), "--backend", uri(second))
    # 14 tokens an answer: four answers of the first judge and one of the second are 70.
    code, said, _ = editloupe(*words, "--set", "run_tokens=70")
    assert (code, len(first.seen), len(second.seen)) == (5, 4, 1)
    assert "Stopped by the budget (tokens: 14 of 14 used)" in said
    # What the first has used up leaves nothing.
    code, _, told = editloupe(*words[:-4], *words[-2:], "--backend", uri(first), "--set", "run_tokens=42")
    assert (code, len(second.seen)) == (5, 4) and "The budget is used up before" in told


def test_repeats_from_the_command_line(editloupe: Cli, serve: Serve, edits: Edits, tmp_path: Path):
    labels = ["Flawless Execution", "Wrong Action", "Wrong Action"]

    def act(handler: Handler, body: Body) -> None:
        says(final(labels[body["seed"] - 1]))(handler, body)

    server, out = serve(act), tmp_path / "run"
    words = ("judge", edits(2), "--criteria", "if", "--backend", uri(server), "--out", out, "--repeats", "3")
    words += ("--temperature", "1", "--set", "seed=1")
    code, said, _ = editloupe(*words)
    said = " ".join(said.split())
    assert (code, len(server.seen)) == (0, 6)
    # The median of 4, 2 and 2; an entropy of −(1/3 log 1/3 + 2/3 log 2/3) = 0.918 bits.
    assert "33.33 (2/2)" in said
    assert "3 repeats a question, the median label counts. Repeats agree on 0 of 2 scores" in said
    assert "mean entropy of labels 0.92 bits" in said
    assert "Wrong Action ×2" in editloupe("show", out)[1]
    assert "repeat 3" in editloupe("show", out, "s00")[1]
    assert editloupe("judge", out, "--retry", "--trust")[0] == 0
    assert len(server.seen) == 6


def test_a_server_that_fails_amid_a_dialogue_costs_no_call_twice(
    editloupe: Cli, serve: Serve, edits: Edits, tmp_path: Path
):
    server, run = serve(says(LOOK), fails(500, "restarting")), tmp_path / "run"
    code, _, _ = editloupe("judge", edits(1), "--backend", uri(server), "--criteria", "if", "--out", run)
    assert (code, len(server.seen)) == (1, 3)
    server.script[:] = [looks("Wrong Action")]
    assert editloupe("judge", run, "--retry", "--trust")[0] == 0
    assert len(server.seen) == 4, "the first answer was recorded and is not asked for again"


def test_a_run_that_has_used_its_budget_stops_with_5_and_goes_on(
    editloupe: Cli, serve: Serve, edits: Edits, tmp_path: Path
):
    server, folder, out = serve(says(final("Wrong Action"))), edits(4), tmp_path / "run"
    words = ("judge", folder, "--backend", uri(server), "--criteria", "if", "--out", out, "--concurrency", "1")
    # The server counts 11 tokens in and 3 out an answer: 28 are used up by two.
    code, said, _ = editloupe(*words, "--set", "run_tokens=28")
    assert code == 5
    assert "Stopped by the budget (tokens: 28 of 28 used). The same command continues." in said
    assert "Spent: 2 calls, 22 input and 6 output tokens (no price is known)." in said
    prices = tmp_path / "prices.toml"
    prices.write_text("[models.m]\ninput = 1000\noutput = 1000\n")
    code, said, _ = editloupe(*words, "--set", f"prices={prices}")
    assert code == 0
    # 28 tokens at 0.001 $ each.
    assert "about 0.028 USD" in said
    assert "no price is known for openai/m" in refused(editloupe, *words, "--max-cost", "1")


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port of this machine that takes no connection."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def drops(handler: Any, body: Body) -> None:
    """Closes the connection without an answer."""
    handler.close_connection = True


@pytest.mark.parametrize("uri", ["openai/m?base_url=http://127.0.0.1:{}/v1", "google/m?base_url=http://127.0.0.1:{}"])
def test_an_address_where_nobody_answers_is_told_once_before_anything_is_asked(
    editloupe: Cli, edits: Edits, nobody: int, uri: str
):
    if uri.startswith("google"):
        pytest.importorskip("google.genai")
    code, said, told = editloupe("judge", edits(8), "--backend", uri.format(nobody), "--out", "run")
    assert (code, said) == (1, "")
    assert told.count("no connection (Connection refused)") == told.count("check the address") == 1
    with pytest.raises(Unavailable, match="no connection"):
        Judge(uri.format(nobody), out="run")
    assert not Path("run").exists(), "no run lists whom nobody can ask"


def test_the_same_command_goes_on_when_the_server_is_there(editloupe: Cli, edits: Edits, nobody: int):
    with OpenAIServer(says(final("Wrong Action")), model="m") as server:
        folder, uri = edits(2), f"openai/m?base_url={server.url}"
        words = ("judge", folder, "--criteria", "if", "--out", "run", "--backend")
        assert editloupe(*words, uri)[0] == 0
    # With nothing left to ask, nobody looks.
    assert editloupe(*words, uri)[0] == 0
    code, said, _ = editloupe(*words, uri, "--repeats", "2")
    assert code == 1 and said.count("no connection (Connection refused)") == 1
    assert "2 findings are left. Correct this; the same command then continues." in said
    # A judge that was mistyped does not join, and is in nobody's way: `retry` asks those of the run, and no --trust for it.
    before = Path("run/run.json").read_bytes(), Path("run/config.yaml").read_bytes()
    assert editloupe(*words, f"openai/m?base_url=http://127.0.0.1:{nobody}/v2")[0] == 1
    assert before == (Path("run/run.json").read_bytes(), Path("run/config.yaml").read_bytes())


def test_a_server_that_goes_away_ends_the_run_when_patience_is_at_its_end(editloupe: Cli, edits: Edits):
    with OpenAIServer(says(final("Wrong Action")), says(final("Wrong Action")), drops, model="m") as server:
        words = ("judge", edits(16), "--criteria", "if", "--concurrency", "1", "--out", "run", "--set", "patience=60")
        words = (*words, "--backend", f"openai/m?base_url={server.url}")
        code, said, _ = editloupe(*words)
        assert code == 1
        assert [f.status for f in RunStore.read(Path("run")).current()] == ["ok"] * 2 + ["backend_failed"]
        assert said.count("the patience is 60 s") == said.count("check the address") == 1
        assert "14 findings are left" in said
        server.script[:] = [says(final("Wrong Action"))]
        assert editloupe(*words)[0] == 0
