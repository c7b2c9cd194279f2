"""What the image store does with every kind of file."""

from __future__ import annotations

import hashlib
import io
import os
import random
import struct
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from editloupe.data import images
from editloupe.data.images import ImagePolicy, ImageStore, decode, encode_png
from editloupe.errors import ImageError
from tests.data.profiles import DISPLAY_P3


def gradient(width: int = 40, height: int = 30) -> np.ndarray:
    """H×W×3 uint8, no two rows or columns alike."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x * 6, y * 8, (x + y) * 3], axis=-1).astype(np.uint8)


def saved(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that says how large it is and holds nothing."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def png16(values: np.ndarray) -> bytes:
    """H×W×C uint16 as a 16-bit PNG: 1 grey, 2 grey and alpha, 3 RGB channels. Pillow writes only the first."""
    height, width, channels = values.shape

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    lines = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def test_an_image_is_known_by_the_digest_of_its_bytes(tmp_path: Path) -> None:
    data = saved(Image.fromarray(gradient()), "PNG")
    (tmp_path / "a.png").write_bytes(data)
    ref = ImageStore().add_file(tmp_path / "a.png")
    assert ref.sha256 == hashlib.sha256(data).hexdigest()
    assert (ref.width, ref.height, ref.media_type) == (40, 30, "image/png")


def test_a_decoded_image_is_read_only_rgb() -> None:
    store = ImageStore()
    array = store.array(store.add_array(gradient()))
    assert np.array_equal(array, gradient()) and not array.flags.writeable


def test_an_array_is_kept_as_a_png_of_the_same_pixels_that_is_sent_as_it_is() -> None:
    rng = np.random.default_rng(0)
    for rgb in (gradient(), rng.integers(0, 256, (8, 301, 3), dtype=np.uint8), gradient(90, 80)[::2, 10:70]):
        store = ImageStore()
        ref = store.add_array(rgb)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(store.data(ref)))), rgb)
        # Whole, and nothing to do beyond reading.
        again = ImageStore()
        assert again.notes(again.add_bytes(encode_png(rgb))) == () and encode_png(rgb) == store.data(ref)


def test_alpha_is_composited_on_white_and_said_so() -> None:
    rgba = np.dstack([gradient(), np.full((30, 40), 255, np.uint8)])
    rgba[:, :20, 3] = 0
    rgba[0, 39] = (100, 100, 100, 51)  # 51/255 = 0.2: 0.2 · 100 + 0.8 · 255 = 224
    rgb, notes = decode(saved(Image.fromarray(rgba), "PNG"), name="a.png")
    assert (rgb[:, :20] == 255).all() and tuple(rgb[0, 39]) == (224, 224, 224)
    assert np.array_equal(rgb[1:, 20:], gradient()[1:, 20:])
    assert notes == ("alpha composited on white",)


def test_an_opaque_alpha_channel_needs_no_note() -> None:
    rgb, notes = decode(saved(Image.fromarray(gradient()).convert("RGBA"), "PNG"), name="a.png")
    assert np.array_equal(rgb, gradient()) and notes == ()


def test_16_bit_grey_keeps_its_high_byte() -> None:
    values = (gradient()[..., :1].astype(np.uint16)) * 256 + 77
    rgb, notes = decode(png16(values), name="a.png")
    assert np.array_equal(rgb, np.repeat(gradient()[..., :1], 3, axis=-1))
    assert notes == ("reduced to 8 bits",)


def test_16_bit_rgb_is_reduced_as_grey_is_and_said_so() -> None:
    rgb, notes = decode(png16(gradient().astype(np.uint16) * 257), name="a.png")
    assert np.array_equal(rgb, gradient()) and notes == ("reduced to 8 bits",)


def test_16_bit_grey_with_alpha_is_composited() -> None:
    values = np.dstack([gradient()[..., 0], np.full((30, 40), 255)]).astype(np.uint16) * 257
    values[:, :5, 1] = 0
    rgb, notes = decode(png16(values), name="a.png")
    assert (rgb[:, :5] == 255).all() and np.array_equal(rgb[:, 5:, 0], gradient()[:, 5:, 0])
    assert set(notes) == {"reduced to 8 bits", "alpha composited on white"}


def test_a_palette_with_a_transparent_entry_is_composited() -> None:
    image = Image.new("P", (20, 20), 1)
    image.putpalette([0, 0, 0, 10, 200, 30])
    image.paste(0, (0, 0, 10, 20))
    rgb, notes = decode(saved(image, "PNG", transparency=0), name="a.png")
    assert tuple(rgb[0, 0]) == (255, 255, 255) and tuple(rgb[0, 19]) == (10, 200, 30)
    assert notes == ("alpha composited on white",)


def test_grey_and_one_bit_images_become_rgb() -> None:
    grey = Image.fromarray(gradient()[..., 0])
    assert np.array_equal(decode(saved(grey, "PNG"), name="a")[0][..., 2], gradient()[..., 0])
    assert set(np.unique(decode(saved(grey.convert("1"), "PNG"), name="a")[0])) <= {0, 255}


def test_a_cmyk_jpeg_becomes_rgb_and_says_so() -> None:
    image = Image.new("CMYK", (32, 32), (0, 255, 255, 0))  # no cyan, all magenta and yellow: red
    rgb, notes = decode(saved(image, "JPEG", quality=95), name="a.jpg")
    assert rgb[16, 16, 0] > 240 and rgb[16, 16, 1] < 15
    assert notes == ("CMYK converted to RGB",)


def test_colours_of_another_icc_profile_are_converted() -> None:
    # The sRGB profile under another name and with its red and green primaries exchanged.
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    other = profile.replace("sRGB".encode("utf-16-be"), "xRGB".encode("utf-16-be"))
    other = other.replace(b"rXYZ", b"????").replace(b"gXYZ", b"rXYZ").replace(b"????", b"gXYZ")
    red = np.full((20, 20, 3), (255, 0, 0), np.uint8)
    rgb, notes = decode(saved(Image.fromarray(red), "PNG", icc_profile=other), name="a.png")
    assert np.abs(rgb.astype(int) - (0, 255, 0)).max() <= 2 and notes == ("ICC profile converted to sRGB",)
    assert decode(saved(Image.fromarray(red), "PNG", icc_profile=profile), name="a.png")[1] == ()


def test_display_p3_is_converted_and_what_is_sent_is_what_is_compared() -> None:
    store = ImageStore()
    tagged = store.add_bytes(saved(Image.new("RGB", (40, 30), (200, 60, 60)), "PNG", icc_profile=DISPLAY_P3))
    # By the matrix from linear Display P3 to linear sRGB: (217.5, 41.7, 52.3).
    assert np.abs(store.array(tagged)[0, 0].astype(int) - (217, 42, 52)).max() <= 1
    sent = store.encoded(tagged, ImagePolicy())
    assert np.array_equal(decode(sent.data, name="sent")[0], store.array(tagged))
    assert Image.open(io.BytesIO(sent.data)).info.get("icc_profile") is None
    assert store.profile(tagged) == DISPLAY_P3
    for plain in (b"nonsense", ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(), None):
        ref = store.add_bytes(saved(Image.fromarray(gradient()), "PNG", icc_profile=plain))
        assert store.profile(ref) is None


def test_a_damaged_profile_never_stops_an_image() -> None:
    rng = random.Random(0)
    for _ in range(200):
        damaged = bytearray(DISPLAY_P3)
        for _ in range(rng.randint(1, 30)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        cut_off = bytes(damaged[: rng.randrange(1, 2 * len(damaged))])
        store = ImageStore()
        ref = store.add_bytes(saved(Image.fromarray(gradient()), "PNG", icc_profile=cut_off))
        assert len(store.notes(ref)) == 1
        assert store.profile(ref) is None or store.notes(ref) == ("ICC profile converted to sRGB",)


def test_a_broken_icc_profile_is_ignored_and_said_so() -> None:
    rgb, notes = decode(saved(Image.fromarray(gradient()), "PNG", icc_profile=b"nonsense"), name="a.png")
    assert np.array_equal(rgb, gradient()) and notes == ("unreadable ICC profile ignored",)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_applied_to_size_and_pixels(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    data = saved(Image.fromarray(gradient()), "PNG", exif=exif)
    (tmp_path / "a.png").write_bytes(data)
    store = ImageStore()
    ref = store.add_file(tmp_path / "a.png")
    # EXIF 2.3, table 6: where the image's row 0 and column 0 stand on the scene.
    a = gradient()
    t = a.transpose(1, 0, 2)
    upright = [a, a[:, ::-1], a[::-1, ::-1], a[::-1], t, t[:, ::-1], t[::-1, ::-1], t[::-1]][orientation - 1]
    assert np.array_equal(store.array(ref), upright)
    assert (ref.height, ref.width) == upright.shape[:2]
    assert store.notes(ref) == (() if orientation == 1 else ("EXIF rotation applied",))


def test_adding_a_file_reads_its_header_and_no_pixels(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8)
    (tmp_path / "cut.png").write_bytes(saved(Image.fromarray(noise), "PNG")[:5000])
    store = ImageStore()
    ref = store.add_file(tmp_path / "cut.png")
    assert (ref.width, ref.height) == (200, 200)
    with pytest.raises(ImageError, match="cut off"):
        store.array(ref)


@pytest.mark.parametrize("format", ["GIF", "WEBP"])
def test_of_an_animation_the_first_frame_is_taken_and_said_so(format: str) -> None:
    frames = [Image.new("RGB", (32, 32), colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    data = saved(frames[0], format, save_all=True, append_images=frames[1:], lossless=True)
    rgb, notes = decode(data, name="a")
    assert tuple(rgb[5, 5]) == (255, 0, 0) and notes == ("first of 3 frames",)


def test_a_missing_file_a_folder_and_a_pipe_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for path, expected in (
        (tmp_path / "no.png", "no such file"),
        (tmp_path, "is a folder"),
        (tmp_path / "pipe.png", "not a regular file"),
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
        (png_header(1, 1), "1×1 px is too small"),
        (png_header(30_000, 30_000), "900000000 pixels.*150,000,000 px.*scale the image down"),
        (png_header(13_000, 13_000), "13,000×13,000 px is more than the limit of 150,000,000 px"),
    ],
)
def test_a_file_that_is_no_usable_image_says_why(tmp_path: Path, data: bytes, expected: str) -> None:
    (tmp_path / "bad.png").write_bytes(data)
    with pytest.raises(ImageError, match=expected) as error:
        ImageStore().add_file(tmp_path / "bad.png")
    assert "bad.png" in str(error.value)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"])
def test_a_truncated_file_is_an_error_and_never_half_a_picture(format: str) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (60, 60, 3), dtype=np.uint8)
    data = saved(Image.fromarray(noise), format)
    with pytest.raises(ImageError, match=r"damaged|cut off|not an image"):
        decode(data[: len(data) * 2 // 3], name="cut")


def test_damaged_bytes_raise_nothing_but_an_image_error() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 24, 3), dtype=np.uint8))
    rng = random.Random(7)
    for format in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "PPM"):
        data = saved(noise, format)
        for _ in range(40):
            broken = bytearray(data)
            for _ in range(4):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    decode(bytes(broken), name="x")
                except ImageError:
                    continue


JPEGS = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True, "quality": 60},
    "upright by EXIF": {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x01\0\0\0\0\0\0"},
}


@pytest.mark.parametrize(("width", "height"), [(40, 30), (37, 21), (200, 133)])
@pytest.mark.parametrize("how", [*JPEGS, "PNG"])
def test_plain_files_are_decoded_to_the_pixels_of_pillow(how: str, width: int, height: int) -> None:
    noisy = gradient(width, height) // 2 + np.random.default_rng(0).integers(0, 120, (height, width, 3), dtype=np.uint8)
    picture = Image.fromarray(noisy)
    data = saved(picture, "PNG") if how == "PNG" else saved(picture, "JPEG", **JPEGS[how])
    rgb, notes = decode(data, name="x")
    assert notes == ()
    assert np.array_equal(rgb, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


def test_of_a_plain_file_the_notes_and_the_bytes_to_send_need_no_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(gradient()).save(tmp_path / "a.jpg", quality=90)
    Image.fromarray(gradient()).convert("L").save(tmp_path / "grey.jpg")
    store = ImageStore()
    ref, grey = store.add_file(tmp_path / "a.jpg"), store.add_file(tmp_path / "grey.jpg")
    # As a later visit to a run has it: nothing is known but what a line of JSON says.
    again = ImageStore()
    decoded: list[str] = []
    plain = images.decode

    def counted(data: bytes, *, name: str, max_pixels: int) -> tuple[images.RGB, tuple[str, ...]]:
        decoded.append(name)
        return plain(data, name=name, max_pixels=max_pixels)

    monkeypatch.setattr(images, "decode", counted)
    for one in (store, again):
        assert one.notes(ref) == ()
        assert one.encoded(ref, ImagePolicy()).data == (tmp_path / "a.jpg").read_bytes()
    assert decoded == []
    assert store.encoded(grey, ImagePolicy()).data == (tmp_path / "grey.jpg").read_bytes()
    assert decoded == [str(tmp_path / "grey.jpg")]


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_a_file_that_is_cut_off_is_found_before_it_is_sent(format: str) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (60, 60, 3), dtype=np.uint8)
    data = saved(Image.fromarray(noise), format)
    store = ImageStore()
    for end in (len(data) * 2 // 3, len(data) // 2):
        ref = store.add_bytes(data[:end])
        with pytest.raises(ImageError, match=r"damaged|cut off"):
            store.encoded(ref, ImagePolicy())


def test_a_png_with_a_changed_byte_is_found_before_it_is_sent() -> None:
    data = bytearray(saved(Image.fromarray(gradient()), "PNG"))
    at = data.index(b"IDAT") + 20
    data[at] ^= 1
    store = ImageStore()
    ref = store.add_bytes(bytes(data))
    with pytest.raises(ImageError, match="damaged"):
        store.encoded(ref, ImagePolicy())


def test_heic_without_the_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (tmp_path / "a.heic").write_bytes(struct.pack(">I", 24) + b"ftypheic\0\0\0\0mif1heic" + b"\0" * 32)
    with pytest.raises(ImageError, match=r"a\.heic.*pip install 'editloupe\[heif\]'"):
        ImageStore().add_file(tmp_path / "a.heic")


def test_a_file_that_changes_after_it_was_added_is_not_taken_for_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(gradient()).save(path)
    store = ImageStore()
    ref = store.add_file(path)
    Image.new("RGB", (40, 30)).save(path)
    with pytest.raises(ImageError, match="own bytes"):
        store.array(ref)


def test_a_file_is_hashed_once_unless_it_was_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(gradient()).save(path)
    hashed: list[int] = []
    plain = hashlib.sha256

    def counted(data: bytes) -> object:
        hashed.append(len(data))
        return plain(data)

    monkeypatch.setattr(images.hashlib, "sha256", counted)
    store = ImageStore()
    ref = store.add_file(path)
    assert store.data(ref) == store.data(ref) == path.read_bytes()
    assert len(hashed) == 1
    # Other bytes, as many, and the file's time as it was.
    before, data = path.stat(), bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ImageError, match="own bytes"):
        store.data(ref)


def test_a_kept_image_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(gradient()).save(path)
    store = ImageStore(tmp_path / "blobs")
    ref = store.add_file(path)
    blob = store.keep(ref)
    path.unlink()
    assert blob is not None and blob.name == f"{ref.sha256}.png"
    assert np.array_equal(store.array(ref), gradient())
    assert [p.name for p in (tmp_path / "blobs").rglob("*") if p.is_file()] == [blob.name]


def test_an_image_goes_to_a_model_as_its_own_bytes_unless_something_stands_between() -> None:
    store = ImageStore()
    plain = store.add_bytes(saved(Image.fromarray(gradient()), "JPEG"))
    assert store.encoded(plain, ImagePolicy()).data == store.data(plain)
    cmyk = store.add_bytes(saved(Image.new("CMYK", (32, 32)), "JPEG"))
    assert store.encoded(cmyk, ImagePolicy()).media_type == "image/png"
    deep = store.add_bytes(png16(gradient().astype(np.uint16) * 257))
    assert store.encoded(deep, ImagePolicy()).data == encode_png(gradient())


def test_a_size_limit_scales_the_longest_side() -> None:
    store = ImageStore()
    made = store.encoded(store.add_array(gradient()), ImagePolicy(max_side=20))
    assert (made.width, made.height) == (20, 15)


def test_the_caches_hold_no_more_than_they_may() -> None:
    store = ImageStore(cache_bytes=1)
    refs = [store.add_array(np.roll(gradient(), i, axis=1)) for i in range(5)]
    first = [store.encoded(ref, ImagePolicy(formats=())).data for ref in refs]
    assert len(store._arrays) == 1 and len(store._encoded) == 1
    assert [store.encoded(ref, ImagePolicy(formats=())).data for ref in refs] == first


def test_a_picture_that_was_just_encoded_is_not_decoded_to_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "decode", lambda *a, **k: pytest.fail("it was decoded"))
    store = ImageStore()
    ref = store.add_array(gradient())
    assert store.encoded(ref, ImagePolicy()).data == store.data(ref)
    assert store.notes(ref) == ()
