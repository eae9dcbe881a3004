"""Configurations that claim more than the weights hold are refused before a model is built."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE
from tests.zeromt.their_models import edit, save_marian

MEASURED = """
import json, sys, transformers
from zeromt.cli.main import main
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) >> 10
before = peak()
codes = [main(command) for command in json.loads(sys.argv[1])]
print(*codes, peak() - before)
"""


def _refused(*commands: list[str]) -> list[str]:
    """The lines that commands are refused with, one each, in a process of their own that hardly grows."""
    child = [sys.executable, "-c", MEASURED, json.dumps(commands)]
    done = subprocess.run(child, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, check=True)
    *codes, grown = done.stdout.split()
    assert codes == ["2"] * len(commands), done.stderr
    assert int(grown) < 500
    lines = done.stderr.splitlines()
    assert len(lines) == len(commands), lines
    return lines


CLAIMS: list[dict[str, Any]] = [
    {"max_position_embeddings": 16_000_000},
    {"encoder_layers": 9_999},
    {"encoder_ffn_dim": 1 << 24, "decoder_ffn_dim": 1 << 24},
    {"vocab_size": 1_000_000_000},
]


def test_hugging_face_folders(tmp_path: Path) -> None:
    save_marian(tmp_path / "theirs")
    commands = []
    for number, changes in enumerate(CLAIMS):
        folder = Path(shutil.copytree(tmp_path / "theirs", tmp_path / f"theirs-{number}"))
        edit(folder / "config.json", **changes)
        commands.append(["import", "--huggingface", str(folder), "-o", str(tmp_path / f"run-{number}")])
    for line, changes in zip(_refused(*commands), CLAIMS, strict=True):
        assert "its config.json describes a model of" in line, changes
    assert not list(tmp_path.glob("run-*"))
