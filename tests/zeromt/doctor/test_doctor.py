"""`zeromt doctor` finds what was planted, names the fix, and finds nothing where nothing is wrong."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Corpus, environment
from tests.waiting import PATIENCE
from zeromt.cli.main import main
from zeromt.doctor import checks, command

FAKES = {
    "bin/nvidia-smi": "#!/bin/sh\necho 'GPU 0: a card (UUID: GPU-1)'\n",
    "packages/torch/__init__.py": "raise ImportError('planted: torch cannot be loaded')\n",
    "packages/webdataset-0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: webdataset\nVersion: 0.1\n",
}
PLANTED = [
    ("devices", "1 GPU(s), and torch: ImportError: planted: torch cannot be loaded", "make install"),
    ("packages", "webdataset 0.1; zeromt requires", "pip install 'webdataset"),
    ("open files", "64 at once", "ulimit -n 65536"),
    ("folders", "output: ", "name another folder (output=)"),
    ("dataset", "holds no index.json", "zeromt prepare debug"),
    ("ranks", "planted: torch cannot be loaded", "GLOO_SOCKET_IFNAME"),
]


def doctor(folder: Path, *arguments: str, prefix: str = "", **variables: str) -> tuple[int, list[dict[str, str]]]:
    shell = f'{prefix} exec "$@"'
    done = subprocess.run(
        ["sh", "-c", shell, "sh", sys.executable, "-m", "zeromt", "doctor", "--json", *arguments],
        cwd=folder,
        env={name: value for name, value in {**environment(), **variables}.items() if value != "-"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_planted_faults_are_found_each_with_its_fix(tmp_path: Path) -> None:
    for name, content in FAKES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    (tmp_path / "file").touch()
    variables = environment()
    code, findings = doctor(
        tmp_path,
        "debug",
        "output=file/runs",
        prefix="ulimit -S -n 64;",
        PATH=f"{tmp_path / 'bin'}:{variables['PATH']}",
        PYTHONPATH=f"{tmp_path / 'packages'}:{variables['PYTHONPATH']}",
        CUDA_VISIBLE_DEVICES="-",
    )
    assert code == 1
    faults = [one for one in findings if one["grade"] == "fault"]
    for subject, said, fix in PLANTED:
        [text] = [one for one in faults if one["subject"] == subject]
        assert said in text["said"]
        assert fix in text["fix"]
    assert len(faults) == len(PLANTED)


def test_where_nothing_is_wrong_it_says_so(corpus_en_fr: Corpus, tmp_path: Path) -> None:
    code, findings = doctor(tmp_path, "debug", *corpus_en_fr.overrides, "prepare.pairs_per_block=32")
    assert [one for one in findings if one["grade"] == "fault"] == []
    assert code == 0
    ranks = [one["said"] for one in findings if one["subject"] == "ranks"]
    assert ranks == ["2 ranks exchange tensors by gloo"]


@pytest.mark.parametrize("words", [(), ("debug", "optimizer.lr=-1", "training.max_updatse=3")])
def test_without_a_configuration_or_a_valid_one(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It looks at the machine alone."""
    monkeypatch.setattr(command, "exchange", lambda *_, **__: [])
    assert main(["doctor", "--json", *words]) == (1 if words else 0)
    findings = json.loads(capsys.readouterr().out)
    assert len([one for one in findings if one["subject"] == "configuration"]) == (2 if words else 0)
    assert [one["said"].partition(":")[0] for one in findings if one["subject"] == "folders"] == ["TMPDIR"]
    assert {"devices", "packages", "shared memory"} < {one["subject"] for one in findings}


def test_a_clock_that_is_off(tmp_path: Path) -> None:
    [finding, _] = checks._folder("output", tmp_path, lambda: time.time() - 90)
    assert finding.said.startswith("90 s off the clock of the file system")
    assert "NTP" in finding.fix
    assert [one.grade for one in checks._folder("output", tmp_path)] == ["good"]


@pytest.mark.parametrize(("gpus", "grade"), [(0, "doubt"), (2, "fault")])
def test_little_shared_memory(tmp_path: Path, gpus: int, grade: str) -> None:
    finding = checks.shared_memory(tmp_path / "none", gpus=gpus)
    assert (finding.grade, "--shm-size" in finding.fix) == (grade, True)
