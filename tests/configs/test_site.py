"""Profiles of sites: a section for each kind of cluster, and the keys of when there was SLURM alone."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from configs import ConfigError
from configs.reading.old_keys import OLD_SITE_KEYS, OldKey
from configs.reading.shipped import shipped
from configs.site import load_site

BEFORE: dict[str, Any] = {
    "partition": "gpu",
    "account": "mt",
    "qos": "high",
    "constraint": "a100|h100",
    "reservation": "r1",
    "time": "8:30",
    "gpus_per_node": 4,
    "gpu_request": "gres",
    "cpus_per_node": 96,
    "memory": "480G",
    "exclusive": True,
    "requeue": False,
    "max_requeues": 7,
    "signal_lead": 400,
    "modules": ["cuda", "off"],
    "source": ["/opt/activate"],
    "environment": {"NCCL_DEBUG": "off"},
    "python": "/opt/python",
    "container": "apptainer",
    "container_image": "/images/z.sif",
    "container_mounts": ["/data:/data"],
    "interface": "ib0",
    "port_base": 30_000,
    "join_timeout": 301,
    "node_timeout": 16,
}
"""A profile of SLURM as it was before there were other clusters, with every key."""


def text_of(profile: dict[str, Any]) -> str:
    """YAML as people write it: `off` and `8:30` without quotes."""

    def shown(value: Any) -> str:
        if isinstance(value, list):
            return f"[{', '.join(value)}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{k}: {v}' for k, v in value.items())}}}"
        return str(value).lower() if isinstance(value, bool) else str(value)

    return "".join(f"{key}: {shown(value)}\n" for key, value in profile.items())


def profile(folder: Path, text: str) -> str:
    (folder / "site.yaml").write_text(text)
    return str(folder / "site.yaml")


def test_the_table_has_every_key_that_there_was() -> None:
    assert [key.old for key in OLD_SITE_KEYS] == list(BEFORE)


@pytest.mark.parametrize("key", OLD_SITE_KEYS, ids=lambda key: key.old)
def test_an_old_key_is_read_and_its_new_name_is_said(key: OldKey, tmp_path: Path) -> None:
    together = {name: BEFORE[name] for name in ("container", "container_image")}
    given = {key.old: BEFORE[key.old]} | (together if key.old in together else {})
    said: list[str] = []
    site = load_site("slurm", profile(tmp_path, text_of(given)), say=said.append)
    assert getattr(site, key.old) == BEFORE[key.old]
    (line,) = said
    assert f"{key.old} is now {key.new}" in line
    today = "slurm:\n" + "".join(f"  {one}\n" for one in text_of(given).splitlines())
    assert load_site("slurm", profile(tmp_path, today), say=said.append) == site
    assert len(said) == 1


def test_a_whole_old_profile_is_todays(tmp_path: Path) -> None:
    said: list[str] = []
    site = load_site("slurm", profile(tmp_path, text_of(BEFORE)), ["modules[0]=no", "slurm.time=9:30"], say=said.append)
    expected = BEFORE | {"modules": ["no", "off"], "time": "9:30"}
    assert {key: getattr(site, key) for key in BEFORE} == expected
    assert len(said) == 1


def test_references_are_followed_where_keys_have_moved(tmp_path: Path) -> None:
    text = "account: mt\npartition: ${account}\nenvironment: {A: '${account}'}\n"
    site = load_site("slurm", profile(tmp_path, text))
    assert (site.partition, site.environment) == ("mt", {"A": "mt"})


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "null\n", "{}\n", "slurm: {}\n", "scheduler: slurm\n"])
def test_a_profile_that_says_nothing_is_the_defaults(text: str, tmp_path: Path) -> None:
    assert load_site("slurm", profile(tmp_path, text)) == load_site("slurm")


def test_sections_of_several_clusters(tmp_path: Path) -> None:
    file = profile(tmp_path, "ssh: {hosts: /hosts, environment: {A: '1', B: '2'}}\nslurm: {partition: gpu}\n")
    assert load_site("slurm", file).partition == "gpu"
    found = load_site("ssh", file, ["connect_timeout=7"], {"environment": {"B": "3"}, "python": "/py"})
    assert (found.hosts, found.environment, found.connect_timeout, found.python) == (
        *("/hosts", {"A": "1", "B": "3"}),
        *(7, "/py"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scheduler: slrum\n", "scheduler: there is no kind 'slrum'; did you mean slurm?"),
        ("scheduler: [1]\n", "scheduler: there is no kind [1]; known are"),
        ("scheduler: ssh\n", "FILE: scheduler: ssh; use `zeromt launch ssh`, or a profile for slurm"),
        ("ssh: {hosts: a}\n", "FILE: has a section ssh but none for slurm; use `zeromt launch ssh`"),
        ("slrum: {time: x}\n", "slrum: unknown key; did you mean slurm?"),
        ("partitoin: x\n", "partitoin: unknown key; did you mean slurm.partition?"),
        ("1: x\n", "1: unknown key; allowed: scheduler, "),
        ("slurm: gpu\n", 'slurm: "gpu"; write a section with keys'),
        ("slurm: null\n", "slurm: null; write a section with keys"),
        ("slurm: {partitoin: x}\n", "partitoin: unknown key; did you mean partition?"),
        ("scheduler: slurm\ntime: never\n", "time: 'never'; allowed is D-HH:MM:SS"),
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
    said: list[str] = []
    scheduler = yaml.safe_load(shipped("configs.sites")[name].read_text())["scheduler"]
    load_site(scheduler, name, say=said.append)
    assert not said
