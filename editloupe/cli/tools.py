"""`editloupe tools`: which tools are here; what one does; one called by hand; all served to other agents."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Final, cast

from typer import Argument

from editloupe import models, plugins
from editloupe.cli import options
from editloupe.cli.options import opt, words
from editloupe.cli.output import Form, as_json, fail, note, print_json, say
from editloupe.cli.tables import table
from editloupe.config import pairs
from editloupe.errors import ConfigError, ToolError, ToolFailed, did_you_mean
from editloupe.tools.base import BUILT_IN_TOOLS, Tool, open_toolbox, spec, works_with
from editloupe.tools.session import Picture, ToolAnswer, open_session
from editloupe.tools.settings import ToolSettings
from editloupe.values import Json, finite_json

NAMES: Final = ("Original Image", "Edited Image")
"""What the first and the second image of `tools call` are called, as in the judge's conversation."""

_CALL, _SERVE = "With call", "With serve"


def tools(
    what: Annotated[
        list[str] | None, Argument(metavar="WHAT", help="NAME, call NAME IMAGE…, or serve.", show_default=False)
    ] = None,
    arg: Annotated[list[str] | None, opt("--arg", "KEY=VALUE", "An argument, JSON or text.", _CALL)] = None,
    out_dir: Annotated[Path | None, opt("--out", "DIR", "Default: a new editloupe-tool-NAME.", _CALL)] = None,
    root: Annotated[Path, opt("--root", "DIR", "Open only images below this folder.", _SERVE)] = Path(),
    only: Annotated[str | None, opt("--tools", "A,B,…", "Only these tools.", _SERVE)] = None,
    device: options.Device = None,
    detector: options.Detector = None,
    upscaler: options.Upscaler = None,
    form: Form = "table",
) -> int:
    """List the tools and which are absent here, show one, call one by hand, or serve them to other agents.

    `call` prints what a tool says and writes its pictures as PNG; no file is overwritten. The first image is called
    'Original Image', the second 'Edited Image'. Exit code 1: the tool itself failed.

    \b
    editloupe tools call zoom_in before.png after.png --arg 'bbox=[0, 0, 500, 500]'
    editloupe tools serve --root pictures
    """
    given: dict[str, Any] = {"device": device, "detector": detector, "upscaler": upscaler}
    settings = replace(ToolSettings.from_environment(), **{name: text for name, text in given.items() if text})
    verb, *rest = what or [""]
    options.check_company(
        ("editloupe tools call", verb == "call", {"--arg": arg, "--out": out_dir}),
        ("editloupe tools serve", verb == "serve", {"--root": root != Path(), "--tools": only}),
    )
    if verb == "call":
        if len(rest) < 2:
            raise ConfigError("expected a tool and at least one image: editloupe tools call NAME IMAGE [IMAGE]")
        return _call(rest[0], [Path(word) for word in rest[1:]], arg or [], out_dir, settings)
    if rest:
        raise ConfigError(f"{' '.join(rest)}: expected one name; editloupe tools {verb} takes no more words")
    if verb == "serve":
        return _serve(root, words(only), settings)
    known = [*BUILT_IN_TOOLS, *(n for n in plugins.names("tools") if n not in BUILT_IN_TOOLS)]
    if not verb:
        _list(known, settings)
    elif verb in known:
        _show(verb, settings)
    else:
        raise ConfigError(
            f"there is no tool {verb!r}; {did_you_mean(verb, known)}expected one of {', '.join(known)}, to show it; call "
            "NAME IMAGE…; serve; or nothing, to list the tools"
        )
    return 0


def _list(names: Sequence[str], settings: ToolSettings) -> None:
    box, rows = open_toolbox(names, settings), []
    for name in names:
        if name in box.absent:
            rows.append((name, "", f"absent: {box.absent[name]}"))
        else:
            offered = spec(box.tools[name])
            arguments = ", ".join(cast(dict[str, Json], offered.parameters.get("properties")))
            rows.append((f"{name} {box.tools[name].version}", arguments, offered.description))
    table("Tool", "Arguments", "What it does", rows=rows)


def _show(name: str, settings: ToolSettings) -> None:
    box = open_toolbox([name], settings)
    if name in box.absent:
        raise ConfigError(f"the tool {name} is absent here: {box.absent[name]}")
    tool = box.tools[name]
    offered = spec(tool)
    say(f"{name} ({plugins.origin('tools', name)}), version {tool.version}", "bold")
    say(offered.description)
    properties = cast(dict[str, dict[str, Json]], offered.parameters.get("properties", {}))
    required = cast(list[str], offered.parameters.get("required", []))
    rows = []
    for argument, schema in properties.items():
        default = "required" if argument in required else json.dumps(schema.get("default"))
        rows.append((argument, str(schema.get("type", "any")), default, str(schema.get("description", ""))))
    table("Argument", "Type", "Default", "What it is", rows=rows)
    for line in works_with(tool):
        say(line)


def _serve(root: Path, names: tuple[str, ...] | None, settings: ToolSettings) -> int:
    from editloupe.service.mcp import serve  # an extra: pip install 'editloupe[mcp]'

    session = open_session(tools=names, settings=settings)
    note(f"editloupe MCP server on standard input and output; images below {root.resolve()}")
    for name, why in session.toolbox.absent.items():
        note(f"absent: {name}: {why}")
    serve(session, root)
    return 0


def _call(name: str, images: list[Path], arg: list[str], out_dir: Path | None, settings: ToolSettings) -> int:
    try:
        session = open_session(tools=[name], settings=settings)
        tool = session.toolbox.tools[name]
        names = [*NAMES, *(f"Image {n}" for n in range(3, len(images) + 1))][: len(images)]
        arguments = _arguments(tool, arg, names)
        session.open(dict(zip(names, images, strict=True)))
        models.prepare(tool)
        began = time.perf_counter()
        shown = session.call(name, arguments)
        seconds = time.perf_counter() - began
    except ToolError as error:
        fail(str(error))
        return 1 if isinstance(error, ToolFailed) else 2
    written = _written(shown, out_dir)
    if as_json():
        pictures: list[Json] = [{"name": picture.name or None, "path": str(path)} for picture, path in written]
        told: dict[str, Json] = {"tool": shown.tool, "version": shown.version, "arguments": arguments}
        told |= {"text": shown.observation.text, "data": dict(shown.observation.data), "images": pictures}
        print_json({**told, "works_with": list(works_with(tool)), "seconds": round(seconds, 4)}, indent=2)
        return 0
    say(shown.observation.text)
    for picture, path in written:
        places = " | ".join(
            f"px {list(view.region.ints())}" + (f" of {origin!r}" if origin else "")
            for view, origin in zip(picture.panes, picture.origins, strict=True)
        )
        size = f"{picture.image.width}×{picture.image.height} px"
        say(f"{path}  {picture.name or 'plain, not shown to a judge'}: {size}; {places}")
    note(f"{', '.join([name, *works_with(tool)])}: {seconds:.2f} s")
    if used := [f"{key} = {value!r}" for key, value in arguments.items() if str(value) in session.images]:
        note(", ".join(used))
    return 0


def _arguments(tool: Tool, given: list[str], names: list[str]) -> dict[str, Json]:
    """Return the arguments of --arg, and image names that were left out and follow from the number of images.

    An argument is text if the tool's schema takes text, else JSON if it is any. Raises ConfigError: no KEY=VALUE, one
    argument twice, images that do not say which is meant.
    """
    schema = tool.Args.model_json_schema()
    properties, required = schema.get("properties", {}), schema.get("required", [])
    found: dict[str, Json] = {**pairs(given, "--arg", "KEY=VALUE, such as phrase='red mug'")}
    for key, text in found.items():
        if properties.get(key, {}).get("type") != "string":
            # What is not JSON stays text: the tool says what it expected instead.
            with suppress(ValueError):
                found[key] = finite_json(str(text))
    meant = {"target_image": names[-1], "comparison_image_1": names[0], "comparison_image_2": names[-1]}
    missing = [key for key in meant if key in required and key not in found]
    if missing and len(names) > len(NAMES):
        raise ConfigError(f"{len(names)} images are given: say which is meant, for example --arg {missing[0]}='Image 3'")
    if len(names) == 1 and "comparison_image_2" in missing:
        raise ConfigError(f"{tool.name} compares two images; name a second file after the first")
    return found | {key: meant[key] for key in missing}


def _written(shown: ToolAnswer, folder: Path | None) -> Sequence[tuple[Picture, Path]]:
    """Return every picture, shown or kept, with its new file. Raises ConfigError: cannot be written."""
    written: list[tuple[Picture, Path]] = []
    folder = folder or _free(Path(f"editloupe-tool-{shown.tool}"))
    try:
        for number, picture in enumerate((*shown.pictures, *shown.kept), start=1 - len(shown.pictures)):
            folder.mkdir(parents=True, exist_ok=True)
            path = _free(folder / f"{picture.name.lower().replace(' ', '-') or f'plain-{number}'}.png")
            path.write_bytes(picture.png)
            written.append((picture, path))
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written: {error.strerror or error}") from error
    return written


def _free(path: Path) -> Path:
    """Return the first of a.png, a-2.png, a-3.png, … that is not there yet."""
    names = (path if n == 1 else path.with_name(f"{path.stem}-{n}{path.suffix}") for n in count(1))
    return next(name for name in names if not name.exists())
