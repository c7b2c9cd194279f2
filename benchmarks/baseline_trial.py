"""The pixel baseline on trial: edits whose truth is known, made of the photographs that come with editloupe.

    python -m benchmarks.baseline_trial             # some ten minutes of CPU

The road is a user's: `editloupe build probes`, `editloupe judge --protocol probes`, and the figures of `editloupe trial`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from editloupe.backends.prices import read_prices
from editloupe.build.probes.trial import Trial, put_on_trial
from editloupe.build.probes.trial_tables import heading, tables
from editloupe.figures import render
from editloupe.figures.judged import read_judged

MODES: Final = ("tool", "plain")
COUNT: Final = 240
"""Probes that are planned."""


def measure(folder: Path, *, count: int) -> Trial:
    """Build probes below a folder, and put the baseline on trial in each of the modes."""
    probes = folder / "probes"
    _editloupe("build", "probes", "--count", str(count), "--out", str(probes))
    for mode in MODES:
        # The pixel baseline, which may abstain.
        judging = ("--protocol", "probes", "--mode", mode, "--fail-on-error", "1", "--out", str(folder / mode))
        _editloupe("judge", str(probes), *judging)
    return put_on_trial(read_judged([folder / mode for mode in MODES], same_metrics=False), prices=read_prices(None))


def report(trial: Trial) -> str:
    """Return Markdown: both modes side by side, by metric, and by failure and area of the first."""
    made = {table.name: table for table in tables(trial)}
    shown = [name for name in made if name in ("trial-judges", "trial-metrics") or name.startswith("trial-cells-1-")]
    return "\n\n".join([heading(trial), *(render.markdown(made[name]).strip() for name in shown)])


def _editloupe(*words: str) -> None:
    """Run editloupe. Exits with its message where it fails."""
    done = subprocess.run([sys.executable, "-m", "editloupe", *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"editloupe {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=COUNT, help=f"probes that are planned ({COUNT})")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        text = report(measure(Path(folder), count=options.count))
    print(text)


if __name__ == "__main__":
    main()
