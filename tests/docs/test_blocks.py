"""Every code block of README and docs: run, or checked where it needs what is not here. See tests/docs/pages.py."""

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs import load_run
from configs.components.registry import FAMILIES, kinds, registered, restore
from launcher.slurm.profile import load_profile
from tests.conftest import BUNDLED, REPO, bundled, environment
from tests.docs.commands import problems
from tests.docs.pages import LANGUAGES, Block, blocks
from tests.docs.served import serving
from tests.forked import Forked

PAGES = tuple(dict.fromkeys(block.page for block in blocks()))


def of(page: str) -> list[Block]:
    """The blocks of a page."""
    return [block for block in blocks() if block.page == page]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page: str) -> None:
    for block in of(page):
        assert block.language in LANGUAGES, f"{block.place}: fence it, with one of {sorted(LANGUAGES)}"
        if block.language in ("sh", "python") and block.file is None:
            assert block.how, f"{block.place}: says not how it is tested: <!-- run -->, slow or parse: REASON"
        if block.how == "parse":
            assert len(block.more) > 3, f"{block.place}: why is it not run?"


@pytest.mark.parametrize("block", [b for b in blocks() if b.language == "sh"], ids=lambda b: b.place)
def test_commands_are_there(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPO)
    assert problems(block.text) == []


@pytest.mark.parametrize("block", [b for b in blocks() if b.language == "python"], ids=lambda b: b.place)
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.place, "exec")


@pytest.mark.parametrize("block", [b for b in blocks() if b.language in ("yaml", "toml")], ids=lambda b: b.place)
def test_settings_are_read(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if block.language == "toml":
        assert tomllib.loads(block.text)
        return
    monkeypatch.chdir(REPO)
    plain: dict[str, Any] = yaml.safe_load(block.text) or {}
    file = tmp_path / "my.yaml"
    if (block.file or "").endswith("site.yaml"):
        file.write_text(block.text)
        load_profile(str(file))
    elif block.how != "parse":
        (tmp_path / "examples").symlink_to(REPO / "examples")
        for other in of(block.page):
            if other.file is not None and other.language == "python":
                (tmp_path / other.file).write_text(other.text)
        shipped: dict[str, Any] = yaml.safe_load((REPO / "configs" / "runs" / "debug.yaml").read_text())
        for name, section in plain.items():
            is_part = isinstance(section, dict) and name in shipped
            shipped[name] = shipped[name] | section if is_part else section
        file.write_text(yaml.safe_dump(shipped))
        for family in FAMILIES:
            kinds(family)  # all of ours, or they would be taken out with what a page's plugin adds
        before = registered()
        load_run(str(file))
        restore(before)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> Iterator[Path]:
    """What the pages take for granted: my.yaml, prepared, with its run; texts; other runs; a site's profile."""
    root = tmp_path_factory.mktemp("pages")
    (root / "data").mkdir()
    (root / "data" / "tatoeba-en-fr").symlink_to(BUNDLED)
    config = yaml.safe_load((REPO / "configs" / "runs" / "debug.yaml").read_text())
    config["prepare"] |= {"output": "data/my", "pairs_per_block": 32, "tokenizer": {"vocab_size": 500, "spare": 8}}
    config["stream"] = {"micro_batches": 4, "source_tokens": 512, "target_tokens": 512}
    config["training"] = {"max_updates": 12, "log_every": 2}
    config["evaluation"] = {"every_updates": 6, "max_pairs": 5, "search": {"beam": 1, "max_length_extra": 5}}
    config["checkpoint"] = {"every_updates": 2, "keep_last": 6}
    (root / "my.yaml").write_text(yaml.safe_dump(config))
    for name, language in (("test.en", "en"), ("in.en", "en"), ("test.de", "fr"), ("test.fr", "fr")):
        (root / name).write_bytes(bundled(language, slice(0, 12)))
    (root / "my-site.yaml").write_text("{partition: gpu, gpus_per_node: 1}\n")
    for done in (forked.zeromt("prepare", "my.yaml", cwd=root), forked.trainer(1, "my.yaml", cwd=root)):
        assert done.code == 0, done.err[-3000:]
    for other in ("base", "deep", "wide", "a", "b"):
        shutil.copytree(root / "runs" / "my", root / "runs" / other)
    programs = root / "bin"
    programs.mkdir()
    _program(programs / "python", _python(""))
    with serving(forked, root / "served") as served:
        more = 'case "$1 $2" in "train "*|"launch local") set -- "$@" $MORE;; esac\n'
        alone = f"if test -p /dev/stdin -o -f /dev/stdin; then {_python('-m zeromt')}fi\n"  # it may read that
        _program(programs / "zeromt", f"{more}{alone}{served}")
        yield root


def _python(arguments: str) -> str:
    return f'exec {shlex.quote(sys.executable)} {arguments} "$@"\n'


def _program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}")
    path.chmod(0o755)


def run(chosen: Sequence[Block], folder: Path, *, seconds: float) -> None:
    """Run blocks one after another; each must succeed."""
    variables = {**environment(), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": ""}
    for block in chosen:
        if block.file is not None:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text)
            continue
        text = block.text.replace(".venv/bin/", "")
        command = ["bash", "-euo", "pipefail", "-c", text] if block.language == "sh" else [sys.executable, "-c", text]
        more = block.more if block.how == "slow" else ""
        done = subprocess.run(
            command,
            cwd=folder,
            env={**variables, "MORE": more},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{block.place}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


def executed(page: str, *hows: str) -> list[Block]:
    """The blocks that are run, with the files that they may read."""
    return [block for block in of(page) if (block.language in ("sh", "python") and block.how in hows) or block.file]


@pytest.mark.parametrize("page", [page for page in PAGES if any(block.how == "run" for block in of(page))])
def test_quick_blocks_run(page: str, folder: Path) -> None:
    run(executed(page, "run"), folder, seconds=60)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", [page for page in PAGES if any(block.how == "slow" for block in of(page))])
def test_slow_blocks_run(page: str, folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(folder, own, symlinks=True, ignore=shutil.ignore_patterns("served"))  # a socket
    makes_it = any(block.file == "my.yaml" or "zeromt init " in block.text for block in executed(page, "slow"))
    if makes_it:  # what other pages take for granted
        (own / "my.yaml").unlink()
        shutil.rmtree(own / "runs" / "my")
        shutil.rmtree(own / "data" / "my")
    run(executed(page, "run", "slow"), own, seconds=1200)


def test_some_of_each_are_run() -> None:
    for how in ("run", "slow", "parse"):
        assert any(block.how == how for block in blocks()), how
