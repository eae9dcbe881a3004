"""Which torch is taken for which machine, before anything is fetched."""

from pathlib import Path

import pytest

from installation.__main__ import main
from installation.torch_builds import BUILDS, Gpus, choose, gpus_here

SMI = "#!/bin/sh\ncase $1 in *driver_version) printf '{0}\\n{0}\\n';; *) printf '{1}\\n[N/A]\\n';; esac\n"
FAILS = "#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not reach the driver.'\nexit 9\n"
CPUS = "torch==2.13.0 --retries 1 --extra-index-url https://an.index/cpu"
CUDA_12 = "torch==2.13.0+cu126 --extra-index-url https://an.index/cu126"


@pytest.mark.parametrize(
    ("driver", "capabilities", "cuda"),
    [
        ("580.65.06", (), "1"),
        ("580.65.06", (7.5, 9.0), "1"),
        ("595.10", (12.0,), "1"),
        ("579.99", (9.0,), "12"),
        ("525.60.13", (8.0,), "12"),
        ("580.65.06", (9.0, 7.0), "12"),  # V100
    ],
)
def test_what_runs_on_which_gpus(driver: str, capabilities: tuple[float, ...], cuda: str) -> None:
    assert choose(Gpus(driver=driver, capabilities=capabilities)) == BUILDS[cuda]


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nvidia-smi is looked for, and is not yet."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "nvidia-smi").touch(0o755)
    return tmp_path / "nvidia-smi"


def test_what_a_machine_shows(smi: Path) -> None:
    smi.write_text(SMI.format("580.1", "7.0"))
    assert gpus_here() == Gpus(driver="580.1", capabilities=(7.0,))
    smi.write_text(FAILS)
    assert gpus_here() is None


@pytest.mark.parametrize(
    ("driver", "words", "asked"),
    [
        (None, [], CPUS),
        ("580.1", [], "torch===2.13.0"),
        ("535.1", [], CUDA_12),
        ("535.1", ["--cuda", "1"], "torch===2.13.0"),
        ("580.1", ["--cuda", "0"], CPUS),
        (None, ["--torch", "2.11.0", "--cuda", "1"], "torch===2.11.0"),
    ],
)
def test_what_pip_is_asked_for(
    driver: str | None, words: list[str], asked: str, smi: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smi.write_text(SMI.format(driver, "8.0") if driver else FAILS)
    main(["--index", "https://an.index", "--environment", str(smi.parent), *words])
    assert capsys.readouterr().out == f"{asked}\n"
    pinned = dict(line.split("==") for line in (smi.parent / "constraints.txt").read_text().splitlines()[2:])
    assert pinned["torch"] == asked.split("=")[-1][:6]
    assert ("setuptools" in pinned) == ("--torch" not in words)


@pytest.mark.parametrize(
    ("driver", "card"), [("570.86.15", "10.0"), ("524.9", "8.0"), ("580.65.06", "3.7"), ("470.82.01", "7.0")]
)
def test_gpus_that_no_build_runs_on_are_refused(
    driver: str, card: str, smi: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smi.write_text(SMI.format(driver, card))
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert f"{card}: no build of torch runs here (CUDA=1: driver 580 or newer, compute" in capsys.readouterr().err
