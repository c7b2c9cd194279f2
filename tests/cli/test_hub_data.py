"""Data of the Hugging Face hub as PATH. A stand-in of the library saves a split as the library does."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import polars
import pytest

from tests.conftest import Cli, pngs, refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"
IMAGE = polars.Struct({"bytes": polars.Binary, "path": polars.String})


def split(count: int) -> polars.DataFrame:
    pairs = [pngs(i, spots=1) for i in range(count)]
    cells = ([{"bytes": pair[side], "path": None} for pair in pairs] for side in (0, 1))
    before, after = (polars.Series(one, dtype=IMAGE) for one in cells)
    return polars.DataFrame({"image": before, "output": after, "text": [f"Make square {i} red." for i in range(count)]})


class Saved:
    """A split in memory that saves itself as `datasets` does."""

    def __init__(self, rows: polars.DataFrame) -> None:
        self.rows = rows

    def save_to_disk(self, folder: str) -> None:
        self.rows.write_ipc_stream(Path(folder) / "data-00000-of-00001.arrow")
        (Path(folder) / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A hub with owner/Name, which has the splits dev and test. Returns what is asked of it, in order."""
    asked: list[str] = []
    offline = False

    class HfApi:
        def dataset_info(self, id_: str, revision: str | None) -> SimpleNamespace:
            if offline or "HF_HUB_OFFLINE" in asked:
                raise ConnectionError("Cannot reach the hub: offline mode is enabled.\nMore lines.")
            if id_ != "owner/Name":
                raise ValueError(f"no repository {id_}")
            asked.append(f"info@{revision}")
            return SimpleNamespace(sha=COMMIT)

    def load_dataset(id_: str, *, split: str, revision: str) -> Saved:
        asked.append(f"load {id_}@{revision[:4]}:{split}")
        return Saved(globals()["split"](3 if split == "test" else 1))

    library, api, errors = ModuleType("datasets"), ModuleType("huggingface_hub"), ModuleType("huggingface_hub.errors")
    library.load_dataset = load_dataset  # type: ignore[attr-defined]
    library.get_dataset_split_names = lambda id_, revision: ["dev", "test"]  # type: ignore[attr-defined]
    library.exceptions = SimpleNamespace(DatasetsError=LookupError)  # type: ignore[attr-defined]
    api.HfApi, errors.HfHubHTTPError = HfApi, RuntimeError  # type: ignore[attr-defined]
    for module in (library, api, errors):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return asked


COLUMNS = "source=image,edited=output,instruction=text"


def test_a_split_is_checked_and_judged_and_the_run_keeps_its_revision(
    editloupe: Cli, hub: list[str], tmp_path: Path
) -> None:
    code, out, err = editloupe("check", "hf://owner/Name:test", "--columns", COLUMNS)
    assert code == 0, err
    said = " ".join(out.split())
    assert f"owner/Name of the Hugging Face hub, split test, revision {COMMIT}" in said
    assert "datasets; 3 of 3 samples can be judged" in said
    words = ("judge", "hf://owner/Name:test", "--columns", COLUMNS, "--criteria", "if", "--limit", "2", "--out", "run")
    assert editloupe(*words)[0] in (0, 1, 3)
    assert hub == ["info@None", f"load owner/Name@{COMMIT[:4]}:test", "info@None"], "downloaded once"
    record = json.loads((tmp_path / "run/run.json").read_text())["record"]
    assert record["hub"] == {"dataset": "owner/Name", "revision": COMMIT, "split": "test"}
    # The run goes on from its folder, without the hub.
    hub.append("HF_HUB_OFFLINE")
    assert editloupe("judge", "run", "--retry")[0] in (0, 1, 3)


def test_an_address_that_names_no_split_is_refused(editloupe: Cli, hub: list[str]) -> None:
    for address, expected in (
        ("hf://owner/Name", "hf://owner/Name has several splits; name one of dev, test, as in hf://owner/Name:dev"),
        ("hf:owner/Name:train", "hf://owner/Name has no split 'train'; name one of dev, test"),
        (
            "hf://datasets/owner/Other:test",
            "hf://owner/Other: cannot be downloaded (no repository owner/Other); where there",
        ),
        # Between colons stands no emoji.
        ("hf:owner/Name:x:test", "owner/Name:x:test: expected hf://OWNER/NAME"),
    ):
        assert expected in refused(editloupe, "judge", address)


def test_without_a_network_it_names_what_is_saved_and_the_command_to_download(editloupe: Cli, hub: list[str]) -> None:
    assert editloupe("check", "hf://owner/Name:dev", "--columns", COLUMNS)[0] == 0
    hub.append("HF_HUB_OFFLINE")
    code, _, err = editloupe("check", "hf://owner/Name:dev", "--columns", COLUMNS)
    said = " ".join(err.split())
    assert code == 2 and "cannot be downloaded (Cannot reach the hub: offline mode is enabled.)" in said
    assert f"saved here already: hf://owner/Name@{COMMIT}:dev;" in said
    assert "run hf download --repo-type dataset owner/Name --local-dir FOLDER, and name FOLDER here" in said
    # What it named needs no network.
    assert editloupe("check", f"hf://owner/Name@{COMMIT}:dev", "--columns", COLUMNS)[0] == 0


def test_a_run_of_others_downloads_nothing(editloupe: Cli, hub: list[str], tmp_path: Path) -> None:
    words = ("judge", "hf://owner/Name:dev", "--columns", COLUMNS, "--criteria", "if", "--out", "run")
    assert editloupe(*words)[0] in (0, 1, 3)
    config = tmp_path / "run/config.yaml"
    config.write_text(re.sub("(?m)^path: .*", "path: hf://owner/Name:test", config.read_text()))
    asked = list(hub)
    err = refused(editloupe, "judge", "--config", config, "--out", "again")
    assert "no such folder" in err and hub == asked
