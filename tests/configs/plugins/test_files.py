"""Plugin files: how they are named, what is run, and what is refused in which words."""

import os
import re
from pathlib import Path

import pytest

from configs import ConfigError, load_run
from configs.components import kinds
from tests.configs.plugins.halves import HALVES, USED, runs, said, sha256


def test_a_file_beside_the_configuration(folder: Path) -> None:
    run = load_run(str(folder / "my.yaml"))
    assert [run.schedule.rate(n, peak=1.0, last=9) for n in (4001, 4006)] == [0.5**800, 0.5**801]
    [plugin] = run.plugins
    assert (plugin.file, plugin.sha256) == (str(folder / "halves.py"), sha256(folder / "halves.py"))
    assert plugin.components == ["schedule halves"]
    for wrong in ("schedule.every=0", "schedule.evry=1"):
        assert said(str(folder / "my.yaml"), [wrong]).startswith(wrong.partition("=")[0])
    assert load_run(str(folder / "my.yaml"), ["schedule=linear", "plugins=[]"]).plugins == []
    assert runs(folder / "halves.py") == 1, "once in a process"


@pytest.mark.parametrize(
    ("names", "settings", "options"),
    [
        ("[FOLDER/halves.py]", [], []),
        ("['~/halves.py']", [], []),
        ("[link.py]", [], []),
        ("[]", ["plugins=[halves.py]"], []),  # relative to the configuration, as in it
        ("[]", [], ["../halves.py"]),  # relative to the current folder
    ],
)
def test_how_a_file_can_be_named(
    names: str, settings: list[str], options: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    (folder / "link.py").symlink_to("halves.py")
    (folder / "my.yaml").write_text(f"{USED}plugins: {names.replace('FOLDER', str(folder))}\n")
    run = load_run(str(folder / "my.yaml"), settings, plugins=options)
    assert (run.schedule.kind, len(run.plugins)) == ("halves", 1)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"def f(:\n    pass\n", r"cannot be run: SyntaxError: invalid syntax .*line 1"),
        (b"x = 1\nraise ValueError('of\\nmine')\n", r"cannot be run: line 2: ValueError: of mine"),
        (b"import sys\nsys.exit(0)\n", r"cannot be run: line 2: SystemExit: 0"),
        (b"import what_is_not_there\n", r"cannot be run: line 1: ModuleNotFoundError: No module named 'what_is_not"),
        (b"", "registers no component"),
        (b"# -*- coding: klingon -*-\n", r"cannot be run: SyntaxError: .*klingon"),
        (b"x = 1\0\n", r"cannot be run: (line 1: )?(SyntaxError|ValueError): source code .*null bytes"),
        (b"(" * 10_000, r"cannot be run: (line 1: )?\w+Error"),
        (HALVES.replace('"halves"', '"cosine"').encode(), r"schedule: two components are named 'cosine', in trainer."),
        (HALVES.replace('"schedule"', '"shedule"').encode(), "component 'halves': there is no family 'shedule'"),
        ((HALVES * 2).encode(), r"schedule: two components are named 'halves', in '/.*halves.py' and in '/.*halves.p"),
        (HALVES.replace("(Schedule)", "").encode(), "schedule halves: Halves is not a Schedule"),
        (
            HALVES.replace("Positive = 10", "type(open) = open").encode(),
            r"schedule halves: its fields cannot be checked: ",
        ),
    ],
    ids=[
        "syntax", "raises", "exits", "import", "empty", "no such coding", "NUL", "nested", "ours",
        "no family", "twice", "no component", "a type that cannot be checked",
    ],
)  # fmt: skip
def test_what_a_file_is_refused_for(content: bytes, expected: str, folder: Path) -> None:
    (folder / "halves.py").write_bytes(content)
    line = said(str(folder / "my.yaml"))
    assert line.startswith(f"plugin '{folder}/halves.py': ")
    assert re.search(expected, line)
    (folder / "halves.py").write_text(HALVES)
    assert load_run(str(folder / "my.yaml")).schedule.kind == "halves", "corrected, in the same process"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("[gone.py]", r"plugins.0: '/.*gone.py': no such file"),
        ("[.]", r"plugins.0: '/.*': Is a directory"),
        ("[/dev/zero]", r"plugins.0: '/dev/zero': is a device"),
        ("[pipe]", r"plugins.0: '/.*pipe': is a FIFO"),
        ("[loop]", r"plugins.0: '/.*loop': .*symbolic links"),
        ("['~nobody-here/x.py']", r"plugins.0: '~nobody-here/x.py': no such home folder"),
        ("['a\0b']", r"CONFIG: .*cannot be read"),
        ("halves.py", r"plugins: 'halves.py'"),
        ("", "plugins: None"),
        ("{file: halves.py}", "plugins: {.file"),
        ("[halves.py, 3]", r"plugins.1: 3"),
        ("['']", r"plugins.0: ''"),
        ("[[halves.py]]", r"plugins.0: \['halves.py'\]"),
        ("[{file: halves.py}]", r"plugins.0: a saved configuration runs no file; add --plugins halves.py"),
    ],
)
def test_what_is_no_plugin(names: str, expected: str, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "my.yaml").write_text(f"plugins: {names}\n")
    line = said(str(folder / "my.yaml"))
    assert re.search(expected, line)
    assert line.isprintable()


def test_a_later_version_of_a_file_takes_its_place(folder: Path) -> None:
    first = load_run(str(folder / "my.yaml"))
    (folder / "halves.py").write_text(HALVES.replace("0.5 **", "0.25 **"))
    second = load_run(str(folder / "my.yaml"))
    assert first.plugins[0].sha256 != second.plugins[0].sha256
    assert [run.schedule.factor(5, 9) for run in (first, second)] == [0.5, 0.25]
    (folder / "halves.py").write_text("raise ValueError\n")
    assert "cannot be run" in said(str(folder / "my.yaml"))
    assert kinds("schedule")["halves"] is type(second.schedule), "what was there stays"


def test_every_error_at_once(folder: Path) -> None:
    (folder / "my.yaml").write_text("plugins: [3, halves.py, {x: 1}]\n")
    with pytest.raises(ConfigError) as caught:
        load_run(str(folder / "my.yaml"))
    assert [line.split(":")[0] for line in caught.value.problems] == ["plugins.0", "plugins.2"]
