"""`editloupe measure`: numbers that are computed from the images of every edit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from editloupe import models
from editloupe.cli.judge import default_out, judge_all
from editloupe.cli.options import OUTPUT, AsJson, absolute, finite, settled, with_options
from editloupe.cli.output import note
from editloupe.config import RunConfig
from editloupe.errors import ConfigError, ModelAbsent
from editloupe.findings import PENDING
from editloupe.measures.base import open_measure
from editloupe.runs.setup import open_setup

_RUN = (
    "path", "format", "edited", "fields", "columns", "limit", "sample", "device", "clip", "dino", "lpips", "faces",
    "aesthetic", "concurrency", "fail_on_error",
)  # fmt: skip
_HOW = "How"


@with_options("given", _RUN, absolute)
def measure(
    given: dict[str, Any],
    measures: Annotated[
        str | None,
        Option(
            help="Comma-separated, such as mse,psnr,ssim (the default). docs/measures.md has all.", rich_help_panel=_HOW
        ),
    ] = None,
    mask: Annotated[
        Literal["auto", "apply", "official", "none"] | None,
        Option(
            help="apply: outside the mask. none: the whole image. official: as GIE-Bench's scripts. auto (the default): "
            "apply to edits that have a mask, none to others.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    dilate: Annotated[
        bool | None,
        Option("--dilate/--no-dilate", help="Grow a mask that is stretched by one of its cells.", rich_help_panel=_HOW),
    ] = None,
    align: Annotated[
        Literal["none", "sift", "register"] | None,
        Option(help="Lay the edited image onto the source first. Default: none.", rich_help_panel=_HOW),
    ] = None,
    ssim: Annotated[
        Literal["outside", "official"] | None,
        Option(help="SSIM's mean outside the mask, or with the mask painted black.", rich_help_panel=_HOW),
    ] = None,
    side: Annotated[
        int | None,
        Option(
            min=0, help="px to which SSIM squashes both images; 0: the source's size. Default: 224.", rich_help_panel=_HOW
        ),
    ] = None,
    pool: Annotated[
        Literal["pure", "any"] | None,
        Option(help="Patches of clip and dino: wholly outside the mask, or partly.", rich_help_panel=_HOW),
    ] = None,
    face_score: Annotated[
        float | None,
        Option(min=0, max=1, callback=finite, help="Least score of a face. Default: 0.9.", rich_help_panel=_HOW),
    ] = None,
    face_side: Annotated[
        int | None,
        Option(min=32, max=4096, help="px to which images are reduced to find faces. Default: 640.", rich_help_panel=_HOW),
    ] = None,
    face_match: Annotated[
        Literal["cosine", "place"] | None,
        Option(help="Faces compared: most alike, or in the same place. Default: cosine.", rich_help_panel=_HOW),
    ] = None,
    out_dir: Annotated[
        Path | None, Option("--out", help="Run folder. Default: runs/NAME-measures.", rich_help_panel=OUTPUT)
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Measure every edit of a folder or a run: MSE, PSNR, SSIM, CLIP and others. No model is asked.

    PATH is a folder of edits, or a run, whose samples are measured. The result is a run of its own, which show, report and
    export read. The same command continues it.
    """
    if "path" not in given:
        raise ConfigError("PATH is missing: name the folder of edits, or the run, to measure (editloupe measure --help)")
    chosen = {
        "measures": measures,
        "mask": mask,
        "dilate": dilate,
        "align": align,
        "ssim": ssim,
        "side": side,
        "pool": pool,
        "face_score": face_score,
        "face_side": face_side,
        "face_match": face_match,
    }
    option = {name: value for name, value in chosen.items() if value is not None}
    run = settled(RunConfig.make(**given, protocol="measures", option=option))
    setup = open_setup(run)
    for name in setup.metrics:
        for kind in open_measure(name).needs:
            try:
                models.prepare(setup.models.get(kind))
            except ModelAbsent as reason:
                note(f"{name} is not defined here: {reason}")
    return judge_all([run], out_dir or default_out(run), redo=PENDING, as_json=as_json)
