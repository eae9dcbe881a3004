"""Layers that torch.compile made, under ZeRO on two ranks."""

import shutil
from pathlib import Path

import pytest

from configs import UserError, load_run
from tests.conftest import Command, Corpus, read_metrics, zeromt
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from tests.trainer.oracle import plain_run
from tests.trainer.test_oracle import of
from trainer.ranks.checks import check_compiler


@pytest.mark.slow  # compiling takes minutes
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_the_losses_of_plain_pytorch(corpus_en_fr: Corpus, weighted: Path, forked: Forked, tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    settings = [*of("tied", tmp_path, corpus_en_fr, weighted), "engine.zero_stage=2"]
    compiled = [[*settings, "engine.compile=true"]]
    forked.ranks(2, train_all, compiled, cwd=tmp_path, seconds=900, variables={"TORCHINDUCTOR_CACHE_DIR": str(kernels)})
    losses = [line["loss"] for line in read_metrics(tmp_path / "tied")]
    assert losses == pytest.approx(plain_run(load_run("debug", settings)).losses, rel=1e-5)
    assert list(kernels.rglob("*.cpp"))


@pytest.mark.parametrize(
    ("has_gpu", "programs", "given", "told"),
    [
        (True, ["gcc"], {}, None),
        (True, ["clang"], {}, None),
        (True, ["g++"], {}, "this machine has no gcc or clang: torch.compile needs a C compiler on a GPU"),
        (True, ["icc"], {"CC": "icc -O2"}, None),
        (True, ["gcc"], {"CC": "icc"}, "CC=icc is no program"),
        (False, ["g++"], {}, None),
        (False, ["gcc"], {}, r"this machine has no g\+\+: torch.compile needs a C\+\+ compiler on a CPU"),
    ],
)
def test_a_compiler_is_looked_for(
    has_gpu: bool, programs: list[str], given: dict[str, str], told: str | None, tmp_path: Path
) -> None:
    for name in programs:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": str(tmp_path), **given}
    if told is None:
        check_compiler(environ, has_gpu=has_gpu)
    else:
        with pytest.raises(UserError, match=rf"^engine\.compile: true, and {told}"):
            check_compiler(environ, has_gpu=has_gpu)


def test_without_a_compiler_a_run_is_refused(
    corpus_en_fr: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    settings = ("debug", *corpus_en_fr.overrides, f"output={tmp_path}/runs", "engine.compile=true")
    done = Command(zeromt("train", *settings), cwd=tmp_path).finish()
    assert done.code == 2, done.err
    assert "engine.compile: true, and this machine has no g++" in done.err
