"""The site: its pages, those that are made from the program, and those that the program is held against."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main
import yaml

import editloupe
from docs.site import hooks, reference
from editloupe.cli import COMMANDS, NAMES, app, gate
from editloupe.tools.settings import ToolSettings
from tests import clients
from tests.conftest import Cli
from tests.docs.every_run import every_run

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def pages_of(nav: Any) -> Iterator[str]:
    for one in nav if isinstance(nav, list) else nav.values():
        yield from [one] if isinstance(one, str) else pages_of(one)


def test_every_page_stands_in_the_navigation_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    generated = {"reference/commands.md", "reference/python.md", "changelog.md", "contributing.md"}
    listed = list(pages_of(nav))
    assert sorted(listed) == sorted({path.name for path in DOCS.glob("*.md")} | generated)
    assert [next(iter(part)) for part in nav] == ["Start", "Guides", "Papers", "Reference"]


def test_every_command_and_option_is_in_the_reference():
    text = reference.commands_page()
    group = typer.main.get_command(app)
    context = typer.Context(group, info_name="editloupe")
    for name in NAMES:
        start = text.index(f"\n### editloupe {name}\n")
        own = text[start : text.find("\n### ", start + 1)]
        _, command, _ = group.resolve_command(context, [name])
        for one in (command, *getattr(command, "commands", {}).values()):
            for parameter in one.params:
                if parameter.param_type_name == "option" and not parameter.hidden:
                    assert f"`{parameter.opts[0]}" in own, f"{name} {parameter.opts[0]}"
    assert "| `task_tokens` |" in text and "| `detector` |" in text
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == [*COMMANDS, "Settings"]


def test_every_public_name_is_in_the_reference():
    text = reference.python_page()
    for name in editloupe.__all__:
        assert name.startswith("__") or re.search(rf"^::: editloupe\.[\w.]+\.{name}$", text, re.MULTILINE), name
    assert all(f"\n::: {module}\n" in text for module in reference.MODULES)


def test_links_out_of_the_site_become_paths_and_fences_keep_their_language_alone():
    text = "See [it](../editloupe/questions.py#a) and [data](data.md).\n```sh not-run: needs a key\nls\n```\n```python\n```"
    top, below = (SimpleNamespace(file=SimpleNamespace(src_uri=uri)) for uri in ("a.md", "reference/a.md"))
    assert "(../editloupe/questions.py#a)" in hooks.on_page_markdown(text, page=below), "there it is a page of the site"
    told = hooks.on_page_markdown(text, page=top)
    assert told == "See it (`editloupe/questions.py`) and [data](data.md).\n```sh\nls\n```\n```python\n```"


# ---- Pages that the program is held against --------------------------------------------------------------------------


def numbers(node: ast.AST) -> set[int]:
    """The whole numbers that an expression may be: constants, also those behind `if` and `or`."""
    found = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and type(n.value) is int}
    return found if isinstance(node, ast.Constant | ast.IfExp | ast.BoolOp) else set()


def codes(path: Path) -> dict[str, set[int]]:
    """Function → exit codes that it returns or calls `code`, of functions that return an int."""
    found: dict[str, set[int]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.returns is not None and ast.unparse(node.returns) == "int":
            returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value is not None]
            returned += [
                n.value for n in ast.walk(node) if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "code"
            ]
            found[node.name] = {number for value in returned for number in numbers(value)}
    return found


def test_exit_codes_are_those_of_the_program():
    text = page("reference.md").partition("## Exit codes")[2].partition("## Files")[0]
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    cli = ROOT / "editloupe" / "cli"
    sources = [*cli.glob("*.py"), ROOT / "editloupe/runs/replay.py"]
    # What writes bytes returns their count; a mere 0 or 1 of those is no code.
    known = {code for path in sources if path.name != "output.py" for of in codes(path).values() for code in of}
    assert listed == known | {gate.FAILED, gate.UNDEFINED}, "a code without a meaning, or a meaning without a code"
    rows = {
        name: row[1]
        for row in re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \| (.+) \|$", text, re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", row[0])
    }
    assert set(rows) <= set(NAMES)
    for name in NAMES:
        module = f"{name}_" if name in ("import", "list") else name
        own = {code for function, of in codes(cli / f"{module}.py").items() if function != "exit_code" for code in of}
        told = {int(code) for code in re.findall(r"\b\d+\b", rows.get(name, ""))}
        assert own - {0, 2, 130} <= told, f"{name} ends with {own}, the page says {told}"


def variables() -> set[str]:
    """Names in the code that are variables of the environment, but for those of options."""
    found = set()
    shape = re.compile(r"EDITLOUPE(_[A-Z]+)+|[A-Z]+(_[A-Z]+)*_(API_KEY|BASE_URL)|GITHUB(_[A-Z]+)+|RAY_ADDRESS")
    for path in (ROOT / "editloupe").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        # A module is read whole only if a name is somewhere in it.
        for node in ast.walk(ast.parse(text)) if shape.search(text) else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and shape.fullmatch(node.value):
                found.add(node.value)
    return found | {f"EDITLOUPE_{field.name.upper()}" for field in fields(ToolSettings)}


def test_environment_variables_are_those_of_the_program():
    listed = set(re.findall(r"^\| `([A-Z_]+)` \|", page("reference.md").partition("## Environment")[2], re.MULTILINE))
    elsewhere = {"LANGSMITH_API_KEY", "LANGSMITH_ENDPOINT", "COLUMNS", "HF_HUB_OFFLINE"}
    assert listed - elsewhere == variables()


def test_every_file_of_a_run_is_described(tmp_path: Path, editloupe: Cli):
    table = page("traces.md").partition("## A run folder")[2].partition("| status |")[0]
    named = re.findall(
        r"`([^`\s]+)`", "\n".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    )
    runs = every_run(editloupe, tmp_path)
    seen = set()
    for run in runs.values():
        for path in run.rglob("*"):
            if path.is_file():
                fitting = [pattern for pattern in named if path.relative_to(run).match(pattern)]
                assert fitting, f"{path.relative_to(run)} is not described"
                seen.update(fitting)
    # Made by other commands, or in large runs alone.
    assert set(named) - seen <= {"people.jsonl", "batches/*"}


@pytest.mark.slow
def test_the_site_builds_without_a_warning():
    python = clients.client("docs")
    clients.run("make", "site", f"PYTHON={python}", cwd=ROOT, timeout=600)
    built = ROOT / "build" / "site"
    commands = (built / "reference" / "commands.html").read_text(encoding="utf-8")
    assert 'id="editloupe-judge"' in commands and "task_tokens" in commands
    names = (built / "reference" / "python.html").read_text(encoding="utf-8")
    assert 'id="editloupe.runs.judge.Judge.judge"' in names and 'id="editloupe.answers.Scale"' in names
    # Nothing is loaded from elsewhere.
    loaded = re.findall(
        r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', (built / "index.html").read_text(encoding="utf-8")
    )
    assert [address for address in loaded if "squidfunk" not in address] == []
