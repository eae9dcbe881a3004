"""Profiles of sites."""

from pathlib import Path

import pytest

from configs import ConfigError, UserError
from configs.reading.shipped import shipped
from launcher.slurm.profile import load_profile


def profile(folder: Path, text: str) -> str:
    (folder / "site.yaml").write_text(text)
    return str(folder / "site.yaml")


def test_references_are_followed(tmp_path: Path) -> None:
    text = "sbatch: {account: mt, partition: '${sbatch.account}'}\n"
    text += "environment: {A: '${environment.B}', B: '${sbatch.account}'}\n"
    site = load_profile(profile(tmp_path, text))
    assert (site.sbatch["partition"], site.environment) == ("mt", {"A": "mt", "B": "mt"})


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "null\n", "{}\n"])
def test_a_profile_that_says_nothing_is_the_defaults(text: str, tmp_path: Path) -> None:
    assert load_profile(profile(tmp_path, text)) == load_profile()


def test_options_replace_settings_and_these_the_file(tmp_path: Path) -> None:
    file = profile(tmp_path, "{sbatch: {partition: a, mail-type: FAIL}, time: '1', environment: {A: '1'}}")
    site = load_profile(file, ["sbatch.mail-type=END", "sbatch.mem=240G", "time=2", "environment.B=b"], {"time": "3"})
    assert site.sbatch == {"partition": "a", "mail-type": "END", "mem": "240G"}
    assert (site.time, site.environment) == ("3", {"A": "1", "B": "b"})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("1: x\n", ["1"]),
        ("environment: {a-b: x}\nsbatch: {nodes: 2, A: x}\n", ["environment", "sbatch.nodes", "sbatch"]),
    ],
)
def test_everything_wrong_is_named_at_once(text: str, named: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_profile(profile(tmp_path, text))
    assert [problem.partition(":")[0] for problem in caught.value.problems] == named


@pytest.mark.parametrize("text", ["- 1\n", "a: [\n", "a: ${b}\n"])
def test_what_is_no_profile(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--site: "):
        load_profile(profile(tmp_path, text))


@pytest.mark.parametrize("name", shipped("configs.sites"))
def test_shipped_profiles(name: str) -> None:
    assert load_profile(name).gpus_per_node in (0, 4, 8)
