"""Read and write files that others may have put there: no link leads a write out of its folder, and no pipe is waited for.

A write below a folder opens every folder on its way, and the file itself, without following links. New content gets a
random name that was not there, and takes its own name when it is whole. A file is appended to under one name only.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from editloupe.errors import ConfigError, EditLoupeError, StorageError
from editloupe.values import check_extent

_MOST_KEYS: Final = 100_000
PART: Final = ".part-"
"""Beginning of the name of a file that is being written."""


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading. Raises OSError, also for a pipe, a socket or a device: reading these may never end."""
    # A pipe without a writer opens at once, and is refused then.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    return _plain(descriptor, "rb", path)


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file. Raises OSError as `open_plain`."""
    with open_plain(path) as file:
        return file.read()


def read_text(path: Path, what: str, *, error: type[EditLoupeError] = ConfigError, if_missing: str = "") -> str:
    """Return the text of a user's file, in UTF-8, its lines ended by newlines.

    what: the beginning of messages, such as "prices FILE".   if_missing: what else to say of a file that is not there.
    Raises `error`.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        raise error(f"{what} is not UTF-8 (byte {cause.start}); save it as UTF-8") from cause
    except OSError as cause:
        hint = if_missing if isinstance(cause, FileNotFoundError) else ""
        raise error(f"{what} cannot be read: {cause.strerror or cause}{hint}") from cause
    except ValueError as cause:  # a name with NUL
        raise error(f"{what} cannot be read: {cause}") from cause
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_toml(path: Path, what: str, *, error: type[EditLoupeError] = ConfigError, if_missing: str = "") -> dict[str, Any]:
    """Return the tables of a user's TOML file. Raises as `read_text`, also for what is no TOML or nested too deep."""
    text = read_text(path, what, error=error, if_missing=if_missing)
    return cast("dict[str, Any]", _parsed(tomllib.loads, (ValueError,), text, f"{what} is not valid TOML", error))


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises ConfigError as `read_text` and `read_toml` do, and for a name that stands twice in one mapping.
    """
    # Only those who write or judge need it.
    import yaml

    class BoundedLoader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    # Plain YAML would take the last one and drop the others without a word.
                    line = key.start_mark.line + 1
                    raise ConfigError(f"{path}, line {line}: {key.value!r} stands twice; each name may stand once")
                seen.add(key.value)
            return super().construct_mapping(node, deep)

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            super().flatten_mapping(node)
            if len(node.value) > _MOST_KEYS:
                raise ValueError(f"a mapping has more than {_MOST_KEYS:,} keys")

    # A value that is not of the type of its tag raises any of these.
    refused = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError)
    text = read_text(path, str(path))
    return _parsed(partial(yaml.load, Loader=BoundedLoader), refused, text, f"{path} is not YAML", ConfigError)


def _parsed(
    parse: Callable[[str], Any],
    refused: tuple[type[Exception], ...],
    text: str,
    problem: str,
    error: type[EditLoupeError],
) -> Any:
    try:
        value = parse(text)
        check_extent(value)
    except RecursionError as cause:
        raise error(f"{problem}: it is nested too deep") from cause
    except refused as cause:
        raise error(f"{problem}: {cause}") from cause
    return value


def append(path: Path, *, below: Path, new: bool = False, lock: bool = False) -> BinaryIO:
    """Open a file to read it and to write at its end; it and the folders on its way are made if they are missing.

    below: no link is followed from this folder on.   new: the file must not be there yet (FileExistsError).
    lock: it is held and not written. A file that has a second name elsewhere (a hard link) is replaced by a copy first,
    but for a lock: two who hold different files would both go on.
    Raises OSError, also for a link, a pipe or a device.
    """
    with _way(path, below, make=True) as (folder, name):
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_EXCL if new else 0)
        file = _plain(_opened(name, flags, folder, path), "a+b", path)
        if lock or not _has_second_name(file):
            return file
        with file:
            file.seek(0)
            write_whole(path, file.read(), below=below)
        file = _plain(_opened(name, flags, folder, path), "a+b", path)
        if _has_second_name(file):
            file.close()
            raise OSError(errno.EMLINK, "it has a second name elsewhere, which would be written too", str(path))
        return file


def _has_second_name(file: BinaryIO) -> bool:
    return os.fstat(file.fileno()).st_nlink > 1


@contextmanager
def whole(path: Path, *, below: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a file to write to. It takes the name `path` when all is written: a reader never sees half of it.

    below: no link is followed from this folder on; None for the file's own folder. A link in the file's place is replaced.
    Raises OSError, also where a pipe, a socket or a device stands in its place.
    """
    with _way(path, below or path.parent, make=True) as (folder, name):
        with suppress(FileNotFoundError):
            kind = os.stat(name, dir_fd=folder).st_mode
            if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                raise OSError(errno.EINVAL, "it is a pipe or a device; name a file", str(path))
        part = f"{PART}{secrets.token_hex(16)}"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
            os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise


def write_whole(path: Path, data: bytes, *, below: Path | None = None, synced: bool = False) -> Path:
    """Write a file whole or not at all, as `whole` does, and return its path. Raises OSError.

    synced: whether its content is on the disk, power cut or not, before the file takes its name.
    """
    with whole(path, below=below) as file:
        file.write(data)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    return path


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raise StorageError, which names the folder, where what is inside cannot read or write."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {write_cure(error)}") from error


def write_cure(error: OSError) -> str:
    """Return what the system says of a write that failed, and what to do about it."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return f"{error.strerror or error}; {'make room' if full else 'correct that'}, then give the same command"


def link_or_copy(source: Path, target: Path, *, below: Path) -> None:
    """Make `target` a hard link to a file, or a copy where the disk allows no link. Raises OSError as `append`."""
    with _way(target, below, make=True) as (folder, name), suppress(OSError):
        if stat.S_ISREG(source.lstat().st_mode):
            os.link(source, name, dst_dir_fd=folder, follow_symlinks=False)
            return
    write_whole(target, read_bytes(source), below=below)


def rename(path: Path, name: str, *, below: Path) -> Path:
    """Give a file another name in its own folder and return the new path. below: as in `append`. Raises OSError."""
    with _way(path, below) as (folder, old):
        os.rename(old, name, src_dir_fd=folder, dst_dir_fd=folder)
    return path.with_name(name)


def unlink(path: Path, *, below: Path) -> None:
    """Delete a file. below: as in `append`. Raises OSError."""
    with _way(path, below) as (folder, name):
        os.unlink(name, dir_fd=folder)


@contextmanager
def _way(path: Path, below: Path, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (descriptor of the file's folder, the file's name there). `below` itself is followed: its user named it."""
    *folders, name = path.relative_to(below).parts
    if ".." in (*folders, name):
        raise OSError(errno.EINVAL, "leads out of its folder", str(path))
    try:
        folder = os.open(below, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        if not make:
            raise
        below.mkdir(parents=True, exist_ok=True)
        folder = os.open(below, os.O_RDONLY | os.O_DIRECTORY)
    how = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        for inner in folders:
            try:
                outer, folder = folder, _opened(inner, how, folder, path)
            except FileNotFoundError:
                if not make:
                    raise
                with suppress(FileExistsError):
                    os.mkdir(inner, dir_fd=folder)
                outer, folder = folder, _opened(inner, how, folder, path)
            os.close(outer)
        yield folder, name
    finally:
        os.close(folder)


def _opened(name: str, flags: int, folder: int, path: Path) -> int:
    try:
        return os.open(name, flags, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OSError(errno.ELOOP, f"{name} is a link or no folder, and is not followed", str(path)) from error
        raise


def _plain(descriptor: int, mode: str, path: Path) -> BinaryIO:
    """Return the file of a descriptor. Raises OSError unless it is a file as such."""
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return cast(BinaryIO, os.fdopen(descriptor, mode))
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, "it is a folder; expected a file", str(path))
    raise OSError(errno.EINVAL, "it is a pipe or a device; put its content into a file", str(path))
