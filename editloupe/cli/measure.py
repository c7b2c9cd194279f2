"""`editloupe measure`: numbers that are computed from the images of every edit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from editloupe import models
from editloupe.cli import options
from editloupe.cli.judge import default_out, judge_all
from editloupe.cli.options import OUTPUT, given, one_run, opt
from editloupe.cli.output import Form, note
from editloupe.errors import ConfigError, ModelAbsent
from editloupe.measures.base import open_measure
from editloupe.runs.setup import open_setup

Mask: TypeAlias = Literal["auto", "apply", "official", "none"]


def measure(
    context: typer.Context,
    path: options.DataPath = None,
    measures: Annotated[str | None, opt("--measures", "A,B,…", "Default: mse,psnr,ssim. docs/measures.md has all.")] = None,
    mask: Annotated[
        Mask | None, opt("--mask", None, "Which pixels. Default: auto, outside a mask if there is one.")
    ] = None,
    edited: options.Edited = None,
    columns: options.DataColumns = None,
    limit: options.Limit = None,
    device: options.Device = None,
    out_dir: Annotated[Path | None, opt("--out", "RUN", "Run folder. Default: runs/NAME-measures.", OUTPUT)] = None,
    form: Form = "table",
    sets: options.Sets = None,
) -> int:
    """Measure every edit of a folder or a run: MSE, PSNR, SSIM, CLIP and others. No model is asked.

    PATH is a folder of edits, or a run, whose samples are measured. The result is a run of its own, which show, report and
    export read. The same command continues it. How it is measured: --set NAME=VALUE (editloupe list protocols measures).
    """
    if path is None:
        raise ConfigError("PATH is missing: name the folder of edits, or the run, to measure (editloupe measure --help)")
    chosen = {name: value for name, value in {"measures": measures, "mask": mask}.items() if value is not None}
    run = one_run({**given(context), "protocol": "measures", "option": chosen}, "measure")
    setup = open_setup(run)
    for name in setup.metrics:
        for kind in open_measure(name).needs:
            try:
                models.prepare(setup.models.get(kind))
            except ModelAbsent as reason:
                note(f"{name} is not defined here: {reason}")
    return judge_all([run], out_dir or default_out(run))
