"""From 0.3.0 on: every key is read, and every run and dataset."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.components import kinds
from configs.load import load_run, parse_tree
from configs.site import load_site
from data_pipeline.prepared.dataset import Dataset
from tests.conftest import read_metrics, read_pairs
from tests.forked import Forked
from tests.kept import FOLDERS
from tests.kept.keys import holds, plain
from zeromt.cli.main import main
from zeromt.translating.corpus.command import EngineFile

pytestmark = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def test_every_key_is_read(folder: Path, tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((folder / "keys.yaml").read_text(encoding="utf-8")))
    for number, document in enumerate(documents):
        [(what, tree)] = document.items()
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(document if what in kinds("cluster") else tree), encoding="utf-8")
        if what == "run":
            read: Any = load_run(str(path))
        elif what == "engine":
            tree = document
            read = parse_tree(document, EngineFile)
        else:
            read = load_site(what, str(path))
        assert holds(tree, plain(read)), document


@pytest.mark.parametrize("ranks", [1, 2])
def test_runs_resume(folder: Path, ranks: int, forked: Forked, tmp_path: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    place = Path(shutil.copytree(folder, tmp_path / "place"))
    run = place / "runs" / "kept"
    before, pairs = read_metrics(run), read_pairs(run)
    steps = list(map(int, expected["losses"]))
    assert [line["step"] for line in before] == steps[: len(before)]
    done = forked.trainer(ranks, "runs/kept/config.yaml", f"training.max_updates={steps[-1]}", cwd=place)
    assert done.code == 0, done.err
    lines = read_metrics(run)
    assert lines[: len(before)] == before
    assert {str(line["step"]): line["loss"] for line in lines} == pytest.approx(expected["losses"], rel=1e-5)
    assert [line["nll"] for line in read_metrics(run, "evaluation")][-1] == pytest.approx(expected["nll"], rel=1e-5)
    assert read_pairs(run).items() > pairs.items()


def test_what_is_there_is_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    monkeypatch.chdir(shutil.copytree(folder, tmp_path / "place"))
    assert Dataset.load("dataset").fingerprint == expected["fingerprint"]
    Path("in.en").write_text(expected["text"], encoding="utf-8")
    assert main(["translate", "runs/kept", "--beam", "2", "-i", "in.en", "-o", "out.fr"]) == 0
    assert Path("out.fr").read_text(encoding="utf-8") == expected["translated"]
    for what in ("dataset", "runs/kept"):
        assert main(["inspect", what]) == 0
    capsys.readouterr()
    assert main(["status", "runs/kept", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["state"], status["step"]) == ("finished", 4)
    assert status["train_loss"] == expected["losses"]["4"]
