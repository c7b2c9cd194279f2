"""What the image store does with every kind of file."""

from __future__ import annotations

import io
import os
import random
import struct
import threading
import time
import tracemalloc
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from editloupe.data.images import ImagePolicy, ImageStore, decode, encode_png, examine
from editloupe.errors import ImageError
from tests.data.profiles import DISPLAY_P3

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def gradient(width: int = 40, height: int = 30) -> np.ndarray:
    """H×W×3 uint8, no two rows or columns alike."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x * 6, y * 8, (x + y) * 3], axis=-1).astype(np.uint8)


def saved(image: Image.Image | np.ndarray, format: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(buffer, format, **options)
    return buffer.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    width: int, height: int, lines: bytes, *, bits: int = 8, kind: int = 2, before: bytes = b"", behind: bytes = b""
) -> bytes:
    """A PNG of whole chunks with these lines of pixels, maybe too few.   before, behind: chunks around the pixels."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)) + before
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(lines)) + behind + chunk(b"IEND", b"")


def png16(values: np.ndarray) -> bytes:
    """H×W×C uint16 as a 16-bit PNG: 1 gray, 2 gray and alpha, 3 RGB channels. Pillow writes only the first."""
    height, width, channels = values.shape
    lines = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return png(width, height, lines, bits=16, kind={1: 0, 2: 4, 3: 2}[channels])


def turned(orientation: int) -> tuple[np.ndarray, Image.Exif]:
    """The gradient as it is shown with an orientation (EXIF 2.3, table 6), and the EXIF that says so."""
    exif = Image.Exif()
    exif[274] = orientation
    a = gradient()
    t = a.transpose(1, 0, 2)
    return [a, a[:, ::-1], a[::-1, ::-1], a[::-1], t, t[:, ::-1], t[::-1, ::-1], t[::-1]][orientation - 1], exif


def test_what_decoding_does_is_right_and_said() -> None:
    gray = gradient()[..., :1]
    clear = np.dstack([gradient(), np.full((30, 40), 255, np.uint8)])
    clear[:, :20, 3] = 0
    clear[0, 39] = (100, 100, 100, 51)  # 51/255 = 0.2: 0.2 · 100 + 0.8 · 255 = 224
    white = gradient().copy()
    white[:, :20], white[0, 39] = 255, 224
    deep = np.dstack([gradient()[..., 0], np.full((30, 40), 255)]).astype(np.uint16) * 257
    deep[:, :5, 1] = 0
    beside = np.repeat(gray, 3, axis=-1)
    beside[:, :5] = 255
    palette = Image.new("P", (20, 20), 1)
    palette.putpalette([0, 0, 0, 10, 200, 30])
    palette.paste(0, (0, 0, 10, 20))
    half = np.full((20, 20, 3), 255, np.uint8)
    half[:, 10:] = (10, 200, 30)
    frames = [Image.new("RGB", (32, 32), color) for color in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    composited, reduced = "alpha composited on white", "reduced to 8 bits"
    opaque = saved(Image.fromarray(gradient()).convert("RGBA"))
    for data, expected, notes in (
        (saved(clear), white, {composited}),
        (opaque, gradient(), set()),
        (png16(gray.astype(np.uint16) * 256 + 77), np.repeat(gray, 3, axis=-1), {reduced}),  # the high byte counts
        (png16(gradient().astype(np.uint16) * 257), gradient(), {reduced}),
        (png16(deep), beside, {composited, reduced}),
        (saved(palette, transparency=0), half, {composited}),
        (saved(gray[..., 0]), np.repeat(gray, 3, axis=-1), set()),
        (saved(gradient(), icc_profile=b"nonsense"), gradient(), {"unreadable ICC profile ignored"}),
        (saved(gradient(), icc_profile=SRGB), gradient(), set()),
        (saved(frames[0], "GIF", save_all=True, append_images=frames[1:]), np.asarray(frames[0]), {"first of 3 frames"}),
    ):
        rgb, said = decode(data, name="a")
        assert np.array_equal(rgb, expected) and set(said) == notes, (notes, said)
        assert examine(data, name="a") == said
    assert set(np.unique(decode(saved(Image.fromarray(gray[..., 0]).convert("1")), name="a")[0])) <= {0, 255}
    # No cyan, all magenta and yellow: red.
    rgb, said = decode(saved(Image.new("CMYK", (32, 32), (0, 255, 255, 0)), "JPEG", quality=95), name="a")
    assert rgb[16, 16, 0] > 240 and rgb[16, 16, 1] < 15 and said == ("CMYK converted to RGB",)


def test_the_color_that_a_png_names_as_transparent_is_white() -> None:
    """16×16 px, the left half transparent; a line's numbers are of 16 bits or of 8 (two levels of 4 bits)."""
    for bits, kind, line, clear in (
        (16, 0, [0x1234] * 8 + [0x8099] * 8, [0x1234]),
        (8, 0, [0x12] * 8 + [0x80] * 8, [0x12]),
        (16, 2, [0x1234] * 24 + [0x8099] * 24, [0x1234] * 3),
        (4, 0, [0x11] * 4 + [0x88] * 4, [0x1]),
    ):
        row = np.array(line, ">u2" if bits == 16 else ">u1").tobytes()
        named = chunk(b"tRNS", np.array(clear, ">u2").tobytes())
        data = png(16, 16, (b"\0" + row) * 16, bits=bits, kind=kind, before=named)
        if (bits, kind) in ((16, 0), (8, 0)):
            rgb, said = decode(data, name="a")
            assert (rgb[:, :8] == 255).all() and (rgb[:, 8:] == 0x80).all() and "alpha composited on white" in said
        else:
            with pytest.raises(ImageError, match=f"a: names a transparent color of {bits} bits; save it with an alpha"):
                decode(data, name="a")


@pytest.mark.parametrize(("kind", "found"), [(np.int32, "numbers of 32 bits"), (np.float32, "fractions")])
def test_pixels_of_which_nobody_knows_the_white_are_refused(kind: type, found: str) -> None:
    data = saved(np.full((16, 16), 200, kind), "TIFF")
    with pytest.raises(ImageError, match=f"^a: its pixels are {found}; save it with 8 or 16 bits a channel$"):
        decode(data, name="a")


def test_display_p3_is_converted_and_what_is_sent_is_what_is_compared() -> None:
    store = ImageStore()
    tagged = store.add_bytes(saved(Image.new("RGB", (40, 30), (200, 60, 60)), icc_profile=DISPLAY_P3))
    # By the matrix from linear Display P3 to linear sRGB: (217.5, 41.7, 52.3).
    assert np.abs(store.array(tagged)[0, 0].astype(int) - (217, 42, 52)).max() <= 1
    sent = store.encoded(tagged, ImagePolicy())
    assert np.array_equal(decode(sent.data, name="sent")[0], store.array(tagged))
    assert Image.open(io.BytesIO(sent.data)).info.get("icc_profile") is None
    assert store.notes(tagged) == ("ICC profile converted to sRGB",)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_exif_rotation_is_applied_once_to_size_and_pixels(format: str) -> None:
    how = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100, "subsampling": 0}}.get(format, {})
    for orientation in range(1, 9):
        upright, exif = turned(orientation)
        store = ImageStore()
        ref = store.add_bytes(saved(gradient(), format, exif=exif, **how))
        assert (ref.height, ref.width) == upright.shape[:2] == store.array(ref).shape[:2]
        assert np.abs(store.array(ref).astype(int) - upright).max() <= (24 if format == "JPEG" else 0)
        # Pillow turns a TIFF itself, and does not tell.
        assert store.notes(ref) == (("EXIF rotation applied",) if orientation > 1 and format != "TIFF" else ())
        assert not store.array(ref).flags.writeable


def test_exif_behind_the_pixels_is_refused_unless_it_says_upright() -> None:
    lines = b"".join(b"\0" + row.tobytes() for row in gradient())
    for orientation in (1, 6):
        exif = turned(orientation)[1].tobytes().removeprefix(b"Exif\0\0")
        store = ImageStore()
        ref = store.add_bytes(png(40, 30, lines, behind=chunk(b"eXIf", exif)))
        if orientation == 1:
            assert np.array_equal(store.array(ref), gradient())
        else:
            with pytest.raises(ImageError, match="turned by EXIF that stands behind its pixels; save it upright"):
                store.array(ref)


def test_a_missing_file_a_folder_and_a_pipe_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for path, expected in (
        (tmp_path / "no.png", "no such file"),
        (tmp_path, "it is a folder"),
        (tmp_path / "pipe.png", "it is a pipe"),
    ):
        with pytest.raises(ImageError, match=expected) as error:
            ImageStore().add_file(path)
        assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "the file is empty"),
        (b"<html>404 Not Found</html>", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99 99\n", "not an image"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "not an image|damaged"),
        (png(1, 1, b""), "1×1 px is too small"),
        (png(1, 20_000, b""), "1×20000 px is too small"),
        (png(30_000, 30_000, b""), "900000000 pixels.*150,000,000 px.*scale the image down"),
        (png(13_000, 13_000, b""), "13,000×13,000 px is more than the limit of 150,000,000 px"),
    ],
)
def test_a_file_that_is_no_usable_image_says_why(tmp_path: Path, data: bytes, expected: str) -> None:
    (tmp_path / "bad.png").write_bytes(data)
    with pytest.raises(ImageError, match=expected) as error:
        ImageStore().add_file(tmp_path / "bad.png")
    assert "bad.png" in str(error.value)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"])
def test_a_truncated_file_is_an_error_before_it_is_sent_and_never_half_a_picture(format: str) -> None:
    data = saved(np.random.default_rng(0).integers(0, 255, (60, 60, 3), dtype=np.uint8), format)
    store = ImageStore()
    for end in (len(data) * 2 // 3, len(data) // 2):
        with pytest.raises(ImageError, match=r"damaged|cut off|not an image"):
            store.encoded(store.add_bytes(data[:end]), ImagePolicy(formats=("image/png", "image/jpeg")))


def test_a_png_with_too_few_pixels_or_a_changed_byte_is_an_error_before_it_is_sent() -> None:
    lines = b"".join(b"\0" + row.tobytes() for row in gradient())
    changed = bytearray(png(40, 30, lines))
    changed[changed.index(b"IDAT") + 20] ^= 1
    # 121 bytes a line: ten whole lines, and all but the last.
    short = [png(40, 30, lines[:end]) for end in (0, 2000, 10 * 121, 29 * 121)]
    for data in (*short, bytes(changed)):
        store = ImageStore()
        with pytest.raises(ImageError, match="damaged or cut off"):
            store.encoded(store.add_bytes(data), ImagePolicy())


def test_a_whole_png_that_ends_in_black_is_whole() -> None:
    black = gradient()
    black[-9:] = 0
    # Interlaced, 8×8 px of gray: the seven passes have 1, 1, 1, 2, 2, 4 and 4 lines of 1, 1, 2, 2, 4, 4 and 8 px.
    passes = [(1, 1), (1, 1), (1, 2), (2, 2), (2, 4), (4, 4), (4, 8)]
    lines = b"".join(bytes(1 + width) * rows for rows, width in passes)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 1))
    for end, whole in ((len(lines), True), (len(lines) - 9, False)):
        body = chunk(b"IDAT", zlib.compress(lines[:end])) + chunk(b"IEND", b"")
        if whole:
            assert decode(b"\x89PNG\r\n\x1a\n" + head + body, name="a")[0].max() == 0
        else:
            with pytest.raises(ImageError, match="too few"):
                decode(b"\x89PNG\r\n\x1a\n" + head + body, name="a")
    assert decode(saved(black)[:-12], name="without its end")[0].shape == (30, 40, 3)
    for image in (black, black[..., 0], np.dstack([black, black[..., :1]])):
        assert decode(saved(image), name="a")[0].shape == (30, 40, 3)
    bilevel = Image.fromarray(black[..., 0]).point(lambda value: 255 * (value > 99)).convert("1")
    assert decode(saved(bilevel), name="a")[0].shape == (30, 40, 3)


def test_damaged_bytes_are_refused_in_the_same_words_whether_pixels_are_wanted_or_not() -> None:
    def said(data: bytes, *, pixels: bool) -> object:
        try:
            return decode(data, name="x")[1] if pixels else examine(data, name="x")
        except ImageError as error:
            return str(error)

    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 24, 3), dtype=np.uint8))
    rng = random.Random(7)
    whole = {format: saved(noise, format) for format in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "PPM")}
    whole |= {"progressive": saved(noise, "JPEG", progressive=True), "CMYK": saved(noise.convert("CMYK"), "JPEG")}
    for format, data in whole.items():
        spoiled = [data[:-end] for end in range(1, 8)]
        for _ in range(40):
            broken = bytearray(data)
            for _ in range(4):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            spoiled.append(bytes(broken))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert all(said(one, pixels=True) == said(one, pixels=False) for one in spoiled), format


def test_a_picture_that_is_only_passed_on_leaves_no_pixels_in_memory() -> None:
    rng = np.random.default_rng(0)
    for format in ("PNG", "JPEG"):
        store = ImageStore()
        refs = [store.add_bytes(saved(rng.integers(0, 255, (200, 200, 3), dtype=np.uint8), format)) for _ in range(8)]
        tracemalloc.start()
        for ref in refs:
            assert store.encoded(ref, ImagePolicy()).data == store.data(ref)
        kept = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        # The pixels of one are 120,000 bytes.
        assert kept < 100_000, format


def test_a_picture_of_several_questions_at_once_is_looked_at_once() -> None:
    data, reads, begin = saved(gradient()), list[int](), threading.Barrier(6)

    def again() -> bytes:
        reads.append(1)
        time.sleep(0.05)
        return data

    def asked(_: int) -> tuple[str, ...]:
        begin.wait(10)
        return store.notes(ref)

    store = ImageStore()
    ref = store.add_bytes(data, again=again)
    with ThreadPoolExecutor(6) as threads:
        assert set(threads.map(asked, range(6))) == {()} and len(reads) == 1


def test_a_file_that_changes_after_it_was_added_is_not_taken_for_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(saved(gradient()))
    store = ImageStore()
    ref = store.add_file(path)
    before, data = path.stat(), bytearray(path.read_bytes())
    assert store.data(ref) == data
    # Other bytes, as many, and the file's time as it was.
    data[-20] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ImageError, match="own bytes"):
        store.array(ref)


def test_an_image_goes_to_a_model_as_its_own_bytes_unless_something_stands_between() -> None:
    store = ImageStore()
    for plain in (gradient(), gradient()[..., 0]):
        ref = store.add_bytes(saved(plain, "JPEG"))
        assert store.encoded(ref, ImagePolicy()).data == store.data(ref)
    cmyk = store.add_bytes(saved(Image.new("CMYK", (32, 32)), "JPEG"))
    assert store.encoded(cmyk, ImagePolicy()).media_type == "image/png"
    deep = store.add_bytes(png16(gradient().astype(np.uint16) * 257))
    assert store.encoded(deep, ImagePolicy()).data == encode_png(gradient())
    small = store.encoded(store.add_array(gradient()), ImagePolicy(max_side=20))
    assert (small.width, small.height) == (20, 15)
