"""Commands that read a run ask no server, and do not import what only a live judge needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from editloupe.traces import GALLERY

_LIVE = ("langgraph", "langsmith", "langchain_core", "openai", "google", "torch")
"""What a live loop, a provider or a model with weights needs."""

_COMMANDS = f"""
import sys

def watch(event, args):
    heavy = event == "import" and args[0].split(".")[0] in ("torch", "transformers")
    if heavy or event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        raise RuntimeError(f"{{event}} {{args[:1]}}")

sys.addaudithook(watch)
from editloupe.cli import main
from editloupe.figures import plots
plots.draw = lambda plot, **given: "<svg/>"
run, copy = sys.argv[1:]

def call(*words, loop=False):
    sys.argv = ["editloupe", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{{words}} ended with {{end.code}}") from None
    found = [name for name in {_LIVE} if name in sys.modules]
    if found and not loop:
        raise RuntimeError(f"{{words[0]}} imports {{found}}")

call("report", run)
call("show", run)
call("export", run, "--html", run + "-pages")
call("compare", run, copy)
call("gate", run, "--require", "unjudged<=1")
call("replay", run, "--rubric", "dlebench")
call("replay", copy, loop=True)
import editloupe.viewer.serve
"""


def _run(code: str, *words: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_commands_that_read_a_run_ask_no_server_and_import_no_langgraph_and_no_provider(tmp_path: Path):
    run, copy = tmp_path / "run", tmp_path / "copy"
    shutil.copytree(GALLERY, run)
    shutil.copytree(GALLERY, copy)
    assert "7 as recorded" in _run(_COMMANDS, str(run), str(copy))


def test_the_public_door_imports_no_langgraph_and_no_provider():
    loaded = _run("import sys; from editloupe import Judge; print(*sys.modules, sep='\\n')").split()
    heavy = {*_LIVE, "scipy", "jinja2", "filelock", "jsonschema", "requests", "httpx", "polars"}
    assert not heavy & set(loaded)
