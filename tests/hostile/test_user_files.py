"""Every file that a command takes from a user: a pipe, a device or a socket in its place, and content that is nothing."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.hostile.kinds import DEEP

HUNDREDS = b"[" * 700 + b"]" * 700
"""Deep, and yet within what readers take."""


FILES = {
    "a source image": ("data/source/s00.png", "judge data --out out"),
    "an edited image": ("data/edited/s00.png", "judge data --out out"),
    "metadata": ("data/metadata.jsonl", "judge data --out out"),
    "metadata by name": ("data/metadata.jsonl", "judge data/metadata.jsonl --out out"),
    "metadata to check": ("data/metadata.jsonl", "check data/metadata.jsonl"),
    "metadata for targets": ("data/metadata.jsonl", "targets data/metadata.jsonl"),
    "metadata in CSV": ("x.csv", "check x.csv"),
    "metadata in Parquet": ("x.parquet", "check x.parquet"),
    "instructions": ("pairs/instructions.csv", "check pairs"),
    "a row of DLEBench": ("bench/data.jsonl", "check bench --edited e=data/edited"),
    "a mapping file": ("x.toml", "check bench --edited e=data/edited --fields x.toml"),
    "a rubric": ("x.toml", "judge data --out out --rubric x.toml"),
    "a rubric to score by": ("x.toml", "rescore run --rubric x.toml"),
    "a prompt": ("x.md", "judge data --out out --prompt x.md --dry-run"),
    "a config": ("x.yaml", "judge --config x.yaml --out out"),
    "judges": ("x.yaml", "judge data --out out --judges-file x.yaml"),
    "prices": ("x.toml", "judge data --out out --set prices=x.toml"),
    "prices to compare by": ("x.toml", "compare run --prices x.toml"),
    "weights of a detector": ("x.safetensors", "judge data --out out --detector x.safetensors"),
    "a detector's folder": ("detector/config.json", "judge data --out out --detector detector"),
    "weights of an upscaler": ("x.pth", "judge data --out out --upscaler x.pth"),
    "replies": ("x.jsonl", "judge data --out out --backend scripted/x.jsonl"),
    "a recording": ("recording/run.json", "judge data --out out --backend recorded/recording"),
    "human ratings": ("x.csv", "compare run --human x.csv"),
    "human ratings in JSONL": ("x.jsonl", "compare run --human x.jsonl"),
    "human ratings to gate by": ("x.csv", "gate run --human x.csv --require kappa(human)>=0.1"),
    "scores": ("x.csv", "compare --scores x.csv --human ratings.csv"),
    "an instruction": ("x.txt", "fork run s01 --at 1 --criterion if --add-instruction x.txt"),
    "a token": ("x.txt", "serve --out out --token-file x.txt --protocol none"),
    "an image for a tool": ("x.png", "tools call zoom_in x.png --bbox 0,0,500,500"),
    "an image to rank": ("x.png", "rank x.png data/edited/s00.png --source data/source/s00.png --instruction Paint."),
    "a source to rank": ("x.png", "rank data/edited/s00.png data/edited/s01.png --source x.png --instruction Paint."),
    "a run": ("x", "report x"),
}
"""What it is → (the file that is spoiled, the command)."""

SLOW = ("a source image", "an edited image", "an instruction", "a config", "judges")
"""Files whose content costs nothing but a verdict, so that the others are judged, and those whose reader is slow."""

SPECIAL = ("a pipe", "a device", "a socket", "a folder", "a ring of links")
CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "deep brackets": DEEP.encode(),
    "less deep brackets": HUNDREDS,
    "deep brackets under a key": b"a = " + HUNDREDS,
    "deeper brackets under a key": b"a = " + DEEP.encode(),
    "a deep object": b'{"a":' * 700 + b"1" + b"}" * 700,
    "no text": b"\xff\xfe\x00\x80" * 100,
    "NUL": b"\0" * 4096,
    "a number of 5,000 digits": b"a = " + b"9" * 5000,
    "a number of 5,000 digits in JSON": b'{"a": ' + b"9" * 5000 + b"}",
    "NaN": b'{"a": NaN, "models": Infinity}',
    "half a surrogate pair": b'{"a": "\\ud800", "reply": "\\udfff"}',
    "a table of nothing": b"item,if,vc\n\0,1e999,nan\n",
    "aliases": b"a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 10))
    + b"path: *a9\nbackend: *a9\n",
    "aliases of mappings": b"a0: &a0 {%s}\n" % b", ".join(b"k%d: 1" % n for n in range(9))
    + b"".join(b"a%d: &a%d {<<: [%s]}\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 10)),
    "an alias of itself": b"path: &a [*a]\nbackend: *a\n",
    "tags of the wrong type": b"a: !!bool x\nb: !!timestamp y\n",
    "an object of Python": b"a: !!python/object/apply:os.system ['touch mine']\n",
}


@pytest.fixture
def home(good: Path, tmp_path: Path, editloupe: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data in several layouts and a run."""
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    data = tmp_path / "data"
    for names in (("pairs/source", "pairs/edited"), ("bench/Source_Images", "bench/Reference_Images")):
        for role, name in zip(("source", "edited"), names, strict=True):
            shutil.copytree(data / role, tmp_path / name)
    (tmp_path / "bench" / "data.jsonl").write_text('{"id": "s00", "image": "s00.png", "instruction": "Make it red."}\n')
    (tmp_path / "ratings.csv").write_text("item,score\ns00,1\ns01,2\n")
    shutil.copytree(good / "run", tmp_path / "recording")
    (tmp_path / "detector").mkdir()
    (tmp_path / "detector" / "model.safetensors").write_bytes(b"\0" * 64)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(path: Path, kind: str) -> None:
    """Put something else in the place of a file."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(path.name)
            shutil.move(path.name, path) if path.parent != Path() else None
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a ring of links":
        path.symlink_to(path.name)
    else:
        path.write_bytes(CONTENTS[kind])


def rows(kinds: Iterable[str], slow: Iterable[str]) -> list[object]:
    """Each file with all that comes in its place; those named in `slow` are not met every day."""
    return [pytest.param(f, tuple(kinds), marks=pytest.mark.slow if f in slow else [], id=f) for f in FILES]


@pytest.mark.parametrize(("file", "kinds"), [*rows(SPECIAL, ["an edited image"]), *rows(CONTENTS, SLOW)])
def test_what_is_no_such_file_ends_in_a_message(
    file: str, kinds: tuple[str, ...], home: Path, program: Cli, asked: list[object]
) -> None:
    name, words = FILES[file]
    for kind in kinds:
        put(Path(name), kind)
        shutil.rmtree("out", ignore_errors=True)
        code, out, err = program(*words.split())
        assert "Traceback" not in out + err, kind
        # A file that is no plain one is never read as if it were.
        assert code in ((1, 2, 3) if kind in SPECIAL else (0, 1, 2, 3)), (kind, out, err)
        assert len(err) < 3000, (kind, len(err), err[:500])
    assert not Path("mine").exists()
    assert asked == []
