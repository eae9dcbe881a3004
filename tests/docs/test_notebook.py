"""The notebook of examples/, executed by a real kernel. `python -m tests.docs.test_notebook` keeps its outputs."""

import os
import shutil
import sysconfig
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import BUNDLED, REPO, environment

NOTEBOOK = REPO / "examples" / "own_corpus.ipynb"


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call, no-any-return]


def executed(root: Path) -> nbformat.NotebookNode:
    """The notebook, executed in a folder; its outputs say neither where nor when, and each stream is one output."""
    (root / "data").mkdir()
    (root / "data" / "tatoeba-en-fr").symlink_to(BUNDLED)
    shutil.copytree(NOTEBOOK.parent, root / "examples")
    notebook = read(root / "examples" / NOTEBOOK.name)
    resources = {"metadata": {"path": str(root / "examples")}}
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources, record_timing=False)
    # With this variable a kernel does not show what commands print.
    client.execute(env={name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"})
    for cell in notebook.cells:
        kept: list[nbformat.NotebookNode] = []
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                output.text = output.text.replace(f"{root}/examples/", "")
                if kept and kept[-1].get("name") == output.name:
                    kept[-1].text += output.text
                    continue
            kept.append(output)
        if cell.cell_type == "code":
            cell.outputs = kept
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def kinds(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """The kinds of outputs of each cell."""
    return [sorted({kind for o in c.get("outputs", ()) for kind in o.get("data", {"text": 0})}) for c in notebook.cells]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PATH", os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    notebook = executed(tmp_path)
    assert (tmp_path / "examples" / "served" / "model.bin").exists()
    assert kinds(notebook) == kinds(read(NOTEBOOK)), "python -m tests.docs.test_notebook"


def test_the_notebook_keeps_its_outputs() -> None:
    notebook, text = read(NOTEBOOK), NOTEBOOK.read_text(encoding="utf-8")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in code[1:]), "python -m tests.docs.test_notebook"
    assert ["image/svg+xml", "text/plain"] in kinds(notebook), "the curves"
    assert len(text) < 40_000
    assert not [place for place in ("/tmp/", "/home/", "/root/", "Traceback") if place in text]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYTHONDIR"] = f"{folder}/ipython"
        nbformat.write(executed(Path(folder)), NOTEBOOK)  # type: ignore[no-untyped-call]
