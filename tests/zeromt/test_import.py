"""`import zeromt`: quick, safe, and what it gives; what commands import."""

import json
from importlib import metadata
from pathlib import Path

import zeromt
from tests.conftest import ask_python, environment
from zeromt.cli.main import COMMANDS

OURS = {"configs", "data_pipeline", "launcher", "model", "trainer"}
CONFIGURATION = {"pydantic", "yaml", "zstandard"}
"""The libraries that a command which reads a configuration cannot do without; readers of raw text, which it may choose,
import zstandard, which takes 3 ms."""
HEAVY = {
    "PIL", "aiohttp", "deepspeed", "fsspec", "google", "jinja2", "langcodes", "numpy", "psutil", "regex", "sacrebleu",
    "safetensors", "sentencepiece", "tensorboard", "tqdm", "webdataset",
}  # fmt: skip
"""All others that zeromt requires, but torch."""
CALLS = """
import contextlib, io, json, sys
sys.modules["torch"] = None  # who imports it fails
import zeromt
answer = []
for lines in json.loads(sys.argv[1]):
    codes = set()
    for line in lines:
        from zeromt.cli.main import main
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            codes.add(main(line.split()))
    answer.append([list(codes), [name.partition(".")[0] for name, module in sys.modules.items() if module]])
"""


def test_what_commands_import(tmp_path: Path) -> None:
    """In one interpreter, those that need least first; none of them needs torch, data or SLURM."""
    helps = [f"{name} --help" for name in COMMANDS]
    with_fields = [f"{name} --help" for name in COMMANDS if "CONFIG" in COMMANDS[name].usage]
    submission = "launch slurm debug --site cpu --nodes 2 --nproc 1 --after 1 --dry-run"
    stages: list[tuple[list[str], list[int], set[str]]] = [
        ([], [], set()),
        (["--help", "--version", *(one for one in helps if one not in with_fields)], [0], {"configs", "launcher"}),
        ([*with_fields, "status .", submission], [0], OURS | CONFIGURATION),
        (
            ["stop .", "train nope", "prepare debug modle.x=1", "launch local debug", "launch local debug seed=x"],
            [2],
            OURS | CONFIGURATION | HEAVY - {"deepspeed", "webdataset", "tensorboard", "sacrebleu"},
        ),
    ]
    answers = ask_python(
        CALLS,
        json.dumps([lines for lines, _, _ in stages]),
        cwd=tmp_path,
        variables={**environment(), "PATH": "/nowhere"},
    )
    for (lines, expected, allowed), (codes, packages) in zip(stages, answers, strict=True):
        assert codes == expected, lines
        assert set(packages) & (OURS | CONFIGURATION | HEAVY) <= allowed, lines
    assert list(tmp_path.iterdir()) == []


def test_version() -> None:
    assert zeromt.__version__ == metadata.version("zeromt")
