"""`editloupe init`: a commented editloupe.yaml, which `editloupe judge` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from typer import Argument, Option

from editloupe import files
from editloupe.cli.options import PROJECT
from editloupe.cli.output import many, note, say
from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.errors import ConfigError, DataError, StorageError
from editloupe.protocols.base import make_protocol

_TEXT: Final = """\
# What `editloupe judge` does in this folder. A word on the command line stands above a line here:
#   editloupe judge --limit 5
# `editloupe judge --help` explains every option. An option of two words is written with "_" here.

# The edits: a folder, or a metadata file. `editloupe check {path}` looks at them first.
path: {path}

# Which questions are asked. `editloupe protocols` lists them.
protocol: {protocol}
# option:                     # of the protocol: `editloupe protocols show {protocol}`
#   mode: plain

# Who judges, by name. `editloupe backends` lists what a backend may be. Keys come from the environment, never from here.
judges:
  baseline: baseline          # rules on pixels: no key, no GPU, and no LMM
#  large: openai/gpt-4.1      # needs OPENAI_API_KEY
#  local:                     # an address in a file is asked with `editloupe judge --trust` only
#    backend: vllm/Qwen/Qwen3-VL-8B-Instruct?base_url=http://127.0.0.1:8000/v1
#    temperature: 0

# How much. Without a line there is no limit.
# limit: 20                   # samples
# run_tokens: 2000000         # input and output of all calls
# max_cost: 5                 # USD
# task_tokens: 60000          # of one question
# max_turns: 6                # with tools, of one question
# fail_on_error: 0.02         # share of findings that may fail before the exit code is 3
"""


def init(
    path: Annotated[
        Path | None, Argument(metavar="PATH", help="Folder of edits. Default: the first one found here.")
    ] = None,
    protocol: Annotated[str, Option(metavar="NAME", help="Which questions are asked.")] = "dlebench",
    force: Annotated[bool, Option("--force", help="Write over an editloupe.yaml that is there.")] = False,
) -> int:
    """Write a commented editloupe.yaml, which `editloupe judge` reads.

    It names the data, the protocol, the judges and the budget. `editloupe judge` without PATH reads it in the folder where
    it is called.
    """
    make_protocol(protocol)
    file = Path(PROJECT)
    if file.exists() and not force:
        raise ConfigError(f"{file} is there already; change it, or write over it with --force")
    if path is None:
        path = _found()
    loaded = load(path, store=ImageStore(cache_bytes=0))
    text = _TEXT.format(path=path.as_posix(), protocol=protocol)
    try:
        files.write_whole(file, text.encode(), below=file.parent)
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error.strerror or error}") from error
    rejected = f", {many(len(loaded.rejected), 'row')} rejected" if loaded.rejected else ""
    say(f"{file}: {many(len(loaded.samples), 'sample')} of {path} ({loaded.format}{rejected}), protocol {protocol}.")
    note("Next: editloupe judge")
    return 0


def _found() -> Path:
    """Return the first folder here, or below, that holds edits. Raises ConfigError."""
    here = Path()
    for folder in [here, *sorted(one for one in here.iterdir() if one.is_dir() and not one.name.startswith("."))]:
        try:
            if load(folder, store=ImageStore(cache_bytes=0)).samples:
                return folder
        except (DataError, ConfigError):
            continue
    raise ConfigError("no folder of edits is found here; name it: editloupe init PATH")
