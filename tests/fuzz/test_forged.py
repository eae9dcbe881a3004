"""Forged runs, datasets and model folders: nothing outside is changed, within bounds, with one line."""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz import campaign, forged, genuine
from tests.fuzz.call import Call, Outcome
from tests.fuzz.client import Server
from tests.fuzz.watch import Watch, outside

SEED, SLOW_SEED = 49, 2049
NUMBER = 30
FOUND = Path(__file__).with_name("found_forged.jsonl")
"""Calls on forged files that once ended badly, one a line."""


def _make(calls: list[Call], server: Server | None = None) -> None:
    outcomes: list[Outcome] = []
    problems = campaign.make(calls, server=server, tell=outcomes.append)
    codes = dict(sorted(Counter(o.code for o in outcomes).items()))
    most = max(o.memory_bytes for o in outcomes) >> 20, max(o.cpu_seconds for o in outcomes)
    print(f"{len(outcomes)} calls; exit codes {codes}; at most {most[0]} MiB and {most[1]:.1f} s of CPU")
    assert not problems, f"{len(problems)} of {len(calls)} calls:\n\n" + "\n\n".join(problems)


def test_some_forged_files(server: Server) -> None:
    _make(campaign.draw_forged(NUMBER, SEED, marian=False), server)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_thousand_forged_files() -> None:
    number, seed = (int(os.environ.get(f"ZEROMT_FUZZ_{k}", v)) for k, v in (("CALLS", 1000), ("SEED", SLOW_SEED)))
    _make(campaign.draw_forged(number, seed, marian=True))


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_forged_files_that_once_ended_badly(every: int, server: Server) -> None:
    _make([Call.from_json(line) for line in FOUND.read_text().splitlines()[::-every]], server)


@pytest.mark.parametrize("folder", [genuine.RUN, genuine.DATASET, genuine.MODEL])
def test_every_file_has_its_turn(folder: str) -> None:
    made = genuine.folder() / folder
    there = {path for path in made.rglob("*") if path.is_file()}
    assert there == {path for name in forged.FILES[folder] for path in made.glob(name)}


def test_the_watch_sees_every_touch(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "secret").write_text("x")
    link = tmp_path.with_name("link")
    link.symlink_to(tmp_path / "deep" / "secret")
    name = tmp_path.name
    with Watch(tmp_path) as watch:
        assert watch.events() == ()
        os.close(os.open(link, os.O_RDONLY))
        assert ("opened", f"{name}/deep/secret") in watch.events()
        link.read_text()
        assert ("read", f"{name}/deep/secret") in watch.events()
        link.write_text("y")
        assert ("written", f"{name}/deep/secret") in watch.events()
        (tmp_path / "new").touch()
        (tmp_path / "deep" / "secret").unlink()
        assert {("made", f"{name}/new"), ("deleted", f"{name}/deep/secret")} <= set(watch.events())


def test_paths_outside_are_told_apart(tmp_path: Path) -> None:
    given, home = tmp_path / "here", tmp_path / "home"
    inside = (str(given / "run" / "x"), "/proc/self/fd/3", os.__file__, str(Path(__file__)))
    beside = (str(tmp_path / "here-too"), str(home / ".netrc"), "/root/.ssh/id")
    assert outside((*inside, *beside), given, home) == list(beside)


def test_a_call_that_writes_outside_is_found(server: Server) -> None:
    argv = ("translate", genuine.RUN, "-i", "../outside/secret", "-o", "../outside/new")
    found = "; ".join(server.make(Call(argv=argv, forged={f"{genuine.RUN}/logs": "missing"})))
    assert "made outside/.zeromt-" in found
