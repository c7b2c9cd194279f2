"""How long a reader waits: the viewer over a run of 10,000 tasks.

    python -m benchmarks.viewer [--tasks 10000] [--keep DIR]

A run is judged for real (two samples, the pixel baseline) and then copied under new names until it has that many tasks,
each with its own trace, over shared pictures. Measured: opening the run, the run's page and a sample's page on the
server, and first paint of both in headless Chromium (CHROMIUM, or the one on the path; needs Playwright).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from editloupe.values import digest
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from editloupe.viewer.serve import Viewer
from tests.setups import open_with, run_over

EDITS = Path(__file__).parent.parent / "examples" / "edits"


def grow(folder: Path, tasks: int) -> None:
    """Makes a judged run of a few samples one of at least `tasks` tasks."""
    findings = [json.loads(line) for line in (folder / "findings.jsonl").read_text(encoding="utf-8").splitlines()]
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    traces = {f["trace"]: (folder / f["trace"]).read_text(encoding="utf-8") for f in findings}
    with (folder / "samples.jsonl").open("a") as more_samples, (folder / "findings.jsonl").open("a") as more_findings:
        for n in range(1, -(-tasks // len(findings))):
            for sample in samples:
                more_samples.write(json.dumps(sample | {"id": f"{sample['id']}-{n:05}"}) + "\n")
            for old in findings:
                task = digest([old["task_id"], n])
                trace = f"traces/{old['judge_id']}/{task[:2]}/{task}.0.jsonl"
                new = old | {"task_id": task, "sample_id": f"{old['sample_id']}-{n:05}", "trace": trace}
                more_findings.write(json.dumps(new) + "\n")
                path = folder / trace
                path.parent.mkdir(parents=True, exist_ok=True)
                text = traces[old["trace"]].replace(old["task_id"], task)
                path.write_text(text.replace(f'"sample_id":"{old["sample_id"]}"', f'"sample_id":"{new["sample_id"]}"'))


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Viewer, float]]:
    """The server, and how long it took to open the run, in seconds."""
    began = time.perf_counter()
    viewer = Viewer(Site.of([RunReader(folder, live=True)], live=True))
    took = time.perf_counter() - began
    thread = threading.Thread(target=viewer.serve_forever, daemon=True)
    thread.start()
    try:
        yield viewer, took
    finally:
        viewer.shutdown()
        viewer.server_close()


def on_the_server(viewer: Viewer, target: str, times: int) -> list[float]:
    """Seconds of each of several answers; the first stands first."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        answer = viewer.answer(target)
        found.append(time.perf_counter() - began)
        assert answer.status == 200, target
    return found


def in_chromium(url: str, targets: list[str]) -> list[float]:
    """First contentful paint of each page in milliseconds, each in a context without a cache."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        for target in targets:
            context = browser.new_context(viewport={"width": 1366, "height": 900})
            page = context.new_page()
            page.goto(url + target.removeprefix("/"), wait_until="load")
            page.wait_for_timeout(300)
            paints = page.evaluate("performance.getEntriesByName('first-contentful-paint').map(e => e.startTime)")
            found.append(float(paints[0]))
            context.close()
        browser.close()
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tasks", type=int, default=10_000)
    options.add_argument("--keep", type=Path, help="Where the run is made, or found again.")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary) / "run"
        if not (folder / "run.json").exists():
            run_over(open_with(), EDITS, folder, config={}, limit=2)
            grow(folder, given.tasks)
        with serving(folder) as (viewer, opened):
            entries = viewer.site.runs[0].reader.samples()
            tasks = sum(len(e.findings) for e in entries)
            print(f"{tasks:,} tasks, {len(entries):,} samples; opened in {opened:.2f} s")
            pages = [f"/samples/{entries[n].slug}.html" for n in (1, len(entries) // 2, len(entries) - 2)]
            for name, target in (("run page", "/index.html"), ("its table's data", "/rows.js"), ("sample page", pages[0])):
                times = on_the_server(viewer, target, 3)
                size = len(viewer.answer(target).body)
                print(f"{name}: {1000 * times[0]:.0f} ms, then {1000 * min(times[1:]):.0f} ms; {size / 1e6:.2f} MB")
            painted = in_chromium(viewer.url, pages)
            print(f"first paint of a sample page: {statistics.median(painted):.0f} ms (of {[round(p) for p in painted]})")
            print(f"first paint of the run page: {in_chromium(viewer.url, ['/index.html'])[0]:.0f} ms")


if __name__ == "__main__":
    main()
