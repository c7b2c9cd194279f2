"""Every command and snippet in README and docs is run as it stands, but for blocks tagged `not-run: REASON`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
DATA = {"", "text", "json", "jsonl", "toml", "yaml", "csv"}


@dataclass(frozen=True)
class Block:
    page: Path
    number: int
    info: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}-{self.number}"


BLOCKS = [
    Block(page, number, match[1].strip(), match[2])
    for page in PAGES
    for number, match in enumerate(_BLOCK.finditer(page.read_text(encoding="utf-8")), start=1)
]
RUN = [b for b in BLOCKS if b.info in ("sh", "python") and "pip install" not in b.text]
INSTALLS = [b for b in BLOCKS if b.info == "sh" and "pip install" in b.text]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples, as a reader of the README has it; what an earlier block made is there for the next."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


def reader_environment() -> dict[str, str]:
    """The environment in which the snippet's `editloupe` and `python` are ours."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path}


SHOWN = list(dict.fromkeys(b.page for b in RUN))


@pytest.mark.usefixtures("bare_plots")
@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_the_first_block_of_a_page_runs_as_it_stands(
    page: Path, workplace: Path, editloupe: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(workplace)
    run_block(next(b for b in RUN if b.page == page), workplace, editloupe)


@pytest.mark.slow
@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_all_blocks_of_a_page_run_as_they_stand(
    page: Path, workplace: Path, editloupe: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(workplace)
    for block in (b for b in RUN if b.page == page):
        run_block(block, workplace, editloupe)


def run_block(block: Block, workplace: Path, editloupe: Cli) -> None:
    """Run each line that begins with `editloupe` in this process, and the lines between them in bash."""
    prepare(block, workplace)
    if block.info == "python":
        exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})
        return
    for line in commands(block.text):
        command, _, ending = line.partition(" || test $? = ")
        words = shlex.split(command) if command.startswith("editloupe ") else []
        if not words or set("|&;$*`") & set(command):
            in_a_process(["bash", "-euo", "pipefail", "-c", line], workplace)
            continue
        words, target = (words[1:-2], words[-1]) if words[-2] == ">" else (words[1:], None)
        code, said, failed = editloupe(*words)
        assert code == int(ending or 0), f"{block}:\n{line}\n{said}\n{failed}"
        if target:
            (workplace / target).write_text(said, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("block", [b for b in RUN if b.page.name == "README.md"], ids=str)
def test_a_block_of_the_readme_runs_in_a_shell(block: Block, workplace: Path):
    prepare(block, workplace)
    in_a_process(["bash", "-euo", "pipefail", "-c", block.text], workplace)


def commands(text: str) -> list[str]:
    """The parts of a shell block: one for each line of `editloupe`, one for all other lines between two of them."""
    parts: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("editloupe ") or not parts or parts[-1].startswith("editloupe "):
            parts.append(line)
        else:
            parts[-1] += f"\n{line}"
    return parts


def in_a_process(command: list[str], workplace: Path) -> None:
    done = subprocess.run(
        command, cwd=workplace, env=reader_environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"


def prepare(block: Block, workplace: Path) -> None:
    """Write the files that the page shows, and the run that docs/traces.md looks into."""
    for named in (b for b in BLOCKS if b.page == block.page and " " in b.info and b.info.split()[0] in DATA):
        (workplace / named.info.split()[1]).write_text(named.text, encoding="utf-8")
    if block.page.name == "traces.md" and not (workplace / "runs" / "first").exists():
        in_a_process(["editloupe", "judge", "examples/edits", "--limit", "4", "--out", "runs/first"], workplace)


def test_every_block_says_what_it_is():
    problems = [f"{block}: {problem}" for block in BLOCKS if (problem := wrong_with(block.info, block.text))]
    assert not problems, "\n".join(problems)


def test_a_block_that_does_not_say_what_it_is_is_found():
    wrong = [("bash", ""), ("json words", "{}"), ("sh not-run:", ""), ("json", "{"), ("toml", "a ="), ("yaml a b.yaml", "")]
    right = [("", "words"), ("json a.json", "{}"), ("python not-run: needs a GPU", ""), ("toml", "a = 1"), ("sh", "ls")]
    assert [info for info, text in wrong + right if wrong_with(info, text)] == [info for info, _ in wrong]


def wrong_with(info: str, text: str) -> str:
    """What a block's first line says wrongly, or why its content cannot be read; nothing otherwise."""
    kind, _, rest = info.partition(" ")
    if kind not in DATA | {"sh", "python"}:
        return f"unknown kind {kind!r}"
    if rest and kind in DATA and not re.fullmatch(r"[\w-]+\.\w+", rest):
        return f"{rest!r} is no file name"
    if rest and kind not in DATA and not re.fullmatch(r"not-run: \S.*", rest):
        return f"{rest!r} gives no reason"
    readers = {"json": json.loads, "toml": tomllib.loads}
    try:
        readers.get(kind, str)(text)
    except ValueError as error:
        return str(error)
    return ""


def test_links_lead_somewhere():
    links = [
        (page, target)
        for page in PAGES
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if not target.startswith("http")
    ]
    lost = [f"{page.name} links to {target}" for page, target in links if not (page.parent / target).exists()]
    assert len(links) > 100 and not lost, lost


@pytest.mark.slow
def test_the_readmes_first_command_works_in_a_fresh_clone_and_a_new_environment(tmp_path: Path):
    first = INSTALLS[0]
    assert first.page.name == "README.md"
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout that could be cloned")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=120)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", first.text], cwd=clone, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "findings judged" in done.stdout
    assert (clone / "runs" / "edits-baseline-tool" / "report" / "summary.md").exists()
    # A plain install pulls neither torch nor anything of CUDA.
    listed = subprocess.run(
        [str(clone / ".venv" / "bin" / "pip"), "list"], capture_output=True, text=True, check=True, timeout=120
    )
    names = {line.split()[0].lower() for line in listed.stdout.splitlines()[2:] if line.split()}
    assert not {n for n in names if n == "torch" or n.startswith("nvidia")}
