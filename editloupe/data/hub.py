"""Data sets of the Hugging Face hub: `hf://OWNER/NAME[@REVISION][:SPLIT]` in place of a folder.

A split is saved once a revision, as `save_to_disk` leaves it, in the cache of `datasets`. From then on it is a folder like
any other: a run names that folder, and needs neither the network nor `datasets`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from editloupe.errors import DataError, EditLoupeError, MissingExtra
from editloupe.files import read_bytes
from editloupe.values import parse_json

ORIGIN: Final = "hub.json"
"""File in a saved split that says where it is from."""
_ADDRESS: Final = re.compile(r"hf:/*(?:datasets/)?([\w.-]+/[\w.-]+)(?:@([\w.-]+))?(?::([\w.-]+))?", re.ASCII)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


def local_data(path: Path) -> Path:
    """Return the folder of a split of the hub, which is downloaded where it is not saved; any other path as it is.

    For a path that the user named: one in a run of others must not make this machine download.
    Raises MissingExtra without `datasets`, DataError for an address that cannot be read, and where the data or the split
    cannot be downloaded.
    """
    # A path has one of the two slashes.
    given = re.sub("^hf:/*", "hf://", path.as_posix()) if path.as_posix().startswith("hf:") else ""
    if not given or path.exists():
        return path
    if (found := _ADDRESS.fullmatch(given)) is None:
        raise DataError(f"{given}: expected hf://OWNER/NAME, hf://OWNER/NAME:SPLIT or hf://OWNER/NAME@REVISION:SPLIT")
    id_, revision, split = found.groups()
    if revision and split and _COMMIT.fullmatch(revision) and (folder := _folder(id_, revision, split)).is_dir():
        return folder
    return _saved(id_, revision, split)


def origin_of(folder: Path) -> Mapping[str, str] | None:
    """Return dataset, revision and split of a folder that was saved from the hub; None for any other."""
    try:
        found = parse_json(read_bytes(folder / ORIGIN))
        return {name: str(found[name]) for name in ("dataset", "revision", "split")}
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _saved(id_: str, revision: str | None, split: str | None) -> Path:
    """Return the folder of a split, which is downloaded where it is not saved."""
    try:
        import datasets
        from huggingface_hub import HfApi
    except ImportError as error:
        raise MissingExtra(f"hf://{id_}", "hub") from error
    try:
        commit = str(HfApi().dataset_info(id_, revision=revision).sha)
        known = [str(name) for name in datasets.get_dataset_split_names(id_, revision=commit)]
        name = known[0] if split is None and len(known) == 1 else split
        if name not in known:
            what = "has several splits" if name is None else f"has no split {name!r}"
            raise DataError(f"hf://{id_} {what}; name one of {', '.join(known)}, as in hf://{id_}:{known[0]}")
        if not (folder := _folder(id_, commit, name)).is_dir():
            _save(datasets.load_dataset(id_, split=name, revision=commit), folder, id_, commit, name)
        return folder
    except EditLoupeError:
        raise
    except Exception as error:
        # Both libraries let errors of their transports through, which are others by version.
        first = (str(error) or type(error).__name__).partition("\n")[0][:200]
        saved = [path for path in _cache().glob(f"*/{id_.replace('/', '--')}--*") if path.is_dir()]
        have = sorted(f"hf://{id_}@{path.parent.name}:{path.name.rpartition('--')[2]}" for path in saved)
        here = f"; saved here already: {', '.join(have)}" if have else ""
        raise DataError(
            f"hf://{id_}: cannot be downloaded ({first}){here}; where there is a network run "
            f"hf download --repo-type dataset {id_} --local-dir FOLDER, and name FOLDER here"
        ) from error


def _save(split: Any, folder: Path, id_: str, commit: str, name: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Under another name until it is whole, so that a download that was stopped is never taken for data.
    part = Path(mkdtemp(prefix=".part-", dir=folder.parent))
    try:
        split.save_to_disk(str(part))
        (part / ORIGIN).write_text(json.dumps({"dataset": id_, "revision": commit, "split": name}) + "\n", encoding="utf-8")
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _folder(id_: str, commit: str, split: str) -> Path:
    return _cache() / commit / f"{id_.replace('/', '--')}--{split}"


def _cache() -> Path:
    """Return our folder in the cache of `datasets`, which need not be installed."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    hub = Path(os.environ.get("HF_HOME") or home)
    return Path(os.environ.get("HF_DATASETS_CACHE") or hub / "datasets").expanduser() / "editloupe"
