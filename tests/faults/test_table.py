"""The table of README.md: every fault has a test, and every test that it names is there."""

import re
from pathlib import Path

from tests.conftest import REPO

HERE = Path(__file__).parent
NUM_FAULTS = 30


def test_every_fault_has_a_test() -> None:
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", (HERE / "README.md").read_text(), flags=re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, NUM_FAULTS + 1))
    for number, tests in rows:
        names = re.findall(r"`([^`]+\.py)(?:::(\w+))?`", tests)
        assert names, number
        for file, test in names:
            path = REPO / file if "/" in file else HERE / file
            assert path.is_file(), file
            assert f"def {test or 'test_'}" in path.read_text(), (file, test)
