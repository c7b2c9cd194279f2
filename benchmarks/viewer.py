"""How long a reader waits: the viewer over large runs, in headless Chromium (CHROMIUM, or the one on the path).

    python -m benchmarks.viewer [--samples 1889] [--tasks 10000] [--keep DIR]

The matrix: a run of so many samples by three judges (`benchmarks.judged_runs`). Measured in new browser contexts without a
cache: first paint of its page, when the first rows stand there and when all have come, on a server that has just started
and on one that has answered before; then how long a search, a filter, a sort and a scroll take until the next frame is
drawn. Medians.

The sample pages: a run judged for real (two samples, the pixel baseline) and copied under new names until it has that many
tasks, each with its own trace. Measured: opening the run, its pages on the server, and first paint of a sample's page.
Needs Playwright.
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

from benchmarks.judged_runs import make
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


def in_the_matrix(url: str, times: int = 5) -> dict[str, float]:
    """Medians in milliseconds over several new contexts."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    found: dict[str, list[float]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        for number in range(times + 1):
            context = browser.new_context(viewport={"width": 1400, "height": 900})
            page = context.new_page()
            page.goto(f"{url}index.html", wait_until="load")
            page.wait_for_selector("#cards .card")
            page.wait_for_selector("#filters:not([inert])")
            page.wait_for_timeout(200)
            marks = page.evaluate(
                "[performance.getEntriesByName('first-contentful-paint')[0].startTime,"
                " performance.getEntriesByName('editloupe-drawn')[0].startTime,"
                " performance.getEntriesByName('editloupe-whole')[0].startTime]"
            )
            cold = " (server just started)" if number == 0 else ""
            found.setdefault(f"first paint{cold}", []).append(marks[0])
            found.setdefault(f"first rows{cold}", []).append(marks[1])
            found.setdefault(f"all rows{cold}", []).append(marks[2])
            if number:
                for name, milliseconds in page.evaluate(_ACTIONS).items():
                    found.setdefault(name, []).append(milliseconds)
            context.close()
        browser.close()
    return {name: statistics.median(values) for name, values in found.items()}


_ACTIONS = """async () => {
    const form = document.getElementById('filters');
    const drawn = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    const timed = async (act) => {
        const began = performance.now();
        act();
        await drawn();
        return performance.now() - began;
    };
    const set = (name, value, event) => () => {
        form.elements[name].value = value;
        form.elements[name].dispatchEvent(new Event(event, { bubbles: true }));
    };
    return {
        'search': await timed(set('q', 'crate 07', 'input')),
        'search taken back': await timed(set('q', '', 'input')),
        'filter by a label': await timed(set('label.instruction_following', 'Wrong Action', 'input')),
        'filter taken back': await timed(set('label.instruction_following', '', 'input')),
        'filter by disagreement': await timed(set('differ', 'judges', 'input')),
        'sort by disagreement': await timed(set('sort', '-differ', 'input')),
        'scroll to the end': await timed(() => scrollTo(0, document.body.scrollHeight)),
    };
}"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--samples", type=int, default=1889, help="Of the matrix; 0 leaves it out.")
    options.add_argument("--tasks", type=int, default=10_000, help="Of the sample pages; 0 leaves them out.")
    options.add_argument("--keep", type=Path, help="Where the run is made, or found again.")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        if given.samples:
            matrix = make((given.keep or Path(temporary)) / "matrix", samples=given.samples)
            with serving(matrix) as (viewer, opened):
                print(f"{given.samples:,} samples by 3 judges; opened in {opened:.2f} s")
                for name, milliseconds in in_the_matrix(viewer.url).items():
                    print(f"{name}: {milliseconds:.0f} ms")
        if not given.tasks:
            return
        folder = (given.keep or Path(temporary)) / "run"
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
