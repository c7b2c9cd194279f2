"""`editloupe tools`: which tools are here; one called by hand; all loaded now; all served to other agents."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from editloupe import plugins
from editloupe.cli.options import AsJson, words
from editloupe.cli.output import fail, note, out, plain, print_json, say, table
from editloupe.errors import ConfigError, DataError, ToolError, ToolFailed
from editloupe.tools.base import PAPER_TOOLS, Describes, Prepares, Tool, Toolbox, open_toolbox, spec
from editloupe.tools.reading import describe_reader
from editloupe.tools.session import Picture, Session, Shown, open_session
from editloupe.tools.settings import ToolSettings
from editloupe.values import Json

NAMES: Final = ("Original Image", "Edited Image")
"""What the first and the second image of `tools call` are called, as in the judge's conversation."""

Device = Annotated[str | None, typer.Option(help="For tools with weights: auto, cpu, cuda:0, … (default auto).")]
Detector = Annotated[str | None, typer.Option(help="For grounding and detect_object: a folder, file or hub id.")]
Upscaler = Annotated[str | None, typer.Option(help="For enlarged crops: a Real-ESRGAN checkpoint.")]
Reader = Annotated[str | None, typer.Option(help="Of text in crops: auto, off or rapidocr (default auto).")]


def tools(
    context: typer.Context,
    device: Device = None,
    detector: Detector = None,
    upscaler: Upscaler = None,
    reader: Reader = None,
) -> None:
    """List the tools and which are absent here, or call one, load them, serve them."""
    settings = context.obj = group_settings(device=device, detector=detector, upscaler=upscaler, reader=reader)
    if context.invoked_subcommand:
        return
    box, names = _everything(settings)
    rows: list[Sequence[str | Text]] = []
    for name in names:
        if name in box.absent:
            rows.append([plain(text, "dim") for text in (name, "", f"absent: {box.absent[name]}")])
            continue
        offered = spec(box.tools[name])
        properties = offered.parameters.get("properties", {})
        arguments = ", ".join(properties) if isinstance(properties, dict) else ""
        rows.append((f"{name} {box.tools[name].version}", arguments, offered.description))
    table("Tool", "Arguments", "What it does", rows=rows)
    say(describe_reader(settings))


def warm(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Tools. Default: all.")] = None,
    device: Device = None,
    detector: Detector = None,
    upscaler: Upscaler = None,
    reader: Reader = None,
) -> int:
    """Load now what the tools would load with their first call, and say what that is.

    A hub id that is named (--detector owner/name) is downloaded to the local cache: do this once before runs without a
    network. Absent tools are listed with the reason. Exit code 0; 2 where weights that were named, or a tool that was
    named, cannot be had.
    """
    settings = _settings(context, device=device, detector=detector, upscaler=upscaler, reader=reader)
    box, listed = (open_toolbox(names, settings), list(names)) if names else _everything(settings)
    rows: list[Sequence[str | Text]] = []
    for name in listed:
        if name in box.absent:
            rows.append([plain(text, "dim") for text in (name, "", f"absent: {box.absent[name]}", "")])
            continue
        tool = box.tools[name]
        began = time.perf_counter()
        if isinstance(tool, Prepares):
            tool.prepare()
        seconds = time.perf_counter() - began
        described = tool.describe() if isinstance(tool, Describes) else ("nothing to load",)
        rows.append((name, tool.version, "\n".join(described), f"{seconds:.2f}"))
    table("Tool", "Version", "Works with", "Seconds", rows=rows)
    return 2 if names and box.absent else 0


def call(
    context: typer.Context,
    tool: Annotated[str, typer.Argument(metavar="NAME", help="One of `editloupe tools`.")],
    images: Annotated[
        list[Path],
        typer.Argument(
            metavar="IMAGE",
            help="The first is called 'Original Image', the second 'Edited Image', later ones 'Image 3', …",
        ),
    ],
    arg: Annotated[
        list[str] | None, typer.Option("--arg", metavar="KEY=VALUE", help="An argument, JSON or text; may be repeated.")
    ] = None,
    args: Annotated[str | None, typer.Option("--args", metavar="JSON", help="All arguments as one JSON object.")] = None,
    bbox: Annotated[
        str | None, typer.Option(metavar="X0,Y0,X1,Y1", help="The argument bbox: thousandths of width and height.")
    ] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder for the pictures. Default: a new one, editloupe-tool-NAME."),
    ] = None,
    as_json: AsJson = False,
    device: Device = None,
    detector: Detector = None,
    upscaler: Upscaler = None,
    reader: Reader = None,
) -> int:
    """Call one tool by hand: print what it says, write its pictures as PNG.

    Arguments that name an image may be left out with one or two images: target_image is then the last image given,
    comparison_image_1 and comparison_image_2 are the first and the second.

    No file is overwritten: a picture whose name is taken gets a number. Exit code 0; 2 where the call, an image, weights
    or a device are wrong, or the tool is absent; 1 where the tool itself failed.
    """
    try:
        settings = _settings(context, device=device, detector=detector, upscaler=upscaler, reader=reader)
        done = _called(tool, images, _arguments(arg or [], args, bbox), settings)
        written = _written(done, out_dir)
    except (ConfigError, DataError, ToolError) as error:
        if as_json:
            print_json({"error": {"kind": type(error).__name__, "message": str(error)}}, indent=2)
        fail(str(error))
        return 1 if isinstance(error, ToolFailed) else 2
    if as_json:
        print_json(done.to_json(written), indent=2)
    else:
        _show(done, written)
    return 0


def serve_mcp(
    context: typer.Context,
    root: Annotated[Path, typer.Option(metavar="DIR", help="Only images below this folder can be opened.")] = Path(),
    tools: Annotated[str | None, typer.Option(help="Comma-separated tools. Default: all that can be had here.")] = None,
    device: Device = None,
    detector: Detector = None,
    upscaler: Upscaler = None,
    reader: Reader = None,
) -> None:
    """Serve the tools to other agents: a Model Context Protocol server on standard input and output.

    A client starts this command. It opens images with the tool open_images, by paths below --root, and calls the tools
    with the names that it gets; pictures are named too and can be looked into further. Needs pip install 'editloupe[mcp]'.
    """
    from editloupe.service.mcp import serve

    settings = _settings(context, device=device, detector=detector, upscaler=upscaler, reader=reader)
    session = open_session(tools=words(tools), settings=settings)
    note(f"editloupe MCP server on standard input and output; images below {root.resolve()}")
    for name, why in session.toolbox.absent.items():
        note(f"absent: {name}: {why}")
    serve(session, root)


class _Done:
    """One call by hand, as it was made and answered."""

    def __init__(
        self, session: Session, shown: Shown, *, arguments: Mapping[str, Json], device: str, seconds: float, loading: float
    ) -> None:
        self.session, self.shown, self.arguments = session, shown, arguments
        self.device, self.seconds, self.loading = device, seconds, loading
        made = session.toolbox.tools[shown.tool]
        self.models = made.describe() if isinstance(made, Describes) else ()

    def to_json(self, written: Mapping[int, Path]) -> dict[str, Json]:
        shown = self.shown
        pictures: list[Json] = []
        for index, (picture, kept) in enumerate(_all_pictures(shown)):
            panes: list[Json] = [
                {"origin": origin or None, "box": list(view.region), "window": list(view.window), "op": view.op}
                for view, origin in zip(picture.panes, picture.origins, strict=True)
            ]
            pictures.append(
                {
                    "name": picture.name or None,
                    "path": str(written[index]),
                    "width": picture.image.width,
                    "height": picture.image.height,
                    "kept": kept,
                    "views": panes,
                }
            )
        return {
            "tool": shown.tool,
            "version": shown.version,
            "arguments": dict(self.arguments),
            "text": shown.observation.text,
            "data": dict(shown.observation.data),
            "images": pictures,
            "device": self.device,
            "works_with": list(self.models),
            "loading_seconds": round(self.loading, 4),
            "seconds": round(self.seconds, 4),
        }


def _called(name: str, files: list[Path], given: dict[str, str | Json], settings: ToolSettings) -> _Done:
    session = open_session(tools=[name], settings=settings)
    tool = session.toolbox.tools[name]
    names = [*NAMES, *(f"Image {n}" for n in range(3, len(files) + 1))][: len(files)]
    session.open(dict(zip(names, files, strict=True)))
    arguments = _typed(tool, given)
    arguments |= _assumed(tool, arguments, names)
    began = time.perf_counter()
    if isinstance(tool, Prepares):
        tool.prepare()
    ready = time.perf_counter()
    shown = session.call(name, arguments)
    seconds = time.perf_counter() - ready
    return _Done(session, shown, arguments=arguments, device=settings.device, seconds=seconds, loading=ready - began)


class _Text(str):
    """A value of --arg as it was typed; the tool's schema says whether it is text or JSON."""


def _arguments(arg: list[str], args: str | None, bbox: str | None) -> dict[str, str | Json]:
    """What the three options give together. Raises ConfigError: no KEY=VALUE, no JSON object, one argument twice."""
    given: dict[str, str | Json] = {}
    if args is not None:
        found = _parsed(args, f"--args {args!r}")
        if not isinstance(found, Mapping):
            raise ConfigError(f'--args {args!r}: expected one JSON object, for example \'{{"phrase": "red mug"}}\'')
        given.update(found)
    for text in arg:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--arg {text!r}: expected KEY=VALUE, for example --arg phrase='red mug'")
        if key.strip() in given:
            raise ConfigError(f"the argument {key.strip()!r} is given twice")
        given[key.strip()] = _Text(value)
    if bbox is not None:
        if "bbox" in given:
            raise ConfigError("the argument 'bbox' is given twice")
        given["bbox"] = _corners(bbox)
    return given


def _corners(text: str) -> list[Json]:
    """ "100,200,300,400" as numbers; what they must be is the tool's to say."""
    numbers: list[Json] = []
    for word in text.strip().strip("[]()").replace(",", " ").split():
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ConfigError(f"--bbox {text!r}: {word!r} is no number; expected X0,Y0,X1,Y1 from 0 to 1000")
        numbers.append(int(value) if word.lstrip("+-").isdigit() else value)
    return numbers


def _parsed(text: str, what: str) -> Json:
    """JSON, strictly: NaN and Infinity are none. Raises ConfigError."""

    def refuse(word: str) -> Json:
        raise ConfigError(f"{what}: {word} is no JSON number; expected finite numbers")

    try:
        found: Json = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{what}: is not JSON ({error})") from error
    return found


def _typed(tool: Tool, given: Mapping[str, str | Json]) -> dict[str, Json]:
    """Typed words as the tool's schema wants them: text as it stands where it takes text, else JSON where it is any."""
    properties = tool.Args.model_json_schema().get("properties", {})
    arguments: dict[str, Json] = {}
    for key, value in given.items():
        if isinstance(value, _Text) and properties.get(key, {}).get("type") == "string":
            value = str(value)
        elif isinstance(value, _Text):
            try:
                value = _parsed(value, f"--arg {key}={value}")
            except ConfigError as error:
                if error.__cause__ is None:
                    raise
                # No JSON: the tool says what it expected instead of this text.
                value = str(value)
        arguments[key] = value
    return arguments


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


def _written(done: _Done, folder: Path | None) -> dict[int, Path]:
    """Every picture as a file of its own, by its place in `_all_pictures`. Raises ConfigError: cannot be written."""
    pictures = list(_all_pictures(done.shown))
    if not pictures:
        return {}
    written: dict[int, Path] = {}
    try:
        if folder is None:
            folder = _made(Path(f"editloupe-tool-{done.shown.tool}"))
        else:
            folder.mkdir(parents=True, exist_ok=True)
        plain_ones = 0
        for index, (picture, kept) in enumerate(pictures):
            plain_ones += kept
            name = f"plain-{plain_ones}" if kept else picture.name.lower().replace(" ", "-")
            for path in _numbered(folder / f"{name}.png"):
                try:
                    with path.open("xb") as file:
                        file.write(picture.png)
                except FileExistsError:
                    continue
                written[index] = path
                break
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be written: {error.strerror or error}") from error
    return written


def _made(folder: Path) -> Path:
    """That folder, or the first numbered one that is not there yet; made."""
    for path in _numbered(folder):
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise AssertionError("numbers do not end")


def _numbered(path: Path) -> Iterator[Path]:
    """a.png, a-2.png, a-3.png, …"""
    yield path
    number = 2
    while True:
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1


def _all_pictures(shown: Shown) -> Iterator[tuple[Picture, bool]]:
    """Pictures that were shown, then those kept beside them: (picture, kept)."""
    yield from ((picture, False) for picture in shown.pictures)
    yield from ((picture, True) for picture in shown.kept)


def _show(done: _Done, written: Mapping[int, Path]) -> None:
    console = out()
    say(done.shown.observation.text)
    if written:
        console.print()
    for index, (picture, kept) in enumerate(_all_pictures(done.shown)):
        places = " | ".join(
            f"px {list(view.region.ints())} of {origin!r}" if origin else f"px {list(view.region.ints())}"
            for view, origin in zip(picture.panes, picture.origins, strict=True)
        )
        name = "plain, not shown to a judge" if kept else picture.name
        size = f"{picture.image.width}×{picture.image.height} px"
        say(f"{written[index]}  {name}: {size}; {places}")
    works = f", {'; '.join(done.models)}" if done.models else ""
    loading = f", loading {done.loading:.2f} s" if done.loading > 0.1 else ""
    note(f"{done.shown.tool}{works}: {done.seconds:.2f} s{loading}")
    used = [f"{key} = {value!r}" for key, value in done.arguments.items() if str(value) in done.session.images]
    if used:
        note(", ".join(used))


def _everything(settings: ToolSettings) -> tuple[Toolbox, list[str]]:
    names = [*PAPER_TOOLS, *(n for n in plugins.names("tools") if n not in PAPER_TOOLS)]
    return open_toolbox(names, settings), names


def group_settings(**given: str | None) -> ToolSettings:
    """The settings of the environment with what `editloupe tools` was given in their place, by field of ToolSettings."""
    return replace(ToolSettings.from_environment(), **{name: value for name, value in given.items() if value})


def _settings(context: typer.Context, **given: str | None) -> ToolSettings:
    """Return those of the group with the command's own in their place."""
    settings: ToolSettings = context.obj
    return replace(settings, **{name: value for name, value in given.items() if value})
