"""Profiles of sites: a section for each kind of cluster."""

from pathlib import Path

import pytest
import yaml

from configs import ConfigError
from configs.reading.shipped import shipped
from configs.site import load_site


def profile(folder: Path, text: str) -> str:
    (folder / "site.yaml").write_text(text)
    return str(folder / "site.yaml")


def test_references_are_followed(tmp_path: Path) -> None:
    text = "slurm: {account: mt, partition: '${.account}', environment: {A: '${slurm.account}'}}\n"
    site = load_site("slurm", profile(tmp_path, text))
    assert (site.partition, site.environment) == ("mt", {"A": "mt"})


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "null\n", "{}\n", "slurm: {}\n", "scheduler: slurm\n"])
def test_a_profile_that_says_nothing_is_the_defaults(text: str, tmp_path: Path) -> None:
    assert load_site("slurm", profile(tmp_path, text)) == load_site("slurm")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scheduler: slrum\n", "scheduler: there is no kind 'slrum'; did you mean slurm?"),
        ("scheduler: [1]\n", "scheduler: there is no kind [1]; known are"),
        ("slrum: {time: x}\n", "slrum: unknown key; did you mean slurm?"),
        ("partition: x\n", "partition: unknown key; did you mean slurm.partition?"),
        ("1: x\n", "1: unknown key; allowed: scheduler, "),
        ("slurm: gpu\n", 'slurm: "gpu"; write a section with keys'),
        ("slurm: null\n", "slurm: null; write a section with keys"),
        ("slurm: {partitoin: x}\n", "partitoin: unknown key; did you mean partition?"),
        ("scheduler: slurm\nslurm: {time: never}\n", "time: 'never'; allowed is D-HH:MM:SS"),
    ],
)
def test_what_is_wrong_with_a_profile(text: str, said: str, tmp_path: Path) -> None:
    file = profile(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_site("slurm", file)
    (problem,) = caught.value.problems
    assert problem.startswith(said.replace("FILE", f"--site: {file}"))


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_site("slurm", profile(tmp_path, "scheduler: x\nfoo: 1\nslurm: {time: never, gpus: 1}\n"))
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["foo", "scheduler", "gpus", "time"]


@pytest.mark.parametrize("name", shipped("configs.sites"))
def test_shipped_profiles_are_todays(name: str) -> None:
    scheduler = yaml.safe_load(shipped("configs.sites")[name].read_text())["scheduler"]
    load_site(scheduler, name)
