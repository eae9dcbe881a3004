"""No module but `configs/process/files/inside.py` opens files of runs, datasets, caches and outputs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[4]
PACKAGES = ("configs", "data_pipeline", "launcher", "trainer", "zeromt")

OTHERS = {
    "this place": ["configs/process/files/inside.py"],
    "outputs and inputs that the user names, which may be links, pipes or /dev/stdin": [
        "configs/reading/layers.py",
        "data_pipeline/preparation/readers/table.py",
        "data_pipeline/preparation/lines.py",
        "zeromt/pipeline/keys.py",
        "zeromt/translating/lines.py",
    ],
    "files of the kernel, and streams of this process": [
        "zeromt/cli/commands.py",
        "launcher/machine/cores.py",
        "launcher/machine/supervise.py",
        "trainer/checkpoint/save.py",
        "configs/process/environment.py",
        "launcher/monitoring/look.py",
        "configs/process/streams.py",
    ],
    "the user's own state": ["launcher/slurm/record.py"],
    "files of installed packages, this one among them": [
        "launcher/start/ranks.py",
        "launcher/slurm/script.py",
        "zeromt/cli/reference.py",
    ],
    "a new folder or file with a name that cannot be guessed": [
        "zeromt/doctor/checks.py",
        "zeromt/formats/as_ctranslate2.py",
        "zeromt/exporting/command.py",
        "zeromt/formats/as_huggingface.py",
        "zeromt/formats/search_file.py",
        "zeromt/inspecting/replay.py",
    ],
    "a checkpoint's folder, which rank 0 has just made": ["trainer/checkpoint/format.py"],
    "a process of its own, which imports nothing of zeromt": ["launcher/start/torchrun.py"],
}
"""Modules that open other files, by what these are."""

OF_A_PATH = {"read_text", "read_bytes", "write_text", "write_bytes", "touch"}
OF_A_LIBRARY = {"mkstemp", "NamedTemporaryFile", "copyfile", "copytree", "load_file", "save_file", "safe_open"}
OF_NUMPY = {"load", "save", "savez", "open_memmap"}
MODE = re.compile(r"[rwaxbt+]{1,3}")


def opens(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls that open a file by its path."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        of = call.func
        name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
        owner = ast.unparse(of.value) if isinstance(of, ast.Attribute) else ""
        is_opened = any("name_of" in ast.unparse(argument) for argument in call.args)
        if is_opened or owner in ("inside", "format_") or any(key.arg == "fileobj" for key in call.keywords):
            continue
        is_path = isinstance(of, ast.Attribute) and name in OF_A_PATH
        is_numpy = owner.startswith("np") and name in OF_NUMPY and not isinstance(call.args[0], ast.Name | ast.Call)
        is_numpy |= owner.startswith("np") and name in OF_NUMPY and ast.unparse(call.args[0]).startswith("self.")
        modes = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        is_open = name == "open" and (
            owner in ("", "os")
            or any(MODE.fullmatch(mode) for mode in modes)
            or any(key.arg in ("mode", "encoding", "buffering") for key in call.keywords)
        )
        if is_path or is_numpy or is_open or name in OF_A_LIBRARY:
            yield call


def test_one_place_opens_files_of_runs_and_datasets() -> None:
    others = {ROOT / name for names in OTHERS.values() for name in names}
    calls = {
        path: [f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}" for call in opens(tree)]
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if (tree := ast.parse(path.read_text()))
    }
    assert [line for path, lines in calls.items() if path not in others for line in lines] == [], (
        "open it by configs.process.files.inside, or say in OTHERS what it is"
    )
    assert [path for path in sorted(others) if not calls.get(path)] == [], "opens nothing any more: take it out"
