"""Configurations that claim more than the weights hold are refused by the weights' headers, before a model is built."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs import UserError
from data_pipeline.tokenizer import Tokenizer
from tests.waiting import PATIENCE
from tests.zeromt.exporting.made import make_run
from tests.zeromt.importing.made import edit, save_marian
from trainer.runs.layout import CONFIG, MANIFEST, MANIFEST_HASH, list_steps
from zeromt.cli.main import main
from zeromt.exporting.as_safetensors import load_exported
from zeromt.exporting.command import load_exact

MEASURED = """
import sys, zeromt.translating.command, zeromt.importing.command
from zeromt.cli.main import main
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) >> 10
before = peak()
code = main(sys.argv[1:])
print(code, peak() - before)
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


def _refused(*command: str) -> str:
    """The one line that a command is refused with, in a process of its own that hardly grows."""
    child = [sys.executable, "-c", MEASURED, *command]
    done = subprocess.run(child, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, check=True)
    code, grown = done.stdout.split()
    assert code == "2", done.stderr
    assert int(grown) < 500
    [line] = done.stderr.splitlines()
    return line


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


@pytest.mark.parametrize(("changes", "said"), CLAIMS)
def test_runs_and_exports(changes: dict[str, Any], said: str, joint: Tokenizer, tmp_path: Path) -> None:
    make_run(tmp_path / "run", joint)
    assert main(["export", str(tmp_path / "run"), "--format", "safetensors", "-o", str(tmp_path / "made")]) == 0
    _forge(tmp_path / "run", changes)
    assert said in _refused("translate", str(tmp_path / "run"))
    with pytest.raises(UserError) as caught:
        load_exact(tmp_path / "run")
    assert said in str(caught.value)
    _claim(tmp_path / "made" / "config.yaml", changes)
    with pytest.raises(UserError) as caught:
        load_exported(tmp_path / "made")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_position_embeddings": 16_000_000}, "max_positions 16,000,000 of its configuration"),
        ({"encoder_layers": 10_000}, "too few for the 10,001 layers"),
        ({"encoder_ffn_dim": 1 << 24, "decoder_ffn_dim": 1 << 24}, "allowed is (16777216, 16)"),
        ({"vocab_size": 1_000_000_000}, "allowed is (1000000000, 16), as config.json says"),
    ],
)
def test_hugging_face_folders(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    save_marian(tmp_path / "theirs")
    edit(tmp_path / "theirs" / "config.json", **changes)
    line = _refused("import", "--huggingface", str(tmp_path / "theirs"), "-o", str(tmp_path / "run"))
    assert said in line
    assert not (tmp_path / "run").exists()
