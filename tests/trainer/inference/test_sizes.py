"""Configurations that claim more than the weights hold are refused by the weights' headers, before a model is built."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs import UserError
from tests.waiting import PATIENCE
from tests.zeromt.exporting.made import make_run, make_tokenizer
from tests.zeromt.importing.made import edit, save_marian
from trainer.runs.layout import CONFIG, MANIFEST, MANIFEST_HASH, list_steps
from zeromt.cli.main import main
from zeromt.exporting.as_safetensors import load_exported
from zeromt.exporting.command import load_exact

MEASURED = """
import json, sys, zeromt.translating.command, zeromt.importing.command
from zeromt.cli.main import main
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) >> 10
before = peak()
codes = [main(command) for command in json.loads(sys.argv[1])]
print(*codes, peak() - before)
"""
CLAIMS: list[tuple[dict[str, Any], str]] = [
    (
        {"max_positions": 16_000_000},
        "max_positions 16,000,000 of its configuration makes tables",
    ),
    ({"encoder_layers": 10_000}, "tensors, too few for the 10,001 layers of its configuration"),
    ({"encoder_layers": 3}, "encoder.layers.2.self_attention."),
    ({"feed_forward": {"kind": "relu", "d_ff": 1 << 24}}, "allowed is (16777216, 16)"),
    ({"d_model": 1 << 18}, "allowed is (90, 262144)"),
]


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


def _claim(path: Path, changes: dict[str, Any]) -> None:
    tree = yaml.safe_load(path.read_text())
    tree["model"] |= changes
    path.write_text(yaml.safe_dump(tree))


def _forge(run: Path, changes: dict[str, Any]) -> None:
    """Change a checkpoint's configuration, and the hashes with it."""
    [folder] = list_steps(run / "checkpoints")
    _claim(folder / CONFIG, changes)
    manifest = json.loads((folder / MANIFEST).read_text())
    content = (folder / CONFIG).read_bytes()
    manifest["files"][CONFIG] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    (folder / MANIFEST_HASH).write_text(f"{hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()}\n")


def test_runs_and_exports(tmp_path: Path) -> None:
    make_run(tmp_path / "run", make_tokenizer())
    assert main(["export", str(tmp_path / "run"), "--format", "safetensors", "-o", str(tmp_path / "made")]) == 0
    forged = []
    for number, (changes, said) in enumerate(CLAIMS):
        run = Path(shutil.copytree(tmp_path / "run", tmp_path / f"run-{number}"))
        made = Path(shutil.copytree(tmp_path / "made", tmp_path / f"made-{number}"))
        _forge(run, changes)
        _claim(made / "config.yaml", changes)
        forged.append(run)
        for load, folder in ((load_exact, run), (load_exported, made)):
            with pytest.raises(UserError) as caught:
                load(folder)
            assert said in str(caught.value), changes
    lines = _refused(*(["translate", str(run)] for run in forged))
    for line, (changes, said) in zip(lines, CLAIMS, strict=True):
        assert said in line, changes


THEIR_CLAIMS: list[tuple[dict[str, Any], str]] = [
    ({"max_position_embeddings": 16_000_000}, "max_positions 16,000,000 of its configuration"),
    ({"encoder_layers": 10_000}, "too few for the 10,001 layers"),
    ({"encoder_ffn_dim": 1 << 24, "decoder_ffn_dim": 1 << 24}, "allowed is (16777216, 16)"),
    ({"vocab_size": 1_000_000_000}, "allowed is (1000000000, 16), as config.json says"),
]


def test_hugging_face_folders(tmp_path: Path) -> None:
    save_marian(tmp_path / "theirs")
    commands = []
    for number, (changes, _) in enumerate(THEIR_CLAIMS):
        folder = Path(shutil.copytree(tmp_path / "theirs", tmp_path / f"theirs-{number}"))
        edit(folder / "config.json", **changes)
        commands.append(["import", "--huggingface", str(folder), "-o", str(tmp_path / f"run-{number}")])
    for line, (changes, said) in zip(_refused(*commands), THEIR_CLAIMS, strict=True):
        assert said in line, changes
    assert not list(tmp_path.glob("run-*"))
