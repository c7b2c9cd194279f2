"""The MCP server as a client meets it: a process, standard input and output, images below one folder."""

from __future__ import annotations

import base64
import importlib
import io
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.errors import ConfigError, ImageError, MissingExtra
from editloupe.service.paths import given
from editloupe.tools.session import open_session
from tests.conftest import pixels

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The root with one edit in it, and a secret beside it."""
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    before, after = pixels(0, spots=1)
    Image.fromarray(before).save(root / "before.png")
    Image.fromarray(after).save(root / "sub" / "after.png")
    Image.fromarray(before).save(tmp_path / "secret.png")
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    (root / "loop.png").symlink_to(root / "loop.png")
    (root / "notes.txt").write_text("no image")
    return root


def talk(root: Path, *conversations: Callable[[Any], Awaitable[None]]) -> None:
    """A real client with a server process of its own, which has the conversations one after the other."""
    mcp = pytest.importorskip("mcp", reason="needs the extra `mcp`")
    import anyio

    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-c", "from editloupe.cli import main; main()", "tools", "serve", "--root", str(root)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    async def main() -> None:
        # A file of its own: the client's default is whatever sys.stderr was when it was imported.
        with anyio.fail_after(60), (root.parent / "stderr.txt").open("w") as log:
            async with mcp.Client(mcp.stdio_client(server, errlog=log)) as client:
                for conversation in conversations:
                    await conversation(client)

    anyio.run(main)
    assert "Traceback" not in (root.parent / "stderr.txt").read_text()


def said(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def test_a_client_looks_and_reads_what_was_wrong_with_a_call(folder: Path):
    encoded = base64.b64encode((folder / "sub" / "after.png").read_bytes()).decode()
    address = f"data:image/png;base64,{encoded}"
    secret = folder.parent / "secret.png"
    # Noise, of which PNG saves nothing: 1,200 × 1,000 px × 3 bytes.
    noise = np.random.default_rng(0).integers(0, 256, (1000, 1200, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "noise.png", compress_level=1)

    async def opens_images_looks_and_looks_into_what_it_was_shown(client: Any) -> None:
        offered = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"open_images", "zoom_in", "localize_differences", "enhancer"} <= set(offered)
        assert offered["zoom_in"].input_schema["required"] == ["target_image", "bbox"]
        assert {"open_images": "Open images", "zoom_in": "Zoom in"}.items() <= {
            t.name: t.title for t in offered.values()
        }.items()
        assert "data: address" in offered["open_images"].description
        early = await client.call_tool("zoom_in", {"target_image": "Edited Image", "bbox": [0, 0, 500, 500]})
        assert early.is_error and "call open_images first" in said(early)

        opened = await client.call_tool("open_images", {"original": "before.png", "edited": "sub/after.png"})
        assert not opened.is_error
        assert said(opened) == "Original Image: 320×240 px\nEdited Image: 320×240 px"
        found = await client.call_tool(
            "localize_differences", {"comparison_image_1": "Original Image", "comparison_image_2": "Edited Image"}
        )
        assert [block.type for block in found.content] == ["text", "text", "image"]
        assert "1 region differs" in said(found)
        picture = Image.open(io.BytesIO(base64.b64decode(found.content[2].data)))
        assert found.content[2].mime_type == "image/png"
        # The red square lies in the right pane only.
        red = np.argwhere((np.asarray(picture) == (255, 0, 0)).all(axis=2))
        assert red[:, 1].min() >= picture.width // 2 - 4

        deeper = await client.call_tool("zoom_in", {"target_image": "Crop 1", "bbox": [500, 0, 1000, 1000]})
        assert said(deeper).startswith("Crop 2:") and ": 'Crop 1', bbox" in said(deeper)
        wrong = await client.call_tool("zoom_in", {"target_image": "Crop 9", "bbox": [500, 0, 1000, 1000]})
        assert wrong.is_error
        assert "the images are: 'Original Image', 'Edited Image', 'Crop 1', 'Crop 2'" in said(wrong)

        await client.call_tool("open_images", {"original": "before.png"})
        gone = await client.call_tool("zoom_in", {"target_image": "Crop 1", "bbox": [0, 0, 500, 500]})
        assert gone.is_error and "the images are: 'Original Image'" in said(gone)

    async def is_told_what_cannot_be_opened_or_called(client: Any) -> None:
        for path, told in (
            ("../secret.png", "is outside"),
            (str(secret), "is outside"),
            ("/etc/no-such-file", "is outside"),
            ("link.png", "is outside"),
            ("loop.png", "cannot be followed"),
            ("nope.png", "no such file"),
            ("notes.txt", "not an image"),
            ("sub", "is a folder"),
            ("a\0b", "expected the path"),
            (7, "expected the path"),
            ("https://example.org/before.png", "nothing is fetched"),
            (address[:-7] + "?", "original: not base64"),
            ("x" * 100_000, "File name too long"),
        ):
            refused = await client.call_tool("open_images", {"original": path})
            assert refused.is_error and told in said(refused), (str(path)[:80], said(refused)[:300])
            assert encoded[:20] not in said(refused) and len(said(refused)) < 500
        for arguments in ({}, {"edited": "before.png"}, {"original": "before.png", "more": 1}):
            assert (await client.call_tool("open_images", arguments)).is_error
        # An absolute path below the root is as good as a relative one, and so are addresses.
        folded = "data:;base64," + "\n".join(encoded[i : i + 76] for i in range(0, len(encoded), 76))
        for original in (str(folder / "before.png"), folded):
            opened = await client.call_tool("open_images", {"original": original, "edited": address})
            assert said(opened) == "Original Image: 320×240 px\nEdited Image: 320×240 px"
        image = "Original Image"
        for tool, arguments, told in (
            ("zoom_in", {"target_image": image, "bbox": [0.1, 0.2, 0.3, 0.4]}, "multiply by 1000, [100, 200, 300, 400]"),
            ("zoom_in", {"target_image": address, "bbox": [0, 0, 500, 500]}, "the images are: 'Original Image'"),
            ("magic", {}, "there is no tool 'magic'"),
            ("grounding", {"target_image": image, "phrase": "mug"}, "is absent here"),
        ):
            wrong = await client.call_tool(tool, arguments)
            assert wrong.is_error and told in said(wrong) and encoded[:20] not in said(wrong), (tool, said(wrong))

    async def gets_pictures_below_a_megabyte_and_is_told_that_they_were_scaled(client: Any) -> None:
        await client.call_tool("open_images", {"original": "noise.png"})
        whole = await client.call_tool("zoom_in", {"target_image": "Original Image", "bbox": [0, 0, 1000, 1000]})
        (picture,) = [block for block in whole.content if block.type == "image"]
        assert len(picture.data) < 1_000_000
        width, height = Image.open(io.BytesIO(base64.b64decode(picture.data))).size
        assert f"Crop 1: (scaled down to {width}×{height} px from 1200×1000" in said(whole)
        # It is scaled for the answer alone: a part of it has all its pixels.
        part = await client.call_tool("zoom_in", {"target_image": "Crop 1", "bbox": [0, 0, 200, 200]})
        assert "scaled down" not in said(part) and "(px [0, 0, 240, 200])" in said(part), said(part)

    talk(
        folder,
        opens_images_looks_and_looks_into_what_it_was_shown,
        is_told_what_cannot_be_opened_or_called,
        gets_pictures_below_a_megabyte_and_is_told_that_they_were_scaled,
    )


def test_an_image_of_many_megabytes_is_refused(tmp_path: Path):
    # Not by way of a client, who would take seconds to send it.
    for letters in (100 * 2**20, 44 * 2**20):
        with pytest.raises(ImageError, match="original: more than 32 MiB"):
            given(tmp_path, f"data:image/png;base64,{'A' * letters}", name="original")


def test_a_root_that_is_no_folder_and_a_missing_extra_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mcp", reason="needs the extra `mcp`")
    from editloupe.service.mcp import serve

    with pytest.raises(ConfigError, match="is no folder"):
        serve(open_session(tools=["zoom_in"]), tmp_path / "nowhere")
    monkeypatch.delitem(sys.modules, "editloupe.service.mcp")
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(MissingExtra, match=r"pip install 'editloupe\[mcp\]'"):
        importlib.import_module("editloupe.service.mcp")
