"""The file of hosts, and that nothing of it, of a configuration or of an option reaches a shell unchecked."""

import argparse
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs import UserError
from launcher.clusters.ssh.connection import SshSettings, ssh_command
from launcher.clusters.ssh.hosts import Host, read_hosts
from launcher.clusters.ssh.launch import outcome
from launcher.clusters.ssh.options import directory, python, variable
from tests.launcher.conftest import Zeromt

SETTINGS = SshSettings(python="/opt/venv/bin/python", connect_seconds=30, lost_seconds=15, word="x1")


def test_file_of_hosts(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(
        "# the cluster\n\nnode-1.example.org slots=4   # four GPUs\nme@10.0.0.2 port=2222 slots=2\r\n  n3\n"
    )
    assert read_hosts(path) == [
        Host(name="node-1.example.org", slots=4),
        Host(name="10.0.0.2", user="me", port=2222, slots=2),
        Host(name="n3"),
    ]
    path.write_text("n port=1\nn port=2\n")
    assert [host.label for host in read_hosts(path)] == ["n:1", "n:2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--hosts: '{path}' names no host; allowed is [user@]host [slots=N] [port=P], one a line"),
        ("# nothing\n", "--hosts: '{path}' names no host"),
        ("a;b", "--hosts: '{path}' line 1: 'a;b' is no host's name or IPv4 address; allowed is [user@]host"),
        ("\n-oProxyCommand=x", "--hosts: '{path}' line 2: '-oProxyCommand=x' is no host's name"),
        ("$(x)@a", "--hosts: '{path}' line 1: '$(x)' is no user's name"),
        ("-l@a", "--hosts: '{path}' line 1: '-l' is no user's name"),
        ("a slots=0", "--hosts: '{path}' line 1: 'slots=0' is not a number from 1 to 65536"),
        ("a slots=4x", "--hosts: '{path}' line 1: 'slots=4x' is not a number"),
        ("a port=70000", "--hosts: '{path}' line 1: 'port=70000' is not a number from 1 to 65535"),
        ("a slots=1 slots=2", "--hosts: '{path}' line 1: 'slots=2'; allowed is"),
        ("a 4", "--hosts: '{path}' line 1: '4'; allowed is"),
        ("a\nb\nx@a", "--hosts: '{path}' line 3: 'a' again; name each host once"),
        ("ä", "--hosts: '{path}': byte 0 is not ASCII"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_hosts(path)
    assert str(caught.value).startswith(message.format(path=path))
    assert "\n" not in str(caught.value)


def test_all_errors_of_a_file_at_once(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a;\nb\nc d\n")
    with pytest.raises(UserError) as caught:
        read_hosts(tmp_path / "hosts")
    assert [re.findall(r"line (\d)", line) for line in str(caught.value).splitlines()] == [["1"], ["3"]]


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab1.-_@=# \t\n\r\x0b;$()`'\"\\|&<>*?~!{}[]%^,:/é\0") | st.characters(), max_size=40))
def test_whatever_the_file_says_no_shell_could_take_it_for_more_than_a_name(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "hosts"
    path.write_bytes(text.encode(errors="surrogatepass"))
    try:
        hosts = read_hosts(path)
    except UserError:
        return
    for host in hosts:
        *before, end, name, command = ssh_command(host, SETTINGS)
        assert end == "--"
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name)
        assert command == "exec /opt/venv/bin/python -P -u -m launcher.clusters.ssh.remote x1"
        if host.user:
            assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", before[before.index("-l") + 1])


def test_command_line_of_ssh() -> None:
    settings = SshSettings(python="py", connect_seconds=7, lost_seconds=15, config="/c d", identity="/k", word="x2")
    assert ssh_command(Host(name="h", user="u", port=22), settings) == [
        "ssh", "-T", "-F", "/c d", "-i", "/k", "-o", "BatchMode=yes", "-o", "ConnectTimeout=7",
        "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o", "ControlMaster=no",
        "-o", "ControlPath=none", "-o", "ClearAllForwardings=yes", "-o", "LogLevel=INFO",
        "-p", "22", "-l", "u", "--", "h",
        "exec py -P -u -m launcher.clusters.ssh.remote x2",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["a b", "a;b", "$(x)", "-c", "", "a\nb", "a~b", "py'", "é"])
def test_python_that_would_need_quotes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        python(text)


def test_python_of_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    assert python("~/py") == "/home/u/py", "what a shell makes of it without quotes"


def test_directory_and_variables() -> None:
    assert directory("/a b;$(c)") == "/a b;$(c)", "it never comes near a shell"
    assert variable("A=b=$(c) d") == ("A", "b=$(c) d")
    for check, texts in ((directory, ["", "a", "/a\0"]), (variable, ["A", "=b", "1A=b", "A B=c", "A=\0"])):
        for text in texts:
            with pytest.raises(argparse.ArgumentTypeError):
                check(text)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([0, 0], 0),
        ([75, 75], 75),
        ([75, 255], 1),
        ([0, 1], 1),
        ([2, 75], 2),
        ([255, 2], 2),
        ([0, 75], 1),
        ([-15, 0], 1),
    ],
)
def test_exit_code(codes: list[int], expected: int) -> None:
    assert outcome(codes) == expected


def test_more_processes_than_lanes(zeromt: Zeromt, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a slots=2\nb\n")
    done = zeromt("launch", "ssh", "debug", "--hosts", "hosts")
    assert (done.returncode, done.stderr) == (
        2,
        "zeromt: error: --hosts: 2 hosts with 3 processes are more than stream.micro_batches=2; "
        "allowed is 1 to 2 processes\n",
    )
