"""Templates that loop or grow without end: one message that names the template, in seconds, and the next one works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from editloupe.errors import ConfigError
from editloupe.prompts import OwnTemplate, bounded, render

Edits = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]

TOO_LONG = "takes more than 1 s to render; is there a loop without end?"
TOO_LARGE = "takes more than 256 MB of memory to render"
TOO_WORDY = "is longer than 1,000,000 characters when it is rendered"
TOO_DEEP = "nests too deep, or calls itself without end"


def text_of(text: str, **variables: object) -> str:
    return render(OwnTemplate(name="mine.md", text=text), **variables)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        pytest.param(
            "{% for a in s %}{% for b in s %}{% for c in s %}{% endfor %}{% endfor %}{% endfor %}",
            TOO_LONG,
            marks=pytest.mark.slow,
        ),
        ("{{ 10 ** (10 ** 10) }}", TOO_LONG),
        ("{% for a in s %}{% for b in s %}{{ a }}{{ b }}{% endfor %}{% endfor %}", TOO_WORDY),
        ("{{ 'a' * 1000001 }}", TOO_WORDY),
        ("{{ 'a' * 10**10 }}", TOO_LARGE),
        ("{{ s * 10**7 }}", TOO_LARGE),
        ("{{ [0] * 10**10 }}", TOO_LARGE),
        ("{{ 'a' | center(10**10) }}", TOO_LARGE),
        ("{{ 'a'.ljust(10**10) }}", TOO_LARGE),
        ("{{ '%10000000000d' % 1 }}", TOO_LARGE),
        ("{{ '{:>10000000000}'.format(1) }}", TOO_LARGE),
        ("{{ s.replace('x', s).replace('x', s) }}", TOO_LARGE),
        ("{% set x = 'ab' %}" + "{% set x = x ~ x %}" * 60 + "{{ x }}", TOO_LARGE),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", TOO_DEEP),
        ("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", TOO_DEEP),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", TOO_DEEP),
        ("{% for a in s %}" * 30 + "{% endfor %}" * 30, "too many statically nested blocks"),
        ("{% for i in range(10**9) %}{% endfor %}", "line 1: 'range' is undefined"),
        ("{% include 'mine.md' %}", "a template must be one file"),
    ],
)
def test_a_template_without_end_is_one_message_in_seconds(template: str, told: str):
    began = time.process_time() + sum(os.times()[2:4])
    with pytest.raises(ConfigError) as caught:
        text_of(template, s="x" * 3000)
    assert str(caught.value).startswith("prompt 'mine.md'") and told in str(caught.value)
    assert len(str(caught.value)) < 300
    assert time.process_time() + sum(os.times()[2:4]) - began < 5
    assert text_of("{{ s }}", s="still here") == "still here"


def test_one_process_serves_all_templates_and_threads():
    text_of("a")
    before = bounded._process
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: text_of("{{ n }} of {{ s }}", n=n, s="é\ud800"), range(100)))
    assert found == [f"{n} of é\ud800" for n in range(100)]
    assert bounded._process is before


def test_a_variable_that_no_other_process_can_be_given_is_named():
    with pytest.raises(ConfigError, match=r"prompt 'mine\.md': its variables must be plain values"):
        text_of("{{ lock }}", lock=threading.Lock())


def test_no_module_of_the_users_folder_takes_part(tmp_path: Path):
    for name in ("pickle.py", "json.py", "jinja2.py"):
        (tmp_path / name).write_text("raise SystemExit('a module of the folder was imported')\n")
    code = "from editloupe.prompts import render, OwnTemplate; print(render(OwnTemplate(name='m', text='{{ 1 + 1 }}')))"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2\n", "")


@pytest.mark.parametrize("command", ["judge", "rescore"])
def test_a_prompt_without_end_stops_a_command_before_anything_is_asked(
    command: str, editloupe: Run, edits: Edits, tmp_path: Path
):
    hostile = "{{ instruction }} {{ 'a' * 10**10 }}"
    (tmp_path / "mine.md").write_text(hostile if command == "judge" else "{{ instruction }}")
    words = ("judge", edits(1), "--criteria", "if", "--mode", "plain", "--prompt", "mine.md", "--out", "run")
    if command == "rescore":
        # A run of somebody else brings its prompt along.
        editloupe(*words)
        info = json.loads(Path("run/run.json").read_text())
        for options in (info["identity"]["options"], info["record"]["options"]):
            options["prompt"]["text"] = hostile
        Path("run/run.json").write_text(json.dumps(info))
        words = ("replay", "run", "--rubric", "dlebench")
    code, _, told = editloupe(*words)
    assert (code, told.count("\n")) == (2, 1)
    assert "prompt 'mine.md'" in told and TOO_LARGE in told
