"""A command that finds nothing to show says so and exits with 2."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from editloupe.traces import GALLERY
from tests.conftest import Cli

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


def asked(words: tuple[str, ...], run: Path, editloupe: Cli) -> tuple[int, str, str]:
    return editloupe(*(str(run) if word == "RUN" else word for word in words))


def test_a_run_without_findings(run: Path, editloupe: Cli) -> None:
    (run / "findings.jsonl").write_text("")
    shutil.rmtree(run / "traces")
    for words in READERS:
        code, said, told = asked(words, run, editloupe)
        assert (code, said.strip()) == (2, ""), words
        assert told.startswith("error: ") and str(run) in told.replace("\n", ""), words
        assert not list(Path().glob("out*"))
    (run / "samples.jsonl").write_text("")
    code, _, told = editloupe("export", str(run), "--html", "pages")
    assert (code, "no sample to show" in told, Path("pages").exists()) == (2, True, False)


def test_a_folder_without_a_run(tmp_path: Path, editloupe: Cli) -> None:
    for words in (*READERS, ("export", "RUN", "--html", "pages"), ("verify", "RUN"), ("show", "RUN", "--format", "json")):
        code, said, told = asked(words, tmp_path, editloupe)
        assert (code, said.strip()) == (2, "") and told.startswith("error: "), words


def test_a_protocol_that_is_not_installed(run: Path, editloupe: Cli) -> None:
    info = (run / "run.json").read_text()
    (run / "run.json").write_text(info.replace('"protocol": "dlebench"', '"protocol": "gone"'))
    for words in READERS:
        if words[0] in ("report", "rank", "compare", "gate") or "--rubric" in words:
            code, said, told = asked(words, run, editloupe)
            assert (code, said.strip(), "'gone'" in told) == (2, "", True), words
