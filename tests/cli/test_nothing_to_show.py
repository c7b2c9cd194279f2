"""A command that finds nothing to show says so and exits with 2."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.traces import GALLERY

Editloupe = Callable[..., tuple[int, str, str]]

READERS = (
    ("show", "RUN"),
    ("show", "RUN", "SAMPLE"),
    ("report", "RUN"),
    ("report", "RUN", "--format", "json"),
    ("rank", "RUN"),
    ("compare", "RUN"),
    ("trial", "RUN"),
    ("gate", "RUN", "--require", "unjudged<=0.02"),
    ("replay", "RUN"),
    ("replay", "RUN", "--format", "json"),
    ("replay", "RUN", "SAMPLE", "--at", "0"),
    ("replay", "RUN", "--rubric", "dlebench"),
    ("export", "RUN", "--otel", "out"),
    ("export", "RUN", "--inspect", "out"),
    ("export", "RUN", "--findings", "out.jsonl"),
    ("export", "RUN", "--sft", "out"),
    ("export", "RUN", "--sft", "out", "--dpo", "--human", "samples"),
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    shutil.copytree(GALLERY, folder)
    return folder


def asked(words: tuple[str, ...], run: Path, editloupe: Editloupe) -> tuple[int, str, str]:
    return editloupe(*(str(run) if word == "RUN" else word for word in words))


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_run_without_findings(words: tuple[str, ...], run: Path, editloupe: Editloupe) -> None:
    (run / "findings.jsonl").write_text("")
    shutil.rmtree(run / "traces")
    code, said, told = asked(words, run, editloupe)
    assert (code, said.strip()) == (2, "")
    assert told.startswith("error: ") and str(run) in told.replace("\n", "")
    assert not list(Path().glob("out*"))


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_folder_without_a_run(words: tuple[str, ...], tmp_path: Path, editloupe: Editloupe) -> None:
    code, said, told = asked(words, tmp_path, editloupe)
    assert (code, said.strip()) == (2, "")
    assert told.startswith("error: ")


@pytest.mark.parametrize(
    "words", [("export", "RUN", "--html", "pages"), ("show", "FOLDER"), ("runs", "RUN", "--format", "json")], ids=" ".join
)
def test_a_folder_without_a_run_has_no_pages_and_no_list(
    words: tuple[str, ...], tmp_path: Path, editloupe: Editloupe
) -> None:
    code, said, told = asked(words, tmp_path, editloupe)
    assert (code, said.strip(), told.startswith("error: ")) == (2, "", True)


def test_pages_of_a_run_without_samples(run: Path, editloupe: Editloupe) -> None:
    for name in ("findings.jsonl", "samples.jsonl"):
        (run / name).write_text("")
    shutil.rmtree(run / "traces")
    code, _, told = editloupe("export", str(run), "--html", "pages")
    assert (code, "no sample to show" in told, Path("pages").exists()) == (2, True, False)


@pytest.mark.parametrize(
    "words",
    [words for words in READERS if words[0] in ("report", "rank", "compare", "gate", "rescore")],
    ids=" ".join,
)
def test_a_protocol_that_is_not_installed(words: tuple[str, ...], run: Path, editloupe: Editloupe) -> None:
    info = json.loads((run / "run.json").read_text())
    info["identity"]["protocol"] = "gone"
    (run / "run.json").write_text(json.dumps(info))
    code, said, told = asked(words, run, editloupe)
    assert (code, said.strip(), "unknown protocol 'gone'" in " ".join(told.split())) == (2, "", True)
