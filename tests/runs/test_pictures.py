"""Pictures of a run: a folder full of trouble, in which each bad row costs itself alone, and what is sent."""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from editloupe.traces.events import Note
from editloupe.traces.read import read_trace
from tests.runs.test_resume import talker
from tests.setups import means_of, open_with, run_over


def png(width: int, height: int) -> bytes:
    """A PNG whose header promises a size; its pixels are never there."""
    ihdr = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(ihdr)) + b"IHDR" + ihdr + struct.pack(">I", zlib.crc32(b"IHDR" + ihdr))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IEND" + struct.pack(">I", zlib.crc32(b"IEND"))


def encoded(image: Image.Image, kind: str, **how: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **how)
    return buffer.getvalue()


WHOLE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (120, 160, 3), dtype=np.uint8))

BAD: dict[str, tuple[bytes | None, str]] = {
    "gone.png": (None, "no such file"),
    "empty.png": (b"", "the file is empty"),
    "cut.png": (encoded(WHOLE, "PNG")[:9000], "damaged or cut off"),
    "cut.jpg": (encoded(WHOLE, "JPEG")[:1500], "damaged or cut off"),
    "notes.png": (b"these are notes, not pixels", "not an image"),
    "dot.png": (encoded(Image.new("RGB", (1, 1)), "PNG"), "1×1 px is too small"),
    "bomb.png": (png(30_000, 30_000), "scale the image down"),
    "photo.heic": (b"\x00\x00\x00\x18ftypheic" + b"\x00" * 40, "editloupe[heif]"),
    "../outside.png": (None, "outside"),
    "/etc/hostname": (None, "is absolute"),
}

ODD: dict[str, bytes] = {
    "rgba.png": encoded(Image.merge("RGBA", (*WHOLE.split(), WHOLE.convert("L"))), "PNG"),
    "turned.jpg": encoded(WHOLE, "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"),
    "deep.png": encoded(Image.fromarray(np.full((120, 160), 40_000, dtype=np.uint16)), "PNG"),
    "cmyk.jpg": encoded(WHOLE.convert("CMYK"), "JPEG"),
    "palette.png": encoded(WHOLE.convert("P"), "PNG"),
    "gray.png": encoded(WHOLE.convert("L"), "PNG"),
    "moving.gif": encoded(WHOLE, "GIF", save_all=True, append_images=[WHOLE.rotate(90)]),
    "moving.webp": encoded(WHOLE, "WEBP", save_all=True, append_images=[WHOLE.rotate(90)]),
    "other size ü.png": encoded(WHOLE.resize((333, 111)), "PNG"),
}


@pytest.fixture
def trouble(tmp_path: Path) -> Path:
    """Both tables above as one ImageFolder."""
    folder = tmp_path / "trouble"
    folder.mkdir()
    (folder / "source.png").write_bytes(encoded(WHOLE, "PNG"))
    (tmp_path / "outside.png").write_bytes(encoded(WHOLE, "PNG"))
    rows = []
    for name, data in ({name: data for name, (data, _) in BAD.items()} | ODD).items():
        if data is not None:
            (folder / name).write_bytes(data)
        names = {"source_file_name": "source.png", "edited_file_name": name}
        rows.append({"id": name.strip("./"), "instruction": "Do it.", **names})
    lines = [json.dumps(row) for row in rows]
    lines += [
        '{"id": "torn", "source_file_name": ',
        json.dumps({**rows[-1], "id": "silent", "instruction": "  "}),
        json.dumps({**rows[-1], "id": "list", "instruction": ["Do it."]}),
        json.dumps({**rows[-1], "id": "nan", "instruction": "X"}).replace('"X"', "NaN"),
        json.dumps({**rows[-1], "id": "rgba.png"}),
    ]
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_every_bad_row_is_counted_with_its_reason_and_the_odd_ones_are_judged(trouble: Path, tmp_path: Path):
    setup = open_with(backend=talker(), criteria=("if",))
    outcome = run_over(setup, trouble, tmp_path / "run", concurrency=2)
    by_id = {f.sample_id: f for f in outcome.findings}
    for name, (_, told) in BAD.items():
        finding = by_id[name.strip("./")]
        assert (finding.status, finding.value) == ("input_error", None), name
        assert told in finding.reason, finding.reason
    for name in ODD:
        assert by_id[name].status == "ok", by_id[name].reason
    reasons = {f.reason for f in outcome.findings if f.status == "input_error"}
    for line, told in [(20, "JSON"), (21, "instruction"), (22, "instruction"), (23, "NaN"), (24, "rgba.png")]:
        assert any(f"line {line}" in reason and told in reason for reason in reasons), (line, told, sorted(reasons))
    assert outcome.asked == len(BAD) + len(ODD) + 5
    cell = means_of(outcome)["instruction_following"]
    assert (cell.judged, cell.asked) == (len(ODD), outcome.asked)
    for name, told in (
        ("moving.gif", "Edited Image: first of 2 frames"),
        ("cmyk.jpg", "CMYK"),
        ("deep.png", "8 bits"),
        ("rgba.png", "alpha composited on white"),
        ("turned.jpg", "EXIF rotation applied"),
    ):
        events = read_trace(tmp_path / "run" / str(by_id[name].trace)).events
        notes = [event.text for event in events if isinstance(event, Note)]
        assert any(told in note for note in notes), (name, notes)
