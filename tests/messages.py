"""What commands say of wrong input: messages.txt, a line each. `make messages` writes it, and a review reads its diff.

A command is added as a line of its own, without an answer.
"""

import contextlib
import importlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import contents
from tests.small import small_runs
from zeromt.cli.main import main

FILE = Path(__file__).with_suffix(".txt")
ARROW = " -> "
RUN = "training: {max_updates: 5}\n"
FILES = {
    "my.yaml": RUN,
    "site.yaml": "sbatch: {partition: gpu}\n",
    "steps.yaml": "steps: {a: {run: 'true'}}\n",
    "bracket.yaml": "a: [",
    "twice.yaml": RUN + "seed: 1\n" + RUN,
    "indent.yaml": "model:\n  d_model: 8\n   encoder_layers: 1\n",
    "comment.yaml": "optimizer: {lr: 1 # the peak}\nseed: 1\n",
    "thousands.yaml": "training: {max_updates: 12,000}\n",
    "space.yaml": "optimizer: {lr:1}\n",
    "comma.yaml": "evaluation: {metrics: [bleu], chrf}\n",
    "minutes.yaml": "training: {max_minutes: 8:30}\n",
    "corpus.en": "A dog runs.\nA cat sleeps.\n" * 5000,
    "runs/my/config.yaml": RUN,
    "runs/my/checkpoints/step-00000005/config.yaml": RUN,
}


def answers() -> Iterator[str]:
    """The lines of the file, with what is said now. No command changes what is there, or begins a run."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        shutil.copytree(small_runs(), name, dirs_exist_ok=True)
        for path, content in FILES.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(content)
        assert main(["prepare", "small.yaml", "prepare.output=other", "prepare.tokenizer.vocab_size=301"]) == 0
        for damaged in ("dataset/lengths.npy", "runs/small/checkpoints/step-00000005/ema-00000-of-00001.safetensors"):
            folder, _, file = damaged.rpartition("/")
            (Path(shutil.copytree(folder, f"damaged/{folder}")) / file).write_bytes(b"")
        there = others(Path(name))
        for line in FILE.read_text().splitlines():
            typed = line.partition(ARROW)[0]
            with tempfile.TemporaryFile("w+", buffering=1) as stderr, contextlib.redirect_stderr(stderr):
                code = code_of(shlex.split(typed))
                stderr.seek(0)
                said = re.sub(r"\b[0-9a-f]{12}\b", "HASH", stderr.read().replace(name, "FOLDER")).splitlines()
            assert (code, len(said)) == (2, 1), (typed, code, said)
            yield f"{typed}{ARROW}{said[0].removeprefix('zeromt: error: ')}"
        shutil.rmtree(".new.preparing")  # of a preparation that was refused after it had begun
        assert others(Path(name)) == there


def code_of(words: list[str]) -> int:
    """What the command ends with; one that trains has a process of its own, for it opens a process group."""
    if words[:1] != ["train"]:
        return main(words)
    importlib.import_module("trainer.main")  # torch, once for all of them

    if not (child := os.fork()):
        os._exit(main(words))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def others(folder: Path) -> dict[str, bytes]:
    """All files but the status of runs."""
    return {
        path: content for path, content in contents(folder).items() if not path.startswith(("runs/new", "runs/small"))
    }


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for line in answers()))
