"""A notebook as a user would write it, executed by a real kernel."""

import json
import math
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import environment

CELLS = (
    """
import json, os, signal, threading
import zeromt

def state():
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    return dict(os.environ), handlers, {thread.name for thread in threading.enumerate()}

before, lines = state(), []
""",
    'zeromt.prepare("my.yaml")',
    """
trained = zeromt.train("my.yaml", nproc=2, on_log=lines.append)
""",
    """
model = zeromt.load(trained.folder)
translated = model.translate(line for line in ["Hello.", "", "I am here."])
several = model.n_best(["Hello."], 3)
scored = model.score(["Hello."], [several[0][0].text])
figures = model.evaluate(["Hello.", "I am here."], ["Bonjour.", "Je suis là."], metrics=["chrf"], beam=2)
exported = zeromt.export(trained.folder, "exported", format="safetensors")
""",
    "is_unchanged = state() == before",
    """
with open("answer.json", "w") as file:
    json.dump({
        "state": trained.state, "step": trained.step,
        "translated": translated, "several": [t.score for t in several[0]], "scored": scored[0].score,
        "figures": figures, "exported": sorted(os.listdir(exported)),
        "kinds": [line["kind"] for line in lines], "trained": [l["step"] for l in lines if l["kind"] == "train"],
        "is_unchanged": is_unchanged,
    }, file)
""",
)


def test_a_training_a_translation_a_score_and_an_export(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "source": cell.strip(), "metadata": {}, "outputs": [], "execution_count": None}
        for cell in CELLS
    ]
    tree = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    notebook = nbformat.reads(json.dumps(tree), as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(config.parent)}}).execute()
    answer = json.loads((config.parent / "answer.json").read_text())
    assert answer["is_unchanged"] is True
    assert (answer["state"], answer["step"]) == ("finished", 10)
    assert answer["trained"] == list(range(1, 11))
    assert answer["kinds"].count("evaluation") >= 2
    assert len(answer["translated"]) == 3
    assert answer["translated"][1] == ""
    assert answer["several"] == sorted(answer["several"], reverse=True)
    assert math.isfinite(answer["scored"])
    assert answer["figures"]["chrf_signature"].startswith("nrefs:1")
    assert "model.safetensors" in answer["exported"]
    shown = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert "2 processes on this machine" in shown  # what the children say is seen where the caller prints
