"""The notebook of examples/, executed by a real kernel."""

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import BUNDLED, REPO, environment


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call, no-any-return]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tatoeba-en-fr").symlink_to(BUNDLED)
    shutil.copytree(REPO / "examples", tmp_path / "examples")
    notebook = read(tmp_path / "examples" / "own_corpus.ipynb")
    resources = {"metadata": {"path": str(tmp_path / "examples")}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    assert (tmp_path / "examples" / "served" / "model.bin").exists()


def test_the_notebook_holds_no_output() -> None:
    notebook = read(REPO / "examples" / "own_corpus.ipynb")
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
