"""What a model is asked, word for word and picture by picture, as it leaves the machine.

`questions/SCENARIO.txt` has the questions of a protocol and mode in full; `questions/dialect-DIALECT.txt` shows how one
dialogue with tools is built in each dialect. They change with a reason only: `python -m tests.guards --write questions`,
and read the diff. Sentences of a rubric stand there by their place in it: whoever changes one meets the digest of the
rubric in `tests/rubrics/test_rubric_files.py`, and nothing here.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from editloupe.rubrics import builtin_rubrics, load_rubric
from tests.guards.doors import Program
from tests.guards.frozen import HERE, WRITING
from tests.guards.scenarios import SCENARIOS, Scenario, draw, with_tools
from tests.guards.wire import Asked, Part, Wire

DIALECTS = {
    "openai": "openai/guard?base_url={address}/v1",
    "langchain": "langchain/openai:guard?base_url={address}/v1",
    "gemini": "google/guard?base_url={address}",
}
FULL, LONG = ("dlebench-plain", "dlebench-tool"), 72
"""Scenarios whose long lines, in characters, are not said again by others."""
IMAGE = re.compile(r"\[image (\S+) (\S+) mean (\d+),(\d+),(\d+) light ([0-9a-f ]+)\]")
COLOR, LIGHT = 2, 1
"""By how much a mean color and a sixteenth's light may differ: other versions of a library resample otherwise."""


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, editloupe: Program) -> None:
    for name in ("OPENAI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "none")


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_protocol_asks_what_is_frozen(name: str, tmp_path: Path, editloupe: Program) -> None:
    scenario = SCENARIOS[name]
    asked = ask(scenario, DIALECTS["openai"], tmp_path, editloupe)
    if scenario.whole:
        questions = [written(max(asked, key=lambda one: one.turn))]
    else:
        left_out = scenario.left_out
        first = (one for one in asked if not one.turn and not (left_out and re.search(left_out, one.text)))
        questions = sorted({written(one) for one in first})
    assert questions, "nothing was asked"
    holds(name, brief(name, "\n\n".join(f"======== question {n}\n{text}" for n, text in enumerate(questions, start=1))))


@pytest.mark.parametrize("protocol", ["text", "native"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_carries_a_dialogue_as_frozen(dialect: str, protocol: str, tmp_path: Path, editloupe: Program) -> None:
    command = f"{SCENARIOS['dlebench-tool'].command} --set tool_protocol={protocol}"
    scenario = Scenario(command, with_tools("Flawless Execution"), {})
    asked = ask(scenario, DIALECTS[dialect], tmp_path, editloupe)
    last = max(asked, key=lambda one: one.turn)
    assert last.turn == 3
    plain = Scenario(SCENARIOS["dlebench-plain"].command + " --criteria if", SCENARIOS["dlebench-plain"].says, {})
    first = ask(plain, DIALECTS[dialect], tmp_path / "plain", editloupe)[0]
    holds(f"dialect-{dialect}-{protocol}", f"{built(last)}\n\n======== plain\n{built(first)}")


def ask(scenario: Scenario, uri: str, folder: Path, program: Program) -> list[Asked]:
    """Run the scenario's command; return what was asked."""
    data = draw(folder / "data", **scenario.columns)
    with Wire(scenario.says) as wire:
        places = {"data": data, "uri": uri.format(address=wire.address), "out": folder / "out"}
        code, out, err = program(*shlex.split(scenario.command.format_map(places)), "--concurrency", "1")
    assert wire.asked, (code, out, err)
    return wire.asked


def written(asked: Asked) -> str:
    """A request in full."""
    return "\n".join(f"---- {role}\n" + "\n".join(map(piece, parts)) for role, parts in asked.messages)


def piece(part: Part) -> str:
    return without_rubrics(part.text) if part.kind == "text" else f"[{part.kind} {part.text}]".replace(" ]", "]")


def without_rubrics(text: str) -> str:
    """The text with each sentence of a built-in rubric named by its place."""
    for sentence, place in sentences():
        text = text.replace(sentence, place)
    return text


@cache
def sentences() -> list[tuple[str, str]]:
    """The sentences of the built-in rubrics, long ones first, each with its place: "[dlebench IF note 2]"."""

    def listed() -> Iterator[tuple[str, str]]:
        for name in builtin_rubrics():
            for criterion in load_rubric(name).criteria:
                where = f"{name} {criterion.short}"
                yield criterion.question, f"[{where} question]"
                yield from ((one.description, f"[{where} {one.name!r}]") for one in criterion.levels)
                yield from ((one.text, f"[{where} penalty {one.name!r}]") for one in criterion.penalties)
                for kind, texts in (("step", criterion.inspection), ("note", criterion.notes)):
                    yield from ((text, f"[{where} {kind} {number}]") for number, text in enumerate(texts, start=1))

    return sorted(listed(), key=lambda one: -len(one[0]))


def brief(name: str, text: str) -> str:
    """The text with the beginning alone of each long line that stood before, here or in one of the `FULL`."""
    before = FULL[: FULL.index(name)] if name in FULL else FULL
    known = {line for one in before for line in frozen(one)}
    lines = []
    for line in text.splitlines():
        again = len(line) > LONG and line in known and not line.startswith("[")
        lines.append(f"[as before] {line[:40]}…" if again else line)
        known.add(line)
    return "\n".join(lines)


def built(asked: Asked) -> str:
    """How a request is built: its settings, and of each text how it begins."""
    lines = [f"{name}: {json.dumps(shortened(value), ensure_ascii=False)}" for name, value in asked.settings.items()]
    for role, parts in asked.messages:
        lines.append(f"---- {role}")
        for part in parts:
            lines.append(f"[text {part.text.strip()[:32]!r}…]" if part.kind == "text" else piece(part))
    return "\n".join(lines)


def shortened(value: Any) -> Any:
    """A setting without sentences, such as the descriptions in a schema."""
    if isinstance(value, dict):
        return {name: shortened(one) for name, one in value.items()}
    return f"{value[:40]}…" if isinstance(value, str) and len(value) > 40 else value


def holds(name: str, found: str) -> None:
    """Fail with a diff unless the file says the same; pictures may differ as much as resampling does."""
    path = HERE / "questions" / f"{name}.txt"
    if os.environ.get(WRITING):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found + "\n", encoding="utf-8")
        return
    expected = frozen(name)
    now = (found + "\n").splitlines()
    if len(now) == len(expected):
        # A picture that looks the same is shown as the frozen one, so that the diff has what differs alone.
        now = [was if alike(was, is_) else is_ for was, is_ in zip(expected, now, strict=True)]
    if now != expected:
        diff = difflib.unified_diff(expected, now, f"questions/{name}.txt", "asked now", lineterm="", n=1)
        pytest.fail("\n".join(diff), pytrace=False)


def frozen(name: str) -> list[str]:
    """The lines of a file of `questions`; none where it is not written yet."""
    path = HERE / "questions" / f"{name}.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def alike(was: str, is_: str) -> bool:
    """Return whether two lines are pictures that look the same."""
    one, other = IMAGE.fullmatch(was), IMAGE.fullmatch(is_)
    if one is None or other is None or one.groups()[:2] != other.groups()[:2]:
        return was == is_
    colors = (abs(int(a) - int(b)) for a, b in zip(one.groups()[2:5], other.groups()[2:5], strict=True))
    lights = (abs(int(a, 16) - int(b, 16)) for a, b in zip(one[6].replace(" ", ""), other[6].replace(" ", ""), strict=True))
    return max(colors) <= COLOR and max(lights) <= LIGHT
