"""`editloupe judge --launch` as a user types it, with a stand-in program called vllm on the PATH."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from editloupe.backends.base import parse_uri
from editloupe.backends.vllm_server import launched
from editloupe.errors import ConfigError, Unavailable
from editloupe.runs.store import RunStore
from tests.conftest import final

Edits = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[2]

STAND_IN = f"""#!{sys.executable}
# Acts as `vllm serve`: $ACT says how. Its process ids and arguments go to $NOTES, one line a start.
import json, os, signal, subprocess, sys, threading, time
from http.server import ThreadingHTTPServer
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
act, arguments = os.environ.get("ACT", ""), sys.argv[1:]
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
with open(os.environ["NOTES"], "a") as notes:
    notes.write(json.dumps({{"pids": [os.getpid(), worker.pid], "arguments": arguments}}) + "\\n")
print("Loading weights", flush=True)
if act == "dies":
    print("\\n".join(f"line {{n}}" for n in range(40)))
    print("RuntimeError: no GPU, key", os.environ.get("VLLM_API_KEY", "none"), flush=True)
    worker.kill()
    sys.exit(3)
if act == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if act == "hangs":
    time.sleep(120)
from tests.backends.openai_server import OpenAIServer, says
time.sleep(0.3)
port = int(arguments[arguments.index("--port") + 1])
server = OpenAIServer(says({final("Wrong Action")!r}), model=arguments[1], vllm=True)
server._http.server_close()
server._http = ThreadingHTTPServer(("127.0.0.1", port), server._http.RequestHandlerClass)
server._http.daemon_threads = True
print("Application startup complete.", flush=True)
if act == "falls":
    threading.Timer(0.7, lambda: (print("CUDA out of memory", flush=True), os._exit(7))).start()
server._http.serve_forever()
"""


class StandIn:
    """The stand-in on the PATH, and what it noted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.notes = folder / "bin", folder / "notes.jsonl"
        self.folder.mkdir()
        program = self.folder / "vllm"
        program.write_text(STAND_IN)
        program.chmod(0o755)
        self._set = monkeypatch.setenv
        self._set("PATH", f"{self.folder}{os.pathsep}{os.environ['PATH']}")
        self._set("NOTES", str(self.notes))
        self.act("")

    def act(self, name: str) -> None:
        self._set("ACT", name)

    @property
    def starts(self) -> list[dict[str, list[str]]]:
        return [json.loads(line) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []

    def left(self) -> list[int]:
        """Processes of any start that still run."""
        return [int(pid) for start in self.starts for pid in start["pids"] if _runs(int(pid))]

    def gone(self) -> bool:
        """Whether all have ended within a moment: a signal that was sent is not yet a process that has ended."""
        _until(lambda: not self.left(), 3)
        return True


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def _until(true: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.05)


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    if not Path("/proc/self/stat").exists():
        pytest.skip("looks at processes through /proc")
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    return StandIn(tmp_path, monkeypatch)


def test_the_server_is_started_waited_for_and_stopped_and_the_port_is_not_who_judges(
    editloupe: Run, vllm: StandIn, edits: Edits, tmp_path: Path
):
    run = tmp_path / "run"
    command = ["judge", edits(2), "--backend", "vllm/Qwen/Tiny-VL", "--launch", "--criteria", "if", "--out", run]
    code, said, told = editloupe(*command, "--launch-args", "--max-model-len 4096", "--json")
    assert code == 0, told
    assert json.loads(said.splitlines()[-1])["judged"] == 2
    assert vllm.gone()
    (start,) = vllm.starts
    assert start["arguments"][:4] == ["serve", "Qwen/Tiny-VL", "--host", "127.0.0.1"]
    assert start["arguments"][-2:] == ["--max-model-len", "4096"]
    (judge,) = {f.judge_id for f in RunStore.read(run).current()}
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert (config["backend"], config["launch"], config["launch_args"]) == (
        "vllm/Qwen/Tiny-VL",
        True,
        "--max-model-len 4096",
    )
    assert "127.0.0.1" not in json.dumps(config)
    # Another start, another port, the same judge: only what is new is asked.
    command[1] = edits(3, name="more")
    code, said, told = editloupe(*command, "--launch-args", "--max-model-len 4096")
    assert code == 0
    assert "3 of 3 findings judged, 2 of them from before" in said
    assert "vllm serve Qwen/Tiny-VL answers after" in told
    assert len(vllm.starts) == 2
    assert {f.judge_id for f in RunStore.read(run).current()} == {judge}
    assert vllm.gone()


def test_no_server_is_started_where_nothing_is_left_to_ask(editloupe: Run, vllm: StandIn, edits: Edits, tmp_path: Path):
    command = [
        "judge",
        edits(2),
        "--backend",
        "vllm/Qwen/Tiny-VL",
        "--launch",
        "--criteria",
        "if",
        "--out",
        tmp_path / "run",
    ]
    assert editloupe(*command)[0] == 0
    assert len(vllm.starts) == 1
    (vllm.folder / "vllm").unlink()
    code, said, told = editloupe(*command)
    assert (code, len(vllm.starts)) == (0, 1)
    assert "2 of 2 findings judged, 2 of them from before" in said
    assert "answers after" not in told
    # Another argument is another judge.
    assert editloupe(*command, "--launch-args", "--dtype float32")[0] == 2


def test_other_arguments_are_another_judge(vllm: StandIn):
    with launched(parse_uri("vllm/m"), ["--quantization", "fp8"]) as (backend, server):
        assert backend.uri == "vllm/m"
        assert backend.endpoint == "launched: vllm serve m --quantization fp8"
        assert str(server.port) not in backend.endpoint
        assert len(vllm.left()) == 2
    assert vllm.gone()


def test_a_server_that_dies_early_shows_its_last_lines_and_no_key(
    editloupe: Run, vllm: StandIn, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("VLLM_API_KEY", "sk-canary-5ea5e11e5-7f3d")
    vllm.act("dies")
    code, said, told = editloupe("judge", edits(1), "--backend", "vllm/m", "--launch", "--out", tmp_path / "run")
    assert code == 1
    assert "vllm serve m ended with exit code 3:" in told
    assert "RuntimeError: no GPU, key ***" in told
    assert "line 39" in told
    assert "line 20" not in told
    assert "canary" not in said + told
    assert vllm.gone()


def test_a_server_that_never_answers_is_given_up_with_its_last_lines(vllm: StandIn):
    vllm.act("hangs")
    seen: list[str] = []
    with (
        pytest.raises(Unavailable, match=r"did not answer within 1\.5 s:\n    Loading weights"),
        launched(parse_uri("vllm/m"), progress=lambda seconds, line: seen.append(line), start_s=1.5),
    ):
        raise AssertionError("unreachable")
    assert "Loading weights" in seen
    assert vllm.gone()


def test_a_server_that_ignores_the_polite_signal_is_killed(vllm: StandIn):
    vllm.act("stubborn")
    with launched(parse_uri("vllm/m"), grace_s=0.3):
        assert len(vllm.left()) == 2
        begun = time.monotonic()
    assert time.monotonic() - begun < 5
    assert vllm.gone()


def test_an_error_inside_the_block_stops_the_server_too(vllm: StandIn):
    with pytest.raises(ZeroDivisionError), launched(parse_uri("vllm/m")):
        raise ZeroDivisionError
    assert vllm.gone()


def test_a_server_that_falls_during_the_run_says_how(vllm: StandIn):
    vllm.act("falls")
    with launched(parse_uri("vllm/m")) as (_, server):
        _until(server.trouble)
        assert "ended with exit code 7:" in server.trouble()
        assert "CUDA out of memory" in server.trouble()
    assert vllm.gone()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGINT, signal.SIGHUP))]
)
def test_a_signal_while_the_server_starts_leaves_nothing_behind(
    vllm: StandIn, edits: Edits, tmp_path: Path, number: signal.Signals
):
    vllm.act("hangs")
    code = "from editloupe.cli import main; main()"
    command = [sys.executable, "-c", code, "judge", str(edits(1)), "--backend", "vllm/m", "--launch"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    _until(lambda: vllm.starts)
    # The note is written before our side waits for an answer.
    time.sleep(0.5)
    process.send_signal(number)
    _, told = process.communicate(timeout=30)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted" in told
    else:
        assert process.returncode == -number
    assert vllm.gone()


def test_a_server_whose_run_is_killed_outright_ends_too(vllm: StandIn, edits: Edits, tmp_path: Path):
    vllm.act("hangs")
    code = "from editloupe.cli import main; main()"
    command = [sys.executable, "-c", code, "judge", str(edits(1)), "--backend", "vllm/m", "--launch"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _until(lambda: vllm.starts)
    process.kill()
    process.wait(10)
    server, worker = vllm.starts[0]["pids"]
    try:
        _until(lambda: not _runs(int(server)), 5)
    finally:
        # Its own children are its own affair: vLLM ends them when it gets the signal.
        os.kill(int(worker), signal.SIGKILL)


@pytest.mark.parametrize(
    ("words", "says_what"),
    [
        (("--backend", "openai/m"), "--launch starts vllm serve and needs --backend vllm/MODEL, found 'openai'"),
        (("--backend", "vllm"), "--launch needs a model: --backend vllm/MODEL"),
        (("--backend", "vllm/m?base_url=http://127.0.0.1:1/v1"), "leave base_url out, or --launch"),
        (("--backend", "vllm/m", "--launch-args", "--port 8000"), "--launch-args holds --port: a free one is chosen"),
        (("--backend", "vllm/m", "--launch-args", "--api-key=sk-canary"), "set VLLM_API_KEY"),
        (("--backend", "vllm/m", "--launch-args", '--x "'), "cannot be split"),
        (("--backend", "vllm/m", "--rubric", "nonsense"), "nonsense"),
        (("--backend", "vllm/m", "--workers", "2"), "--launch with --workers: start vllm serve yourself"),
    ],
)
def test_what_cannot_be_launched_is_said_before_anything_is_started(
    editloupe: Run, vllm: StandIn, edits: Edits, words: tuple[str, ...], says_what: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    code, said, told = editloupe("judge", edits(1), "--launch", *words)
    assert code == 2
    assert says_what in told
    assert "sk-canary" not in said + told
    assert vllm.starts == []


def test_launch_arguments_without_launch_are_refused(editloupe: Run, edits: Edits):
    code, _, told = editloupe("judge", edits(1), "--backend", "vllm/m", "--launch-args", "--x")
    assert code == 2
    assert "--launch-args needs --launch" in told


def test_without_vllm_the_message_says_how_to_get_it(editloupe: Run, edits: Edits, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, told = editloupe("judge", edits(1), "--backend", "vllm/m", "--launch")
    assert code == 2
    assert "pip install 'vllm>=0.31,<0.33'" in " ".join(told.split())


def test_a_program_that_cannot_be_run_is_said(vllm: StandIn):
    (vllm.folder / "vllm").write_text("#!/nowhere/python\n")
    with pytest.raises(ConfigError, match="cannot be run"), launched(parse_uri("vllm/m")):
        raise AssertionError("unreachable")


def test_a_backend_that_cannot_be_held_to_labels_is_said_to_be_none(editloupe: Run, edits: Edits, tmp_path: Path):
    (tmp_path / "replies.jsonl").write_text(json.dumps(final("Wrong Action")) + "\n")
    command = ("judge", edits(1), "--backend", "scripted/replies.jsonl", "--criteria", "if", "--constrain-labels")
    code, said, _ = editloupe(*command, "--out", tmp_path / "run")
    assert code == 0
    assert "Labels were not constrained: scripted/replies.jsonl" in " ".join(said.split())
