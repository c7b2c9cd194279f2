"""`editloupe tools`: which tools are here; one called by hand; all loaded now; all served to other agents."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
from typer import Argument, Option

from editloupe import plugins
from editloupe.cli.options import AsJson, with_options, words
from editloupe.cli.output import fail, note, out, plain, print_json, say, table
from editloupe.errors import ConfigError, DataError, ToolError, ToolFailed
from editloupe.tools.base import BUILT_IN_TOOLS, Describes, Prepares, Tool, Toolbox, open_toolbox, spec
from editloupe.tools.session import Picture, ToolAnswer, open_session
from editloupe.tools.settings import ToolSettings
from editloupe.values import Json, parse_json

NAMES: Final = ("Original Image", "Edited Image")
"""What the first and the second image of `tools call` are called, as in the judge's conversation."""

_CREDITS: Final = (
    "DLEBench (section 4.2) names four tools: Grounding, Zoom-In, Difference and Enhancer. Difference is "
    "localize_differences, as in the paper's dialogues. detect_object is from the dialogues too: Grounding in words alone. "
    "The paper enhances every crop with Real-ESRGAN; here small crops are enlarged (docs/tools.md)."
)

_with_weights = with_options("weights", ("device", "detector", "upscaler", "picture_budget", "marks"))
Weights = Mapping[str, Any]


@_with_weights
def tools(context: typer.Context, weights: Weights) -> int:
    """List the tools and which are absent here, or show one, call one, load them, serve them.

    DLEBench names four tools: Grounding, Zoom-In, Difference and Enhancer. The list says which of the five is which.
    """
    context.obj = ToolSettings.from_environment()
    settings = context.obj = _settings(context, weights)
    if context.invoked_subcommand:
        return 0
    box, names = _everything(settings)

    def row(name: str) -> tuple[str, ...]:
        offered = spec(box.tools[name])
        arguments = offered.parameters.get("properties")
        return f"{name} {box.tools[name].version}", ", ".join(cast(dict[str, Json], arguments)), offered.description

    _table(box, names, ("Tool", "Arguments", "What it does"), row)
    say(_CREDITS)
    return 0


@_with_weights
def show(
    context: typer.Context,
    weights: Weights,
    name: Annotated[str, Argument(metavar="NAME", help="One of `editloupe tools`.")],
) -> int:
    """Show what a tool does and the arguments that it takes. Exit code 2 if it is absent here."""
    box = open_toolbox([name], _settings(context, weights))
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
    for line in _works_with(tool):
        say(line)
    return 0


@_with_weights
def warm(
    context: typer.Context,
    weights: Weights,
    names: Annotated[list[str] | None, Argument(metavar="NAME", help="Tools. Default: all.")] = None,
) -> int:
    """Load now what the tools would load with their first call, and say what that is.

    A hub id that is named (--detector owner/name) is downloaded to the local cache: do this once before runs without a
    network. Absent tools are listed with the reason. Exit code 0; 2 where weights that were named, or a tool that was
    named, cannot be had.
    """
    settings = _settings(context, weights)
    box, listed = (open_toolbox(names, settings), list(names)) if names else _everything(settings)

    def row(name: str) -> tuple[str, ...]:
        seconds = _prepared(box.tools[name])
        described = _works_with(box.tools[name]) or ("nothing to load",)
        return name, box.tools[name].version, "\n".join(described), f"{seconds:.2f}"

    _table(box, listed, ("Tool", "Version", "Works with", "Seconds"), row)
    return 2 if names and box.absent else 0


@_with_weights
def call(
    context: typer.Context,
    weights: Weights,
    tool: Annotated[str, Argument(metavar="NAME", help="One of `editloupe tools`.")],
    images: Annotated[
        list[Path],
        Argument(
            metavar="IMAGE", help="The first is called 'Original Image', the second 'Edited Image', later ones 'Image 3', …"
        ),
    ],
    arg: Annotated[
        list[str] | None, Option("--arg", metavar="KEY=VALUE", help="An argument, JSON or text; may be repeated.")
    ] = None,
    args: Annotated[str | None, Option("--args", metavar="JSON", help="All arguments as one JSON object.")] = None,
    bbox: Annotated[
        str | None, Option(metavar="X0,Y0,X1,Y1", help="The argument bbox: thousandths of width and height.")
    ] = None,
    out_dir: Annotated[
        Path | None,
        Option("--out", metavar="DIR", help="Folder for the pictures. Default: a new one, editloupe-tool-NAME."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Call one tool by hand: print what it says, write its pictures as PNG.

    Arguments that name an image may be left out with one or two images: target_image is then the last image given,
    comparison_image_1 and comparison_image_2 are the first and the second.

    No file is overwritten: a picture whose name is taken gets a number. Exit code 0; 2 where the call, an image, weights
    or a device are wrong, or the tool is absent; 1 where the tool itself failed.
    """
    try:
        settings = _settings(context, weights)
        session = open_session(tools=[tool], settings=settings)
        made = session.toolbox.tools[tool]
        arguments = _arguments(made, arg or [], args, bbox)
        names = [*NAMES, *(f"Image {n}" for n in range(3, len(images) + 1))][: len(images)]
        session.open(dict(zip(names, images, strict=True)))
        arguments |= _assumed(made, arguments, names)
        loading = _prepared(made)
        began = time.perf_counter()
        shown = session.call(tool, arguments)
        seconds = time.perf_counter() - began
        written = _written(shown, out_dir)
    except (ConfigError, DataError, ToolError) as error:
        if as_json:
            print_json({"error": {"kind": type(error).__name__, "message": str(error)}}, indent=2)
        fail(str(error))
        return 1 if isinstance(error, ToolFailed) else 2
    works_with = _works_with(made)
    if as_json:
        done: dict[str, Json] = {
            "tool": shown.tool,
            "version": shown.version,
            "arguments": arguments,
            "text": shown.observation.text,
            "data": dict(shown.observation.data),
            "images": [_picture_json(picture, path) for picture, path in written],
            "device": settings.device,
            "works_with": list(works_with),
            "loading_seconds": round(loading, 4),
            "seconds": round(seconds, 4),
        }
        print_json(done, indent=2)
        return 0
    _show(shown, written)
    works = f", {'; '.join(works_with)}" if works_with else ""
    note(f"{tool}{works}: {seconds:.2f} s" + (f", loading {loading:.2f} s" if loading > 0.1 else ""))
    used = [f"{key} = {value!r}" for key, value in arguments.items() if str(value) in session.images]
    if used:
        note(", ".join(used))
    return 0


@_with_weights
def serve_mcp(
    context: typer.Context,
    weights: Weights,
    root: Annotated[Path, Option(metavar="DIR", help="Only images below this folder can be opened.")] = Path(),
    tools: Annotated[str | None, Option(help="Comma-separated tools. Default: all that can be had here.")] = None,
) -> int:
    """Serve the tools to other agents: a Model Context Protocol server on standard input and output.

    A client starts this command. It opens images with the tool open_images, by paths below --root, and calls the tools
    with the names that it gets; pictures are named too and can be looked into further. Needs pip install 'editloupe[mcp]'.
    """
    from editloupe.service.mcp import serve

    session = open_session(tools=words(tools), settings=_settings(context, weights))
    note(f"editloupe MCP server on standard input and output; images below {root.resolve()}")
    for name, why in session.toolbox.absent.items():
        note(f"absent: {name}: {why}")
    serve(session, root)
    return 0


def _settings(context: typer.Context, weights: Weights) -> ToolSettings:
    """The settings of the group with the command's own in their place."""
    settings: ToolSettings = context.obj
    return replace(settings, **{name: value for name, value in weights.items() if value not in (None, "")})


def _everything(settings: ToolSettings) -> tuple[Toolbox, list[str]]:
    names = [*BUILT_IN_TOOLS, *(n for n in plugins.names("tools") if n not in BUILT_IN_TOOLS)]
    return open_toolbox(names, settings), names


def _table(box: Toolbox, names: Sequence[str], head: Sequence[str], row: Callable[[str], tuple[str, ...]]) -> None:
    """One row a tool; of one that is absent the reason."""
    absent = {name: ("", f"absent: {why}", "")[: len(head) - 1] for name, why in box.absent.items()}
    rows = [[plain(cell, "dim") for cell in (name, *absent[name])] if name in absent else row(name) for name in names]
    table(*head, rows=rows)


def _prepared(tool: Tool) -> float:
    """Load what a tool works with; the seconds that this took."""
    began = time.perf_counter()
    if isinstance(tool, Prepares):
        tool.prepare()
    return time.perf_counter() - began


def _works_with(tool: Tool) -> tuple[str, ...]:
    return tool.describe() if isinstance(tool, Describes) else ()


def _arguments(tool: Tool, arg: list[str], args: str | None, bbox: str | None) -> dict[str, Json]:
    """What the three options give together. Raises ConfigError: no KEY=VALUE, no JSON object, one argument twice.

    A value of --arg is text where the tool's schema takes text, else JSON where it is any.
    """
    properties = tool.Args.model_json_schema().get("properties", {})
    given: dict[str, Json] = {}
    if args is not None:
        try:
            found = _json(args, f"--args {args!r}")
        except ValueError as error:
            raise ConfigError(f"--args {args!r}: is not JSON ({error})") from error
        if not isinstance(found, dict):
            raise ConfigError(f'--args {args!r}: expected one JSON object, for example \'{{"phrase": "red mug"}}\'')
        given |= found
    for text in arg:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"--arg {text!r}: expected KEY=VALUE, for example --arg phrase='red mug'")
        if key in given:
            raise ConfigError(f"the argument {key!r} is given twice")
        given[key] = value
        if properties.get(key, {}).get("type") != "string":
            # No JSON stays text: the tool says what it expected instead.
            with suppress(ValueError):
                given[key] = _json(value, f"--arg {key}={value}")
    if bbox is not None:
        if "bbox" in given:
            raise ConfigError("the argument 'bbox' is given twice")
        given["bbox"] = _corners(bbox)
    return given


def _json(text: str, what: str) -> Json:
    """JSON, strictly. Raises ConfigError for NaN and Infinity, ValueError for what is no JSON."""

    def refuse(word: str) -> Json:
        raise ConfigError(f"{what}: {word} is no JSON number; expected finite numbers")

    found: Json = parse_json(text, parse_constant=refuse)
    return found


def _corners(text: str) -> list[Json]:
    """ "100,200,300,400" as numbers; what they must be is the tool's to say."""
    numbers: list[Json] = []
    for word in text.strip().strip("[]()").replace(",", " ").split():
        if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", word):
            raise ConfigError(f"--bbox {text!r}: {word!r} is no number; expected X0,Y0,X1,Y1 from 0 to 1000")
        numbers.append(float(word) if "." in word else int(word))
    return numbers


def _assumed(tool: Tool, given: Mapping[str, Json], names: list[str]) -> dict[str, Json]:
    """Image names that were left out and can be told from the number of images. Raises ConfigError where they cannot."""
    meant = {"target_image": names[-1], "comparison_image_1": names[0], "comparison_image_2": names[-1]}
    required = tool.Args.model_json_schema().get("required", [])
    missing = [key for key in meant if key in required and key not in given]
    if missing and len(names) > len(NAMES):
        raise ConfigError(f"{len(names)} images are given: say which is meant, for example --arg {missing[0]}='Image 3'")
    if len(names) == 1 and "comparison_image_2" in missing:
        raise ConfigError(f"{tool.name} compares two images; name a second file after the first")
    return {key: meant[key] for key in missing}


def _written(shown: ToolAnswer, folder: Path | None) -> list[tuple[Picture, Path]]:
    """Every picture, shown or kept, with its new file. Raises ConfigError: cannot be written."""
    pictures = (*shown.pictures, *shown.kept)
    if not pictures:
        return []
    written = []
    try:
        if folder is None:
            folder = _free(Path(f"editloupe-tool-{shown.tool}"), Path.mkdir)
        folder.mkdir(parents=True, exist_ok=True)
        for number, picture in enumerate(pictures, start=1 - len(shown.pictures)):
            name = picture.name.lower().replace(" ", "-") or f"plain-{number}"
            written.append((picture, _free(folder / f"{name}.png", partial(_new_file, data=picture.png))))
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written: {error.strerror or error}") from error
    return written


def _free(path: Path, make: Callable[[Path], Any]) -> Path:
    """Make the first of a.png, a-2.png, a-3.png, … that is not there yet."""
    number, free = 1, path
    while True:
        with suppress(FileExistsError):
            make(free)
            return free
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")


def _new_file(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)


def _picture_json(picture: Picture, path: Path) -> Json:
    panes: list[Json] = [
        {"origin": origin or None, "box": list(view.region), "window": list(view.window), "op": view.op}
        for view, origin in zip(picture.panes, picture.origins, strict=True)
    ]
    return {
        "name": picture.name or None,
        "path": str(path),
        "width": picture.image.width,
        "height": picture.image.height,
        "kept": not picture.name,
        "views": panes,
    }


def _show(shown: ToolAnswer, written: Sequence[tuple[Picture, Path]]) -> None:
    say(shown.observation.text)
    if written:
        out().print()
    for picture, path in written:
        places = " | ".join(
            f"px {list(view.region.ints())} of {origin!r}" if origin else f"px {list(view.region.ints())}"
            for view, origin in zip(picture.panes, picture.origins, strict=True)
        )
        size = f"{picture.image.width}×{picture.image.height} px"
        say(f"{path}  {picture.name or 'plain, not shown to a judge'}: {size}; {places}")
