"""The demo from raw text to its BLEU, and translation by the model that it trained, compared with CTranslate2."""

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.child import ROOT, environment
from benchmarks.common.text import read_lines
from benchmarks.decoding.decoders import export, measure
from benchmarks.device.work import Figures, run_command

RUN = "tatoeba_demo"
CORPUS = ROOT / "data" / "tatoeba-en-fr"


def train(*, work: str, device: str, settings: Sequence[str] = (), sentences: int | None = None) -> Figures:
    """`zeromt prepare`, `launch local` and `evaluate` of the demo: seconds of each, and BLEU.

    Args:
        work: a folder, in which the trained run stays for `decode`.
        device: cuda or cpu.
        settings: overrides `section.key=value`.
        sentences: of the test set; default: all.
    """
    folder, seconds = _demo(work), {}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    options = [RUN, f"prepare.output={folder / 'data'}", f"output={folder}", *settings]
    ranks = "1" if device == "cpu" else "auto"
    source, reference = (_head(folder, side, sentences) for side in ("en", "fr"))
    for step, command in {
        "prepare": ["prepare", *options],
        "train": ["launch", "local", *options, "--nproc", ranks],
    }.items():
        begin = time.perf_counter()
        run_command([sys.executable, "-m", "zeromt", *command], environment(), folder)
        seconds[f"{step} s"] = time.perf_counter() - begin
    begin = time.perf_counter()
    files = ["--source", str(source), "--reference", str(reference), "--beam", "5"]
    command = [sys.executable, "-m", "zeromt", "evaluate", str(folder / RUN), *files]
    ended = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    seconds["evaluate s"] = time.perf_counter() - begin
    scores = json.loads(ended.stdout)
    (folder / "done").touch()
    return {"rows": [{"BLEU": scores["bleu"], "updates": scores["step"], **seconds}]}


def _demo(work: str) -> Path:
    return Path(work, "demo")


def _head(folder: Path, side: str, sentences: int | None) -> Path:
    """The first sentences of the test set as a file."""
    file = folder / f"test.{side}"
    file.write_text("".join(f"{line}\n" for line in read_lines(CORPUS / f"test.{side}.gz", sentences)))
    return file


def decode(
    *, work: str, device: str, program: str, settings: Sequence[str] = (), sentences: int, batch: int, dtype: str
) -> Figures:
    """Greedy and beam 5 by the demo's model; where this command has not trained it, it is trained first.

    Args:
        work: a folder.
        device: cuda or cpu.
        program: zeromt or ctranslate2.
        settings: of the demo's training.
        sentences: of the test set.
        batch: padded source tokens times the beam.
        dtype: of the weights.
    """
    if importlib.util.find_spec(program) is None and program != "zeromt":
        return {"skipped": f"{program} is not installed"}
    if not (_demo(work) / "done").exists():
        train(work=work, device=device, settings=settings, sentences=sentences)
    folder = Path(work, f"exported-{program}")
    shutil.rmtree(folder, ignore_errors=True)
    if program == "zeromt":
        folder = _demo(work) / RUN
    else:
        export(str(_demo(work) / RUN), program, folder)
    lines = (_demo(work) / "test.en").read_text(encoding="utf-8").splitlines()
    lines = (lines * (1 + sentences // len(lines)))[:sentences]
    searches = [{"beam": beam, "length_penalty": 0.8, "longest": 128, "batch": batch} for beam in (1, 5)]
    more = {"dtype": dtype, "device": device}
    measured = measure(kind=program, folder=str(folder), threads=1, lines=lines, searches=searches, warm_up=16, **more)
    rows = []
    for search, result in zip(searches, measured["results"], strict=True):
        tokens = sum(map(len, result["ids"]))
        rate = {"sentences/s": sentences / result["seconds"], "tokens/s": tokens / result["seconds"]}
        rows.append({"program": f"{program} {dtype}", "beam": search["beam"], **rate})
    return {"rows": rows}
