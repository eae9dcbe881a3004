"""The notebook of examples/, executed by a real kernel; Jupyter keeps its outputs."""

import os
import shutil
import sysconfig
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import BUNDLED, REPO, environment


def kinds(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """The kinds of outputs of each cell."""
    return [sorted({kind for o in c.get("outputs", ()) for kind in o.get("data", {"text": 0})}) for c in notebook.cells]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_notebook_runs_and_shows_what_it_has_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PATH", os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tatoeba-en-fr").symlink_to(BUNDLED)
    examples = shutil.copytree(REPO / "examples", tmp_path / "examples")
    notebook = nbformat.read(examples / "own_corpus.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    kept = kinds(notebook)
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(examples)}}
    )
    # With this variable a kernel does not show what commands print.
    client.execute(env={name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"})
    assert (examples / "served" / "model.bin").exists()
    assert kinds(notebook) == kept
    assert ["image/svg+xml", "text/plain"] in kept, "the curves"
