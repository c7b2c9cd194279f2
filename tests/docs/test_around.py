"""What stands around the package: the citation, the wheel, the image, the action for GitHub."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import editloupe
from tests import clients
from tests.conftest import draw_edits

ROOT = Path(__file__).parents[2]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version_and_license():
    cited, project = read("CITATION.cff"), tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cited["version"] == project["version"] == editloupe.__version__
    assert (cited["license"], cited["authors"]) == (project["license"], project["authors"])


@pytest.mark.clients
def test_cffconvert_takes_the_citation():
    cffconvert = clients.client("citation", "cffconvert")
    assert "valid" in clients.run(cffconvert, "--validate", "-i", ROOT / "CITATION.cff")
    assert "The editloupe authors" in clients.run(cffconvert, "-f", "bibtex", "-i", ROOT / "CITATION.cff")


@pytest.mark.clients
@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("citation-file-format", "CITATION.cff"),
        ("github-actions", "action.yml"),
        ("github-workflows", "examples/github/gate.yml"),
    ],
)
def test_files_for_github_have_the_form_that_github_takes(schema: str, file: str):
    program = clients.client("schema", "check-jsonschema")
    assert "ok -- validation done" in clients.run(program, "--builtin-schema", f"vendor.{schema}", ROOT / file)


@pytest.mark.clients
def test_the_wheel_says_that_it_is_typed_and_holds_what_is_read_at_run_time(tmp_path: Path):
    python = clients.client("wheel")
    clients.run(python, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    kept = {"py.typed", "prompts/agent/tools.md", "rubrics/dlebench.toml", "rubrics/schema.json"}
    assert {f"editloupe/{name}" for name in kept} <= names
    assert not [name for name in names if name.startswith(("docs/", "tests/", "examples/"))]


def test_docker_builds_an_image_that_judges(tmp_path: Path):
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("NOT RUN: there is no docker here")
    asked = subprocess.run([docker, "version"], capture_output=True, text=True, timeout=60, check=False)
    if asked.returncode:
        pytest.skip(f"NOT RUN: {(asked.stderr.strip().splitlines() or ['docker does not answer'])[-1]}")
    if os.environ.get("EDITLOUPE_DOCKER") == "0":
        pytest.skip("NOT RUN: EDITLOUPE_DOCKER is 0")
    clients.run(docker, "build", "-q", "-t", "editloupe-test", ".", cwd=ROOT, timeout=1200)
    draw_edits(tmp_path / "edits", 2)
    mounted = ("run", "--rm", "-v", f"{tmp_path}:/data", "--user", f"{os.getuid()}:{os.getgid()}", "editloupe-test")
    assert "2 of 2 samples can be judged" in clients.run(docker, *mounted, "check", "edits")
    clients.run(docker, *mounted, "judge", "edits", "--protocol", "measures", "--out", "run")
    assert (tmp_path / "run" / "findings.jsonl").exists()


def test_the_image_has_what_the_package_needs_and_nothing_else():
    """Read as text, since not every machine has Docker."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert sorted(f"!{name}" for name in copied) == sorted(line for line in ignored if line.startswith("!"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = next(line.split("[")[1].split("]")[0] for line in lines if "pip install" in line)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert {project["readme"], *project["license-files"], "editloupe", "pyproject.toml"} == set(copied)


# ---- The action ------------------------------------------------------------------------------------------------------


def step(name: str, inputs: dict[str, str], at: Path) -> tuple[int, str]:
    """Run a step of action.yml as GitHub would, with the action's inputs in the place of its expressions."""
    action = read("action.yml")
    given = {key: str(one.get("default", "")) for key, one in action["inputs"].items()} | inputs
    (found,) = [one for one in action["runs"]["steps"] if one.get("name") == name]
    words: dict[str, str] = dict(found["env"])
    for key, value in given.items():
        words = {name: text.replace(f"${{{{ inputs.{key} }}}}", value) for name, text in words.items()}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["run"]],
        cwd=at,
        env={
            **os.environ,
            **words,
            "PATH": path,
            "GITHUB_OUTPUT": str(at / "output"),
            "GITHUB_STEP_SUMMARY": str(at / "summary"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_action_judges_and_lets_pass_what_holds_its_requirements(tmp_path: Path):
    draw_edits(tmp_path / "edits", 2)
    inputs = {"path": "edits", "arguments": "--protocol=measures\n\n--set=measures=mse\n--limit=1\n", "out": "its run"}
    code, told = step("Judge", inputs, tmp_path)
    assert code == 0 and "1 of 1 findings judged" in told, told
    code, told = step("Gate", inputs | {"require": "unjudged<=0.02\nasked>=1\n"}, tmp_path)
    assert code == 0, told
    assert (tmp_path / "output").read_text() == "junit=its run-gate.xml\ncode=0\n"
    assert "asked" in (tmp_path / "summary").read_text() and (tmp_path / "its run-gate.xml").exists()


@pytest.mark.slow
def test_the_action_fails_where_a_requirement_does_and_keeps_its_report(tmp_path: Path):
    draw_edits(tmp_path / "edits", 2)
    inputs = {"path": "edits", "arguments": "--protocol=measures", "require": "asked>=100"}
    assert step("Judge", inputs, tmp_path)[0] == 0
    assert step("Gate", inputs, tmp_path)[0] == 100
    assert "code=100" in (tmp_path / "output").read_text() and (tmp_path / "editloupe-run-gate.xml").exists()


EVIL = '"; touch stolen; echo "$(touch stolen)'


@pytest.mark.parametrize(
    "inputs",
    [
        {"path": "edits", "arguments": EVIL},
        pytest.param({"path": EVIL}, marks=pytest.mark.slow),
        pytest.param({"path": "edits", "backend": EVIL}, marks=pytest.mark.slow),
    ],
    ids=lambda inputs: list(inputs)[-1],
)
def test_the_action_runs_no_word_of_an_input_and_stops_at_wrong_ones(inputs: dict[str, str], tmp_path: Path):
    draw_edits(tmp_path / "edits", 1)
    code, told = step("Judge", inputs, tmp_path)
    assert code == 2, told
    assert not (tmp_path / "stolen").exists()


@pytest.mark.slow
def test_some_failures_are_left_to_the_gate(tmp_path: Path):
    draw_edits(tmp_path / "edits", 2)
    (tmp_path / "edits" / "edited" / "s01.png").unlink()
    inputs = {"path": "edits", "arguments": "--protocol=measures", "require": "unjudged<=0.02"}
    code, told = step("Judge", inputs, tmp_path)
    assert code == 0, told
    assert step("Gate", inputs, tmp_path)[0] == 100


def test_the_workflow_of_the_examples_names_inputs_and_outputs_that_there_are():
    action, workflow = read("action.yml"), read("examples/github/gate.yml")
    steps = workflow["jobs"]["gate"]["steps"]
    (used,) = [one for one in steps if "editloupe@" in str(one.get("uses"))]
    assert set(used["with"]) <= set(action["inputs"])
    needed = {name for name, one in action["inputs"].items() if one.get("required")}
    assert needed <= set(used["with"])
    assert "steps.editloupe.outputs.junit" in str(steps) and "junit" in action["outputs"]
